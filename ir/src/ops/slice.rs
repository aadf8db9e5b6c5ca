//! `slice`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// A regular part: element `i` of a dimension of the result is element
    /// `starts + i * steps` of the operand's.
    ///
    /// All lists have one item for each dimension. Every element must lie inside the operand.
    Slice {
        /// The first element taken.
        starts: Vec<Dim>,
        /// How many are taken: the shape of the result.
        sizes: Vec<Dim>,
        /// From one to the next; negative steps run backwards, 0 is invalid.
        steps: Vec<i64>,
    }
}

impl OpDef for Slice {
    const MNEMONIC: &'static str = "slice";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("slice: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("slice: meaning")
    }
}
