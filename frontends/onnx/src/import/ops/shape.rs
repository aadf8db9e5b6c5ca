//! Operators that ask for shapes, change them, or make tensors from them. Never arithmetic on
//! elements.

use super::index::filled;
use super::scalar::element_type;
use crate::import::context::NodeContext;
use crate::import::environment::DIMS_LIMIT;
use crate::import::fault::NodeError;
use crate::model::GraphDef;
use crate::tensors::TensorDef;
use membar_ir::op::TypeError;
use membar_ir::op::check;
use membar_ir::ops::{Bitcast, Broadcast, Concat, Iota, Reshape, Scalar, Transpose};
use membar_ir::{Axis, DType, Dim, Number, TensorType, ValueId};

type Outcome = Result<(), NodeError>;

/// `Shape`; `start` and `end` since opset 15.
pub(crate) fn shape(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let shape = cx.ty(0)?.shape;
    let rank = shape.len() as i64;
    let clamp =
        |position: i64| (if position < 0 { position + rank } else { position }).clamp(0, rank);
    let start = clamp(cx.attribute_or("start", 0)?) as usize;
    let end = clamp(cx.attribute_or("end", rank)?) as usize;
    let dims = shape.get(start..end).unwrap_or_default().to_vec();
    cx.output_dims(0, DType::I64, false, dims)
}

/// `Size`.
pub(crate) fn size(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let elements = cx.ty(0)?.elements();
    cx.output_dims(0, DType::I64, true, vec![elements])
}

/// Reshapes a value, unless it has the shape already.
pub(crate) fn reshaped(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    shape: Vec<Dim>,
) -> Result<ValueId, NodeError> {
    if cx.type_of(value).shape == shape {
        return Ok(value);
    }
    cx.emit(Reshape { shape }, &[value])
}

/// Sets result 0 to operand 0 under another shape; dimensions stay dimensions.
fn output_reshaped(cx: &mut NodeContext<'_, '_>, shape: Vec<Dim>) -> Outcome {
    let ty = cx.ty(0)?;
    if ty.shape == shape {
        let slot = cx.slot(0)?;
        return cx.output_slot(0, slot);
    }
    if let (0 | 1, Some(dims)) = (shape.len(), cx.known_dims(0)) {
        let asked = shape.first().map_or(Some(1), Dim::as_constant);
        if asked == Some(dims.len() as i64) {
            return cx.output_dims(0, ty.dtype, shape.is_empty(), dims);
        }
    }
    let x = cx.operand(0)?;
    let result = cx.emit(Reshape { shape }, &[x])?;
    cx.output(0, result)
}

/// `Reshape`: 0 keeps a dimension unless `allowzero`, and one -1 takes what is left.
pub(crate) fn reshape(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let asked = cx.dims(1)?;
    let from = cx.ty(0)?;
    let keep_zero = cx.flag("allowzero", false)?;
    let mut shape = Vec::with_capacity(asked.len());
    let mut open = None;
    for (index, dim) in asked.into_iter().enumerate() {
        if dim.is(-1) {
            if open.replace(index).is_some() {
                return Err(NodeError::new("the shape has two dimensions of -1"));
            }
            shape.push(Dim::ONE);
        } else if dim.is(0) && !keep_zero {
            let kept = from.shape.get(index).cloned();
            shape.push(kept.ok_or_else(|| {
                NodeError::new(format!("dimension {index} is 0, but the operand has no such one"))
            })?);
        } else {
            shape.push(dim);
        }
    }
    if let Some(open) = open {
        shape[open] = remaining(cx, &from, &shape)?;
    }
    output_reshaped(cx, shape)
}

