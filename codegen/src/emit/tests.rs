//! Kernels of operators on their own, as text and through NVRTC. Must never run one: that takes a
//! GPU, and stands in the GPU suite.

use crate::library::CudaLibrary;
use crate::nvrtc::Nvrtc;
use membar_ir::dim::{Dim, Range, Symbol};
use membar_ir::dtype::DType;
use membar_ir::graph::Graph;
use membar_ir::ops::{Matmul, Op, Scalar};
use membar_ir::program::DeviceProgram;
use membar_ir::testing::plan;
use membar_ir::text::Cursor;
use membar_ir::topology::{DeviceKind, Topology};
use membar_ir::types::TensorType;

fn library(topology: &str) -> CudaLibrary {
    let topology = Topology::builtin(topology).unwrap_or_else(|| panic!("{topology}"));
    let device = topology.first_of(DeviceKind::Gpu).unwrap_or_else(|| panic!("no GPU"));
    CudaLibrary::for_device(&topology, device).unwrap_or_else(|| panic!("no library"))
}

/// The program of a graph of one operator.
fn program(op: impl Into<Op>, operands: &[TensorType]) -> DeviceProgram {
    program_for("h200", op, operands)
}

fn program_for(topology: &str, op: impl Into<Op>, operands: &[TensorType]) -> DeviceProgram {
    let op = op.into();
    let mut graph = Graph::new(op.mnemonic());
    graph.declare(Symbol::new("N"), Range::new(1, 40));
    let inputs: Vec<_> = operands
        .iter()
        .enumerate()
        .map(|(i, ty)| graph.add_input(&format!("x{i}"), ty.clone()))
        .collect();
    let node = graph.add_op(op.clone(), &inputs).unwrap_or_else(|error| panic!("{op}: {error}"));
    let outputs = graph.node(node).outputs().to_vec();
    graph.set_outputs(outputs.into_iter().enumerate().map(|(i, v)| (format!("y{i}"), v)));
    super::emit(&plan(graph), &library(topology)).unwrap_or_else(|error| panic!("{op}: {error}"))
}

/// Compiles all kernels as one translation unit for a device of either kind.
fn compile(programs: &[DeviceProgram]) {
    compile_for(&["sm_80", "sm_90a"], programs);
}

/// Compiles all kernels as one translation unit; NVRTC takes a second for the prelude alone.
fn compile_for(targets: &[&str], programs: &[DeviceProgram]) {
    let Some(nvrtc) = Nvrtc::for_test("kernels compile") else { return };
    let mut source = String::new();
    for kernel in programs.iter().flat_map(|program| &program.kernels) {
        let body = kernel.source.strip_prefix(super::headers::PRELUDE);
        let body = body.unwrap_or_else(|| panic!("{} has no prelude", kernel.name));
        if !source.contains(&kernel.name) {
            source.push_str(&format!("namespace n_{} {{{body}}}\n", kernel.name));
        }
    }
    let source = format!("{}{source}", super::headers::PRELUDE);
    for target in targets {
        if let Err(error) = nvrtc.compile("kernels.cu", &source, target) {
            panic!("{error}\n{source}");
        }
    }
}

/// One of each kind of arithmetic.
const SWEPT: [DType; 8] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::F8E5m2,
    DType::I64,
    DType::U4,
    DType::I8,
    DType::Bool,
];

#[test]
fn every_scalar_function_compiles() {
    let mut programs = Vec::new();
    for mnemonic in Scalar::MNEMONICS {
        let Some(Ok(op)) = Op::parse(mnemonic, &mut Cursor::new("")) else { continue };
        let Op::Scalar(scalar) = &op else { continue };
        for dtype in SWEPT {
            let shapes: [&[i64]; 3] = [&[3, 1, 67], &[1, 5, 67], &[5, 1]];
            let mut operands: Vec<TensorType> = shapes[..scalar.arity()]
                .iter()
                .map(|shape| TensorType::fixed(dtype, shape))
                .collect();
            if *mnemonic == "select" {
                operands[0].dtype = DType::Bool;
            }
            if op.infer(&operands).is_ok() {
                programs.push(program(op.clone(), &operands));
            }
        }
    }
    assert!(programs.len() > 250, "{}", programs.len());
    compile(&programs);
}

/// An operator: name, attributes, operands.
type Operator = (&'static str, &'static str, &'static [(DType, &'static [i64])]);

