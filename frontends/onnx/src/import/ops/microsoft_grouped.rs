//! onnxruntime's `GroupQueryAttention` and `RotaryEmbedding`. Facts are those of its
//! ContribOperators page and of its CPU kernels. Never its other attentions (see
//! `microsoft_attention`).

use super::attention::{merge_heads, split_heads};
use super::microsoft_attention::{Heads, refuse, scale};
use super::scalar::convert;
use super::shape::reshaped;
use super::slice::section;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::attribute::Float;
use membar_ir::ops::{
    Attention, Gather, Iota, MaskKind, Position, RotaryEmbedding, Scalar, Scores,
};
use membar_ir::{Axis, DType, Dim, Number, ValueId};

type Outcome = Result<(), NodeError>;

/// Operands of `GroupQueryAttention`.
mod operand {
    pub(super) const KEY: usize = 1;
    pub(super) const VALUE: usize = 2;
    pub(super) const PAST_KEY: usize = 3;
    pub(super) const PAST_VALUE: usize = 4;
    pub(super) const LAST: usize = 5;
    pub(super) const TOTAL: usize = 6;
    pub(super) const COS: usize = 7;
    pub(super) const SIN: usize = 8;
    pub(super) const POSITIONS: usize = 9;
    pub(super) const SCORES: usize = 10;
    pub(super) const SINK: usize = 11;
    pub(super) const KEY_SCALE: usize = 12;
    pub(super) const VALUE_SCALE: usize = 13;
}

/// `GroupQueryAttention`: causal, the new rows behind those of the cache, rotated if it says so.
///
/// Operand 5 counts each sequence's keys, less 1. Without a cache, sequences may end before the
/// last row; with one, all have as many keys as the cache and the new rows together, which is
/// checked at run time: onnxruntime writes each sequence's new rows behind its own last one, here
/// they stand behind the cache.
pub(crate) fn group_query_attention(cx: &mut NodeContext<'_, '_>) -> Outcome {
    use operand::*;
    supported(cx)?;
    let mut heads = projected(cx)?;
    let rows = cx.type_of(heads.query).shape[2].clone();
    let past = match (cx.optional(PAST_KEY)?, cx.optional(PAST_VALUE)?) {
        (Some(key), Some(value)) => Some((key, value)),
        (None, None) => None,
        _ => return Err(NodeError::new("past keys without past values, or the reverse")),
    };
    let before = match past {
        Some((key, _)) => cx.type_of(key).shape.get(2).cloned().unwrap_or_default(),
        None => Dim::ZERO,
    };
    if let Some([total]) = cx.known_dims(TOTAL).as_deref() {
        let sum = before.clone() + rows.clone();
        cx.unify(total, &sum, "total_sequence_length and the rows of cache and operand")?;
    }
    if cx.flag("do_rotary", false)? {
        let interleaved = cx.flag("rotary_interleaved", false)?;
        let mut tables = [cx.operand(COS)?, cx.operand(SIN)?];
        let positions = cx.optional(POSITIONS)?;
        for table in &mut tables {
            *table = rows_of(cx, *table, positions, &before, &rows)?;
        }
        for value in [&mut heads.query, &mut heads.key] {
            let op = RotaryEmbedding { interleaved };
            *value = cx.emit(op, &[*value, tables[0], tables[1]])?;
        }
    }
    if let Some((key, value)) = past {
        heads.extend(cx, key, value)?;
    }
    let mut operands = vec![heads.query, heads.key, heads.value];
    let scores = cx.optional(SCORES)?;
    operands.extend(scores);
    let last = cx.operand(LAST)?;
    let mut lengths = lengths(cx, last)?;
    if past.is_some() && !before.is(0) {
        lengths = of_one_length(cx, lengths, &before, &rows)?;
    }
    operands.push(lengths);
    let window = cx.attribute_or("local_window_size", -1)?;
    let softcap = cx.attribute_or("softcap", 0.0_f32)?;
    let attention = Attention {
        scale: scale(cx, heads.query)?,
        position: Position::Offset(heads.past.clone()),
        before: (window > 0).then(|| window - 1),
        after: Some(0),
        mask: if scores.is_some() { MaskKind::Additive } else { MaskKind::None },
        lengths: true,
        softcap: (softcap != 0.0).then(|| Float::from(softcap)),
        empty_rows_zero: false,
        scores: Scores::None,
    };
    let result = cx.emit(attention, &operands)?;
    let result = merge_heads(cx, result)?;
    cx.output(0, result)?;
    cx.output(1, heads.key)?;
    cx.output(2, heads.value)
}

