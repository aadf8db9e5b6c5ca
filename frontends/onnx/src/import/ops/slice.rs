//! `Slice` and `Split`: parts of tensors along axes. Never elements chosen by data.

use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use crate::import::symbols::Symbols;
use membar_ir::ops::Slice;
use membar_ir::{Axis, Dim, ValueId};

type Outcome = Result<(), NodeError>;

/// Limits from here on stand for the end: exporters write the greatest 32-bit or 64-bit integer,
/// or a round 10^9 (JAX). No dimension of a tensor that fits a machine is that long.
const TO_THE_END: i64 = 1_000_000_000;

/// `Slice`: limits as attributes before opset 10, as operands since.
pub(crate) fn slice(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let (starts, ends, axes, steps) = limits(cx)?;
    let axes = match axes {
        Some(axes) => axes,
        None => (0..starts.len() as i64).collect(),
    };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(NodeError::new("starts, ends, axes and steps differ in length"));
    }
    cx.axes(&axes, ty.rank())?;
    let mut part = Slice {
        starts: vec![Dim::ZERO; ty.rank()],
        sizes: ty.shape.clone(),
        steps: vec![1; ty.rank()],
    };
    for (index, axis) in axes.iter().enumerate() {
        let axis = cx.axis(*axis, ty.rank())?.index();
        let (extent, step) = (&ty.shape[axis], steps[index]);
        let (start, size) = extent_of(cx.symbols(), extent, &starts[index], &ends[index], step)?;
        part.starts[axis] = start;
        part.sizes[axis] = size;
        part.steps[axis] = step;
    }
    if let Some(dims) = cx.known_dims(0)
        && let Some(taken) = taken(&dims, &part)
    {
        return cx.output_dims(0, ty.dtype, false, taken);
    }
    if part.sizes == ty.shape && part.steps.iter().all(|step| *step == 1) {
        let slot = cx.slot(0)?;
        return cx.output_slot(0, slot);
    }
    let x = cx.operand(0)?;
    let result = cx.emit(part, &[x])?;
    cx.output(0, result)
}

type Limits = (Vec<Dim>, Vec<Dim>, Option<Vec<i64>>, Option<Vec<i64>>);

fn limits(cx: &mut NodeContext<'_, '_>) -> Result<Limits, NodeError> {
    if cx.opset() < 10 {
        let dims = |values: &[i64]| values.iter().copied().map(Dim::from).collect();
        let starts = dims(cx.required("starts")?);
        let ends = dims(cx.required("ends")?);
        return Ok((starts, ends, cx.attribute::<&[i64]>("axes")?.map(<[i64]>::to_vec), None));
    }
    let (starts, ends) = (cx.dims(1)?, cx.dims(2)?);
    let axes = if cx.has(3) { Some(cx.integers(3)?) } else { None };
    let steps = if cx.has(4) { Some(cx.integers(4)?) } else { None };
    Ok((starts, ends, axes, steps))
}

/// First element and number of elements along one dimension.
///
/// Constant limits are clamped to the dimension, as ONNX says. A limit that is itself a dimension
/// is taken to lie inside: exporters cut masks and tables to lengths that are there, and a length
/// that is not is an error when the graph runs.
fn extent_of(
    symbols: &Symbols,
    extent: &Dim,
    start: &Dim,
    end: &Dim,
    step: i64,
) -> Result<(Dim, Dim), NodeError> {
    let last = extent.clone() - Dim::ONE;
    let (start, end) = if step > 0 {
        (
            limit(symbols, extent, start, &Dim::ZERO, extent)?,
            limit(symbols, extent, end, &Dim::ZERO, extent)?,
        )
    } else {
        (
            limit(symbols, extent, start, &Dim::ZERO, &last)?,
            limit(symbols, extent, end, &Dim::from(-1), &last)?,
        )
    };
    let distance = end - start.clone();
    let count = distance.ceil_div(&Dim::from(step));
    let count = count.ok_or_else(|| NodeError::new("a step of 0"))?;
    Ok((start, symbols.maximum(&count, &Dim::ZERO)))
}

