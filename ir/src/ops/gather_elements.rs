//! `gather_elements`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Takes elements by index along an axis, NumPy's `take_along_axis`.
    ///
    /// Operands: data, and integer indices of the same rank; the result has the indices' shape.
    /// Negative indices count from the end. (ONNX GatherElements)
    GatherElements {
        /// The axis that is indexed.
        axis: Axis,
    }
}

impl OpDef for GatherElements {
    const MNEMONIC: &'static str = "gather_elements";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices] = check::arity(operands)?;
        check::axis(self.axis, data.rank())?;
        check::index_dtype(operands, 1)?;
        check::rank(operands, 1, data.rank())?;
        check::indices_fit(&data.shape, &indices.shape, self.axis)?;
        Ok(vec![TensorType::new(data.dtype, indices.shape.clone())])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("gather_elements: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}
