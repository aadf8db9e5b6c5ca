//! `broadcast`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Repeats along dimensions of 1 and along new outer dimensions, NumPy's way, until the shape is
    /// `shape`.
    Broadcast {
        /// The shape of the result; the operand broadcasts to it.
        shape: Vec<Dim>,
    }
}

impl OpDef for Broadcast {
    const MNEMONIC: &'static str = "broadcast";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("broadcast: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("broadcast: meaning")
    }
}
