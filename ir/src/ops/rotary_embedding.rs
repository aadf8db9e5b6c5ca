//! `rotary_embedding`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
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

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, cos, sin] = check::arity(operands)?;
        check::dtype(operands, 0, "a float", DType::is_float)?;
        check::rank(operands, 0, 4)?;
        for (index, table) in [(1, cos), (2, sin)] {
            check::dtype_is(operands, index, x.dtype)?;
            check::rank(operands, index, 3)?;
            if !table.shape[0].is(1) {
                check::equal(&x.shape[0], &table.shape[0], "batch")?;
            }
            check::equal(&x.shape[2], &table.shape[1], "sequence")?;
        }
        check::equal(&cos.shape[2], &sin.shape[2], "rotated pairs")?;
        let rotated = Dim::from(2) * cos.shape[2].clone();
        if (x.shape[3].clone() - rotated.clone()).as_constant().is_some_and(|rest| rest < 0) {
            return Err(TypeError::invalid(format!(
                "{rotated} elements to rotate in rows of {}",
                x.shape[3]
            )));
        }
        Ok(vec![x.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("rotary_embedding: meaning")
    }
}
