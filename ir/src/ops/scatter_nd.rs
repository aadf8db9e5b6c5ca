//! `scatter_nd`: its attributes, inference and meaning; nothing of any other operator.

use super::scatter_elements::scatter;
use crate::dim::Dim;
use crate::movement::{self, resolve_tuples};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::ops::ScatterReduction;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Copies data, then writes updates by index tuples (ONNX ScatterND).
    ///
    /// Operands: data, integer indices `[…, k]`, updates.
    ScatterNd {
        /// What happens to the element that was there.
        reduction: ScatterReduction,
    }
}

impl OpDef for ScatterNd {
    const MNEMONIC: &'static str = "scatter_nd";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices, updates] = check::arity(operands)?;
        check::index_dtype(operands, 1)?;
        check::dtype_is(operands, 2, data.dtype)?;
        let tuple = check::index_tuple(operands, 0, 1, 0)?;
        let outer = &indices.shape[..indices.rank() - 1];
        let expected: Vec<&Dim> = outer.iter().chain(&data.shape[tuple..]).collect();
        check::rank(operands, 2, expected.len())?;
        for (axis, (e, u)) in expected.into_iter().zip(&updates.shape).enumerate() {
            check::equal(e, u, &format!("dimension {axis} of the updates"))?;
        }
        Ok(vec![data.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }
}

fn evaluate(op: &ScatterNd, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [data, indices, updates] = evaluation.operands else {
        return Err(EvalError::Invalid("scatter_nd takes three operands".to_string()));
    };
    let (outer, length) = match indices.shape().split_last() {
        Some((length, outer)) => (outer, *length),
        None => return Err(EvalError::Invalid("scatter_nd indices of rank 0".to_string())),
    };
    let (extents, inner) = data.shape().split_at(length);
    let indices = movement::indices(indices)?;
    let to = resolve_tuples(&indices, outer.iter().product(), extents)?;
    Ok(vec![scatter(data, updates, &to, inner.iter().product(), op.reduction)?])
}
