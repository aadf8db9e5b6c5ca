//! `softmax`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// `exp(x - max) / sum(exp(x - max))` along an axis, in f32 or wider.
    Softmax {
        /// The axis.
        axis: Axis,
    }
}

impl OpDef for Softmax {
    const MNEMONIC: &'static str = "softmax";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("softmax: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("softmax: meaning")
    }
}
