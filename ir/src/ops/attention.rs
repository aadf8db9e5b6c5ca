//! `attention`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::{Attribute, Float};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::text::{Cursor, SyntaxError};
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

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("attention: meaning")
    }
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
