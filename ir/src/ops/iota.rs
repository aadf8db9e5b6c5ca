//! `iota`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Number;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// Counts along an axis: the element at index `i` of the axis is `i`.
    ///
    /// No operands; one result of type `dtype[shape]`.
    Iota {
        /// The shape of the result.
        shape: Vec<Dim>,
        /// The axis along which it counts.
        axis: Axis,
        /// Element type: an integer or a float.
        dtype: DType,
    }
}

impl OpDef for Iota {
    const MNEMONIC: &'static str = "iota";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        check::arity::<0>(operands)?;
        check::axis(self.axis, self.shape.len())?;
        if self.dtype == DType::Bool {
            return Err(TypeError::invalid("iota counts in an integer or a float type, not bool"));
        }
        Ok(vec![TensorType::new(self.dtype, self.shape.clone())])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &Iota, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let ty = evaluation.outputs[0].clone();
    let (extent, inner) = (ty.shape[op.axis.index()], ty.shape[op.axis.index() + 1..].iter());
    let inner: usize = inner.product();
    let mut result = Tensor::try_zeros(ty)?;
    for position in 0..result.elements() {
        result.set(position, Number::Signed((position / inner % extent) as i64));
    }
    Ok(vec![result])
}
