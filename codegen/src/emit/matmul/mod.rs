//! Matrix products: from operands with any strides to one of the library's kernels, with what comes
//! after the product in its epilogue. Must never compute a product's sum itself.

mod form;
mod kernels;

use super::dims::compute_type;
use super::index::Index;
use super::kernel::{Emitted, KernelBuilder, StepContext};
use super::scalar::convert;
use super::{EmitError, pointwise};
use crate::select::{self, Problem, Side};
use form::{Axis, Form};
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::{Matmul, Op};
use membar_ir::types::TensorType;

/// An operand of a product: `[…, M, K]` or `[…, K, N]`.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    /// Its position among the step's operands.
    pub operand: usize,
    pub dtype: DType,
    pub shape: Vec<Dim>,
    /// Elements from one to the next in each dimension, in any order.
    pub strides: Vec<Dim>,
    /// Bytes that the first element's address is a multiple of.
    pub alignment: u64,
}

impl Factor {
    /// An operand of the step as it is.
    pub fn of(step: &StepContext<'_>, operand: usize) -> Factor {
        let tensor = &step.operands[operand];
        Factor {
            operand,
            dtype: tensor.ty.dtype,
            shape: tensor.ty.shape.clone(),
            strides: tensor.strides(),
            alignment: alignment(tensor.place),
        }
    }
}

/// Buffers begin at multiples of 256 bytes, and so do weights.
fn alignment(place: Option<(u32, u64)>) -> u64 {
    let offset = place.map_or(0, |(_, offset)| offset);
    256 >> (8 - offset.trailing_zeros().min(8))
}

/// What becomes of each element of a product.
pub(crate) trait Epilogue {
    /// The element of the step's first output at `index`, as an expression in its compute type;
    /// `product` is the product's element there, in the compute type of the product's result. The
    /// lines that it needs go before what is written next.
    fn element(
        &mut self,
        kernel: &mut KernelBuilder<'_>,
        index: &Index,
        product: &str,
    ) -> Result<String, EmitError>;
}

/// Whether a kernel may read its operands through tensor maps.
pub(crate) fn may_use_maps(operands: &[TensorType]) -> bool {
    matches!(operands[0].dtype, DType::F16 | DType::Bf16)
}

/// The kernel of a step that is one `matmul`.
pub(crate) fn emit(step: &StepContext<'_>) -> Result<Vec<Emitted>, EmitError> {
    let Op::Matmul(op) = step.op else {
        return Err(EmitError::NoKernel { operator: step.op.to_string() });
    };
    match emit_with(step, op, &Factor::of(step, 0), &Factor::of(step, 1), None)? {
        Some(emitted) => Ok(vec![emitted]),
        None => pointwise::emit(step),
    }
}

/// The kernel that writes the step's first output: the product of two of its operands, each element
/// then run through the epilogue. The output has the product's shape. `None` where the types or
/// extents have no kernel; the loop takes those.
pub(crate) fn emit_with(
    step: &StepContext<'_>,
    op: &Matmul,
    a: &Factor,
    b: &Factor,
    epilogue: Option<&mut dyn Epilogue>,
) -> Result<Option<Emitted>, EmitError> {
    let output = &step.outputs[0];
    let nibbles = |dtype: DType| dtype.bits() == 4;
    if [a.dtype, b.dtype, op.acc, op.result, output.ty.dtype].into_iter().any(nibbles) {
        return Ok(None);
    }
    let form = Form::of(a, b, &output.ty.shape, &output.strides());
    let sum = sum_type(op, a.dtype);
    let Some(problem) = problem(step, &form, a, b, sum) else { return Ok(None) };
    let product = kernels::Product {
        op,
        a,
        b,
        form: &form,
        problem: &problem,
        choice: select::choose(&problem),
    };
    kernels::write(step, &product, epilogue).map(Some)
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

/// Extents that kernels take: positions are 32-bit numbers, and tiles may end beyond the extent.
const GREATEST_EXTENT: u64 = (1 << 31) - 1024;

fn problem(
    step: &StepContext<'_>,
    form: &Form,
    a: &Factor,
    b: &Factor,
    sum: DType,
) -> Option<Problem> {
    let extent = |dim: &Dim| step.greatest(dim).filter(|extent| *extent < GREATEST_EXTENT);
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

/// The direction and width of the vectors in which an operand can be read.
fn lie(factor: &Factor, (mn, mn_extent): (&Dim, &Dim), k: &Dim, batches: &[&Dim]) -> Side {
    let dtype = factor.dtype;
    let along_k = k.is(1) && (!mn.is(1) || mn_extent.is(1)) || !mn.is(1);
    let (own, other) = if along_k { (k, mn) } else { (mn, k) };
    let size = u64::from(dtype.bits() / 8);
    let mut vector = if own.is(1) { 16 / size } else { 1 };
    let divides = |vector: u64| {
        factor.alignment.is_multiple_of(vector * size)
            && batches.iter().chain([&other]).all(|stride| divides(stride, vector))
    };
    while vector > 1 && !divides(vector) {
        vector /= 2;
    }
    Side { along_k, vector: vector as u32, dtype }
}

fn divides(dim: &Dim, divisor: u64) -> bool {
    dim.is(0) || dim.exact_div(&Dim::from(divisor as i64)).is_some()
}

/// A sum as the product's element, in the compute type of the product's result.
fn rounded(op: &Matmul, sum: &str, sum_type: DType) -> String {
    if op.acc.is_float() {
        return convert(sum, sum_type, op.result, true);
    }
    let wrapped = format!("{}({sum})", compute_type(op.acc));
    convert(&wrapped, op.acc, op.result, true)
}
