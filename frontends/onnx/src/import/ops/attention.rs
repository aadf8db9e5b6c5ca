//! ONNX `Attention` and `RotaryEmbedding`: each enters the graph as a single operator between
//! changes of layout. Never onnxruntime's variants (see `microsoft`).

use super::shape::reshaped;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::attribute::Float;
use membar_ir::ops::{
    Attention, Concat, Gather, MaskKind, Pad, PadMode, Position, RotaryEmbedding, Scores, Transpose,
};
use membar_ir::{Axis, DType, Dim, ValueId};

type Outcome = Result<(), NodeError>;

/// `[B, S, H * D]` to `[B, H, S, D]`.
pub(crate) fn split_heads(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    heads: i64,
) -> Result<ValueId, NodeError> {
    let shape = cx.type_of(value).shape;
    let [batch, sequence, hidden] = shape.as_slice() else {
        return Err(NodeError::new(format!("a tensor of rank {}; 3 is expected", shape.len())));
    };
    if heads < 1 {
        return Err(NodeError::new(format!("{heads} heads")));
    }
    let heads = Dim::from(heads);
    let size = hidden
        .exact_div(&heads)
        .ok_or_else(|| NodeError::new(format!("{heads} heads do not divide {hidden}")))?;
    let shape = vec![batch.clone(), sequence.clone(), heads, size];
    let value = reshaped(cx, value, shape)?;
    swap_heads(cx, value)
}

/// `[B, H, S, D]` to `[B, S, H * D]`.
pub(crate) fn merge_heads(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
) -> Result<ValueId, NodeError> {
    let value = swap_heads(cx, value)?;
    let shape = cx.type_of(value).shape;
    let [batch, sequence, heads, size] = shape.as_slice() else {
        return Err(NodeError::new(format!("a tensor of rank {}; 4 is expected", shape.len())));
    };
    let hidden = heads.clone() * size.clone();
    reshaped(cx, value, vec![batch.clone(), sequence.clone(), hidden])
}

/// Exchanges dimensions 1 and 2 of 4.
pub(crate) fn swap_heads(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
) -> Result<ValueId, NodeError> {
    let perm = [0, 2, 1, 3].map(Axis).to_vec();
    cx.emit(Transpose { perm }, &[value])
}

/// Operands of `Attention`.
mod operand {
    pub(super) const MASK: usize = 3;
    pub(super) const PAST_KEY: usize = 4;
    pub(super) const PAST_VALUE: usize = 5;
    pub(super) const LENGTHS: usize = 6;
}

/// `Attention`.
pub(crate) fn attention(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let packed = cx.ty(0)?.rank() == 3;
    let mut qkv = [cx.operand(0)?, cx.operand(1)?, cx.operand(2)?];
    if packed {
        let query_heads = cx.required("q_num_heads")?;
        let key_heads = cx.required("kv_num_heads")?;
        for (value, heads) in qkv.iter_mut().zip([query_heads, key_heads, key_heads]) {
            *value = split_heads(cx, *value, heads)?;
        }
    }
    let [query, mut key, mut value] = qkv;

    let mut offset = Dim::ZERO;
    if let Some(past) = cx.optional(operand::PAST_KEY)? {
        let shape = cx.type_of(past).shape;
        offset = shape.get(2).cloned().unwrap_or_default();
        key = cx.emit(Concat { axis: Axis(2) }, &[past, key])?;
    }
    if let Some(past) = cx.optional(operand::PAST_VALUE)? {
        value = cx.emit(Concat { axis: Axis(2) }, &[past, value])?;
    }

    let mut operands = vec![query, key, value];
    let mask = mask(cx, key, &mut operands)?;
    let lengths = cx.optional(operand::LENGTHS)?;
    operands.extend(lengths);
    let lengths = lengths.is_some();
    let head_size = cx.type_of(query).shape.get(3).and_then(Dim::as_constant);
    let scale = match (cx.attribute::<f32>("scale")?, head_size) {
        (Some(scale), _) => f64::from(scale),
        (None, Some(size)) => 1.0 / (size as f64).sqrt(),
        (None, None) => return Err(NodeError::new("a head size that is not known, without scale")),
    };
    let visible = |limit: i64| (limit >= 0).then_some(limit);
    let causal = cx.flag("is_causal", false)?;
    let after = visible(cx.attribute_or("right_window_size", -1)?);
    let softcap = cx.attribute_or("softcap", 0.0_f32)?;
    let scores = match (cx.wants(3), cx.attribute_or("qk_matmul_output_mode", 0)?) {
        (false, _) => Scores::None,
        (true, 0) => Scores::Scaled,
        (true, 1) => Scores::Capped,
        (true, 2) => Scores::Masked,
        (true, 3) => Scores::Weights,
        (true, mode) => return Err(NodeError::new(format!("qk_matmul_output_mode = {mode}"))),
    };
    let attention = Attention {
        scale: Float(scale),
        position: if lengths { Position::Lengths } else { Position::Offset(offset) },
        before: visible(cx.attribute_or("left_window_size", -1)?),
        after: if causal { Some(0) } else { after },
        mask,
        lengths,
        softcap: (softcap != 0.0).then(|| softcap.into()),
        empty_rows_zero: true,
        scores,
    };
    let results = cx.emit_all(attention, &operands)?;
    let mut result = results[0];
    if packed {
        result = merge_heads(cx, result)?;
    }
    cx.output(0, result)?;
    if cx.wants(1) {
        cx.output(1, key)?;
    }
    if cx.wants(2) {
        cx.output(2, value)?;
    }
    if let Some(scores) = results.get(1) {
        cx.output(3, *scores)?;
    }
    Ok(())
}