/// Refuses what changes the result and is not supported.
fn supported(cx: &NodeContext<'_, '_>) -> Outcome {
    use operand::*;
    refuse(
        cx,
        &[
            (SINK, "a sink for each head (head_sink)"),
            (KEY_SCALE, "scales of a quantised cache"),
            (VALUE_SCALE, "scales of a quantised cache"),
        ],
    )?;
    if cx.attribute_or("smooth_softmax", 0)? > 0 {
        return Err(NodeError::new("smooth_softmax = 1"));
    }
    for name in ["k_quant_type", "v_quant_type"] {
        let kind = cx.attribute_or(name, "NONE")?;
        if kind != "NONE" {
            return Err(NodeError::new(format!("a quantised cache ({name} = `{kind}`)")));
        }
    }
    if cx.wants(3) {
        return Err(NodeError::new("the scores (result 3)"));
    }
    Ok(())
}

/// Queries, keys and values as heads: apart, or packed in operand 0.
fn projected(cx: &mut NodeContext<'_, '_>) -> Result<Heads, NodeError> {
    use operand::*;
    let query_heads = cx.required::<i64>("num_heads")?;
    let key_heads = cx.required::<i64>("kv_num_heads")?;
    if query_heads < 1 || key_heads < 1 || query_heads % key_heads != 0 {
        let reason = format!("num_heads = {query_heads} with kv_num_heads = {key_heads}");
        return Err(NodeError::new(reason));
    }
    let query = cx.operand(0)?;
    let [query, key, value] = match (cx.optional(KEY)?, cx.optional(VALUE)?) {
        (Some(key), Some(value)) => [query, key, value],
        (None, None) => {
            let shape = cx.type_of(query).shape;
            let axis = cx.axis(-1, shape.len())?;
            let packed = shape.last().cloned().unwrap_or_default();
            let all = Dim::from(query_heads.saturating_add(key_heads.saturating_mul(2)));
            let size = packed.exact_div(&all).ok_or_else(|| {
                NodeError::new(format!("{all} heads do not divide a width of {packed}"))
            })?;
            let query_width = size.clone() * Dim::from(query_heads);
            let key_width = size * Dim::from(key_heads);
            let value_start = query_width.clone() + key_width.clone();
            [
                section(cx, query, axis, Dim::ZERO, query_width.clone())?,
                section(cx, query, axis, query_width, key_width.clone())?,
                section(cx, query, axis, value_start, key_width)?,
            ]
        }
        _ => return Err(NodeError::new("keys without values, or the reverse")),
    };
    Ok(Heads {
        query: split_heads(cx, query, query_heads)?,
        key: split_heads(cx, key, key_heads)?,
        value: split_heads(cx, value, key_heads)?,
        past: Dim::ZERO,
    })
}

/// The rows of a table of cosines or sines, `[B or 1, S, R]`: at the positions, or those from
/// `first` on.
fn rows_of(
    cx: &mut NodeContext<'_, '_>,
    table: ValueId,
    positions: Option<ValueId>,
    first: &Dim,
    count: &Dim,
) -> Result<ValueId, NodeError> {
    if let Some(positions) = positions {
        return cx.emit(Gather { axis: Axis(0) }, &[table, positions]);
    }
    let rows = section(cx, table, Axis(0), first.clone(), count.clone())?;
    let mut shape = cx.type_of(rows).shape;
    shape.insert(0, Dim::ONE);
    reshaped(cx, rows, shape)
}

/// How many keys each sequence has, `i64[B]`, from the index of its last one.
fn lengths(cx: &mut NodeContext<'_, '_>, last: ValueId) -> Result<ValueId, NodeError> {
    let batch = cx.type_of(last).elements();
    let last = reshaped(cx, last, vec![batch])?;
    let last = convert(cx, last, DType::I64, true)?;
    let one = cx.scalar(DType::I64, 1.0)?;
    cx.emit(Scalar::Add, &[last, one])
}

