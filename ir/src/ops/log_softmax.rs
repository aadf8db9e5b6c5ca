//! `log_softmax`: its attributes, inference and meaning; nothing of any other operator.

use super::compose::Compose;
use super::{ReduceKind, Scalar};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::types::{Axis, TensorType};

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

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| {
            let mut g = Compose(graph);
            let [dtype, compute] = [g.ty(inputs[0]).dtype, g.ty(inputs[0]).dtype.compute()];
            let x = g.cast(inputs[0], compute)?;
            let greatest = g.reduce(ReduceKind::Max, x, [self.axis.index()])?;
            let below = g.sub(x, greatest)?;
            let powers = g.op(Scalar::Exp, &[below])?;
            let sum = g.reduce(ReduceKind::Sum, powers, [self.axis.index()])?;
            let logarithm = g.op(Scalar::Log, &[sum])?;
            let result = g.sub(below, logarithm)?;
            Ok(vec![g.cast(result, dtype)?])
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Maximum, difference, power, sum, difference.
        Dim::from(5) * operands[0].elements()
    }
}
