//! Operators that move elements, as functions of the result's position. Must never compute with the
//! elements that it moves.

use super::EmitError;
use super::dims::compute_type;
use super::index::{Index, ravel};
use super::kernel::KernelBuilder;
use super::pointwise::{Applied, Reads};
use super::scalar::literal;
use membar_ir::dim::Dim;
use membar_ir::element::Number;
use membar_ir::ops::{Gather, GatherElements, GatherNd, Op, Pad, PadMode, TensorScatter};
use membar_ir::types::Axis;

/// Whether [`at`] knows the operator.
pub(crate) fn is_movement(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Broadcast(_)
            | Op::Slice(_)
            | Op::Concat(_)
            | Op::Append(_)
            | Op::Pad(_)
            | Op::Gather(_)
            | Op::GatherElements(_)
            | Op::GatherNd(_)
            | Op::TensorScatter(_)
            | Op::Iota(_)
            | Op::Dims(_)
    )
}

/// The result's element at `index`.
pub(crate) fn at(
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let types = applied.operands;
    match applied.op {
        Op::Reshape(_) => {
            let number = index.linear.clone().unwrap_or_else(|| {
                let number = ravel(kernel, &index.axes, &index.shape);
                kernel.bind("idx", "n", number)
            });
            let source = Index::unravel(kernel, &number, &types[0].shape);
            reads.read(kernel, 0, &source)
        }
        Op::Transpose(op) => {
            let mut axes = vec![String::new(); index.axes.len()];
            for (axis, from) in index.axes.iter().zip(&op.perm) {
                axes[from.index()] = axis.clone();
            }
            reads.read(kernel, 0, &Index::at(&types[0].shape, axes))
        }
        Op::Broadcast(_) => reads.read(kernel, 0, &index.broadcast_to(&types[0])),
        Op::Slice(op) => {
            let mut axes = Vec::with_capacity(index.axes.len());
            for ((axis, start), step) in index.axes.iter().zip(&op.starts).zip(&op.steps) {
                axes.push(affine(kernel, axis, start, *step));
            }
            reads.read(kernel, 0, &Index::at(&types[0].shape, axes))
        }
        Op::Concat(op) => joined(applied, op.axis, index, kernel, reads),
        Op::Append(op) => joined(applied, op.axis, index, kernel, reads),
        Op::Pad(op) => pad(op, applied, index, kernel, reads),
        Op::Gather(op) => gather(op, applied, index, kernel, reads),
        Op::GatherElements(op) => gather_elements(op, applied, index, kernel, reads),
        Op::GatherNd(op) => gather_nd(op, applied, index, kernel, reads),
        Op::TensorScatter(op) => tensor_scatter(op, applied, index, kernel, reads),
        Op::Iota(op) => {
            let axis = &index.axes[op.axis.index()];
            Ok(format!("{}({axis})", compute_type(op.dtype)))
        }
        Op::Dims(op) => {
            let mut text = "0".to_string();
            for (position, dim) in op.values.iter().enumerate().rev() {
                let value = kernel.dim(dim);
                text = format!("({} == {position} ? i64({value}) : {text})", index.axes[0]);
            }
            Ok(format!("i64({text})"))
        }
        op => Err(EmitError::NoKernel { operator: op.to_string() }),
    }
}

/// `start + step · axis`.
fn affine(kernel: &KernelBuilder<'_>, axis: &str, start: &Dim, step: i64) -> String {
    let moved = match step {
        _ if axis == "0" => "0".to_string(),
        1 => axis.to_string(),
        step => format!("{axis} * ({step})"),
    };
    match (start.is(0), moved.as_str()) {
        (true, _) => moved,
        (false, "0") => kernel.dim(start),
        (false, _) => format!("({} + {moved})", kernel.dim(start)),
    }
}

