//! `QuantizeLinear`, `DequantizeLinear`, `DynamicQuantizeLinear`: how scales lie over tensors.
//! Never products of quantised tensors (see `quant_products`).

use super::scalar::{convert, element_type};
use super::shape::reshaped;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::ops::{Dequantize, Quantize, Reduce, ReduceKind, Scalar};
use membar_ir::{Axis, DType, TensorType, ValueId};

type Outcome = Result<(), NodeError>;

/// Over which elements a scale holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Granularity {
    /// The axis along which scales differ; none: one scale.
    pub(super) axis: Option<Axis>,
    /// How many elements along the axis share a scale; none: each has its own.
    pub(super) block: Option<i64>,
}

/// The granularity that the shape of the scale and the attributes say. A vector of one scale is
/// one scale for all.
fn granularity(
    cx: &NodeContext<'_, '_>,
    x: &TensorType,
    scale: &TensorType,
) -> Result<Granularity, NodeError> {
    let block = cx.attribute_or("block_size", 0)?;
    if block < 0 {
        return Err(NodeError::new(format!("block_size = {block}")));
    }
    if block == 0 && scale.elements().is(1) && scale.rank() <= 1 {
        return Ok(Granularity { axis: None, block: None });
    }
    let axis = cx.axis(cx.attribute_or("axis", 1)?, x.rank())?;
    match (block, scale.rank()) {
        (0, 1) => Ok(Granularity { axis: Some(axis), block: None }),
        (1.., rank) if rank == x.rank() => Ok(Granularity { axis: Some(axis), block: Some(block) }),
        (block, rank) => {
            let x = x.rank();
            let reason = format!("a scale of rank {rank} for rank {x} with block_size = {block}");
            Err(NodeError::new(reason))
        }
    }
}

/// A scale or zero point; one for all has rank 0.
pub(super) fn parameter(
    cx: &mut NodeContext<'_, '_>,
    index: usize,
    granularity: &Granularity,
) -> Result<ValueId, NodeError> {
    let value = cx.operand(index)?;
    if granularity.axis.is_some() { Ok(value) } else { reshaped(cx, value, Vec::new()) }
}

/// The element type that an attribute names; 0 or absent: none.
fn named_type(cx: &NodeContext<'_, '_>, name: &str) -> Result<Option<DType>, NodeError> {
    match cx.attribute_or(name, 0)? {
        0 => Ok(None),
        code => element_type(code).map(Some),
    }
}

/// `QuantizeLinear`: the result has the zero point's type, else `output_dtype`, else u8.
pub(crate) fn quantize(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let (x, scale) = (cx.ty(0)?, cx.ty(1)?);
    let granularity = granularity(cx, &x, &scale)?;
    let named = named_type(cx, "output_dtype")?;
    let zero_point = cx.has(2);
    let dtype = if zero_point { cx.ty(2)?.dtype } else { named.unwrap_or(DType::U8) };
    if let Some(named) = named.filter(|named| *named != dtype) {
        return Err(NodeError::new(format!("output_dtype {named} with a zero point of {dtype}")));
    }
    let mut operands = vec![cx.operand(0)?, parameter(cx, 1, &granularity)?];
    if zero_point {
        operands.push(parameter(cx, 2, &granularity)?);
    }
    let saturate = cx.flag("saturate", true)?;
    let Granularity { axis, block } = granularity;
    let result = cx.emit(Quantize { dtype, axis, block, zero_point, saturate }, &operands)?;
    cx.output(0, result)
}

/// `DequantizeLinear`: the result has the type that `output_dtype` says, else the scale's.
pub(crate) fn dequantize(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let (x, scale) = (cx.ty(0)?, cx.ty(1)?);
    let granularity = granularity(cx, &x, &scale)?;
    let dtype = named_type(cx, "output_dtype")?.unwrap_or(scale.dtype);
    let zero_point = cx.has(2);
    let mut operands = vec![cx.operand(0)?, parameter(cx, 1, &granularity)?];
    if zero_point {
        operands.push(parameter(cx, 2, &granularity)?);
    }
    let Granularity { axis, block } = granularity;
    let result = cx.emit(Dequantize { dtype, axis, block, zero_point }, &operands)?;
    cx.output(0, result)
}

/// `DynamicQuantizeLinear`: to u8 by the least and the greatest element, 0 between them; a tensor
/// of zeros has the scale 1 (onnxruntime).
pub(crate) fn dynamic_quantize(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let x = cx.operand(0)?;
    let Dynamic { quantized, scale, zero_point } = dynamically_quantized(cx, x)?;
    cx.output(0, quantized)?;
    cx.output(1, scale)?;
    cx.output(2, zero_point)
}

/// A tensor quantised by its own range.
pub(super) struct Dynamic {
    /// `u8`.
    pub(super) quantized: ValueId,
    /// `f32`, rank 0.
    pub(super) scale: ValueId,
    /// `u8`, rank 0.
    pub(super) zero_point: ValueId,
}

/// See [`dynamic_quantize`].
pub(super) fn dynamically_quantized(
    cx: &mut NodeContext<'_, '_>,
    x: ValueId,
) -> Result<Dynamic, NodeError> {
    let dtype = DType::F32;
    let axes: Vec<Axis> = (0..cx.type_of(x).rank()).map(Axis::from).collect();
    let zero = cx.scalar(dtype, 0.0)?;
    let mut bound = |kind: ReduceKind, limit: Scalar| {
        let extreme = if axes.is_empty() {
            x
        } else {
            cx.emit(Reduce { kind, axes: axes.clone(), keep: false }, &[x])?
        };
        cx.emit(limit, &[extreme, zero])
    };
    let least = bound(ReduceKind::Min, Scalar::Min)?;
    let greatest = bound(ReduceKind::Max, Scalar::Max)?;
    let range = cx.emit(Scalar::Sub, &[greatest, least])?;
    let steps = cx.scalar(dtype, 255.0)?;
    let one = cx.scalar(dtype, 1.0)?;
    let scale = cx.emit(Scalar::Div, &[range, steps])?;
    let flat = cx.emit(Scalar::Equal, &[range, zero])?;
    let scale = cx.emit(Scalar::Select, &[flat, one, scale])?;
    let offset = cx.emit(Scalar::Div, &[least, scale])?;
    let offset = cx.emit(Scalar::Neg, &[offset])?;
    let offset = cx.emit(Scalar::Clip, &[offset, zero, steps])?;
    let offset = cx.emit(Scalar::Round, &[offset])?;
    let zero_point = convert(cx, offset, DType::U8, true)?;
    let op =
        Quantize { dtype: DType::U8, axis: None, block: None, zero_point: true, saturate: true };
    let quantized = cx.emit(op, &[x, scale, zero_point])?;
    Ok(Dynamic { quantized, scale, zero_point })
}