/// The dimension that makes a shape have as many elements as a type. Dimensions that both have
/// are struck out first, so that they may be 0.
///
/// Where the others do not divide the number of elements, a leading one that is asked for under
/// another name is taken to be the leading one there: `view(batch, -1)` of a mask whose batch the
/// model calls otherwise.
fn remaining(
    cx: &mut NodeContext<'_, '_>,
    from: &TensorType,
    shape: &[Dim],
) -> Result<Dim, NodeError> {
    let (elements, divisor) = struck_out(from, shape);
    if divisor.is(0) {
        return Ok(Dim::ZERO);
    }
    if let Some(exact) = elements.exact_div(&divisor) {
        return Ok(exact);
    }
    if let (Some(had), Some(asked)) = (from.shape.first(), shape.first())
        && had.as_symbol().is_some()
        && asked.as_symbol().is_some()
    {
        cx.unify(asked, had, "leading dimensions")?;
    }
    let mut resolved = [elements, divisor];
    resolved.iter_mut().for_each(|dim| cx.symbols().resolve(dim));
    let [elements, divisor] = resolved;
    elements
        .floor_div(&divisor)
        .ok_or_else(|| NodeError::new("the shape leaves the dimension of -1 open"))
}

/// The number of elements of a type and of a shape, without the dimensions that both have.
fn struck_out(from: &TensorType, shape: &[Dim]) -> (Dim, Dim) {
    let mut left = from.shape.clone();
    let mut divisor = Dim::ONE;
    for dim in shape {
        match left.iter().position(|other| other == dim) {
            Some(position) => drop(left.remove(position)),
            None => divisor = divisor * dim.clone(),
        }
    }
    (left.into_iter().product(), divisor)
}

/// `Flatten`: to a matrix, split at an axis.
pub(crate) fn flatten(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let shape = cx.ty(0)?.shape;
    let axis = cx.attribute_or("axis", 1)?;
    let split = split_position(axis, shape.len())?;
    let (outer, inner) = shape.split_at(split);
    output_reshaped(cx, vec![outer.iter().cloned().product(), inner.iter().cloned().product()])
}

/// A position between dimensions: 0 to the rank, negative ones counted from the end.
pub(crate) fn split_position(axis: i64, rank: usize) -> Result<usize, NodeError> {
    let position = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(position) {
        Ok(position) if position <= rank => Ok(position),
        _ => Err(NodeError::new(format!("axis {axis} of a tensor of rank {rank}"))),
    }
}

/// Axes as an operand since opset 13, as an attribute before.
fn axes_operand(cx: &mut NodeContext<'_, '_>) -> Result<Option<Vec<i64>>, NodeError> {
    if cx.opset() < 13 {
        return Ok(cx.attribute::<&[i64]>("axes")?.map(<[i64]>::to_vec));
    }
    if cx.has(1) { cx.integers(1).map(Some) } else { Ok(None) }
}

/// `Squeeze`.
pub(crate) fn squeeze(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let shape = cx.ty(0)?.shape;
    let axes = match axes_operand(cx)? {
        Some(axes) => cx.axes(&axes, shape.len())?,
        None => {
            if let Some(dim) = shape.iter().find(|dim| dim.as_constant().is_none()) {
                return Err(NodeError::new(format!(
                    "without axes every dimension must be known, but `{dim}` is not"
                )));
            }
            let ones = shape.iter().enumerate().filter(|(_, dim)| dim.is(1));
            ones.map(|(index, _)| Axis::from(index)).collect()
        }
    };
    let mut kept = Vec::with_capacity(shape.len());
    for (index, dim) in shape.into_iter().enumerate() {
        if axes.contains(&Axis::from(index)) {
            cx.unify(&dim, &Dim::ONE, "a squeezed dimension")?;
        } else {
            kept.push(dim);
        }
    }
    output_reshaped(cx, kept)
}

/// `Unsqueeze`.
pub(crate) fn unsqueeze(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let shape = cx.ty(0)?.shape;
    let axes = axes_operand(cx)?.ok_or_else(|| NodeError::new("the axes are missing"))?;
    let axes = cx.axes(&axes, shape.len() + axes.len())?;
    let mut result = shape;
    for axis in axes {
        result.insert(axis.index(), Dim::ONE);
    }
    output_reshaped(cx, result)
}