fn joined(
    applied: &Applied<'_>,
    axis: Axis,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let axis = axis.index();
    let ty = compute_type(applied.output.dtype);
    let value = kernel.name("v");
    kernel.line(format!("{ty} {value};"));
    let mut begin = Dim::ZERO;
    let last = applied.operands.len() - 1;
    for (operand, operand_type) in applied.operands.iter().enumerate() {
        let end = begin.clone() + operand_type.shape[axis].clone();
        let coordinate = affine(kernel, &index.axes[axis], &(-begin.clone()), 1);
        if operand < last {
            let end = kernel.dim(&end);
            let condition = format!("if ({} < {end})", index.axes[axis]);
            if operand == 0 {
                kernel.open(condition);
            } else {
                kernel.close_with(&format!("}} else {condition} {{"));
                kernel.open_again();
            }
        } else if last > 0 {
            kernel.close_with("} else {");
            kernel.open_again();
        }
        let source = index.with_axis(&operand_type.shape, axis, coordinate);
        let read = reads.read(kernel, operand, &source)?;
        kernel.line(format!("{value} = {read};"));
        begin = end;
    }
    if last > 0 {
        kernel.close();
    }
    Ok(value)
}

fn pad(
    op: &Pad,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let x = &applied.operands[0];
    let mut axes = Vec::with_capacity(index.axes.len());
    let mut conditions = Vec::new();
    for (axis, coordinate) in index.axes.iter().enumerate() {
        let (before, after) = (&op.before[axis], &op.after[axis]);
        if before.is(0) && after.is(0) {
            axes.push(coordinate.clone());
            continue;
        }
        let extent = kernel.dim(&x.shape[axis]);
        let position = affine(kernel, coordinate, &(-before.clone()), 1);
        let position = kernel.bind("idx", "p", position);
        axes.push(match op.mode {
            PadMode::Constant => {
                conditions.push(format!("{position} >= 0 && {position} < {extent}"));
                position
            }
            PadMode::Edge => format!("max(idx(0), min(idx({extent} - 1), {position}))"),
            PadMode::Wrap => format!("dim_mod({position}, idx({extent}))"),
            PadMode::Reflect => {
                let period =
                    kernel.bind("idx", "q", format!("max(idx(2 * ({extent} - 1)), idx(1))"));
                let phase = kernel.bind("idx", "p", format!("dim_mod({position}, {period})"));
                kernel.bind(
                    "idx",
                    "p",
                    format!("{phase} < {extent} ? {phase} : {period} - {phase}"),
                )
            }
        });
    }
    let source = Index::at(&x.shape, axes);
    if conditions.is_empty() {
        return reads.read(kernel, 0, &source);
    }
    let scalar = Index::at(&[], Vec::new());
    let fill = reads.read(kernel, 1, &scalar)?;
    let value = kernel.name("v");
    kernel.line(format!("{} {value} = {fill};", compute_type(x.dtype)));
    kernel.open(format!("if ({})", conditions.join(" && ")));
    let read = reads.read(kernel, 0, &source)?;
    kernel.line(format!("{value} = {read};"));
    kernel.close();
    Ok(value)
}

/// An index from data, resolved against a dimension.
pub(crate) struct Resolved {
    pub coordinate: String,
    /// Whether it is in range.
    pub condition: String,
}

/// Resolves an index from data: negative ones count from the end. One out of range is reported; what
/// it would reach must not be touched.
pub(crate) fn resolve(kernel: &mut KernelBuilder<'_>, index: &str, extent: &Dim) -> Resolved {
    let faults = kernel.faults();
    let extent = kernel.bind("i64", "e", format!("i64({})", kernel.dim(extent)));
    let given = kernel.bind("i64", "g", format!("i64({index})"));
    let found = kernel.bind("i64", "g", format!("{given} < 0 ? {given} + {extent} : {given}"));
    let inside = kernel.bind("bool", "ok", format!("{found} >= 0 && {found} < {extent}"));
    kernel.line(format!("if (!{inside}) report_index({faults}, step, {given}, {extent});"));
    Resolved { coordinate: format!("idx({found})"), condition: inside }
}

/// Reads operand 0 where all of `resolved` are in range, else 0.
fn guarded(
    applied: &Applied<'_>,
    resolved: &[Resolved],
    source: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let dtype = applied.output.dtype;
    let value = kernel.name("v");
    let zero = literal(Number::Signed(0), dtype.compute());
    kernel.line(format!("{} {value} = {zero};", compute_type(dtype)));
    let conditions: Vec<&str> = resolved.iter().map(|r| r.condition.as_str()).collect();
    let conditions = if conditions.is_empty() { "true".into() } else { conditions.join(" && ") };
    kernel.open(format!("if ({conditions})"));
    let read = reads.read(kernel, 0, source)?;
    kernel.line(format!("{value} = {read};"));
    kernel.close();
    Ok(value)
}