/// Operators with a kernel of their own.
const OPERATORS: &[Operator] = &[
    ("reshape", "{shape = [6, 10]}", &[(DType::F32, &[3, 20])]),
    ("bitcast", "{dtype = i32, shape = [3, 4]}", &[(DType::F32, &[3, 4])]),
    ("transpose", "{perm = [2, 0, 1]}", &[(DType::F16, &[3, 4, 5])]),
    ("transpose", "{perm = [1, 0]}", &[(DType::I4, &[3, 5])]),
    ("broadcast", "{shape = [2, 3, 4]}", &[(DType::Bool, &[3, 1])]),
    ("slice", "{starts = [0, 3], sizes = [2, 2], steps = [1, -2]}", &[(DType::I8, &[2, 5])]),
    (
        "concat",
        "{axis = 1}",
        &[(DType::F32, &[2, 3]), (DType::F32, &[2, 1]), (DType::F32, &[2, 5])],
    ),
    ("append", "{axis = 0}", &[(DType::F32, &[2, 3]), (DType::F32, &[1, 3])]),
    (
        "pad",
        "{mode = constant, before = [1, 0], after = [0, 2]}",
        &[(DType::F32, &[2, 3]), (DType::F32, &[])],
    ),
    ("pad", "{mode = reflect, before = [1, 0], after = [0, 2]}", &[(DType::I64, &[2, 3])]),
    ("pad", "{mode = wrap, before = [1, 0], after = [0, 2]}", &[(DType::F64, &[2, 3])]),
    ("pad", "{mode = edge, before = [1, 0], after = [0, 2]}", &[(DType::Bf16, &[2, 3])]),
    ("gather", "{axis = 0}", &[(DType::F16, &[9, 8]), (DType::I64, &[2, 3])]),
    ("gather_elements", "{axis = 1}", &[(DType::F32, &[2, 8]), (DType::I32, &[2, 3])]),
    ("gather_nd", "{batch_dims = 1}", &[(DType::F32, &[2, 8, 3]), (DType::I64, &[2, 4, 1])]),
    ("iota", "{shape = [3, 4], axis = 1, dtype = f32}", &[]),
    ("dims", "{values = [3, N, N * N + 1]}", &[]),
    (
        "tensor_scatter",
        "{axis = 1, indices = true, circular = false}",
        &[(DType::F32, &[2, 8, 3]), (DType::F32, &[2, 1, 3]), (DType::I64, &[2])],
    ),
    (
        "tensor_scatter",
        "{axis = 1, indices = true, circular = true}",
        &[(DType::F32, &[2, 8, 3]), (DType::F32, &[2, 2, 3]), (DType::I64, &[2])],
    ),
    (
        "scatter_elements",
        "{axis = 0, reduction = add}",
        &[(DType::F16, &[4, 3]), (DType::I64, &[2, 3]), (DType::F16, &[2, 3])],
    ),
    (
        "scatter_nd",
        "{reduction = max}",
        &[(DType::I32, &[4, 3]), (DType::I64, &[2, 1]), (DType::I32, &[2, 3])],
    ),
    (
        "quantize",
        "{dtype = u8, axis = 1, zero_point = true, saturate = true}",
        &[(DType::F32, &[2, 3]), (DType::F32, &[3]), (DType::U8, &[3])],
    ),
    (
        "dequantize",
        "{dtype = f16, axis = 0, block = 4, zero_point = false}",
        &[(DType::I4, &[8, 3]), (DType::F16, &[2, 3])],
    ),
    (
        "rotary_embedding",
        "{interleaved = true}",
        &[(DType::F32, &[1, 2, 5, 8]), (DType::F32, &[1, 5, 3]), (DType::F32, &[1, 5, 3])],
    ),
    (
        "batch_norm",
        "{epsilon = 1e-5}",
        &[
            (DType::F32, &[2, 3, 4]),
            (DType::F32, &[3]),
            (DType::F32, &[3]),
            (DType::F32, &[3]),
            (DType::F32, &[3]),
        ],
    ),
    (
        "matmul",
        "{acc = f32, result = f16}",
        &[(DType::F16, &[2, 1, 3, 5]), (DType::F16, &[4, 5, 7])],
    ),
    ("matmul", "{acc = i32, result = i32}", &[(DType::U8, &[3, 5]), (DType::I8, &[5, 7])]),
    (
        "fused",
        "{body = [matmul(x0, x1) {acc = f32, result = f16}, add(p0, x2), tanh(p1), add(p2, x3)]}",
        &[
            (DType::F16, &[2, 3, 40]),
            (DType::F16, &[40, 24]),
            (DType::F16, &[24]),
            (DType::F16, &[2, 3, 24]),
        ],
    ),
    (
        "fused",
        "{body = [reshape(x0) {shape = [2, 3, 4, 8]}, transpose(p0) {perm = [0, 2, 1, 3]}, transpose(x1) {perm = [0, 2, 3, 1]}, matmul(p1, p2) {acc = f32, result = f32}, mul(p3, f32 0.125), transpose(p4) {perm = [0, 2, 1, 3]}, reshape(p5) {shape = [2, 3, 20]}]}",
        &[(DType::F32, &[2, 3, 32]), (DType::F32, &[2, 5, 4, 8])],
    ),
    ("reduce", "{kind = mean, axes = [0, 2], keep = false}", &[(DType::F32, &[3, 4, 5])]),
    ("reduce", "{kind = max, axes = [1], keep = true}", &[(DType::Bf16, &[3, 400])]),
    ("reduce", "{kind = min, axes = [1], keep = true}", &[(DType::Bool, &[3, 4000])]),
    ("reduce", "{kind = prod, axes = [], keep = true}", &[(DType::U8, &[3, 4])]),
    ("arg_reduce", "{kind = min, axis = 1, keep = false, last = true}", &[(DType::F16, &[3, 70])]),
    ("top_k", "{axis = 0, k = 2, largest = false}", &[(DType::I64, &[3, 7])]),
    ("top_k", "{axis = 1, k = 2, largest = true}", &[(DType::F32, &[3, 700])]),
    (
        "cumulative",
        "{kind = sum, axis = 1, exclusive = true, reverse = true}",
        &[(DType::F32, &[3, 7])],
    ),
    ("softmax", "{axis = 1}", &[(DType::F16, &[3, 77])]),
    ("softmax", "{axis = 0}", &[(DType::F64, &[3, 77])]),
    ("softmax", "{axis = 1}", &[(DType::F32, &[3, 7700])]),
    ("log_softmax", "{axis = 1}", &[(DType::F32, &[3, 1000])]),
    (
        "layer_norm",
        "{axis = 1, epsilon = 1e-5, bias = true, statistics = true}",
        &[(DType::F16, &[3, 4, 20]), (DType::F16, &[4, 20]), (DType::F16, &[20])],
    ),
    ("rms_norm", "{axis = 1, epsilon = 1e-5}", &[(DType::Bf16, &[3, 768]), (DType::Bf16, &[768])]),
    (
        "group_norm",
        "{groups = 2, epsilon = 1e-5}",
        &[(DType::F32, &[3, 4, 5, 5]), (DType::F32, &[4]), (DType::F32, &[4])],
    ),
    (
        "conv",
        "{strides = [2, 1], dilations = [1, 2], before = [1, 1], after = [1, 0], groups = 2, bias = true}",
        &[(DType::F32, &[2, 4, 9, 9]), (DType::F32, &[6, 2, 3, 3]), (DType::F32, &[6])],
    ),
    (
        "conv_transpose",
        "{strides = [2], dilations = [2], before = [-1], after = [1], output_padding = [1], groups = 2, bias = false}",
        &[(DType::F16, &[2, 4, 9]), (DType::F16, &[4, 3, 3])],
    ),
    (
        "pool",
        "{kind = max, kernel = [3, 3], strides = [2, 2], dilations = [1, 1], before = [1, 1], after = [1, 1], ceil = true, count_padding = false, power = 2, indices = true, column_major = true}",
        &[(DType::F32, &[1, 2, 8, 8])],
    ),
    (
        "pool",
        "{kind = average, kernel = [3], strides = [2], dilations = [1], before = [1], after = [1], ceil = false, count_padding = true, power = 2, indices = false, column_major = false}",
        &[(DType::F16, &[1, 2, 8])],
    ),
    (
        "pool",
        "{kind = lp, kernel = [3], strides = [2], dilations = [1], before = [1], after = [1], ceil = false, count_padding = true, power = 3, indices = false, column_major = false}",
        &[(DType::F64, &[1, 2, 8])],
    ),
    (
        "resize",
        "{sizes = [1, 6, 9], scales = [1, 1.5, 2.25], mode = cubic, coordinates = half_pixel, nearest = floor, cubic_coefficient = -0.75, exclude_outside = true, antialias = true, extrapolation = 0, roi = []}",
        &[(DType::F32, &[1, 4, 4])],
    ),
    (
        "resize",
        "{sizes = [1, 6, 9], scales = [], mode = nearest, coordinates = align_corners, nearest = round_prefer_ceil, cubic_coefficient = -0.75, exclude_outside = false, antialias = false, extrapolation = 0, roi = []}",
        &[(DType::U8, &[1, 4, 4])],
    ),
    (
        "grid_sample",
        "{mode = cubic, padding = reflection, align_corners = false}",
        &[(DType::F32, &[1, 2, 4, 4]), (DType::F32, &[1, 3, 3, 2])],
    ),
];

