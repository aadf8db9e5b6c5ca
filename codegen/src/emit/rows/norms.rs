//! Rows that are normalised: softmax, layer, RMS and group norms. Must never read a row more often
//! than it must: what fits is kept in registers.

use super::{RowKernel, share};
use crate::emit::EmitError;
use crate::emit::dims::compute_type;
use crate::emit::group::Anchor;
use crate::emit::index::Index;
use crate::emit::kernel::{Emitted, StepContext};
use crate::emit::scalar::{convert, literal};
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::element::Number;
use membar_ir::ops::{GroupNorm, LayerNorm, RmsNorm};

pub(super) fn softmax(mut rows: RowKernel<'_>, logarithm: bool) -> Result<Emitted, EmitError> {
    let dtype = rows.dtype();
    let ty = compute_type(dtype);
    let suffix = if ty == "f32" { "f" } else { "" };
    let row = rows.open();
    rows.keep(ty);
    let least = literal(Number::Float(f64::NEG_INFINITY), dtype.compute());
    rows.kernel.line(format!("{ty} greatest = {least};"));
    rows.pass(|rows, j, c| {
        let x = rows.first(&row, j, c, ty)?;
        rows.kernel.line(format!("greatest = float_max(greatest, {x});"));
        Ok(())
    })?;
    rows.combine("greatest", ty, "float_max(a, b)");
    rows.kernel.line(format!("{ty} sum = 0;"));
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty)?;
        let power = rows.kernel.bind(ty, "e", format!("exp{suffix}({x} - greatest)"));
        if rows.kept > 0 && !logarithm {
            rows.kernel.line(format!("kept[{c}] = {power};"));
        }
        rows.kernel.line(format!("sum += {power};"));
        Ok(())
    })?;
    rows.combine("sum", ty, "a + b");
    if logarithm {
        rows.kernel.line(format!("const {ty} log_sum = log{suffix}(sum);"));
    }
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty)?;
        let value = match (logarithm, rows.kept > 0) {
            (true, _) => format!("{x} - greatest - log_sum"),
            (false, true) => format!("{x} / sum"),
            (false, false) => format!("exp{suffix}({x} - greatest) / sum"),
        };
        let index = rows.index(&row, j);
        rows.store(0, &index, &value)?;
        Ok(())
    })?;
    rows.finish(if logarithm { "log_softmax" } else { "softmax" })
}

/// Mean and `1 / sqrt(variance + epsilon)` of a row, declared as `mean` and `factor`.
fn statistics(
    rows: &mut RowKernel<'_>,
    row: &[String],
    epsilon: f64,
    dtype: DType,
) -> Result<(), EmitError> {
    let ty = compute_type(dtype);
    let root = if ty == "f32" { "sqrtf" } else { "sqrt" };
    let epsilon = literal(Number::Float(epsilon), dtype.compute());
    rows.keep(ty);
    rows.kernel.line(format!("{ty} mean = 0;"));
    rows.pass(|rows, j, c| {
        let x = rows.first(row, j, c, ty)?;
        rows.kernel.line(format!("mean += {x};"));
        Ok(())
    })?;
    rows.combine("mean", ty, "a + b");
    rows.kernel.line(format!("mean /= {ty}(length);"));
    rows.kernel.line(format!("{ty} square = 0;"));
    rows.pass(|rows, j, c| {
        let x = rows.again(row, j, c, ty)?;
        rows.kernel.line(format!("square += ({x} - mean) * ({x} - mean);"));
        Ok(())
    })?;
    rows.combine("square", ty, "a + b");
    rows.kernel
        .line(format!("const {ty} factor = {ty}(1) / {root}(square / {ty}(length) + {epsilon});"));
    Ok(())
}