/// `Transpose`: reverses the dimensions by default.
pub(crate) fn transpose(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let rank = cx.ty(0)?.rank();
    let perm: Vec<i64> = match cx.attribute::<&[i64]>("perm")? {
        Some(perm) => perm.to_vec(),
        None => (0..rank as i64).rev().collect(),
    };
    if perm.len() != rank {
        return Err(NodeError::new(format!("the permutation {perm:?} of a tensor of rank {rank}")));
    }
    cx.axes(&perm, rank)?;
    let perm = perm.iter().map(|axis| cx.axis(*axis, rank)).collect::<Result<Vec<_>, _>>()?;
    if perm.is_sorted() {
        let slot = cx.slot(0)?;
        return cx.output_slot(0, slot);
    }
    let x = cx.operand(0)?;
    let result = cx.emit(Transpose { perm }, &[x])?;
    cx.output(0, result)
}

/// Broadcasts a value to the shape that it and `shape` broadcast to. Dimensions that differ are
/// taken to be equal where they can be.
pub(crate) fn broadcast(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    shape: &[Dim],
) -> Result<ValueId, NodeError> {
    let from = cx.type_of(value).shape;
    let mut shape = shape.to_vec();
    let shape = loop {
        let from = cx.type_of(value).shape;
        shape.iter_mut().for_each(|dim| cx.symbols().resolve(dim));
        match check::broadcast(&from, &shape) {
            Ok(shape) => break shape,
            Err(TypeError::Mismatch { left, right, what }) => cx.unify(&left, &right, &what)?,
            Err(error) => return Err(NodeError::new(error.to_string())),
        }
    };
    if from == shape {
        return Ok(value);
    }
    cx.emit(Broadcast { shape }, &[value])
}

/// `Expand`.
pub(crate) fn expand(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let shape = cx.dims(1)?;
    if let ([length], Some(dims)) = (shape.as_slice(), cx.known_dims(0))
        && dims.len() == 1
        && let Some(length) = length.as_constant().and_then(|n| usize::try_from(n).ok())
        && length <= DIMS_LIMIT
    {
        let dtype = cx.ty(0)?.dtype;
        return cx.output_dims(0, dtype, false, vec![dims[0].clone(); length]);
    }
    let x = cx.operand(0)?;
    let result = broadcast(cx, x, &shape)?;
    cx.output(0, result)
}

/// `Tile`.
pub(crate) fn tile(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let repeats = cx.dims(1)?;
    let ty = cx.ty(0)?;
    if repeats.len() != ty.rank() {
        let (found, rank) = (repeats.len(), ty.rank());
        return Err(NodeError::new(format!("{found} repeats for a tensor of rank {rank}")));
    }
    if let ([count], Some(dims)) = (repeats.as_slice(), cx.known_dims(0))
        && let Some(count) = count.as_constant().and_then(|n| usize::try_from(n).ok())
        && count.checked_mul(dims.len()).is_some_and(|length| length <= DIMS_LIMIT)
    {
        let repeated = std::iter::repeat_n(dims, count).flatten().collect();
        return cx.output_dims(0, ty.dtype, false, repeated);
    }
    let mut x = cx.operand(0)?;
    let mut apart = Vec::with_capacity(2 * ty.rank());
    let mut repeated = Vec::with_capacity(2 * ty.rank());
    let mut result = Vec::with_capacity(ty.rank());
    for (dim, count) in ty.shape.iter().zip(&repeats) {
        if !count.is(1) {
            apart.push(Dim::ONE);
            repeated.push(count.clone());
        }
        apart.push(dim.clone());
        repeated.push(dim.clone());
        result.push(dim.clone() * count.clone());
    }
    if apart.len() > ty.rank() {
        x = cx.emit(Reshape { shape: apart }, &[x])?;
        x = cx.emit(Broadcast { shape: repeated }, &[x])?;
        x = cx.emit(Reshape { shape: result }, &[x])?;
    }
    cx.output(0, x)
}

