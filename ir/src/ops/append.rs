//! `append`: its attributes, inference and meaning; nothing of any other operator.

use super::concat::concatenated;
use super::concat::join;
use crate::dim::Dim;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// Writes rows into a state behind the rows that are there already.
    ///
    /// Operands: the state `[…, L, …]` and the rows `[…, N, …]`; result: their concatenation along
    /// `axis`, `[…, L + N, …]`. `lower_states` makes it from a `concat`; the result lies in the
    /// state's own buffer, so only the new rows are written.
    Append {
        /// The axis that grows.
        axis: Axis,
    }
}

impl OpDef for Append {
    const MNEMONIC: &'static str = "append";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [_, _] = check::arity(operands)?;
        Ok(vec![concatenated(operands, self.axis)?])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &Append, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    join(op.axis, evaluation)
}
