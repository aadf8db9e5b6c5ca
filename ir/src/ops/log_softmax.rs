//! `log_softmax`: its attributes, inference and meaning; nothing of any other operator.

use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
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

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::dtype(operands, 0, "a float", DType::is_float)?;
        check::axis(self.axis, x.rank())?;
        Ok(vec![x.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("log_softmax: meaning")
    }
}
