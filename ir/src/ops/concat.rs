//! `concat`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Joins tensors along an axis; at least one operand, all of one element type, and equal in the
    /// other dimensions.
    Concat {
        /// The axis that grows.
        axis: Axis,
    }
}

impl OpDef for Concat {
    const MNEMONIC: &'static str = "concat";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("concat: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("concat: meaning")
    }
}
