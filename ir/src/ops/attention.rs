//! `attention`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::{Attribute, Float};
use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError};
use crate::text::{Cursor, SyntaxError};
use crate::types::TensorType;
use crate::{attribute_words, operator};
use std::fmt;

operator! {
    /// Scaled dot-product attention, scores and softmax in f32 or wider.
    ///
    /// Operands: Q `[B, Hq, S, D]`, K `[B, Hkv, T, D]`, V `[B, Hkv, T, Dv]`, Hkv dividing Hq; then, unless
    /// `mask` is `none`, a mask that broadcasts to `[B, Hq, S, T]`: of Q's type and added to the scores
    /// (`additive`), or a truth value, true where attention is allowed (`boolean`); then, if
    /// `lengths`, `i64[B]`: how many of the T rows exist, the others are masked. Result: `[B, Hq, S, Dv]` in
    /// Q's type. Scores are scaled, then soft-capped, then masked.
    ///
    /// A row in which everything is masked averages V uniformly, as a mask of the lowest finite
    /// value does; with `empty_rows_zero` it is 0.
    Attention {
        /// Factor of the scores.
        scale: Float,
        /// Which keys are visible by position.
        causal: Causal,
        /// Only the last so many visible keys, the query's own position included.
        window: Option<i64>,
        /// What kind of mask operand there is.
        mask: MaskKind,
        /// Whether there is an operand with lengths.
        lengths: bool,
        /// `cap * tanh(score / cap)`.
        softcap: Option<Float>,
        /// What a fully masked row gives.
        empty_rows_zero: bool,
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

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("attention: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("attention: meaning")
    }
}

/// Which keys a query sees by position. Query `i` of `S` stands at position `offset + i`, key `j`
/// at position `j`; it sees keys at or before its own position.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Causal {
    /// All.
    No,
    /// Those not after it; the offset is the same for the batch.
    Offset(Dim),
    /// Those not after it; the last query stands at the last of the `lengths[b]` rows.
    Lengths,
}

/// `no`, `lengths`, or the offset in parentheses: `offset(P)`.
impl Attribute for Causal {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Causal::No => f.write_str("no"),
            Causal::Lengths => f.write_str("lengths"),
            Causal::Offset(dim) => write!(f, "offset({dim})"),
        }
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Causal, SyntaxError> {
        if cursor.eat_word("offset") {
            cursor.expect('(')?;
            let dim = cursor.dim()?;
            cursor.expect(')')?;
            return Ok(Causal::Offset(dim));
        }
        cursor.word_in(&[("no", false), ("lengths", true)]).map(|lengths| {
            if lengths { Causal::Lengths } else { Causal::No }
        })
    }

    fn visit_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
        if let Causal::Offset(dim) = self {
            visit(dim);
        }
    }
}
