//! onnxruntime's `MultiHeadAttention` and `Attention`: each enters the graph as a single operator
//! between changes of layout. Facts are those of its ContribOperators page and of its CPU kernels.
//! Never grouped queries (see `microsoft_grouped`).

use super::attention::{merge_heads, split_heads};
use super::matmul::product;
use super::scalar::convert;
use super::shape::reshaped;
use super::slice::section;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::attribute::Float;
use membar_ir::ops::{Attention, Concat, Gather, Iota, MaskKind, Position, Scalar, Scores};
use membar_ir::{Axis, DType, Dim, Number, ValueId};

type Outcome = Result<(), NodeError>;

/// The default of `mask_filter_value`, added to the scores of masked keys.
const MASKED: f32 = -10000.0;

/// Queries, keys and values of one attention, each `[B, H, S, D]`.
pub(super) struct Heads {
    pub(super) query: ValueId,
    pub(super) key: ValueId,
    pub(super) value: ValueId,
    /// Rows of the cache, before the new ones.
    pub(super) past: Dim,
}

impl Heads {
    /// Puts the rows of a cache before the new ones.
    pub(super) fn extend(
        &mut self,
        cx: &mut NodeContext<'_, '_>,
        past_key: ValueId,
        past_value: ValueId,
    ) -> Outcome {
        let shape = cx.type_of(past_key).shape;
        let rows = shape.get(2).cloned();
        self.past = rows.ok_or_else(|| NodeError::new("past keys that are not of rank 4"))?;
        self.key = cx.emit(Concat { axis: Axis(2) }, &[past_key, self.key])?;
        self.value = cx.emit(Concat { axis: Axis(2) }, &[past_value, self.value])?;
        Ok(())
    }

    /// Attention over an additive mask, as `[B, S, H * D]`. The first query stands behind the
    /// cache.
    fn attend(
        &self,
        cx: &mut NodeContext<'_, '_>,
        mask: Option<ValueId>,
        causal: bool,
    ) -> Result<ValueId, NodeError> {
        let mut operands = vec![self.query, self.key, self.value];
        operands.extend(mask);
        let attention = Attention {
            scale: scale(cx, self.query)?,
            position: Position::Offset(self.past.clone()),
            before: None,
            after: causal.then_some(0),
            mask: if mask.is_some() { MaskKind::Additive } else { MaskKind::None },
            lengths: false,
            softcap: None,
            empty_rows_zero: false,
            scores: Scores::None,
        };
        let result = cx.emit(attention, &operands)?;
        merge_heads(cx, result)
    }
}

/// The attribute `scale`, else 1 over the root of the head size.
pub(super) fn scale(cx: &mut NodeContext<'_, '_>, query: ValueId) -> Result<Float, NodeError> {
    let size = cx.type_of(query).shape.last().and_then(Dim::as_constant);
    match (cx.attribute_or("scale", 0.0_f32)?, size) {
        (0.0, Some(size)) => Ok(Float(1.0 / (size as f64).sqrt())),
        (0.0, None) => Err(NodeError::new("a head size that is not known, without scale")),
        (scale, _) => Ok(Float::from(scale)),
    }
}

/// Refuses operands that none of the supported forms has.
pub(super) fn refuse(cx: &NodeContext<'_, '_>, operands: &[(usize, &str)]) -> Outcome {
    match operands.iter().find(|(index, _)| cx.has(*index)) {
        Some((index, what)) => Err(NodeError::new(format!("operand {index}, {what}"))),
        None => Ok(()),
    }
}

/// Operands of `MultiHeadAttention`.
mod multi_head {
    pub(super) const KEY: usize = 1;
    pub(super) const VALUE: usize = 2;
    pub(super) const BIAS: usize = 3;
    pub(super) const MASK: usize = 4;
    pub(super) const SCORES: usize = 5;
    pub(super) const PAST_KEY: usize = 6;
    pub(super) const PAST_VALUE: usize = 7;
    pub(super) const PAST_LENGTH: usize = 8;
    pub(super) const CACHE_INDIRECTION: usize = 9;
}

