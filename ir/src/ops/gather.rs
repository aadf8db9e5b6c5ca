//! `gather`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

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
        todo!("gather: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}
