//! Reductions, running sums and softmax. Never normalisations with weights.

use super::scalar::convert;
use super::shape::{reshaped, split_position};
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use crate::import::symbols::Symbols;
use membar_ir::ops::{
    ArgKind, ArgReduce, Cumulative, CumulativeKind, Iota, LogSoftmax, Reduce, ReduceKind, Reshape,
    Scalar, Softmax,
};
use membar_ir::{Axis, DType, Dim, Op, ValueId};

type Outcome = Result<(), NodeError>;

/// Which axes a reduction takes, and whether they stay.
struct Reduction {
    axes: Vec<Axis>,
    keep: bool,
}

/// Axes are an attribute before opset `operand_since`, an operand since; absent or empty ones mean
/// all axes, unless `noop_with_empty_axes` is set.
fn reduction(cx: &mut NodeContext<'_, '_>, operand_since: i64) -> Result<Reduction, NodeError> {
    let rank = cx.ty(0)?.rank();
    let axes = if cx.opset() < operand_since {
        cx.attribute::<&[i64]>("axes")?.map(<[i64]>::to_vec)
    } else if cx.has(1) {
        Some(cx.integers(1)?)
    } else {
        None
    };
    let keep = cx.flag("keepdims", true)?;
    let axes = match axes {
        Some(axes) if !axes.is_empty() => cx.axes(&axes, rank)?,
        _ if cx.flag("noop_with_empty_axes", false)? => Vec::new(),
        _ => (0..rank).map(Axis::from).collect(),
    };
    Ok(Reduction { axes, keep })
}

fn reduced(
    cx: &mut NodeContext<'_, '_>,
    kind: ReduceKind,
    reduction: &Reduction,
    value: ValueId,
) -> Result<ValueId, NodeError> {
    let Reduction { axes, keep } = reduction;
    if axes.is_empty() {
        return Ok(value);
    }
    cx.emit(Reduce { kind, axes: axes.clone(), keep: *keep }, &[value])
}

/// `ReduceSum`, whose axes are an operand since opset 13.
pub(crate) fn sum(cx: &mut NodeContext<'_, '_>) -> Outcome {
    plain(cx, 13, ReduceKind::Sum, Some(|_, a, b| a + b))
}

/// `ReduceMean`, `ReduceProd`, `ReduceMax`, `ReduceMin`: dimensions stay dimensions.
pub(crate) fn simple(
    cx: &mut NodeContext<'_, '_>,
    kind: ReduceKind,
    symbolic: Option<fn(&Symbols, Dim, Dim) -> Dim>,
) -> Outcome {
    plain(cx, 18, kind, symbolic)
}

fn plain(
    cx: &mut NodeContext<'_, '_>,
    operand_since: i64,
    kind: ReduceKind,
    symbolic: Option<fn(&Symbols, Dim, Dim) -> Dim>,
) -> Outcome {
    let reduction = reduction(cx, operand_since)?;
    let ty = cx.ty(0)?;
    if let (Some(join), Some(dims), 1, 1) =
        (symbolic, cx.known_dims(0), ty.rank(), reduction.axes.len())
        && ty.dtype.is_integer()
        && let Some(result) = dims.into_iter().reduce(|a, b| join(cx.symbols(), a, b))
    {
        return cx.output_dims(0, ty.dtype, !reduction.keep, vec![result]);
    }
    let x = cx.operand(0)?;
    let result = reduced(cx, kind, &reduction, x)?;
    cx.output(0, result)
}

/// `ReduceL1`.
pub(crate) fn l1(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let reduction = reduction(cx, 18)?;
    let x = cx.operand(0)?;
    let magnitude = cx.emit(Scalar::Abs, &[x])?;
    let result = reduced(cx, ReduceKind::Sum, &reduction, magnitude)?;
    cx.output(0, result)
}

/// `ReduceL2`, and `ReduceSumSquare` without the root.
pub(crate) fn squares(cx: &mut NodeContext<'_, '_>, root: bool) -> Outcome {
    let reduction = reduction(cx, 18)?;
    let x = cx.operand(0)?;
    let square = cx.emit(Scalar::Mul, &[x, x])?;
    let mut result = reduced(cx, ReduceKind::Sum, &reduction, square)?;
    if root {
        result = cx.emit(Scalar::Sqrt, &[result])?;
    }
    cx.output(0, result)
}

/// `ReduceLogSum`.
pub(crate) fn log_sum(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let reduction = reduction(cx, 18)?;
    let x = cx.operand(0)?;
    let sum = reduced(cx, ReduceKind::Sum, &reduction, x)?;
    let result = cx.emit(Scalar::Log, &[sum])?;
    cx.output(0, result)
}