#[test]
fn every_family_compiles() {
    let mut programs = Vec::new();
    for (mnemonic, attributes, operands) in OPERATORS {
        let op = match Op::parse(mnemonic, &mut Cursor::new(attributes)) {
            Some(Ok(op)) => op,
            Some(Err(error)) => panic!("{mnemonic} {attributes}: {error}"),
            None => panic!("no operator {mnemonic}"),
        };
        let operands: Vec<TensorType> =
            operands.iter().map(|(dtype, shape)| TensorType::fixed(*dtype, shape)).collect();
        programs.push(program(op, &operands));
    }
    compile(&programs);
}

type ProductCase = ([DType; 4], &'static [i64], &'static [i64], &'static str);

/// Products for each kind of kernel: types of the operands, of sum and result; shapes, in which 0
/// stands for a symbol of up to 40; what the kernel's name begins with.
const PRODUCTS: &[ProductCase] = &[
    (
        [DType::Bf16, DType::Bf16, DType::F32, DType::Bf16],
        &[0, 4096, 512],
        &[512, 1024],
        "gemm_wgmma_bf16_128x256",
    ),
    (
        [DType::F16, DType::F16, DType::F32, DType::F32],
        &[3, 512, 1024],
        &[3, 1024, 512],
        "gemm_wgmma_f16",
    ),
    (
        [DType::F16, DType::F16, DType::F16, DType::F16],
        &[2, 1, 24, 40],
        &[4, 40, 72],
        "gemm_mma_f16",
    ),
    ([DType::Bf16, DType::Bf16, DType::F32, DType::F32], &[0, 64, 0], &[0, 0, 64], "gemm_mma_bf16"),
    ([DType::U8, DType::I8, DType::I32, DType::I32], &[300, 64], &[64, 200], "gemm_mma_u8"),
    ([DType::I8, DType::I8, DType::I8, DType::I64], &[33, 35], &[35, 37], "gemm_mma_i8"),
    ([DType::F32, DType::F32, DType::F32, DType::F16], &[0, 12, 64], &[64, 48], "gemm_simt_f32"),
    (
        [DType::F32, DType::F32, DType::F32, DType::F32],
        &[4, 1, 0, 64],
        &[1, 3, 64, 0],
        "gemm_simt_f32",
    ),
    ([DType::F64, DType::F64, DType::F64, DType::F64], &[33, 20], &[20, 70], "gemm_simt_f64"),
    ([DType::I16, DType::U32, DType::I64, DType::I32], &[33, 20], &[20, 70], "gemm_simt_i16"),
    (
        [DType::F8E4m3fn, DType::F8E4m3fn, DType::F32, DType::F16],
        &[33, 32],
        &[32, 64],
        "gemm_simt_f8e4m3fn",
    ),
    (
        [DType::Bf16, DType::Bf16, DType::F32, DType::Bf16],
        &[1, 4096],
        &[4096, 6144],
        "gemm_vector_bf16",
    ),
    ([DType::F32, DType::F32, DType::F32, DType::F32], &[7, 64], &[64, 1000], "gemm_vector_f32"),
    (
        [DType::F32, DType::F32, DType::F32, DType::F32],
        &[2, 3, 1, 64],
        &[2, 3, 64, 0],
        "gemm_vector_f32",
    ),
];

#[test]
fn every_kind_of_product_compiles() {
    let (mut newer, mut older) = (Vec::new(), Vec::new());
    for (dtypes, a, b, name) in PRODUCTS {
        let ty = |dtype: DType, shape: &[i64]| {
            let dims = shape.iter();
            let dims = dims.map(|d| if *d == 0 { Dim::symbol("N") } else { Dim::from(*d) });
            TensorType::new(dtype, dims.collect::<Vec<_>>())
        };
        let operands = [ty(dtypes[0], a), ty(dtypes[1], b)];
        let op = Matmul { acc: dtypes[2], result: dtypes[3] };
        let program = program(op.clone(), &operands);
        let found = &program.kernels[0].name;
        assert!(found.starts_with(name), "{a:?} x {b:?}: {found}, expected {name}");
        newer.push(program);
        if name.starts_with("gemm_wgmma") || name.starts_with("gemm_mma") {
            older.push(program_for("a100", op, &operands));
        }
    }
    compile_for(&["sm_90a"], &newer);
    compile_for(&["sm_80"], &older);
}

type AttentionCase = (DType, [&'static [i64]; 3], &'static str, &'static [(DType, &'static [i64])]);

