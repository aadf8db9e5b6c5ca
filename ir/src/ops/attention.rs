//! `attention`: its attributes, inference and meaning; nothing of any other operator.

use super::compose::Compose;
use super::{Iota, Matmul, ReduceKind, Scalar, Softmax, Transpose};
use crate::attribute::{Attribute, Float};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::ValueId;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::text::{Cursor, SyntaxError};
use crate::types::Axis;
use crate::types::TensorType;
use crate::{attribute_words, operator};
use std::fmt;

operator! {
    /// Scaled dot-product attention, scores and softmax in f32 or wider. (ONNX Attention, opsets 23
    /// to 25; com.microsoft MultiHeadAttention and GroupQueryAttention)
    ///
    /// Operands: Q `[B, Hq, S, D]`, K `[B, Hkv, T, D]`, V `[B, Hkv, T, Dv]`, all of one float type, Hkv
    /// dividing Hq (head `h` of Q reads head `h / (Hq / Hkv)` of K and V); then, unless `mask` is `none`,
    /// a mask that broadcasts to `[B, Hq, S, T]`: a float, added to the scores (`additive`), or a
    /// truth value, true where attention is allowed (`boolean`); then, if `lengths`, `i64[B]`: how
    /// many of the T rows exist, the others are masked.
    ///
    /// Results: `[B, Hq, S, Dv]` in Q's type; unless `scores` is `none`, also `[B, Hq, S, T]` in
    /// Q's type. Scores are scaled, then soft-capped, then masked.
    ///
    /// A key is masked for a query if any of mask, lengths and position excludes it; an additive
    /// mask of -infinity excludes it too. A masked key has no weight, except in a row where all
    /// keys are masked: such a row averages V uniformly, as masking with the lowest finite value
    /// does (onnxruntime's operators); with `empty_rows_zero` its weights are 0 (ONNX). Finite
    /// additive masks, however low, are just added.
    Attention {
        /// Factor of the scores.
        scale: Float,
        /// Where the queries stand among the keys; matters only with `before` or `after`.
        position: Position,
        /// How many keys before a query's own position are visible; absent: all. A sliding window
        /// of W keys, the own position included, is `before = W - 1`.
        before: Option<i64>,
        /// How many keys after a query's own position are visible; absent: all, 0: causal.
        after: Option<i64>,
        /// What kind of mask operand there is.
        mask: MaskKind,
        /// Whether there is an operand with lengths.
        lengths: bool,
        /// `cap * tanh(score / cap)`.
        softcap: Option<Float>,
        /// Whether a fully masked row gives 0.
        empty_rows_zero: bool,
        /// Which scores are a result too.
        scores: Scores,
    }
}

attribute_words! {
    /// Scores as a result.
    Scores {
        /// None.
        None = "none",
        /// Products of queries and keys, scaled.
        Scaled = "scaled",
        /// These, soft-capped.
        Capped = "capped",
        /// These, with additive masks added and -infinity where a key is masked.
        Masked = "masked",
        /// The softmax of these, what V is averaged with.
        Weights = "weights",
    }
}

attribute_words! {
    /// What kind of mask operand there is.
    MaskKind {
        /// None.
        None = "none",
        /// Added to the scores.
        Additive = "additive",
        /// True where attention is allowed.
        Boolean = "boolean",
    }
}