/// `MultiHeadAttention`: queries, keys and values apart, packed together, or keys and values as a
/// cache has them.
pub(crate) fn multi_head_attention(cx: &mut NodeContext<'_, '_>) -> Outcome {
    use multi_head::*;
    refuse(
        cx,
        &[
            (PAST_LENGTH, "the length of a shared cache"),
            (CACHE_INDIRECTION, "the indirection of a beam search"),
        ],
    )?;
    if cx.wants(3) {
        return Err(NodeError::new("the scores (result 3)"));
    }
    let mut heads = projected(cx)?;
    let causal = cx.flag("unidirectional", false)?;
    if causal {
        let (queries, keys) = (rows(cx, heads.query), rows(cx, heads.key));
        cx.unify(&queries, &keys, "queries and keys with unidirectional = 1")?;
    }
    match (cx.optional(PAST_KEY)?, cx.optional(PAST_VALUE)?) {
        (Some(key), Some(value)) => heads.extend(cx, key, value)?,
        (None, None) => {}
        _ => return Err(NodeError::new("past keys without past values, or the reverse")),
    }
    let mask = mask(cx, MASK, SCORES, &heads)?;
    let result = heads.attend(cx, mask, causal)?;
    cx.output(0, result)?;
    cx.output(1, heads.key)?;
    cx.output(2, heads.value)
}

fn rows(cx: &mut NodeContext<'_, '_>, value: ValueId) -> Dim {
    cx.type_of(value).shape.get(2).cloned().unwrap_or_default()
}

/// The operands of `MultiHeadAttention` as heads, the bias added.
fn projected(cx: &mut NodeContext<'_, '_>) -> Result<Heads, NodeError> {
    use multi_head::*;
    let count = cx.required::<i64>("num_heads")?;
    let query = cx.operand(0)?;
    let query_rank = cx.type_of(query).rank();
    let key_rank = if cx.has(KEY) { cx.ty(KEY)?.rank() } else { 0 };
    let parts = match (query_rank, key_rank, cx.has(VALUE)) {
        (3, 3, true) => [query, cx.operand(KEY)?, cx.operand(VALUE)?],
        (3, 4, true) => {
            // The cache of a cross attention has had its bias.
            let mut query = query;
            if let Some(bias) = cx.optional(BIAS)? {
                let [bias, ..] = biases(cx, bias, query, None)?;
                query = cx.emit(Scalar::Add, &[query, bias])?;
            }
            let query = split_heads(cx, query, count)?;
            let (key, value) = (cx.operand(KEY)?, cx.operand(VALUE)?);
            return Ok(Heads { query, key, value, past: Dim::ZERO });
        }
        (3, 5, false) => {
            let packed = cx.operand(KEY)?;
            [query, unpacked(cx, packed, 2, 0)?, unpacked(cx, packed, 2, 1)?]
        }
        (5, 0, false) => {
            let mut parts = [query; 3];
            for (index, part) in parts.iter_mut().enumerate() {
                *part = unpacked(cx, query, 3, index)?;
            }
            parts
        }
        (query, key, _) => {
            return Err(NodeError::new(format!("queries of rank {query} with keys of rank {key}")));
        }
    };
    let mut parts = parts;
    if let Some(bias) = cx.optional(BIAS)? {
        let bias = biases(cx, bias, parts[0], Some(parts[2]))?;
        for (part, bias) in parts.iter_mut().zip(bias) {
            *part = cx.emit(Scalar::Add, &[*part, bias])?;
        }
    }
    let [query, key, value] = parts;
    Ok(Heads {
        query: split_heads(cx, query, count)?,
        key: split_heads(cx, key, count)?,
        value: split_heads(cx, value, count)?,
        past: Dim::ZERO,
    })
}

/// Part `index` of `[B, S, H, parts, D]`, as `[B, S, H * D]`.
fn unpacked(
    cx: &mut NodeContext<'_, '_>,
    packed: ValueId,
    parts: i64,
    index: usize,
) -> Result<ValueId, NodeError> {
    let shape = cx.type_of(packed).shape;
    let [batch, sequence, heads, found, size] = shape.as_slice() else {
        return Err(NodeError::new(format!("packed heads of rank {}", shape.len())));
    };
    cx.unify(found, &Dim::from(parts), "packed parts")?;
    let part = section(cx, packed, Axis(3), Dim::from(index as i64), Dim::ONE)?;
    let hidden = heads.clone() * size.clone();
    reshaped(cx, part, vec![batch.clone(), sequence.clone(), hidden])
}