/// The lengths, if there is no cache or all are those of cache and new rows together. Otherwise the
/// run fails at this node: an index that is 0 for equal lengths is out of range.
fn of_one_length(
    cx: &mut NodeContext<'_, '_>,
    lengths: ValueId,
    before: &Dim,
    rows: &Dim,
) -> Result<ValueId, NodeError> {
    let total = cx.dim_value(&(before.clone() + rows.clone()))?;
    let has_cache = cx.dim_value(&before.minimum(&Dim::ONE))?;
    let missing = cx.emit(Scalar::Sub, &[total, lengths])?;
    let index = cx.emit(Scalar::Mul, &[missing, has_cache])?;
    // A length beyond the total would give a negative index, which counts from the end.
    let index = cx.emit(Scalar::Abs, &[index])?;
    let zero = cx.literal(DType::I64, &[1], [Number::Signed(0)])?;
    let zero = cx.emit(Gather { axis: Axis(0) }, &[zero, index])?;
    cx.emit(Scalar::Add, &[lengths, zero])
}

/// onnxruntime's `RotaryEmbedding`: positions are given one by one, or as the first one alone. An
/// operand of rank 3 has as many heads as its width holds if `num_heads` is not set.
pub(crate) fn rotary_embedding(cx: &mut NodeContext<'_, '_>) -> Outcome {
    if cx.flag("is_packed_batching", false)? {
        return Err(NodeError::new("is_packed_batching = 1"));
    }
    let factor = cx.attribute_or("scale", 1.0_f32)?;
    if factor != 1.0 {
        return Err(NodeError::new(format!("scale = {factor}")));
    }
    let mut x = cx.operand(0)?;
    let ty = cx.type_of(x);
    let packed = ty.rank() == 3;
    let mut tables = [cx.operand(2)?, cx.operand(3)?];
    let pairs = cx.type_of(tables[0]).shape.last().cloned().unwrap_or_default();
    if packed {
        let heads = match cx.attribute_or("num_heads", 0)? {
            0 => {
                let hidden = ty.shape[2].clone();
                let heads = hidden.exact_div(&(pairs.clone() * Dim::from(2)));
                heads.and_then(|heads| heads.as_constant()).ok_or_else(|| {
                    NodeError::new(format!(
                        "{pairs} pairs of a width of {hidden}, without num_heads"
                    ))
                })?
            }
            heads => heads,
        };
        x = split_heads(cx, x, heads)?;
    }
    let rotated = cx.attribute_or("rotary_embedding_dim", 0)?;
    if rotated != 0 {
        let half = Dim::from(rotated / 2);
        cx.unify(&pairs, &half, "the width of the tables and rotary_embedding_dim")?;
    }
    let shape = cx.type_of(x).shape;
    let [_, _, sequence, _] = shape.as_slice() else {
        return Err(NodeError::new(format!(
            "an operand of rank {}; 3 or 4 are expected",
            ty.rank()
        )));
    };
    let positions = positions(cx, sequence)?;
    for table in &mut tables {
        *table = cx.emit(Gather { axis: Axis(0) }, &[*table, positions])?;
    }
    let interleaved = cx.flag("interleaved", false)?;
    let mut result = cx.emit(RotaryEmbedding { interleaved }, &[x, tables[0], tables[1]])?;
    if packed {
        result = merge_heads(cx, result)?;
    }
    cx.output(0, result)
}

/// Positions `[B or 1, S]` from operand 1, which may be the first one alone.
fn positions(cx: &mut NodeContext<'_, '_>, sequence: &Dim) -> Result<ValueId, NodeError> {
    let positions = cx.operand(1)?;
    let ty = cx.type_of(positions);
    match ty.shape.as_slice() {
        [_, _] => Ok(positions),
        [one] if one.is(1) => {
            let shape = vec![Dim::ONE, sequence.clone()];
            let count = cx.emit(Iota { shape, axis: Axis(1), dtype: ty.dtype }, &[])?;
            cx.emit(Scalar::Add, &[count, positions])
        }
        _ => Err(NodeError::new(format!("positions {ty}; [1] or [batch, sequence] is expected"))),
    }
}
