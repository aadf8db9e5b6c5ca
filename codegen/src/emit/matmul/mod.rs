//! Matrix products: from operands with any strides to one of the library's kernels, with what comes
//! after the product in its epilogue. Must never compute a product's sum itself.

mod form;
mod kernels;

use super::dims::compute_type;
use super::factor::{Factor, lie};
use super::group::{Anchor, Group, row_major};
use super::kernel::{Emitted, GREATEST_EXTENT, StepContext};
use super::scalar::convert;
use super::{EmitError, pointwise};
use crate::select::{self, Problem};
use form::{Axis, Form};
use kernels::Product;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::{Matmul, Op};

/// Whether a kernel may read operands of this type through tensor maps.
pub(crate) fn may_use_maps(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16)
}

/// Whether there are kernels for a product of operands of these types; 4-bit numbers have none.
pub(crate) fn takes(op: &Matmul, dtypes: [DType; 2]) -> bool {
    dtypes.iter().chain([&op.acc, &op.result]).all(|dtype| dtype.bits() >= 8)
}

/// The kernel of a step that is one `matmul`, or of a group around one.
pub(crate) fn emit(
    step: &StepContext<'_>,
    group: Option<&Group>,
) -> Result<Vec<Emitted>, EmitError> {
    let no_kernel = || EmitError::NoKernel { operator: step.op.to_string() };
    let anchor = Anchor::of(step, group);
    let Op::Matmul(op) = anchor.op else { return Err(no_kernel()) };
    match emit_tiled(step, op, &anchor)? {
        Some(emitted) => Ok(vec![emitted]),
        None if anchor.is_grouped() => Err(no_kernel()),
        None => pointwise::emit(step),
    }
}

/// `None` where the types or extents have no kernel.
fn emit_tiled(
    step: &StepContext<'_>,
    op: &Matmul,
    anchor: &Anchor<'_>,
) -> Result<Option<Emitted>, EmitError> {
    let (Some(a), Some(b)) = (Factor::of(step, anchor, 0), Factor::of(step, anchor, 1)) else {
        return Ok(None);
    };
    if !takes(op, [a.dtype, b.dtype]) {
        return Ok(None);
    }
    let shape = &anchor.outputs[0].shape;
    let strides = match anchor.keeps_positions() {
        true => step.outputs[0].strides(),
        false => row_major(shape),
    };
    let form = Form::of(&a, &b, shape, &strides);
    let sum = sum_type(op, a.dtype);
    let Some(problem) = problem(step, &form, &a, &b, sum) else { return Ok(None) };
    let choice = select::choose(&problem);
    let product = Product { op, anchor, a: &a, b: &b, form: &form, problem: &problem, choice };
    kernels::write(step, &product).map(Some)
}

/// The type that kernels without matrix instructions add in. Integers wrap, which is defined for
/// unsigned ones alone.
fn sum_type(op: &Matmul, operand: DType) -> DType {
    match (op.acc.is_float(), op.acc) {
        (true, DType::F64) => DType::F64,
        (true, _) if operand == DType::F64 => DType::F64,
        (true, _) => DType::F32,
        (false, acc) if acc.bits() > 32 => DType::U64,
        (false, _) => DType::U32,
    }
}

fn problem(
    step: &StepContext<'_>,
    form: &Form,
    a: &Factor,
    b: &Factor,
    sum: DType,
) -> Option<Problem> {
    let extent = |dim: &Dim| step.extent(dim);
    let batches: Vec<Dim> = form.batches.iter().map(|axis| axis.extent.clone()).collect();
    let side = |factor: &Factor, mn: (&Dim, &Dim), k: &Dim, batch: fn(&Axis) -> &Dim| {
        let batches: Vec<&Dim> = form.batches.iter().map(batch).collect();
        lie(factor, mn, k, &batches)
    };
    let problem = Problem {
        batches: step.greatest_product(&batches),
        rows: extent(&form.rows.extent)?,
        columns: extent(&form.columns.extent)?,
        depth: extent(&form.depth)?,
        a: side(a, (&form.rows.a, &form.rows.extent), &form.a_depth, |axis| &axis.a),
        b: side(b, (&form.columns.b, &form.columns.extent), &form.b_depth, |axis| &axis.b),
        sum,
        maps: kernels::has_maps(step, form, a, b),
        units: u64::from(step.units),
        capability: step.capability,
    };
    // Tiles are counted in 32 bits, and the least tile is 16 × 32, or a row of 16 columns.
    let tiles = problem.rows.div_ceil(16).saturating_mul(problem.columns.div_ceil(16));
    (tiles.saturating_mul(problem.batches) < GREATEST_EXTENT).then_some(problem)
}

/// A sum as the product's element, in the compute type of the product's result. Within a group
/// floats need no rounding.
fn rounded(op: &Matmul, sum: &str, sum_type: DType, within: bool) -> String {
    if op.acc.is_float() {
        let to = if within { op.result.compute() } else { op.result };
        return convert(sum, sum_type, to, true);
    }
    let wrapped = format!("{}({sum})", compute_type(op.acc));
    convert(&wrapped, op.acc, op.result, true)
}
