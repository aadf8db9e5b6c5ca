//! Compares compiled programs with the interpreter; must never test one function alone, since the
//! table of scalar functions is what can grow.

use crate::cpu::testing::{Random, assert_close, check_graph, check_op, concrete, plan, sure};
use membar_ir::dim::Bindings;
use membar_ir::dtype::DType;
use membar_ir::element::Number;
use membar_ir::graph::Graph;
use membar_ir::interp::static_type;
use membar_ir::ops::{Op, Scalar};
use membar_ir::tensor::Tensor;
use membar_ir::text::Cursor;
use std::collections::BTreeMap;

/// Parameters of the functions that have some.
const PARAMETERS: &[(&str, &str)] = &[
    ("is_inf", "{negative = true, positive = false}"),
    ("leaky_relu", "{alpha = 0.1}"),
    ("thresholded_relu", "{alpha = 0.5}"),
    ("elu", "{alpha = 1.5}"),
    ("selu", "{alpha = 1.67, gamma = 1.05}"),
    ("celu", "{alpha = 0.7}"),
    ("hard_sigmoid", "{alpha = 0.2, beta = 0.5}"),
    ("swish", "{beta = 1.5}"),
    ("gelu", "{form = tanh}"),
    ("gelu", "{form = erf}"),
    ("shrink", "{lambda = 0.5, bias = 0.25}"),
    ("cast", "{to = f16, saturate = true}"),
    ("cast", "{to = i32, saturate = true}"),
    ("cast", "{to = u8, saturate = true}"),
    ("cast", "{to = bool, saturate = true}"),
    ("cast", "{to = f8e4m3fn, saturate = false}"),
    ("cast", "{to = f64, saturate = true}"),
    ("cast", "{to = u32, saturate = true}"),
    ("cast", "{to = bf16, saturate = true}"),
];

fn functions() -> Vec<Op> {
    let parse = |mnemonic: &str, text: &str| -> Option<Op> {
        match Op::parse(mnemonic, &mut Cursor::new(text)) {
            Some(Ok(op)) => Some(op),
            _ => None,
        }
    };
    let mut functions: Vec<Op> = PARAMETERS
        .iter()
        .map(|(name, text)| parse(name, text).unwrap_or_else(|| panic!("{name} {text}")))
        .collect();
    for mnemonic in Scalar::MNEMONICS {
        match parse(mnemonic, "") {
            Some(op) => functions.push(op),
            None => assert!(PARAMETERS.iter().any(|(name, _)| name == mnemonic), "{mnemonic}"),
        }
    }
    functions
}

const DTYPES: &[DType] = &[
    DType::F64,
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::F8E5m2,
    DType::I64,
    DType::I32,
    DType::I8,
    DType::U32,
    DType::U8,
    DType::Bool,
];

#[test]
fn every_function_agrees_with_the_interpreter() {
    let shapes: [&[usize]; 3] = [&[3, 1, 67], &[1, 5, 67], &[5, 1]];
    let mut random = Random::new(11);
    let mut checked = 0;
    for op in functions() {
        for dtype in DTYPES {
            let Op::Scalar(scalar) = &op else { continue };
            let mut operands: Vec<Tensor> =
                shapes[..scalar.arity()].iter().map(|s| random.tensor(*dtype, s)).collect();
            if op.mnemonic() == "select" {
                operands[0] = random.tensor(DType::Bool, shapes[0]);
            }
            let types: Vec<_> = operands.iter().map(|t| static_type(t.ty())).collect();
            // The domain of some functions is part of -2..2; NaN equals NaN outside it.
            if op.infer(&types).is_ok() {
                check_op(op.clone(), &operands);
                checked += 1;
            }
        }
    }
    assert!(checked > 300, "{checked}");
}

#[test]
fn special_values_agree_with_the_interpreter() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e-40,
        -1e-40,
        3e9,
        -3e9,
        1e30,
        -1e30,
        88.5,
        -87.5,
        100.0,
        -100.0,
        7.5,
        254.6,
    ];
    let numbers = || values.iter().map(|x| Number::Float(*x));
    for op in functions() {
        let Op::Scalar(scalar) = &op else { continue };
        let ty = concrete(DType::F32, &[values.len()]);
        let x = sure(Tensor::from_numbers(ty, numbers()));
        let column = sure(x.reshaped(&[values.len(), 1]));
        let operands = [x.clone(), column, x.clone()];
        let types: Vec<_> = operands.iter().map(|t| static_type(t.ty())).collect();
        // Remainders and powers of huge numbers differ by more than rounding, and the reference's
        // `acosh` gives a number for large negative arguments, where it is not defined.
        let chaotic = ["pow", "sin", "cos", "tan", "floor_mod", "trunc_mod", "acosh"];
        if op.infer(&types[..scalar.arity()]).is_ok() && !chaotic.contains(&op.mnemonic()) {
            check_op(op.clone(), &operands[..scalar.arity()]);
        }
    }
}

#[test]
fn large_tensors_are_split_between_threads() {
    let mut random = Random::new(5);
    let x = random.tensor(DType::F32, &[7, 301, 129]);
    let y = random.tensor(DType::F32, &[301, 1]);
    check_op(Scalar::Mul, &[x.clone(), y]);
    let op = functions().into_iter().find(|op| op.mnemonic() == "gelu");
    check_op(op.unwrap_or_else(|| panic!("gelu")), &[x]);
}

#[test]
fn operands_may_have_gaps_and_results_be_in_place() {
    let mut graph = Graph::new("test");
    let mut random = Random::new(9);
    let mut inputs = BTreeMap::new();
    let mut values = Vec::new();
    for name in ["a", "b"] {
        let tensor = random.tensor(DType::F32, &[3, 5, 7]);
        values.push(graph.add_input(name, static_type(tensor.ty())));
        inputs.insert(name.to_string(), tensor);
    }
    let sum = sure(graph.apply(Scalar::Sub, &values));
    let twice = sure(graph.apply(Scalar::Mul, &[sum, values[0]]));
    graph.set_outputs([("twice", twice)]);
    // `b` lies in the corner of [3, 6, 7]; `twice` overwrites `sum`.
    use membar_ir::schedule::{Buffer, BufferId, Layout, Region};
    let gaps = Layout::Capacity([3i64, 6, 7].map(membar_ir::dim::Dim::from).to_vec());
    graph.value_mut(values[1]).layout = gaps;
    let b = graph.value_mut(values[1]);
    b.region = Some(Region::contiguous(BufferId(0), 0, 3 * 6 * 7 * 4));
    for value in [sum, twice] {
        let region = Region::contiguous(BufferId(0), 1024, 420);
        graph.value_mut(value).region = Some(region);
    }
    let memory = membar_ir::topology::MemoryId(0);
    graph.buffers.insert(BufferId(0), Buffer { bytes: 2048, memory });
    check_graph(&plan(graph), &inputs, &Bindings::new());
}

#[test]
fn wide_integers_run_by_the_reference() {
    let mut random = Random::new(2);
    let x = random.tensor(DType::U64, &[33]);
    check_op(Scalar::Mul, &[x.clone(), x.clone()]);
    assert_close(&x, &x, "itself");
}
