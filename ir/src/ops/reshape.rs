//! `reshape`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// The same elements in the same order under another shape.
    ///
    /// Operand: any tensor; result: as many elements in `shape`.
    Reshape {
        /// The shape of the result.
        shape: Vec<Dim>,
    }
}

impl OpDef for Reshape {
    const MNEMONIC: &'static str = "reshape";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        let result = TensorType::new(x.dtype, self.shape.clone());
        check::equal(&x.elements(), &result.elements(), "numbers of elements")?;
        Ok(vec![result])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(_: &Reshape, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    Ok(vec![evaluation.operands[0].reshaped(&evaluation.outputs[0].shape)?])
}
