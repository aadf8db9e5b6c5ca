//! Operators that read or write by index. Never a result whose shape depends on indices' values.

use super::scalar::convert;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::ops::{
    Broadcast, Gather, GatherElements, GatherNd, Iota, Reshape, Scalar, ScatterElements, ScatterNd,
    ScatterReduction, TensorScatter, TopK,
};
use membar_ir::{DType, Dim, Number};

type Outcome = Result<(), NodeError>;

/// `Gather`.
pub(crate) fn gather(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let data = cx.ty(0)?;
    let axis = cx.axis(cx.attribute_or("axis", 0)?, data.rank())?;
    if data.rank() == 1
        && let (Some(dims), Some(indices)) = (cx.known_dims(0), cx.known_dims(1))
    {
        let scalar = cx.ty(1)?.rank() == 0;
        let length = dims.len() as i64;
        let at = |index: &Dim| {
            let index = index.as_constant()?;
            let index = if index < 0 { index + length } else { index };
            dims.get(usize::try_from(index).ok()?).cloned()
        };
        if let Some(taken) = indices.iter().map(at).collect() {
            return cx.output_dims(0, data.dtype, scalar, taken);
        }
    }
    let operands = [cx.operand(0)?, cx.operand(1)?];
    let result = cx.emit(Gather { axis }, &operands)?;
    cx.output(0, result)
}

/// `GatherElements`.
pub(crate) fn gather_elements(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let rank = cx.ty(0)?.rank();
    let axis = cx.axis(cx.attribute_or("axis", 0)?, rank)?;
    let operands = [cx.operand(0)?, cx.operand(1)?];
    let result = cx.emit(GatherElements { axis }, &operands)?;
    cx.output(0, result)
}

/// `GatherND`.
pub(crate) fn gather_nd(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let batch_dims = cx.attribute_or("batch_dims", 0)?;
    let batch_dims = u32::try_from(batch_dims)
        .map_err(|_| NodeError::new(format!("batch_dims = {batch_dims}")))?;
    let operands = [cx.operand(0)?, cx.operand(1)?];
    let result = cx.emit(GatherNd { batch_dims }, &operands)?;
    cx.output(0, result)
}

fn reduction(cx: &NodeContext<'_, '_>) -> Result<ScatterReduction, NodeError> {
    Ok(match cx.attribute_or("reduction", "none")? {
        "none" => ScatterReduction::Replace,
        "add" => ScatterReduction::Add,
        "mul" => ScatterReduction::Mul,
        "max" => ScatterReduction::Max,
        "min" => ScatterReduction::Min,
        other => return Err(NodeError::new(format!("reduction `{other}`"))),
    })
}

/// `ScatterElements`, and `Scatter`, its name before opset 11.
pub(crate) fn scatter_elements(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let rank = cx.ty(0)?.rank();
    let axis = cx.axis(cx.attribute_or("axis", 0)?, rank)?;
    let reduction = reduction(cx)?;
    let operands = [cx.operand(0)?, cx.operand(1)?, cx.operand(2)?];
    let result = cx.emit(ScatterElements { axis, reduction }, &operands)?;
    cx.output(0, result)
}

/// `ScatterND`.
pub(crate) fn scatter_nd(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let reduction = reduction(cx)?;
    let operands = [cx.operand(0)?, cx.operand(1)?, cx.operand(2)?];
    let result = cx.emit(ScatterNd { reduction }, &operands)?;
    cx.output(0, result)
}

/// `TensorScatter`.
pub(crate) fn tensor_scatter(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let rank = cx.ty(0)?.rank();
    let axis = cx.axis(cx.attribute_or("axis", -2)?, rank)?;
    let circular = match cx.attribute_or("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(NodeError::new(format!("mode `{other}`"))),
    };
    let mut operands = vec![cx.operand(0)?, cx.operand(1)?];
    let indices = cx.has(2);
    if indices {
        let value = cx.operand(2)?;
        operands.push(convert(cx, value, DType::I64, true)?);
    }
    let result = cx.emit(TensorScatter { axis, indices, circular }, &operands)?;
    cx.output(0, result)
}

/// `TopK`: k as an attribute before opset 10, as an operand since.
pub(crate) fn top_k(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let rank = cx.ty(0)?.rank();
    let axis = cx.axis(cx.attribute_or("axis", -1)?, rank)?;
    let largest = cx.flag("largest", true)?;
    let k = if cx.opset() < 10 {
        Dim::from(cx.required::<i64>("k")?)
    } else {
        let k = cx.dims(1)?;
        k.first().cloned().ok_or_else(|| NodeError::new("k is empty"))?
    };
    let x = cx.operand(0)?;
    let results = cx.emit_all(TopK { axis, k, largest }, &[x])?;
    for (index, result) in results.into_iter().enumerate() {
        cx.output(index, result)?;
    }
    Ok(())
}

