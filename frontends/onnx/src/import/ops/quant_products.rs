//! Products of quantised tensors: zero points are taken off in i32, then integers multiply and
//! add in i32, and sums are scaled in f32. Never how scales lie over tensors (see `quant`).

use super::quant::dynamically_quantized;
use super::scalar::convert;
use super::shape::reshaped;
use super::vision::convolution;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::ops::{Matmul, Quantize, Scalar};
use membar_ir::{DType, Dim, ValueId};

type Outcome = Result<(), NodeError>;

/// Where a parameter's vector lies in the tensor to which it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    /// The rows of a matrix: the dimension before the last.
    Rows,
    /// The columns of a matrix: the last dimension.
    Columns,
    /// Channels, in front of everything: the filters of a convolution.
    First,
}

/// A parameter such that it broadcasts to a tensor of that rank. One value has rank 0; more
/// dimensions than one broadcast as they are.
fn spread(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    rank: usize,
    along: Along,
) -> Result<ValueId, NodeError> {
    let ty = cx.type_of(value);
    if ty.elements().is(1) {
        return reshaped(cx, value, Vec::new());
    }
    if ty.rank() != 1 {
        return Ok(value);
    }
    let axis = match along {
        Along::Rows => rank.checked_sub(2),
        Along::Columns => rank.checked_sub(1),
        Along::First => Some(0),
    };
    let axis = axis.ok_or_else(|| NodeError::new("a parameter for each row of a vector"))?;
    let mut shape = vec![Dim::ONE; rank];
    shape[axis] = ty.elements();
    reshaped(cx, value, shape)
}

/// Whether an operand is left out or nothing but zeros.
fn is_zero(cx: &mut NodeContext<'_, '_>, index: usize) -> Result<bool, NodeError> {
    if !cx.has(index) {
        return Ok(true);
    }
    let constant = cx.known_constant(index)?;
    Ok(constant.is_some_and(|tensor| tensor.numbers().all(|number| !number.to_bool())))
}

/// Operand `x` less its zero point: i32, or as it is where the zero point is 0.
fn centred(
    cx: &mut NodeContext<'_, '_>,
    x: usize,
    zero_point: usize,
    along: Along,
) -> Result<ValueId, NodeError> {
    let value = cx.operand(x)?;
    if is_zero(cx, zero_point)? {
        return Ok(value);
    }
    let zero = cx.operand(zero_point)?;
    subtracted(cx, value, zero, along)
}

fn subtracted(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    zero: ValueId,
    along: Along,
) -> Result<ValueId, NodeError> {
    let rank = cx.type_of(value).rank();
    let zero = spread(cx, zero, rank, along)?;
    let zero = convert(cx, zero, DType::I32, true)?;
    let value = convert(cx, value, DType::I32, true)?;
    cx.emit(Scalar::Sub, &[value, zero])
}

/// The product of integer matrices; a vector counts as a row on the left, a column on the right.
fn product(
    cx: &mut NodeContext<'_, '_>,
    left: ValueId,
    right: ValueId,
) -> Result<ValueId, NodeError> {
    for value in [left, right] {
        if cx.type_of(value).rank() < 2 {
            return Err(NodeError::new("a quantised product of vectors"));
        }
    }
    cx.emit(Matmul { acc: DType::I32, result: DType::I32 }, &[left, right])
}

/// `MatMulInteger`.
pub(crate) fn matmul_integer(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let left = centred(cx, 0, 2, Along::Rows)?;
    let right = centred(cx, 1, 3, Along::Columns)?;
    let result = product(cx, left, right)?;
    cx.output(0, result)
}

/// `ConvInteger`: the padding is the zero point, so zero once that is taken off.
pub(crate) fn conv_integer(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let x = centred(cx, 0, 2, Along::First)?;
    let weights = centred(cx, 1, 3, Along::First)?;
    let result = convolution(cx, (0, 1), &[x, weights])?;
    cx.output(0, result)
}

