//! `gather_elements`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
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

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("gather_elements: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("gather_elements: meaning")
    }
}
