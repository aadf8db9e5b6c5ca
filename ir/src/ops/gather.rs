//! `gather`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
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

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("gather: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("gather: meaning")
    }
}