/// `OneHot`: negative indices count from the end; others out of range give a row of `off`.
pub(crate) fn one_hot(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let indices = cx.operand(0)?;
    let indices = convert(cx, indices, DType::I64, true)?;
    let shape = cx.type_of(indices).shape;
    let axis = cx.axis(cx.attribute_or("axis", -1)?, shape.len() + 1)?;
    let depth = match cx.known_dims(1) {
        Some(dims) => dims.first().cloned(),
        None => cx.constant(1)?.numbers().next().and_then(Number::to_i64).map(Dim::from),
    };
    let depth = depth.ok_or_else(|| NodeError::new("the depth is empty"))?;

    let mut column = shape;
    column.insert(axis.index(), Dim::ONE);
    let indices = cx.emit(Reshape { shape: column }, &[indices])?;
    let zero = cx.scalar(DType::I64, 0.0)?;
    let negative = cx.emit(Scalar::Less, &[indices, zero])?;
    let length = cx.dim_value(&depth)?;
    let wrapped = cx.emit(Scalar::Add, &[indices, length])?;
    let indices = cx.emit(Scalar::Select, &[negative, wrapped, indices])?;

    let inner = cx.type_of(indices).rank() - axis.index() - 1;
    // Few classes are a literal, so that what constants decide is constant: PyTorch's older
    // exporter computes the repeats of `repeat_interleave` by `OneHot`.
    let classes = match depth.as_constant() {
        Some(count @ 0..=64) => {
            let mut row = vec![1; inner + 1];
            row[0] = count as usize;
            cx.literal(DType::I64, &row, (0..count).map(Number::Signed))?
        }
        _ => {
            let mut row = vec![Dim::ONE; inner + 1];
            row[0] = depth;
            cx.emit(Iota { shape: row, axis: 0usize.into(), dtype: DType::I64 }, &[])?
        }
    };
    let hot = cx.emit(Scalar::Equal, &[indices, classes])?;

    let values = cx.operand(2)?;
    let mut pair = [values; 2];
    for (index, value) in pair.iter_mut().enumerate() {
        let position = cx.literal(DType::I64, &[], [Number::Signed(index as i64)])?;
        *value = cx.emit(Gather { axis: 0usize.into() }, &[values, position])?;
    }
    let [off, on] = pair;
    let result = cx.emit(Scalar::Select, &[hot, on, off])?;
    cx.output(0, result)
}

/// `EyeLike`: ones on the `k`-th diagonal.
pub(crate) fn eye_like(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let [rows, columns] = ty.shape.as_slice() else {
        return Err(NodeError::new(format!("an operand of rank {}; 2 is expected", ty.rank())));
    };
    let dtype = match cx.attribute::<i64>("dtype")? {
        Some(code) => super::scalar::element_type(code)?,
        None => ty.dtype,
    };
    let k = Dim::from(cx.attribute_or("k", 0)?);
    let (row, column) = super::shape::row_and_column(cx, rows, columns)?;
    let k = cx.dim_value(&k)?;
    let diagonal = cx.emit(Scalar::Add, &[row, k])?;
    let hit = cx.emit(Scalar::Equal, &[diagonal, column])?;
    let result = convert(cx, hit, dtype, true)?;
    cx.output(0, result)
}

/// `Trilu`: one triangle is kept, the other becomes 0.
pub(crate) fn trilu(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let [.., rows, columns] = ty.shape.as_slice() else {
        return Err(NodeError::new(format!("an operand of rank {}; 2 is the least", ty.rank())));
    };
    let upper = cx.flag("upper", true)?;
    let k = if cx.has(1) {
        cx.dims(1)?.first().cloned().ok_or_else(|| NodeError::new("k is empty"))?
    } else {
        Dim::ZERO
    };
    let (row, column) = super::shape::row_and_column(cx, rows, columns)?;
    let k = cx.dim_value(&k)?;
    let diagonal = cx.emit(Scalar::Add, &[row, k])?;
    let compare = if upper { Scalar::GreaterOrEqual } else { Scalar::LessOrEqual };
    let kept = cx.emit(compare, &[column, diagonal])?;
    let x = cx.operand(0)?;
    let zero = cx.scalar(ty.dtype, 0.0)?;
    let result = cx.emit(Scalar::Select, &[kept, x, zero])?;
    cx.output(0, result)
}

/// `ConstantOfShape` and the like: one element repeated to a shape.
pub(crate) fn filled(
    cx: &mut NodeContext<'_, '_>,
    dtype: DType,
    number: Number,
    shape: Vec<Dim>,
) -> Result<membar_ir::ValueId, NodeError> {
    let element = cx.literal(dtype, &[], [number])?;
    cx.emit(Broadcast { shape }, &[element])
}