/// `ReduceLogSumExp`, with the maximum taken out so that nothing overflows.
pub(crate) fn log_sum_exp(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let reduction = reduction(cx, 18)?;
    let x = cx.operand(0)?;
    let kept = Reduction { axes: reduction.axes.clone(), keep: true };
    let dtype = cx.type_of(x).dtype;
    let greatest = reduced(cx, ReduceKind::Max, &kept, x)?;
    let infinite = cx.emit(Scalar::IsInf { negative: true, positive: true }, &[greatest])?;
    let zero = cx.scalar(dtype, 0.0)?;
    let shift = cx.emit(Scalar::Select, &[infinite, zero, greatest])?;
    let shifted = cx.emit(Scalar::Sub, &[x, shift])?;
    let exponential = cx.emit(Scalar::Exp, &[shifted])?;
    let sum = reduced(cx, ReduceKind::Sum, &kept, exponential)?;
    let logarithm = cx.emit(Scalar::Log, &[sum])?;
    let mut result = cx.emit(Scalar::Add, &[logarithm, shift])?;
    if !reduction.keep {
        let shape = cx.type_of(x).shape;
        let kept = shape.into_iter().enumerate();
        let kept = kept.filter(|(index, _)| !reduction.axes.contains(&Axis::from(*index)));
        result = reshaped(cx, result, kept.map(|(_, dim)| dim).collect())?;
    }
    cx.output(0, result)
}

/// `ArgMax` and `ArgMin`.
pub(crate) fn arg(cx: &mut NodeContext<'_, '_>, kind: ArgKind) -> Outcome {
    let rank = cx.ty(0)?.rank();
    let axis = cx.axis(cx.attribute_or("axis", 0)?, rank)?;
    let keep = cx.flag("keepdims", true)?;
    let last = cx.flag("select_last_index", false)?;
    let x = cx.operand(0)?;
    let result = cx.emit(ArgReduce { kind, axis, keep, last }, &[x])?;
    cx.output(0, result)
}

/// `CumSum` and `CumProd`.
pub(crate) fn cumulative(cx: &mut NodeContext<'_, '_>, kind: CumulativeKind) -> Outcome {
    let rank = cx.ty(0)?.rank();
    let axis = cx.integers(1)?;
    let axis = axis.first().ok_or_else(|| NodeError::new("the axis is empty"))?;
    let axis = cx.axis(*axis, rank)?;
    let exclusive = cx.flag("exclusive", false)?;
    let reverse = cx.flag("reverse", false)?;
    let x = cx.operand(0)?;
    let result = cx.emit(Cumulative { kind, axis, exclusive, reverse }, &[x])?;
    cx.output(0, result)
}

/// `Softmax` and `LogSoftmax`: along one axis since opset 13; before, over all dimensions from
/// the axis on as if they were one.
pub(crate) fn softmax(cx: &mut NodeContext<'_, '_>, op: fn(Axis) -> Op) -> Outcome {
    along_axis(cx, |cx, x, axis| cx.emit(op(axis), &[x]))
}

/// `Hardmax`: 1 at the first greatest element, else 0.
pub(crate) fn hardmax(cx: &mut NodeContext<'_, '_>) -> Outcome {
    along_axis(cx, |cx, x, axis| {
        let ty = cx.type_of(x);
        let arg = ArgReduce { kind: ArgKind::Max, axis, keep: true, last: false };
        let greatest = cx.emit(arg, &[x])?;
        let mut shape = vec![Dim::ONE; ty.rank()];
        shape[axis.index()] = ty.shape[axis.index()].clone();
        let index = cx.emit(Iota { shape, axis, dtype: DType::I64 }, &[])?;
        let hit = cx.emit(Scalar::Equal, &[index, greatest])?;
        convert(cx, hit, ty.dtype, true)
    })
}

fn along_axis(
    cx: &mut NodeContext<'_, '_>,
    apply: impl Fn(&mut NodeContext<'_, '_>, ValueId, Axis) -> Result<ValueId, NodeError>,
) -> Outcome {
    let shape = cx.ty(0)?.shape;
    let x = cx.operand(0)?;
    if cx.opset() >= 13 {
        let axis = cx.axis(cx.attribute_or("axis", -1)?, shape.len())?;
        let result = apply(cx, x, axis)?;
        return cx.output(0, result);
    }
    let split = split_position(cx.attribute_or("axis", 1)?, shape.len())?;
    if split + 1 == shape.len() {
        let result = apply(cx, x, Axis::from(split))?;
        return cx.output(0, result);
    }
    let (outer, inner) = shape.split_at(split);
    let matrix: Vec<Dim> = vec![outer.iter().cloned().product(), inner.iter().cloned().product()];
    let flat = cx.emit(Reshape { shape: matrix }, &[x])?;
    let flat = apply(cx, flat, Axis(1))?;
    let result = cx.emit(Reshape { shape }, &[flat])?;
    cx.output(0, result)
}

/// The operator of `Softmax`.
pub(crate) fn softmax_op(axis: Axis) -> Op {
    Softmax { axis }.into()
}

/// The operator of `LogSoftmax`.
pub(crate) fn log_softmax_op(axis: Axis) -> Op {
    LogSoftmax { axis }.into()
}