/// The biases of queries, keys and values, which follow each other in one vector. Keys are as wide
/// as queries; where no values are given they are too.
fn biases(
    cx: &mut NodeContext<'_, '_>,
    bias: ValueId,
    query: ValueId,
    value: Option<ValueId>,
) -> Result<[ValueId; 3], NodeError> {
    let width = cx.type_of(query).shape.last().cloned().unwrap_or_default();
    let value = match value {
        Some(value) => cx.type_of(value).shape.last().cloned().unwrap_or_default(),
        None => width.clone(),
    };
    thirds(cx, bias, [width.clone(), width, value])
}

/// Three parts of the last dimension.
fn thirds(
    cx: &mut NodeContext<'_, '_>,
    packed: ValueId,
    widths: [Dim; 3],
) -> Result<[ValueId; 3], NodeError> {
    let shape = cx.type_of(packed).shape;
    let axis = cx.axis(-1, shape.len())?;
    let total: Dim = widths.iter().cloned().sum();
    let found = shape.last().cloned().unwrap_or_default();
    cx.unify(&total, &found, "the width of queries, keys and values together")?;
    let mut parts = [packed; 3];
    let mut start = Dim::ZERO;
    for (part, width) in parts.iter_mut().zip(widths) {
        *part = section(cx, packed, axis, start.clone(), width.clone())?;
        start = start + width;
    }
    Ok(parts)
}

/// A padding mask and scores to add, as one additive mask.
fn mask(
    cx: &mut NodeContext<'_, '_>,
    padding: usize,
    scores: usize,
    heads: &Heads,
) -> Result<Option<ValueId>, NodeError> {
    let scores = cx.optional(scores)?;
    let Some(padding) = cx.optional(padding)? else {
        return Ok(scores);
    };
    let dtype = cx.type_of(heads.query).dtype;
    let visible = visible(cx, padding, heads)?;
    let none = cx.scalar(dtype, 0.0)?;
    let masked = cx.attribute_or("mask_filter_value", MASKED)?;
    let masked = cx.scalar(dtype, masked.into())?;
    let padding = cx.emit(Scalar::Select, &[visible, none, masked])?;
    match scores {
        Some(scores) => {
            let scores = convert(cx, scores, dtype, true)?;
            cx.emit(Scalar::Add, &[padding, scores]).map(Some)
        }
        None => Ok(Some(padding)),
    }
}

/// Which keys a padding mask shows, as truth values that broadcast to the scores: a mask `[B, T]`
/// or `[B, S, T]` of numbers, ends `[B]`, or ends and then starts `[2 B]`.
fn visible(
    cx: &mut NodeContext<'_, '_>,
    mask: ValueId,
    heads: &Heads,
) -> Result<ValueId, NodeError> {
    let ty = cx.type_of(mask);
    let batch = cx.type_of(heads.query).shape[0].clone();
    let shape = match ty.shape.as_slice() {
        [_] => return within(cx, mask, &batch, heads),
        [batch, keys] => vec![batch.clone(), Dim::ONE, Dim::ONE, keys.clone()],
        [batch, queries, keys] => {
            vec![batch.clone(), Dim::ONE, queries.clone(), keys.clone()]
        }
        other => return Err(NodeError::new(format!("a padding mask of rank {}", other.len()))),
    };
    let mask = reshaped(cx, mask, shape)?;
    if ty.dtype == DType::Bool {
        return Ok(mask);
    }
    let zero = cx.literal(ty.dtype, &[], [Number::Signed(0)])?;
    cx.emit(Scalar::Greater, &[mask, zero])
}