/// `Concat`.
pub(crate) fn concat(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let first = cx.ty(0)?;
    let axis = cx.axis(cx.required("axis")?, first.rank())?;
    let parts: Option<Vec<Vec<Dim>>> =
        (0..cx.operand_count()).map(|index| cx.known_dims(index)).collect();
    if let Some(parts) = parts {
        let dims = parts.concat();
        if dims.len() <= DIMS_LIMIT {
            return cx.output_dims(0, first.dtype, false, dims);
        }
    }
    let operands = cx.all_operands()?;
    if let [single] = operands.as_slice() {
        return cx.output(0, *single);
    }
    let result = cx.emit(Concat { axis }, &operands)?;
    cx.output(0, result)
}

/// `Identity`, and what is one at inference.
pub(crate) fn identity(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let slot = cx.slot(0)?;
    cx.output_slot(0, slot)
}

/// `Dropout` at inference: the identity, and a mask of all true.
pub(crate) fn dropout(cx: &mut NodeContext<'_, '_>) -> Outcome {
    if cx.has(2) {
        let training = cx.known_constant(2)?.and_then(|tensor| tensor.numbers().next());
        if training.is_none_or(Number::to_bool) {
            return Err(NodeError::new("training mode"));
        }
    }
    if cx.wants(1) {
        let shape = cx.ty(0)?.shape;
        let mask = filled(cx, DType::Bool, Number::Bool(true), shape)?;
        cx.output(1, mask)?;
    }
    identity(cx)
}

/// `Constant`: one of several attributes.
pub(crate) fn constant(cx: &mut NodeContext<'_, '_>) -> Outcome {
    if let Some(tensor) = cx.attribute::<&TensorDef>("value")? {
        return cx.output_constant(0, tensor);
    }
    if let Some(value) = cx.attribute::<i64>("value_int")? {
        return cx.output_dims(0, DType::I64, true, vec![Dim::from(value)]);
    }
    let value = if let Some(value) = cx.attribute::<f32>("value_float")? {
        cx.scalar(DType::F32, value.into())?
    } else if let Some(values) = cx.attribute::<&[i64]>("value_ints")? {
        cx.literal(DType::I64, &[values.len()], values.iter().copied().map(Number::Signed))?
    } else if let Some(values) = cx.attribute::<&[f32]>("value_floats")? {
        let numbers = values.iter().map(|value| Number::Float((*value).into()));
        cx.literal(DType::F32, &[values.len()], numbers)?
    } else {
        return Err(NodeError::new("no attribute with a number or a tensor of numbers"));
    };
    cx.output(0, value)
}

/// `ConstantOfShape`.
pub(crate) fn constant_of_shape(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let shape = cx.dims(0)?;
    let (dtype, number) = match cx.attribute::<&TensorDef>("value")? {
        Some(tensor) => {
            let tensor = cx.read(tensor)?;
            let number = tensor.numbers().next();
            (tensor.dtype(), number.ok_or_else(|| NodeError::new("an empty value"))?)
        }
        None => (DType::F32, Number::Float(0.0)),
    };
    if let ([length], true) =
        (shape.as_slice(), matches!(dtype, DType::I64 | DType::I32 | DType::Bool))
        && let Some(length) = length.as_constant().and_then(|n| usize::try_from(n).ok())
        && length <= DIMS_LIMIT
        && let Some(value) = number.to_i64()
    {
        return cx.output_dims(0, dtype, false, vec![Dim::from(value); length]);
    }
    let result = filled(cx, dtype, number, shape)?;
    cx.output(0, result)
}

