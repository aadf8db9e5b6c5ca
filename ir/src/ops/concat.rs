//! `concat`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Joins tensors along an axis; at least one operand, all of one element type, and equal in the
    /// other dimensions.
    Concat {
        /// The axis that grows.
        axis: Axis,
    }
}

impl OpDef for Concat {
    const MNEMONIC: &'static str = "concat";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        check::at_least(operands, 1)?;
        Ok(vec![concatenated(operands, self.axis)?])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("concat: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

/// The type of tensors joined along an axis, at least one.
pub(super) fn concatenated(operands: &[TensorType], axis: Axis) -> Result<TensorType, TypeError> {
    let first = &operands[0];
    check::axis(axis, first.rank())?;
    let mut result = first.clone();
    for (index, operand) in operands.iter().enumerate().skip(1) {
        check::dtype_is(operands, index, first.dtype)?;
        check::rank(operands, index, first.rank())?;
        for (i, (left, right)) in first.shape.iter().zip(&operand.shape).enumerate() {
            if i != axis.index() {
                let what = format!("dimension {i} of concatenated operands 0 and {index}");
                check::equal(left, right, &what)?;
            }
        }
        let grown = &mut result.shape[axis.index()];
        *grown = grown.clone() + operand.shape[axis.index()].clone();
    }
    Ok(result)
}
