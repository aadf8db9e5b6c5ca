//! `iota`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

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

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("iota: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("iota: meaning")
    }
}
