//! Normalisations with a scale: each enters the graph as a single operator. Never their
//! arithmetic.

use super::scalar::convert;
use super::shape::reshaped;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::attribute::Float;
use membar_ir::ops::{Broadcast, GroupNorm, LayerNorm, Reshape, RmsNorm};
use membar_ir::{DType, Dim, ValueId};

type Outcome = Result<(), NodeError>;

/// The default of all normalisations.
const EPSILON: f32 = 1e-5;

/// `LayerNormalization`, with its statistics where they are wanted.
pub(crate) fn layer_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let axis = cx.axis(cx.attribute_or("axis", -1)?, ty.rank())?;
    let epsilon = Float::from(cx.attribute_or("epsilon", EPSILON)?);
    let statistics = cx.wants(1) || cx.wants(2);
    let mut operands = vec![cx.operand(0)?, cx.norm_scale(1)?];
    operands.extend(cx.optional(2)?);
    let bias = operands.len() == 3;
    let results = cx.emit_all(LayerNorm { axis, epsilon, bias, statistics }, &operands)?;
    for (index, result) in results.into_iter().enumerate() {
        let result = if index == 0 { result } else { stashed(cx, result)? };
        cx.output(index, result)?;
    }
    Ok(())
}

/// Statistics have the type that `stash_type` says: f32, unless f64 or bf16 is asked for.
fn stashed(cx: &mut NodeContext<'_, '_>, value: ValueId) -> Result<ValueId, NodeError> {
    let dtype = super::scalar::element_type(cx.attribute_or("stash_type", 1)?)?;
    convert(cx, value, dtype, true)
}

/// `RMSNormalization`.
pub(crate) fn rms_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let axis = cx.axis(cx.attribute_or("axis", -1)?, ty.rank())?;
    let epsilon = Float::from(cx.attribute_or("epsilon", EPSILON)?);
    let operands = [cx.operand(0)?, cx.norm_scale(1)?];
    let result = cx.emit(RmsNorm { axis, epsilon }, &operands)?;
    let dtype = cx.ty(1)?.dtype;
    let result = convert(cx, result, dtype, true)?;
    cx.output(0, result)
}

/// `GroupNormalization`: a scale for each group before opset 21, for each channel since.
pub(crate) fn group_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let groups = cx.required::<i64>("num_groups")?;
    let epsilon = Float::from(cx.attribute_or("epsilon", EPSILON)?);
    let channels = ty.shape.get(1).cloned();
    let channels = channels.ok_or_else(|| NodeError::new("an operand without channels"))?;
    let mut operands = [cx.operand(0)?, cx.norm_scale(1)?, cx.operand(2)?];
    if cx.opset() < 21 {
        let groups = Dim::from(groups);
        let size = channels.exact_div(&groups).ok_or_else(|| {
            NodeError::new(format!("{groups} groups do not divide {channels} channels"))
        })?;
        for operand in &mut operands[1..] {
            let column = vec![groups.clone(), Dim::ONE];
            let column = cx.emit(Reshape { shape: column }, &[*operand])?;
            let each = vec![groups.clone(), size.clone()];
            let each = cx.emit(Broadcast { shape: each }, &[column])?;
            *operand = reshaped(cx, each, vec![channels.clone()])?;
        }
    }
    let result = cx.emit(GroupNorm { groups, epsilon }, &operands)?;
    let result = convert(cx, result, ty.dtype, true)?;
    cx.output(0, result)
}

/// `SimplifiedLayerNormalization`, onnxruntime's, which stands in the domain of ONNX: the scaled
/// root-mean-square normalisation, and 1 over the root where it is wanted.
pub(crate) fn simplified_layer_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    if cx.wants(1) {
        let reason = format!("the second result, 1 over the root mean square in {}", DType::F32);
        return Err(NodeError::new(reason));
    }
    rms_norm(cx)
}