/// Attentions for each tile and kind of mask: the type; shapes of Q, K and V, in which 0 stands for a
/// symbol of up to 40; attributes; the mask and the lengths.
const ATTENTIONS: &[AttentionCase] = &[
    (
        DType::F16,
        [&[1, 12, 128, 32], &[1, 12, 128, 32], &[1, 12, 128, 32]],
        "scale = 0.125, position = offset(0), mask = additive, lengths = false, empty_rows_zero = false, scores = none",
        &[(DType::F16, &[1, 1, 1, 128])],
    ),
    (
        DType::Bf16,
        [&[0, 32, 4096, 128], &[0, 8, 4096, 128], &[0, 8, 4096, 128]],
        "scale = 0.088, position = offset(0), after = 0, mask = none, lengths = false, empty_rows_zero = false, scores = none",
        &[],
    ),
    (
        DType::F16,
        [&[2, 8, 1, 128], &[2, 2, 1000, 128], &[2, 2, 1000, 128]],
        "scale = 0.088, position = lengths, before = 255, after = 0, mask = none, lengths = true, softcap = 50, empty_rows_zero = true, scores = none",
        &[(DType::I64, &[2])],
    ),
    (
        DType::F16,
        [&[2, 6, 0, 40], &[2, 2, 0, 40], &[2, 2, 0, 24]],
        "scale = -0.5, position = offset(0), mask = boolean, lengths = false, empty_rows_zero = false, scores = none",
        &[(DType::Bool, &[2, 1, 0, 0])],
    ),
    (
        DType::Bf16,
        [&[3, 4, 70, 7], &[3, 4, 33, 7], &[3, 4, 33, 5]],
        "scale = 1, position = offset(3), after = 2, mask = additive, lengths = false, empty_rows_zero = false, scores = none",
        &[(DType::F32, &[4, 70, 33])],
    ),
    (
        DType::Bf16,
        [&[1, 16, 512, 256], &[1, 16, 512, 256], &[1, 16, 512, 192]],
        "scale = 0.0625, position = offset(0), mask = none, lengths = false, empty_rows_zero = false, scores = none",
        &[],
    ),
];