fn limit(
    symbols: &Symbols,
    extent: &Dim,
    limit: &Dim,
    least: &Dim,
    greatest: &Dim,
) -> Result<Dim, NodeError> {
    if let Some(value) = limit.as_constant() {
        if value >= TO_THE_END {
            return Ok(greatest.clone());
        }
        if value <= -TO_THE_END {
            return Ok(least.clone());
        }
        let position = if value < 0 { extent.clone() + Dim::from(value) } else { Dim::from(value) };
        return Ok(symbols.maximum(&symbols.minimum(&position, greatest), least));
    }
    let position = match symbols.at_least(limit, &Dim::ZERO) {
        Some(true) => limit.clone(),
        Some(false) => extent.clone() + limit.clone(),
        None => {
            return Err(NodeError::new(format!(
                "a limit of `{limit}`, which may be negative or not"
            )));
        }
    };
    let outside = symbols.at_least(&position, greatest) == Some(true);
    Ok(if outside { greatest.clone() } else { position })
}

/// The elements of a vector of dimensions that a constant part takes.
fn taken(dims: &[Dim], part: &Slice) -> Option<Vec<Dim>> {
    let start = part.starts.first()?.as_constant()?;
    let size = part.sizes.first()?.as_constant()?;
    let step = *part.steps.first()?;
    (0..size).map(|index| dims.get(usize::try_from(start + index * step).ok()?).cloned()).collect()
}

/// The elements from `start` on along an axis.
pub(crate) fn section(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    axis: Axis,
    start: Dim,
    size: Dim,
) -> Result<ValueId, NodeError> {
    let shape = cx.type_of(value).shape;
    let mut part =
        Slice { starts: vec![Dim::ZERO; shape.len()], steps: vec![1; shape.len()], sizes: shape };
    part.starts[axis.index()] = start;
    part.sizes[axis.index()] = size;
    cx.emit(part, &[value])
}

/// `Split`: into equal parts, or parts of given sizes (an attribute before opset 13, an operand
/// since).
pub(crate) fn split(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let outputs = cx.result_count();
    let ty = cx.ty(0)?;
    let axis = cx.axis(cx.attribute_or("axis", 0)?, ty.rank())?;
    let extent = &ty.shape[axis.index()];
    let sizes = if cx.opset() < 13 {
        cx.attribute::<&[i64]>("split")?.map(|sizes| sizes.iter().copied().map(Dim::from).collect())
    } else if cx.has(1) {
        Some(cx.dims(1)?)
    } else {
        None
    };
    let sizes: Vec<Dim> = match sizes {
        Some(sizes) => sizes,
        None => equal_parts(extent, cx.attribute_or("num_outputs", outputs as i64)?)?,
    };
    if sizes.len() < outputs {
        let found = sizes.len();
        return Err(NodeError::new(format!("{found} sizes for {outputs} results")));
    }
    if let Some(negative) = sizes.iter().find(|size| size.as_constant().is_some_and(|n| n < 0)) {
        return Err(NodeError::new(format!("a part of size {negative}")));
    }
    let total: Dim = sizes.iter().cloned().sum();
    cx.unify(&total, extent, "the sizes and the dimension that is split")?;
    let dims = cx.known_dims(0);
    let mut start = Dim::ZERO;
    for (index, size) in sizes.into_iter().enumerate() {
        if cx.wants(index) {
            let part =
                Slice { starts: vec![start.clone()], sizes: vec![size.clone()], steps: vec![1] };
            match dims.as_ref().and_then(|dims| taken(dims, &part)) {
                Some(taken) => cx.output_dims(index, ty.dtype, false, taken)?,
                None => {
                    let x = cx.operand(0)?;
                    let part = section(cx, x, axis, start.clone(), size.clone())?;
                    cx.output(index, part)?;
                }
            }
        }
        start = start + size;
    }
    Ok(())
}

/// Parts of equal size, the last one smaller if the dimension does not divide evenly.
fn equal_parts(extent: &Dim, count: i64) -> Result<Vec<Dim>, NodeError> {
    let limit = 1 << 16;
    if !(1..=limit).contains(&count) {
        return Err(NodeError::new(format!("{count} parts; 1 to {limit} are possible")));
    }
    let size = extent.ceil_div(&Dim::from(count));
    let size = size.ok_or_else(|| NodeError::new("no parts"))?;
    let mut sizes = vec![size.clone(); count as usize - 1];
    sizes.push(extent.clone() - size * Dim::from(count - 1));
    Ok(sizes)
}