/// Keys before the ends and, where there are any, from the starts on.
fn within(
    cx: &mut NodeContext<'_, '_>,
    limits: ValueId,
    batch: &Dim,
    heads: &Heads,
) -> Result<ValueId, NodeError> {
    let keys = cx.type_of(heads.key).shape[2].clone();
    let limits = convert(cx, limits, DType::I64, true)?;
    let count = cx.type_of(limits).shape[0].clone();
    let column = vec![batch.clone(), Dim::ONE, Dim::ONE, Dim::ONE];
    let row = vec![Dim::ONE, Dim::ONE, Dim::ONE, keys];
    let key = cx.emit(Iota { shape: row, axis: Axis(3), dtype: DType::I64 }, &[])?;
    let both = batch.clone() * Dim::from(2);
    if count != both {
        cx.unify(&count, batch, "batch and the ends of the padding mask")?;
        let ends = reshaped(cx, limits, column)?;
        return cx.emit(Scalar::Less, &[key, ends]);
    }
    let ends = section(cx, limits, Axis(0), Dim::ZERO, batch.clone())?;
    let ends = reshaped(cx, ends, column.clone())?;
    let starts = section(cx, limits, Axis(0), batch.clone(), batch.clone())?;
    let starts = reshaped(cx, starts, column)?;
    let before = cx.emit(Scalar::Less, &[key, ends])?;
    let after = cx.emit(Scalar::GreaterOrEqual, &[key, starts])?;
    cx.emit(Scalar::And, &[before, after])
}

/// Operands of `Attention`.
mod packed {
    pub(super) const WEIGHTS: usize = 1;
    pub(super) const BIAS: usize = 2;
    pub(super) const MASK: usize = 3;
    pub(super) const PAST: usize = 4;
    pub(super) const SCORES: usize = 5;
    pub(super) const PAST_LENGTH: usize = 6;
}

/// onnxruntime's `Attention`: projects a tensor to queries, keys and values with one matrix. The
/// cache is one tensor `[2, B, H, T, D]`.
pub(crate) fn packed_attention(cx: &mut NodeContext<'_, '_>) -> Outcome {
    use packed::*;
    refuse(cx, &[(PAST_LENGTH, "the length of a shared cache")])?;
    if cx.flag("do_rotary", false)? {
        return Err(NodeError::new("do_rotary = 1"));
    }
    let count = cx.required::<i64>("num_heads")?;
    let (x, weights) = (cx.operand(0)?, cx.operand(WEIGHTS)?);
    let mut projected = product(cx, x, weights)?;
    if let Some(bias) = cx.optional(BIAS)? {
        projected = cx.emit(Scalar::Add, &[projected, bias])?;
    }
    let widths = match cx.attribute::<&[i64]>("qkv_hidden_sizes")? {
        Some([query, key, value]) => [*query, *key, *value].map(Dim::from),
        Some(other) => {
            let found = other.len();
            return Err(NodeError::new(format!("{found} qkv_hidden_sizes; 3 are expected")));
        }
        None => {
            let total = cx.type_of(projected).shape.last().cloned().unwrap_or_default();
            let each = total.exact_div(&Dim::from(3)).ok_or_else(|| {
                NodeError::new(format!("weights of `{total}` columns, which 3 does not divide"))
            })?;
            [each.clone(), each.clone(), each]
        }
    };
    let [query, key, value] = thirds(cx, projected, widths)?;
    let mut heads = Heads {
        query: split_heads(cx, query, count)?,
        key: split_heads(cx, key, count)?,
        value: split_heads(cx, value, count)?,
        past: Dim::ZERO,
    };
    if let Some(past) = cx.optional(PAST)? {
        let mut halves = [past; 2];
        for (index, half) in halves.iter_mut().enumerate() {
            let position = cx.literal(DType::I64, &[], [Number::Signed(index as i64)])?;
            *half = cx.emit(Gather { axis: Axis(0) }, &[past, position])?;
        }
        let [key, value] = halves;
        heads.extend(cx, key, value)?;
    }
    let mask = mask(cx, MASK, SCORES, &heads)?;
    let causal = cx.flag("unidirectional", false)?;
    let result = heads.attend(cx, mask, causal)?;
    cx.output(0, result)?;
    if cx.wants(1) {
        let mut halves = [heads.key, heads.value];
        for half in &mut halves {
            let mut shape = cx.type_of(*half).shape;
            shape.insert(0, Dim::ONE);
            *half = reshaped(cx, *half, shape)?;
        }
        let present = cx.emit(Concat { axis: Axis(0) }, &halves)?;
        cx.output(1, present)?;
    }
    Ok(())
}