/// Sums scaled by `left * right / result` and quantised with operand `zero_point`.
fn requantized(
    cx: &mut NodeContext<'_, '_>,
    sums: ValueId,
    [left, right, result]: [ValueId; 3],
    zero_point: usize,
) -> Outcome {
    let factor = cx.emit(Scalar::Mul, &[left, right])?;
    let factor = cx.emit(Scalar::Div, &[factor, result])?;
    let sums = convert(cx, sums, DType::F32, true)?;
    let scaled = cx.emit(Scalar::Mul, &[sums, factor])?;
    let one = cx.scalar(DType::F32, 1.0)?;
    let dtype = cx.ty(zero_point)?.dtype;
    let zero = cx.operand(zero_point)?;
    let zero = reshaped(cx, zero, Vec::new())?;
    let op = Quantize { dtype, axis: None, block: None, zero_point: true, saturate: true };
    let result = cx.emit(op, &[scaled, one, zero])?;
    cx.output(0, result)
}

/// A scale in f32, such that it broadcasts.
fn scale(
    cx: &mut NodeContext<'_, '_>,
    index: usize,
    rank: usize,
    along: Along,
) -> Result<ValueId, NodeError> {
    let value = cx.operand(index)?;
    let value = convert(cx, value, DType::F32, true)?;
    spread(cx, value, rank, along)
}

/// `QLinearMatMul`.
pub(crate) fn qlinear_matmul(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let left = centred(cx, 0, 2, Along::Rows)?;
    let right = centred(cx, 3, 5, Along::Columns)?;
    let sums = product(cx, left, right)?;
    let rank = cx.type_of(sums).rank();
    let scales = [
        scale(cx, 1, rank, Along::Rows)?,
        scale(cx, 4, rank, Along::Columns)?,
        scale(cx, 6, rank, Along::Rows)?,
    ];
    requantized(cx, sums, scales, 7)
}

/// `QLinearConv`: the bias is in units of the product of both scales.
pub(crate) fn qlinear_conv(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let x = centred(cx, 0, 2, Along::First)?;
    let weights = centred(cx, 3, 5, Along::First)?;
    let mut operands = vec![x, weights];
    operands.extend(cx.optional(8)?);
    let sums = convolution(cx, (0, 3), &operands)?;
    let rank = cx.type_of(sums).rank();
    // A scale for each filter: channels of the result stand behind the batch.
    let filters = scale(cx, 4, rank - 1, Along::First)?;
    let scales = [scale(cx, 1, rank, Along::First)?, filters, scale(cx, 6, rank, Along::First)?];
    requantized(cx, sums, scales, 7)
}

/// onnxruntime's `DynamicQuantizeMatMul`: a float matrix quantised by its own range, times a
/// quantised one.
pub(crate) fn dynamic_quantize_matmul(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let x = cx.operand(0)?;
    let left = dynamically_quantized(cx, x)?;
    let centre = subtracted(cx, left.quantized, left.zero_point, Along::Rows)?;
    let right = centred(cx, 1, 3, Along::Columns)?;
    let sums = product(cx, centre, right)?;
    let rank = cx.type_of(sums).rank();
    let right_scale = scale(cx, 2, rank, Along::Columns)?;
    let factor = cx.emit(Scalar::Mul, &[left.scale, right_scale])?;
    unscaled(cx, sums, factor, 4)
}

/// onnxruntime's `MatMulIntegerToFloat`.
pub(crate) fn matmul_integer_to_float(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let left = centred(cx, 0, 4, Along::Rows)?;
    let right = centred(cx, 1, 5, Along::Columns)?;
    let sums = product(cx, left, right)?;
    let rank = cx.type_of(sums).rank();
    let factors = [scale(cx, 2, rank, Along::Rows)?, scale(cx, 3, rank, Along::Columns)?];
    let factor = cx.emit(Scalar::Mul, &factors)?;
    unscaled(cx, sums, factor, 6)
}

/// Sums times a factor, and operand `bias` added if it is there.
fn unscaled(cx: &mut NodeContext<'_, '_>, sums: ValueId, factor: ValueId, bias: usize) -> Outcome {
    let sums = convert(cx, sums, DType::F32, true)?;
    let mut result = cx.emit(Scalar::Mul, &[sums, factor])?;
    if let Some(bias) = cx.optional(bias)? {
        result = cx.emit(Scalar::Add, &[result, bias])?;
    }
    cx.output(0, result)
}
