//! `gather`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{self, resolve, take};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// Takes slices by index along an axis, NumPy's `take`.
    ///
    /// Operands: data of rank r, integer indices of rank q; result: rank r - 1 + q, the indices'
    /// dimensions in the place of the axis. Negative indices count from the end.
    Gather {
        /// The axis that is indexed.
        axis: Axis,
    }
}

impl OpDef for Gather {
    const MNEMONIC: &'static str = "gather";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices] = check::arity(operands)?;
        check::axis(self.axis, data.rank())?;
        check::index_dtype(operands, 1)?;
        let mut shape = data.shape.clone();
        let axis = self.axis.index();
        shape.splice(axis..=axis, indices.shape.iter().cloned());
        Ok(vec![TensorType::new(data.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &Gather, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [data, indices] = evaluation.operands else {
        return Err(EvalError::Invalid("gather takes data and indices".to_string()));
    };
    let axis = op.axis.index();
    let extent = data.shape()[axis];
    let indices: Vec<usize> = movement::indices(indices)?
        .into_iter()
        .map(|index| resolve(index, extent))
        .collect::<Result<_, _>>()?;
    let taken = take(data, axis, &indices)?;
    Ok(vec![taken.reshaped(&evaluation.outputs[0].shape)?])
}