fn gather(
    op: &Gather,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let (data, indices) = (&applied.operands[0], &applied.operands[1]);
    let axis = op.axis.index();
    let inner = axis + indices.rank();
    let at = Index::at(&indices.shape, index.axes[axis..inner].to_vec());
    let read = reads.read(kernel, 1, &at)?;
    let resolved = resolve(kernel, &read, &data.shape[axis]);
    let mut axes = index.axes[..axis].to_vec();
    axes.push(resolved.coordinate.clone());
    axes.extend_from_slice(&index.axes[inner..]);
    guarded(applied, &[resolved], &Index::at(&data.shape, axes), kernel, reads)
}

fn gather_elements(
    op: &GatherElements,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let (data, axis) = (&applied.operands[0], op.axis.index());
    let read = reads.read(kernel, 1, index)?;
    let resolved = resolve(kernel, &read, &data.shape[axis]);
    let source = index.with_axis(&data.shape, axis, resolved.coordinate.clone());
    guarded(applied, &[resolved], &source, kernel, reads)
}

fn gather_nd(
    op: &GatherNd,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let (data, indices) = (&applied.operands[0], &applied.operands[1]);
    let batch = op.batch_dims as usize;
    let outer = indices.rank() - 1;
    let length = indices.shape[outer].as_constant().unwrap_or(0);
    let mut resolved = Vec::new();
    for item in 0..length as usize {
        let mut at = index.axes[..outer].to_vec();
        at.push(item.to_string());
        let read = reads.read(kernel, 1, &Index::at(&indices.shape, at))?;
        resolved.push(resolve(kernel, &read, &data.shape[batch + item]));
    }
    let mut axes = index.axes[..batch].to_vec();
    axes.extend(resolved.iter().map(|r| r.coordinate.clone()));
    axes.extend_from_slice(&index.axes[outer..]);
    guarded(applied, &resolved, &Index::at(&data.shape, axes), kernel, reads)
}

fn tensor_scatter(
    op: &TensorScatter,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let (cache, update) = (&applied.operands[0], &applied.operands[1]);
    let axis = op.axis.index();
    let start = if op.indices {
        let at = Index::at(&applied.operands[2].shape, vec![index.axes[0].clone()]);
        reads.read(kernel, 2, &at)?
    } else {
        "0".to_string()
    };
    let start = kernel.bind("i64", "s", format!("i64({start})"));
    let capacity = kernel.bind("i64", "e", format!("i64({})", kernel.dim(&cache.shape[axis])));
    let rows = kernel.bind("i64", "n", format!("i64({})", kernel.dim(&update.shape[axis])));
    let first = if op.circular {
        kernel.bind("i64", "s", format!("dim_mod({start}, {capacity})"))
    } else {
        let faults = kernel.faults();
        let fits =
            kernel.bind("bool", "ok", format!("{start} >= 0 && {start} + {rows} <= {capacity}"));
        kernel.line(format!("if (!{fits}) report_index({faults}, step, {start}, {capacity});"));
        // Out of range: nothing is written.
        kernel.bind("i64", "s", format!("{fits} ? {start} : {capacity}"))
    };
    let behind = format!("i64({}) - {first}", index.axes[axis]);
    let row = if op.circular { format!("dim_mod({behind}, {capacity})") } else { behind };
    let row = kernel.bind("i64", "r", row);
    let value = kernel.name("v");
    kernel.line(format!("{} {value};", compute_type(cache.dtype)));
    kernel.open(format!("if ({row} >= 0 && {row} < {rows})"));
    let source = index.with_axis(&update.shape, axis, format!("idx({row})"));
    let read = reads.read(kernel, 1, &source)?;
    kernel.line(format!("{value} = {read};"));
    kernel.close_with("} else {");
    kernel.open_again();
    let read = reads.read(kernel, 0, index)?;
    kernel.line(format!("{value} = {read};"));
    kernel.close();
    Ok(value)
}
