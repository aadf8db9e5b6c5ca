//! `gather_nd`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{self, Elements, build, copy_runs, resolve_tuples};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Takes slices by index tuples, the innermost dimension of the indices (ONNX GatherND).
    ///
    /// Operands: data, and integer indices `[…, k]`; negative indices count from the end.
    GatherNd {
        /// How many outer dimensions data and indices share.
        batch_dims: u32,
    }
}

impl OpDef for GatherNd {
    const MNEMONIC: &'static str = "gather_nd";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices] = check::arity(operands)?;
        check::index_dtype(operands, 1)?;
        let batch = self.batch_dims as usize;
        let tuple = check::index_tuple(operands, 0, 1, batch)?;
        let outer = indices.rank() - 1;
        for (axis, (d, i)) in data.shape.iter().zip(&indices.shape[..outer]).enumerate().take(batch)
        {
            check::equal(d, i, &format!("batch dimension {axis} of gather_nd"))?;
        }
        let mut shape = indices.shape[..outer].to_vec();
        shape.extend_from_slice(&data.shape[batch + tuple..]);
        Ok(vec![TensorType::new(data.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &GatherNd, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [data, indices] = evaluation.operands else {
        return Err(EvalError::Invalid("gather_nd takes data and indices".to_string()));
    };
    let batch = op.batch_dims as usize;
    let (outer, length) = match indices.shape().split_last() {
        Some((length, outer)) => (outer, *length),
        None => return Err(EvalError::Invalid("gather_nd indices of rank 0".to_string())),
    };
    let tuples: usize = outer[batch..].iter().product();
    let batches: usize = outer[..batch].iter().product();
    let extents = &data.shape()[batch..batch + length];
    let run: usize = data.shape()[batch + length..].iter().product();
    let slices: usize = extents.iter().product();
    let indices = movement::indices(indices)?;
    let from = resolve_tuples(&indices, batches * tuples, extents)?;
    let elements = Elements::of(data);
    let result = build(&evaluation.outputs[0], |target| {
        let places = from.iter().enumerate();
        let places = places.map(|(to, from)| ((to / tuples * slices + from) * run, to * run));
        copy_runs(elements.width, run, &elements.bytes, target, places);
        Ok(())
    })?;
    Ok(vec![result])
}
