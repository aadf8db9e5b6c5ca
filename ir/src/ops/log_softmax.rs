//! `log_softmax`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// `x - max - log(sum(exp(x - max)))` along an axis, in f32 or wider.
    LogSoftmax {
        /// The axis.
        axis: Axis,
    }
}

impl OpDef for LogSoftmax {
    const MNEMONIC: &'static str = "log_softmax";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("log_softmax: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("log_softmax: meaning")
    }
}
