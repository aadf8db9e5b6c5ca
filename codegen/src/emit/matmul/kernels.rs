//! The text around the library's loops of a matrix product: sources, epilogue, shape, launch. Must
//! never choose the kernel.

use super::{Axis, Form, rounded};
use crate::emit::EmitError;
use crate::emit::dims::{compute_type, storage_type};
use crate::emit::factor::{Factor, alignment, copied, vector};
use crate::emit::group::Anchor;
use crate::emit::headers::{GEMM, GEMM_MMA, GEMM_SIMT, GEMM_VECTOR, GEMM_WGMMA, SM80, SM90};
use crate::emit::index::Index;
use crate::emit::kernel::{Emitted, Geometry, KernelBuilder, StepContext};
use crate::select::{self, Choice, Direction, MmaTile, Problem, SimtTile, VectorTile, WgmmaTile};
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::Matmul;
use membar_ir::program::{Argument, TensorMap};

/// A product whose kernel is chosen.
pub(super) struct Product<'a> {
    pub op: &'a Matmul,
    pub anchor: &'a Anchor<'a>,
    pub a: &'a Factor,
    pub b: &'a Factor,
    pub form: &'a Form,
    pub problem: &'a Problem,
    pub choice: Choice,
}

/// The kernel and its launch.
pub(super) fn write(step: &StepContext<'_>, product: &Product<'_>) -> Result<Emitted, EmitError> {
    let mut kernel = KernelBuilder::new(step);
    let headers: &[&'static str] = match product.choice {
        Choice::Wgmma(_) => &[SM80, SM90, GEMM, GEMM_WGMMA],
        Choice::Mma(_) => &[SM80, GEMM, GEMM_MMA],
        Choice::Simt(_) => &[GEMM, GEMM_SIMT],
        Choice::Vector(_) => &[GEMM, GEMM_VECTOR],
    };
    for header in headers {
        kernel.header(header);
    }
    let sum = match product.choice {
        Choice::Wgmma(_) => DType::F32,
        Choice::Mma(_) if product.problem.sum == DType::U32 => DType::I32,
        _ => product.problem.sum,
    };
    write_epilogue(&mut kernel, product, sum)?;
    let form = product.form;
    let batches: Vec<Dim> = form.batches.iter().map(|axis| axis.extent.clone()).collect();
    let extents = [&form.rows.extent, &form.columns.extent, &form.depth];
    let [m, n, k] = extents.map(|dim| kernel.dim(dim));
    let batches = kernel.product(&batches);
    kernel.line(format!("const Shape shape = {{i64({batches}), int({m}), int({n}), int({k})}};"));
    match product.choice {
        Choice::Wgmma(tile) => Ok(write_wgmma(kernel, product, &tile)),
        Choice::Mma(tile) => Ok(write_mma(kernel, product, &tile)),
        Choice::Simt(tile) => Ok(write_simt(kernel, product, &tile)),
        Choice::Vector(tile) => Ok(write_vector(kernel, product, &tile)),
    }
}

/// Declares `epilogue`: stores that round, or a function of each sum.
fn write_epilogue(
    kernel: &mut KernelBuilder<'_>,
    product: &Product<'_>,
    sum: DType,
) -> Result<(), EmitError> {
    let (form, anchor) = (product.form, product.anchor);
    let output = &kernel.step.outputs[0];
    let dtype = output.ty.dtype;
    let ty = storage_type(dtype);
    let strides: Vec<&Dim> = form.batches.iter().chain([&form.rows]).map(|axis| &axis.c).collect();
    let mut aligned = vector(dtype, alignment(output.place), &strides);
    let (batch_type, batch) = offsets(kernel, &form.batches, |axis| &axis.c);
    let stride = kernel.dim(&form.rows.c);
    let y = kernel.output(0);
    // A float sum needs no more than its rounding to the output.
    if !anchor.is_grouped() && sum.is_float() && dtype.is_float() {
        kernel.line(format!(
            "const StoreRows<{ty}, {aligned}, {batch_type}> epilogue = {{{y}, i64({stride}), {batch}}};"
        ));
        return Ok(());
    }
    write_function(kernel, product, sum, "element", compute_type(dtype), |_, value, _| value)?;
    if anchor.keeps_positions() {
        kernel.line(format!(
            "const StoreElements<{ty}, {aligned}, {batch_type}, decltype(element)> epilogue = \
             {{{y}, i64({stride}), {batch}, element}};"
        ));
        return Ok(());
    }
    write_function(kernel, product, sum, "place", "i64", |kernel, _, index| {
        index.offset(kernel, &kernel.step.outputs[0])
    })?;
    if !(anchor.keeps_runs() && output.is_contiguous()) {
        aligned = 1;
    }
    kernel.line(format!(
        "const StorePlaced<{ty}, {aligned}, decltype(place), decltype(element)> epilogue = \
         {{{y}, place, element}};"
    ));
    Ok(())
}

