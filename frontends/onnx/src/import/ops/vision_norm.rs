//! Normalisations over channels and of vectors: those without learned scale are spelled out, the
//! others enter the graph as single operators. Never layer normalisations (see `norm`).

use super::scalar::convert;
use super::vision::lp_norm;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::attribute::Float;
use membar_ir::ops::{BatchNorm, GroupNorm, LocalResponseNorm, Reduce, ReduceKind, Scalar};
use membar_ir::{Axis, ValueId};

type Outcome = Result<(), NodeError>;

const EPSILON: f32 = 1e-5;

/// `BatchNormalization` with given statistics. What tells training apart changed: more results
/// than one before opset 14, an attribute since.
pub(crate) fn batch_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    if cx.flag("training_mode", false)? || (1..cx.result_count()).any(|index| cx.wants(index)) {
        return Err(NodeError::new("normalises as in training; export the model for inference"));
    }
    if cx.opset() < 9 && !cx.flag("spatial", true)? {
        return Err(NodeError::new("spatial = 0, statistics for each element"));
    }
    let epsilon = Float::from(cx.attribute_or("epsilon", EPSILON)?);
    let operands = [
        cx.operand(0)?,
        cx.norm_scale(1)?,
        cx.operand(2)?,
        cx.operand(3)?,
        // A variance is positive, as a scale is, when weights are random.
        cx.norm_scale(4)?,
    ];
    let result = cx.emit(BatchNorm { epsilon }, &operands)?;
    cx.output(0, result)
}

/// `InstanceNormalization`: a group for each channel.
pub(crate) fn instance_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let channels = ty.shape.get(1).cloned().unwrap_or_default();
    let groups = channels.as_constant().ok_or_else(|| {
        NodeError::new(format!("`{channels}` channels; a fixed number is expected"))
    })?;
    let epsilon = Float::from(cx.attribute_or("epsilon", EPSILON)?);
    let operands = [cx.operand(0)?, cx.norm_scale(1)?, cx.operand(2)?];
    let result = cx.emit(GroupNorm { groups, epsilon }, &operands)?;
    cx.output(0, result)
}

/// `LRN`.
pub(crate) fn local_response_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let op = LocalResponseNorm {
        size: cx.required("size")?,
        alpha: cx.attribute_or("alpha", 1e-4_f32)?.into(),
        beta: cx.attribute_or("beta", 0.75_f32)?.into(),
        bias: cx.attribute_or("bias", 1.0_f32)?.into(),
    };
    let x = cx.operand(0)?;
    let result = cx.emit(op, &[x])?;
    cx.output(0, result)
}

/// `LpNormalization`: vectors along an axis divided by their norm; zero vectors stay.
pub(crate) fn lp_normalization(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let axis = cx.axis(cx.attribute_or("axis", -1)?, ty.rank())?.index();
    let power = cx.attribute_or("p", 2)?;
    if !matches!(power, 1 | 2) {
        return Err(NodeError::new(format!("p = {power}; 1 or 2 is expected")));
    }
    let x = cx.operand(0)?;
    let norm = lp_norm(cx, x, axis..axis + 1, power)?;
    let compute = ty.dtype.compute();
    let x = convert(cx, x, compute, true)?;
    let zero = cx.scalar(compute, 0.0)?;
    let empty = cx.emit(Scalar::Equal, &[norm, zero])?;
    let quotient = cx.emit(Scalar::Div, &[x, norm])?;
    let result = cx.emit(Scalar::Select, &[empty, zero, quotient])?;
    let result = convert(cx, result, ty.dtype, true)?;
    cx.output(0, result)
}

/// `MeanVarianceNormalization`: `(x - mean) / (deviation + 1e-9)`.
pub(crate) fn mean_variance_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let axes = cx.attribute_or::<&[i64]>("axes", &[0, 2, 3])?.to_vec();
    let axes = cx.axes(&axes, ty.rank())?;
    let compute = ty.dtype.compute();
    let x = cx.operand(0)?;
    let x = convert(cx, x, compute, true)?;
    let mean = mean(cx, x, &axes)?;
    let centred = cx.emit(Scalar::Sub, &[x, mean])?;
    let square = cx.emit(Scalar::Mul, &[centred, centred])?;
    let variance = self::mean(cx, square, &axes)?;
    let deviation = cx.emit(Scalar::Sqrt, &[variance])?;
    let epsilon = cx.scalar(compute, 1e-9)?;
    let deviation = cx.emit(Scalar::Add, &[deviation, epsilon])?;
    let result = cx.emit(Scalar::Div, &[centred, deviation])?;
    let result = convert(cx, result, ty.dtype, true)?;
    cx.output(0, result)
}

fn mean(cx: &mut NodeContext<'_, '_>, x: ValueId, axes: &[Axis]) -> Result<ValueId, NodeError> {
    cx.emit(Reduce { kind: ReduceKind::Mean, axes: axes.to_vec(), keep: true }, &[x])
}
