//! `dims`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Dimensions as data: `[values[0], values[1], …]`.
    ///
    /// No operands; one result `i64[n]`.
    Dims {
        /// The dimensions.
        values: Vec<Dim>,
    }
}

impl OpDef for Dims {
    const MNEMONIC: &'static str = "dims";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        check::arity::<0>(operands)?;
        Ok(vec![TensorType::new(DType::I64, vec![Dim::from(self.values.len() as i64)])])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &Dims, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let values: Result<Vec<i64>, _> = op.values.iter().map(|dim| evaluation.dim(dim)).collect();
    Ok(vec![Tensor::from_elements(&[op.values.len()], &values?)?])
}
