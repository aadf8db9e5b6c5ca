//! `transpose`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Permutes dimensions: dimension `i` of the result is dimension `perm[i]` of the operand.
    Transpose {
        /// A permutation of the operand's axes.
        perm: Vec<Axis>,
    }
}

impl OpDef for Transpose {
    const MNEMONIC: &'static str = "transpose";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("transpose: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("transpose: meaning")
    }
}