/// The element of operand `operand` that belongs to a position, in `dtype`'s compute type.
fn parameter(
    rows: &mut RowKernel<'_>,
    operand: usize,
    index: &Index,
    dtype: DType,
) -> Result<String, EmitError> {
    let ty = rows.anchor.operands[operand].clone();
    let value = rows.anchor.read(&mut rows.kernel, operand, &index.broadcast_to(&ty))?;
    Ok(convert(&value, ty.dtype.compute(), dtype.compute(), true))
}

pub(super) fn layer_norm(op: &LayerNorm, mut rows: RowKernel<'_>) -> Result<Emitted, EmitError> {
    let dtype = rows.dtype();
    let ty = compute_type(dtype);
    let row = rows.open();
    statistics(&mut rows, &row, op.epsilon.0, dtype)?;
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty)?;
        let index = rows.index(&row, j);
        let scale = parameter(rows, 1, &index, dtype)?;
        let mut value = format!("({x} - mean) * factor * {scale}");
        if op.bias {
            let bias = parameter(rows, 2, &index, dtype)?;
            value = format!("{value} + {bias}");
        }
        rows.store(0, &index, &value)?;
        Ok(())
    })?;
    if op.statistics {
        rows.kernel.open("if (lane == 0)");
        for (output, name) in [(1, "mean"), (2, "factor")] {
            let index = rows.row_index(output, &row);
            rows.store(output, &index, name)?;
        }
        rows.kernel.close();
    }
    rows.finish("layer_norm")
}

pub(super) fn rms_norm(op: &RmsNorm, mut rows: RowKernel<'_>) -> Result<Emitted, EmitError> {
    let dtype = rows.dtype();
    let ty = compute_type(dtype);
    let root = if ty == "f32" { "sqrtf" } else { "sqrt" };
    let epsilon = literal(Number::Float(op.epsilon.0), dtype.compute());
    let row = rows.open();
    rows.keep(ty);
    rows.kernel.line(format!("{ty} square = 0;"));
    rows.pass(|rows, j, c| {
        let x = rows.first(&row, j, c, ty)?;
        rows.kernel.line(format!("square += {x} * {x};"));
        Ok(())
    })?;
    rows.combine("square", ty, "a + b");
    rows.kernel
        .line(format!("const {ty} factor = {ty}(1) / {root}(square / {ty}(length) + {epsilon});"));
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty)?;
        let index = rows.index(&row, j);
        let scale = parameter(rows, 1, &index, dtype)?;
        rows.store(0, &index, &format!("{x} * factor * {scale}"))?;
        Ok(())
    })?;
    rows.finish("rms_norm")
}

/// `[N, C, …]` in groups: a row is a group's channels, `[N, groups, C / groups, …]`.
pub(super) fn group_norm(
    op: &GroupNorm,
    step: &StepContext<'_>,
    anchor: Anchor<'_>,
) -> Result<Emitted, EmitError> {
    let x = anchor.operands[0].clone();
    let groups = Dim::from(op.groups);
    let inside = x.shape[1]
        .exact_div(&groups)
        .ok_or_else(|| EmitError::NoKernel { operator: anchor.op.to_string() })?;
    let mut shape = vec![x.shape[0].clone(), groups, inside.clone()];
    shape.extend_from_slice(&x.shape[2..]);
    let axes: Vec<usize> = (2..shape.len()).collect();
    let (dtype, ty) = (x.dtype, compute_type(x.dtype));
    let share = share(step, &shape, &axes);
    let mut rows = RowKernel::over(step, anchor, shape, axes, share);
    rows.split = Some(inside);
    let row = rows.open();
    statistics(&mut rows, &row, op.epsilon.0, dtype)?;
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty)?;
        let index = rows.index(&row, j);
        let channels = rows.anchor.operands[1].shape.clone();
        let channel = Index::at(&channels, vec![index.axes[1].clone()]);
        let scale = parameter(rows, 1, &channel, dtype)?;
        let bias = parameter(rows, 2, &channel, dtype)?;
        rows.store(0, &index, &format!("({x} - mean) * factor * {scale} + {bias}"))
    })?;
    rows.finish("group_norm")
}
