//! `rotary_embedding`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Rotary position embedding over the first `2 * R` elements of each row; the others pass.
    ///
    /// Operands: x `[B, H, S, D]`, cos and sin `[B or 1, S, R]`, already gathered by position, in x's
    /// type; result: x's type. Half-split pairs are (i, i + R), interleaved ones (2i, 2i + 1).
    RotaryEmbedding {
        /// How pairs are formed.
        interleaved: bool,
    }
}

impl OpDef for RotaryEmbedding {
    const MNEMONIC: &'static str = "rotary_embedding";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("rotary_embedding: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("rotary_embedding: meaning")
    }
}