/// `Range`: of integers between dimensions, or of constants.
pub(crate) fn range(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let dtype = cx.ty(0)?.dtype;
    if let (Some(start), Some(limit), Some(delta)) =
        (first_dim(cx, 0), first_dim(cx, 1), first_dim(cx, 2))
    {
        return integer_range(cx, dtype, &start, &limit, &delta);
    }
    let mut constants = [0.0; 3];
    for (index, constant) in constants.iter_mut().enumerate() {
        let number = cx.known_constant(index)?.and_then(|tensor| tensor.numbers().next());
        *constant = number.map(Number::to_float).ok_or_else(|| {
            NodeError::new(format!("operand {index} is data, so the shape of the result would be"))
        })?;
    }
    let [start, limit, delta] = constants;
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !count.is_finite() || count > i64::MAX as f64 {
        return Err(NodeError::new(format!("{count} elements")));
    }
    let shape = vec![Dim::from(count as i64)];
    let mut result = cx.emit(Iota { shape, axis: Axis(0), dtype }, &[])?;
    if delta != 1.0 {
        let delta = cx.scalar(dtype, delta)?;
        result = cx.emit(Scalar::Mul, &[result, delta])?;
    }
    if start != 0.0 {
        let start = cx.scalar(dtype, start)?;
        result = cx.emit(Scalar::Add, &[result, start])?;
    }
    cx.output(0, result)
}

fn first_dim(cx: &mut NodeContext<'_, '_>, index: usize) -> Option<Dim> {
    cx.known_dims(index)?.into_iter().next()
}

fn integer_range(
    cx: &mut NodeContext<'_, '_>,
    dtype: DType,
    start: &Dim,
    limit: &Dim,
    delta: &Dim,
) -> Outcome {
    let Some(step) = delta.as_constant().filter(|step| *step != 0) else {
        return Err(NodeError::new(format!("a step of `{delta}`; a constant is expected")));
    };
    let count = (limit.clone() - start.clone()).ceil_div(delta);
    let count = count.ok_or_else(|| NodeError::new("a step of 0"))?;
    let count = cx.symbols().maximum(&count, &Dim::ZERO);
    if let (Some(start), Some(count)) = (start.as_constant(), count.as_constant())
        && count <= DIMS_LIMIT as i64
    {
        let dims = (0..count).map(|index| Dim::from(start) + Dim::from(index) * Dim::from(step));
        return cx.output_dims(0, dtype, false, dims.collect());
    }
    let mut result = cx.emit(Iota { shape: vec![count], axis: Axis(0), dtype }, &[])?;
    if step != 1 {
        let step = cx.literal(dtype, &[], [Number::Signed(step)])?;
        result = cx.emit(Scalar::Mul, &[result, step])?;
    }
    if !start.is(0) {
        let start = cx.dim_value(start)?;
        let start = super::scalar::convert(cx, start, dtype, true)?;
        result = cx.emit(Scalar::Add, &[result, start])?;
    }
    cx.output(0, result)
}

/// Indices of the rows `[rows, 1]` and of the columns `[1, columns]` of a matrix.
pub(crate) fn row_and_column(
    cx: &mut NodeContext<'_, '_>,
    rows: &Dim,
    columns: &Dim,
) -> Result<(ValueId, ValueId), NodeError> {
    let dtype = DType::I64;
    let row = Iota { shape: vec![rows.clone(), Dim::ONE], axis: Axis(0), dtype };
    let column = Iota { shape: vec![Dim::ONE, columns.clone()], axis: Axis(1), dtype };
    Ok((cx.emit(row, &[])?, cx.emit(column, &[])?))
}

/// `If` whose condition is known: the branch takes the node's place.
pub(crate) fn if_(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let condition = cx.known_constant(0)?.and_then(|tensor| tensor.numbers().next());
    let Some(condition) = condition else {
        return Err(NodeError::new("the condition depends on data or on the value of a dimension"));
    };
    let name = if condition.to_bool() { "then_branch" } else { "else_branch" };
    let branch: &GraphDef = cx.required(name)?;
    cx.take_branch(branch)
}

/// `BitCast`: the same bits as another element type of the same width.
pub(crate) fn bit_cast(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let dtype = element_type(cx.required("to")?)?;
    let ty = cx.ty(0)?;
    if ty.dtype.bits() != dtype.bits() {
        return Err(NodeError::new(format!("bits of {} as {dtype}", ty.dtype)));
    }
    let x = cx.operand(0)?;
    let result = cx.emit(Bitcast { dtype, shape: ty.shape }, &[x])?;
    cx.output(0, result)
}