impl OpDef for Attention {
    const MNEMONIC: &'static str = "attention";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let optional = usize::from(self.mask != MaskKind::None) + usize::from(self.lengths);
        check::count(operands, 3 + optional)?;
        check::dtype(operands, 0, "a float", DType::is_float)?;
        let (q, k, v) = (&operands[0], &operands[1], &operands[2]);
        for index in 0..3 {
            check::rank(operands, index, 4)?;
            check::dtype_is(operands, index, q.dtype)?;
        }
        check::equal(&q.shape[0], &k.shape[0], "batch of queries and keys")?;
        check::equal(&q.shape[0], &v.shape[0], "batch of queries and values")?;
        check::equal(&k.shape[1], &v.shape[1], "heads of keys and values")?;
        check::equal(&k.shape[2], &v.shape[2], "number of keys and values")?;
        check::equal(&q.shape[3], &k.shape[3], "head size of queries and keys")?;
        if q.shape[1].exact_div(&k.shape[1]).is_none() {
            return Err(TypeError::invalid(format!(
                "{} heads of keys do not divide {} heads of queries",
                k.shape[1], q.shape[1]
            )));
        }
        match self.mask {
            MaskKind::None => {}
            MaskKind::Additive => {
                check::dtype(operands, 3, "a float", DType::is_float)?;
            }
            MaskKind::Boolean => check::dtype_is(operands, 3, DType::Bool)?,
        }
        if self.mask != MaskKind::None {
            let scores = [&q.shape[0], &q.shape[1], &q.shape[2], &k.shape[2]].map(Dim::clone);
            check::broadcasts_to(&operands[3].shape, &scores)?;
        }
        if self.lengths {
            let lengths = operands.len() - 1;
            check::dtype_is(operands, lengths, DType::I64)?;
            check::rank(operands, lengths, 1)?;
            check::equal(&q.shape[0], &operands[lengths].shape[0], "batch of queries and lengths")?;
        } else if self.position == Position::Lengths {
            return Err(TypeError::invalid("`position = lengths` without an operand with lengths"));
        }
        if let Some(limit) = [self.before, self.after].into_iter().flatten().find(|n| *n < 0) {
            return Err(TypeError::invalid(format!("{limit} visible keys")));
        }
        let outer = [&q.shape[0], &q.shape[1], &q.shape[2]].map(Dim::clone);
        let with = |last: &Dim| {
            let shape: Vec<Dim> = outer.iter().chain([last]).cloned().collect();
            TensorType::new(q.dtype, shape)
        };
        let mut types = vec![with(&v.shape[3])];
        if self.scores != Scores::None {
            types.push(with(&k.shape[2]));
        }
        Ok(types)
    }

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| self.build(&mut Compose(graph), inputs))
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Two products; scale, mask and softmax for each score.
        let scores: Dim = operands[0].shape[..3].iter().cloned().product();
        let scores = scores * operands[1].shape[2].clone();
        let widths = operands[0].shape[3].clone() + operands[2].shape[3].clone();
        scores * (Dim::from(2) * widths + Dim::from(7))
    }
}

impl Attention {
    fn build(&self, g: &mut Compose<'_>, inputs: &[ValueId]) -> Result<Vec<ValueId>, TypeError> {
        let [q, k, v] = [inputs[0], inputs[1], inputs[2]];
        let dtype = g.ty(q).dtype;
        let compute = dtype.compute();
        let [batch, heads, queries, _] = dims4(g.ty(q))?;
        let [_, key_heads, keys, _] = dims4(g.ty(k))?;
        let shape = vec![batch, heads, queries, keys];
        let product = Matmul { acc: compute, result: compute };
        let swapped = Transpose { perm: [0, 1, 3, 2].map(Axis).to_vec() };
        let k = g.op(swapped, &[k])?;
        // Query heads that share a key head become rows of one matrix.
        let q = regroup(g, q, &key_heads)?;
        let scores = g.op(product.clone(), &[q, k])?;
        let scores = g.reshape(scores, shape.clone())?;
        let scale = g.constant(compute, self.scale.0);
        let scaled = g.mul(scores, scale)?;
        let mut capped = scaled;
        if let Some(cap) = self.softcap {
            let cap = g.constant(compute, cap.0);
            let fraction = g.div(scaled, cap)?;
            let bounded = g.op(Scalar::Tanh, &[fraction])?;
            capped = g.mul(bounded, cap)?;
        }
        let mut masked = capped;
        if self.mask == MaskKind::Additive {
            let mask = g.cast(inputs[3], compute)?;
            masked = g.add(masked, mask)?;
        }
        let visible = self.visible(g, inputs, &shape)?;
        let infinity = g.constant(compute, f64::NEG_INFINITY);
        if let Some(visible) = visible {
            masked = g.op(Scalar::Select, &[visible, masked, infinity])?;
        }
        let mut weights = g.op(Softmax { axis: Axis(3) }, &[masked])?;
        if let Some(visible) = visible {
            let any = match g.ty(visible).rank() {
                0 => visible,
                rank => g.reduce(ReduceKind::Max, visible, [rank - 1])?,
            };
            let empty = if self.empty_rows_zero {
                g.constant(compute, 0.0)
            } else {
                let count = g.dim(shape[3].clone())?;
                let count = g.cast(count, compute)?;
                g.op(Scalar::Reciprocal, &[count])?
            };
            weights = g.op(Scalar::Select, &[any, weights, empty])?;
        }
        let v = g.cast(v, compute)?;
        let rows = regroup(g, weights, &key_heads)?;
        let result = g.op(product, &[rows, v])?;
        let mut result_shape = shape;
        result_shape[3] = g.shape(v)[3].clone();
        let result = g.reshape(result, result_shape)?;
        let mut results = vec![g.cast(result, dtype)?];
        let scores = match self.scores {
            Scores::None => return Ok(results),
            Scores::Scaled => scaled,
            Scores::Capped => capped,
            Scores::Masked => masked,
            Scores::Weights => weights,
        };
        results.push(g.cast(scores, dtype)?);
        Ok(results)
    }