/// Adds the mask operand. One that is shorter than the keys leaves out the rest.
fn mask(
    cx: &mut NodeContext<'_, '_>,
    key: ValueId,
    operands: &mut Vec<ValueId>,
) -> Result<MaskKind, NodeError> {
    let Some(mut mask) = cx.optional(operand::MASK)? else {
        return Ok(MaskKind::None);
    };
    let ty = cx.type_of(mask);
    let keys = cx.type_of(key).shape.get(2).cloned().unwrap_or_default();
    let kind = if ty.dtype == DType::Bool { MaskKind::Boolean } else { MaskKind::Additive };
    let known = ty.shape.last().map(|last| keys - last.clone());
    if let Some(missing) = known.filter(|missing| missing.as_constant().is_some_and(|n| n > 0)) {
        let mut after = vec![Dim::ZERO; ty.rank()];
        after[ty.rank() - 1] = missing;
        let fill = if kind == MaskKind::Boolean { 0.0 } else { f64::NEG_INFINITY };
        let fill = cx.scalar(ty.dtype, fill)?;
        let before = vec![Dim::ZERO; ty.rank()];
        mask = cx.emit(Pad { mode: PadMode::Constant, before, after }, &[mask, fill])?;
    }
    operands.push(mask);
    Ok(kind)
}

/// `RotaryEmbedding`: tables of cosines and sines, indexed by position where positions are given.
pub(crate) fn rotary_embedding(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let packed = cx.ty(0)?.rank() == 3;
    let mut x = cx.operand(0)?;
    if packed {
        let heads = cx.required("num_heads")?;
        x = split_heads(cx, x, heads)?;
    }
    let mut tables = [cx.operand(1)?, cx.operand(2)?];
    if let Some(positions) = cx.optional(3)? {
        for table in &mut tables {
            *table = cx.emit(Gather { axis: Axis(0) }, &[*table, positions])?;
        }
    }
    let rotated = cx.attribute_or("rotary_embedding_dim", 0)?;
    if rotated != 0 {
        let pairs = cx.type_of(tables[0]).shape.last().cloned().unwrap_or_default();
        cx.unify(
            &pairs,
            &Dim::from(rotated / 2),
            "the width of the tables and rotary_embedding_dim",
        )?;
    }
    let interleaved = cx.flag("interleaved", false)?;
    let mut result = cx.emit(RotaryEmbedding { interleaved }, &[x, tables[0], tables[1]])?;
    if packed {
        result = merge_heads(cx, result)?;
    }
    cx.output(0, result)
}