#[test]
fn every_kind_of_attention_compiles() {
    let (mut newer, mut older) = (Vec::new(), Vec::new());
    for (dtype, shapes, attributes, more) in ATTENTIONS {
        let ty = |dtype: DType, shape: &[i64]| {
            let dims = shape.iter();
            let dims = dims.map(|d| if *d == 0 { Dim::symbol("N") } else { Dim::from(*d) });
            TensorType::new(dtype, dims.collect::<Vec<_>>())
        };
        let mut operands: Vec<TensorType> = shapes.iter().map(|shape| ty(*dtype, shape)).collect();
        operands.extend(more.iter().map(|(dtype, shape)| ty(*dtype, shape)));
        let attributes = format!("{{{attributes}}}");
        let op = match Op::parse("attention", &mut Cursor::new(&attributes)) {
            Some(Ok(op)) => op,
            other => panic!("{attributes}: {other:?}"),
        };
        for (topology, programs) in [("h200", &mut newer), ("a100", &mut older)] {
            let program = program_for(topology, op.clone(), &operands);
            let name = &program.kernels[0].name;
            let is_mapped = topology == "h200"
                && attributes.contains("after = 0, mask = none, lengths = false");
            let kind = if is_mapped { "attention_wgmma" } else { "attention_mma" };
            assert!(name.starts_with(kind), "{shapes:?}: {name}");
            programs.push(program);
        }
    }
    compile_for(&["sm_90a"], &newer);
    compile_for(&["sm_80"], &older);
}