    /// Which keys are not masked, as truth values that broadcast to the scores; `None`: all.
    fn visible(
        &self,
        g: &mut Compose<'_>,
        inputs: &[ValueId],
        shape: &[Dim],
    ) -> Result<Option<ValueId>, TypeError> {
        let mut conditions = Vec::new();
        match self.mask {
            MaskKind::None => {}
            MaskKind::Boolean => conditions.push(inputs[3]),
            MaskKind::Additive => {
                let infinity = g.constant(g.ty(inputs[3]).dtype, f64::NEG_INFINITY);
                conditions.push(g.op(Scalar::NotEqual, &[inputs[3], infinity])?);
            }
        }
        let count = |axis: usize| {
            let mut counted = vec![Dim::ONE; 4];
            counted[axis] = shape[axis].clone();
            Iota { shape: counted, axis: Axis::from(axis), dtype: DType::I64 }
        };
        let lengths = match inputs.last() {
            Some(lengths) if self.lengths => Some(g.along(*lengths, 0, 4)?),
            _ => None,
        };
        let windowed = self.before.is_some() || self.after.is_some();
        let key = match windowed || self.lengths {
            true => g.op(count(3), &[])?,
            false => return all(g, conditions),
        };
        if let Some(lengths) = lengths {
            conditions.push(g.op(Scalar::Less, &[key, lengths])?);
        }
        if windowed {
            let first = match (&self.position, lengths) {
                (Position::Offset(offset), _) => g.dim(offset.clone())?,
                (Position::Lengths, Some(lengths)) => {
                    let queries = g.dim(shape[2].clone())?;
                    g.sub(lengths, queries)?
                }
                (Position::Lengths, None) => return Err(TypeError::invalid("no lengths")),
            };
            let query = g.op(count(2), &[])?;
            let position = g.add(query, first)?;
            if let Some(after) = self.after {
                let after = g.dim(Dim::from(after))?;
                let last = g.add(position, after)?;
                conditions.push(g.op(Scalar::LessOrEqual, &[key, last])?);
            }
            if let Some(before) = self.before {
                let before = g.dim(Dim::from(before))?;
                let first = g.sub(position, before)?;
                conditions.push(g.op(Scalar::GreaterOrEqual, &[key, first])?);
            }
        }
        all(g, conditions)
    }
}

/// The conjunction of conditions; `None` if there are none.
fn all(g: &mut Compose<'_>, conditions: Vec<ValueId>) -> Result<Option<ValueId>, TypeError> {
    let mut conditions = conditions.into_iter();
    let first = conditions.next();
    first.map(|first| conditions.try_fold(first, |a, b| g.op(Scalar::And, &[a, b]))).transpose()
}

fn dims4(ty: &TensorType) -> Result<[Dim; 4], TypeError> {
    let shape = ty.shape.clone();
    shape.try_into().map_err(|_| TypeError::invalid(format!("{ty} is not of rank 4")))
}

/// `[B, H, S, D]` as `[B, heads, H / heads * S, D]`.
fn regroup(g: &mut Compose<'_>, value: ValueId, heads: &Dim) -> Result<ValueId, TypeError> {
    let [batch, all, rows, width] = dims4(g.ty(value))?;
    let group = all
        .exact_div(heads)
        .ok_or_else(|| TypeError::invalid(format!("{heads} heads do not divide {all}")))?;
    g.reshape(value, vec![batch, heads.clone(), group * rows, width])
}

/// Where the queries stand among the keys: key `j` stands at position `j`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Position {
    /// Query `i` at `offset + i`, the same for the batch.
    Offset(Dim),
    /// The last query at the last of the `lengths[b]` rows: query `i` of S at
    /// `lengths[b] - S + i`.
    Lengths,
}

/// `lengths`, or the offset in parentheses: `offset(P)`.
impl Attribute for Position {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Lengths => f.write_str("lengths"),
            Position::Offset(dim) => write!(f, "offset({dim})"),
        }
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Position, SyntaxError> {
        if cursor.eat_word("offset") {
            cursor.expect('(')?;
            let dim = cursor.dim()?;
            cursor.expect(')')?;
            return Ok(Position::Offset(dim));
        }
        cursor.word_in(&[("lengths", ())]).map(|()| Position::Lengths)
    }

    fn visit_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
        if let Position::Offset(dim) = self {
            visit(dim);
        }
    }
}
