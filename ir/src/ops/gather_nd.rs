//! `gather_nd`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::operator;

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
        todo!("gather_nd: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}