/// Declares a function of the position of a sum and the sum: what `pick` makes of the result's
/// element and its position.
fn write_function(
    kernel: &mut KernelBuilder<'_>,
    product: &Product<'_>,
    sum: DType,
    name: &str,
    result: &str,
    pick: impl Fn(&KernelBuilder<'_>, String, &Index) -> String,
) -> Result<(), EmitError> {
    let ty = storage_type(sum);
    kernel.open(format!("auto {name} = [&](i64 batch, int row, int column, {ty} sum) -> {result}"));
    let index = result_index(kernel, product);
    let element = rounded(product.op, "sum", sum, product.anchor.is_grouped());
    let (value, index) = product.anchor.apply(kernel, &index, &element)?;
    let picked = pick(kernel, value, &index);
    kernel.line(format!("return {picked};"));
    kernel.close_with("};");
    Ok(())
}

/// The position in the product of `batch`, `row` and `column`.
fn result_index(kernel: &mut KernelBuilder<'_>, product: &Product<'_>) -> Index {
    let form = product.form;
    let shape = product.anchor.outputs[0].shape.clone();
    let mut axes = vec!["0".to_string(); shape.len()];
    let batch_axes: Vec<usize> = form.batches.iter().flat_map(|axis| axis.of.clone()).collect();
    for (number, of) in [("idx(batch)", &batch_axes), ("row", &form.rows.of)] {
        let own: Vec<Dim> = of.iter().map(|axis| shape[*axis].clone()).collect();
        if own.is_empty() {
            continue;
        }
        for (axis, text) in of.iter().zip(Index::unravel(kernel, number, &own).axes) {
            axes[*axis] = text;
        }
    }
    axes[shape.len() - 1] = "column".to_string();
    let (m, n) = (kernel.dim(&form.rows.extent), kernel.dim(&form.columns.extent));
    let linear = kernel.bind("idx", "linear", format!("(idx(batch) * {m} + row) * {n} + column"));
    Index { shape, axes, linear: Some(linear) }
}

/// The type of the offsets of batches, and a value of it.
fn offsets(
    kernel: &KernelBuilder<'_>,
    batches: &[Axis],
    stride: fn(&Axis) -> &Dim,
) -> (String, String) {
    let list = |of: &dyn Fn(&Axis) -> &Dim| {
        let dims: Vec<String> =
            batches.iter().map(|axis| format!("i64({})", kernel.dim(of(axis)))).collect();
        dims.join(", ")
    };
    if batches.iter().all(|axis| stride(axis).is(0)) {
        return ("OneBatch".to_string(), "{}".to_string());
    }
    match batches {
        [_] => ("RegularBatches".to_string(), format!("{{{}}}", list(&stride))),
        _ => {
            let (extents, strides) = (list(&|axis| &axis.extent), list(&stride));
            (format!("Batches<{}>", batches.len()), format!("{{{{{extents}}}, {{{strides}}}}}"))
        }
    }
}

/// Declares the type `{name}` of a source and the source itself.
fn write_source(kernel: &mut KernelBuilder<'_>, product: &Product<'_>, is_a: bool, most: u32) {
    let form = product.form;
    let (factor, side) =
        if is_a { (product.a, product.problem.a) } else { (product.b, product.problem.b) };
    let (mn, mn_stride, k_stride) = if is_a {
        (&form.rows.extent, &form.rows.a, &form.a_depth)
    } else {
        (&form.columns.extent, &form.columns.b, &form.b_depth)
    };
    let (batch_type, batch) =
        offsets(kernel, &form.batches, if is_a { |axis| &axis.a } else { |axis| &axis.b });
    let name = if is_a { "A" } else { "B" };
    let ty = storage_type(factor.dtype);
    let pointer = kernel.operand(factor.operand);
    let [mn, k, mn_stride, k_stride] =
        [mn, &form.depth, mn_stride, k_stride].map(|dim| kernel.dim(dim));
    let vector = side.vector.min(most);
    kernel.line(format!("typedef Matrix<{ty}, {vector}, {}, {batch_type}> {name};", side.along_k));
    kernel.line(format!(
        "const {name} source_{} = {{{pointer}, i64({mn_stride}), i64({k_stride}), int({mn}), int({k}), {batch}}};",
        name.to_lowercase()
    ));
}

/// Blocks for so many tiles: no more than fit a device at once, since blocks loop over tiles.
fn blocks(product: &Product<'_>, rows: u32, columns: u32, resident: u64) -> u32 {
    let problem = product.problem;
    let tiles = problem.rows.div_ceil(rows.into()) * problem.columns.div_ceil(columns.into());
    (tiles * problem.batches).min(problem.units * resident).max(1) as u32
}

fn family(product: &Product<'_>, kind: &str, size: String) -> String {
    format!("gemm_{kind}_{}_{size}", product.a.dtype)
}

fn write_mma(mut kernel: KernelBuilder<'_>, product: &Product<'_>, tile: &MmaTile) -> Emitted {
    let problem = product.problem;
    write_source(&mut kernel, product, true, copied(problem.a));
    write_source(&mut kernel, product, false, copied(problem.b));
    let instruction = select::matrix_product(problem).unwrap_or("MmaF16");
    let MmaTile { rows, columns, warps: [down, across, parts], stages, .. } = *tile;
    let depth = tile.depth(product.a.dtype);
    kernel.line(format!(
        "typedef MmaTile<{instruction}, {rows}, {columns}, {depth}, {down}, {across}, {parts}, {stages}> Tile;"
    ));
    let shared_bytes = tile.shared_bytes(problem.a, problem.b);
    kernel.shared(16, "MmaLayout<Tile, A, B>::SHARED_BYTES", shared_bytes);
    kernel.line("multiply_mma<Tile>(source_a, source_b, epilogue, shape, shared);");
    // 64 KiB registers of 4 bytes, of which a thread has about 110; tiles of 128 × 128 have 170.
    let threads = tile.threads();
    let resident = if rows * columns >= 128 * 128 { 1 } else { 512 / threads };
    let geometry =
        Geometry { blocks: blocks(product, rows, columns, resident.into()), threads, shared_bytes };
    kernel.finish(&family(product, "mma", format!("{rows}x{columns}x{depth}")), geometry)
}

fn write_simt(mut kernel: KernelBuilder<'_>, product: &Product<'_>, tile: &SimtTile) -> Emitted {
    let sum = product.problem.sum;
    write_source(&mut kernel, product, true, 4);
    write_source(&mut kernel, product, false, 4);
    let SimtTile { rows, columns, depth, thread_rows, thread_columns, .. } = *tile;
    kernel.line(format!(
        "typedef SimtTile<{}, {rows}, {columns}, {depth}, {thread_rows}, {thread_columns}> Tile;",
        sum.name()
    ));
    let shared_bytes = tile.shared_bytes(sum);
    kernel.shared(16, "Tile::SHARED_BYTES", shared_bytes);
    kernel.line("multiply_simt<Tile>(source_a, source_b, epilogue, shape, shared);");
    let resident = if rows * columns >= 128 * 128 { 1 } else { 2 };
    let geometry = Geometry {
        blocks: blocks(product, rows, columns, resident),
        threads: tile.threads(),
        shared_bytes,
    };
    kernel.finish(&family(product, "simt", format!("{rows}x{columns}x{depth}")), geometry)
}

fn write_vector(
    mut kernel: KernelBuilder<'_>,
    product: &Product<'_>,
    tile: &VectorTile,
) -> Emitted {
    let problem = product.problem;
    write_source(&mut kernel, product, true, 16);
    write_source(&mut kernel, product, false, 16);
    let (sum, VectorTile { rows, threads, direction }) = (problem.sum.name(), *tile);
    let (policy, shared_name, function, size) = match direction {
        Direction::Across { lanes } => (
            format!("VectorAcross<{sum}, {rows}, {lanes}, {threads}>"),
            "Tile::shared_bytes<B>()",
            "multiply_vector_across",
            format!("{rows}_across{lanes}"),
        ),
        Direction::Along { columns, parts } => (
            format!("VectorAlong<{sum}, {rows}, {columns}, {parts}, {threads}>"),
            "Tile::SHARED_BYTES",
            "multiply_vector_along",
            format!("{rows}_along{columns}"),
        ),
    };
    kernel.line(format!("typedef {policy} Tile;"));
    let shared_bytes = tile.shared_bytes(problem.b.vector, problem.sum);
    kernel.shared(16, shared_name, shared_bytes);
    kernel.line(format!("{function}<Tile>(source_a, source_b, epilogue, shape, shared);"));
    let columns = tile.columns(problem.b.vector);
    let geometry = Geometry { blocks: blocks(product, 8, columns, 8), threads, shared_bytes };
    kernel.finish(&family(product, "vector", size), geometry)
}

fn write_wgmma(mut kernel: KernelBuilder<'_>, product: &Product<'_>, tile: &WgmmaTile) -> Emitted {
    let problem = product.problem;
    kernel.waits_itself();
    let WgmmaTile { columns, stages, .. } = *tile;
    for (is_a, name, factor, rows) in
        [(true, "a", product.a, WgmmaTile::ROWS), (false, "b", product.b, columns)]
    {
        if let Some(map) = tensor_map(kernel.step, product.form, factor, is_a, rows) {
            let declaration = format!("const __grid_constant__ TensorMap map_{name}");
            kernel.parameter(&declaration, Argument::TensorMap(map));
        }
        let shared = |axis: &Axis| if is_a { axis.a.is(0) } else { axis.b.is(0) };
        let batches = match product.form.batches.as_slice() {
            [axis] if !shared(axis) => "const RegularBatches {} = {i64(1)};",
            _ => "const OneBatch {} = {};",
        };
        kernel.line(batches.replacen("{}", &format!("batches_{name}"), 1));
    }
    let ty = storage_type(product.a.dtype);
    kernel.line(format!(
        "typedef WgmmaTile<{ty}, {columns}, {stages}, {}, {}, 1> Tile;",
        !problem.a.along_k, !problem.b.along_k
    ));
    let shared_bytes = tile.shared_bytes();
    kernel.shared(1024, "Tile::SHARED_BYTES", shared_bytes);
    kernel
        .line("multiply_wgmma<Tile>(map_a, map_b, batches_a, batches_b, epilogue, shape, shared);");
    let geometry = Geometry {
        blocks: blocks(product, WgmmaTile::ROWS, columns, 1),
        threads: WgmmaTile::THREADS,
        shared_bytes,
    };
    let size = format!("{}x{columns}x{}", WgmmaTile::ROWS, WgmmaTile::DEPTH);
    kernel.finish(&family(product, "wgmma", size), geometry)
}

/// Whether both operands can be read through tensor maps.
pub(super) fn has_maps(step: &StepContext<'_>, form: &Form, a: &Factor, b: &Factor) -> bool {
    tensor_map(step, form, a, true, 64).is_some() && tensor_map(step, form, b, false, 64).is_some()
}

/// The map of an operand of 16-bit elements for boxes of 64 elements along the innermost dimension
/// and, if that is k, `rows` of the other. Only k may not be longer in the map than in a run: what
/// lies beyond the other extents goes into elements that are never stored.
fn tensor_map(
    step: &StepContext<'_>,
    form: &Form,
    factor: &Factor,
    is_a: bool,
    rows: u32,
) -> Option<TensorMap> {
    const SIZE: u64 = 2;
    if factor.dtype.bits() != 16 || form.batches.len() > 1 || factor.alignment < 16 {
        return None;
    }
    let depth = u64::try_from(form.depth.as_constant()?).ok().filter(|depth| *depth > 0)?;
    let (mn, mn_stride, k_stride) = if is_a {
        (step.greatest(&form.rows.extent)?, &form.rows.a, &form.a_depth)
    } else {
        (step.greatest(&form.columns.extent)?, &form.columns.b, &form.b_depth)
    };
    let (extents, stride, rows) = match (k_stride.is(1), mn_stride.is(1)) {
        (true, false) => ([depth, mn], mn_stride, rows),
        (false, true) => ([mn, depth], k_stride, 64),
        _ => return None,
    };
    let bytes = |stride: &Dim| {
        let bytes = u64::try_from(stride.as_constant()?).ok()?.checked_mul(SIZE)?;
        (bytes.is_multiple_of(16) && bytes < 1 << 40).then_some(bytes)
    };
    let most = |extent: u64| (extent > 0 && extent < 1 << 31).then_some(extent);
    // A single row may have any stride.
    let row = match bytes(stride)? {
        0 => (extents[0] * SIZE).next_multiple_of(16),
        row => row,
    };
    let batch = form.batches.first().map(|axis| if is_a { &axis.a } else { &axis.b });
    let (batches, batch) = match batch {
        Some(stride) if !stride.is(0) => (step.greatest(&form.batches[0].extent)?, bytes(stride)?),
        _ => (1, row.checked_mul(extents[1]).filter(|bytes| *bytes < 1 << 40)?),
    };
    Some(TensorMap {
        base: Box::new(Argument::Operand(factor.operand as u32)),
        dtype: factor.dtype,
        extents: vec![most(extents[0])?, most(extents[1])?, most(batches)?],
        strides: vec![row, batch],
        box_extents: vec![64, rows, 1],
        swizzle: 128,
    })
}
