//! `append`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Writes rows into a state behind the rows that are there already.
    ///
    /// Operands: the state `[…, L, …]` and the rows `[…, N, …]`; result: their concatenation along
    /// `axis`, `[…, L + N, …]`. `lower_states` makes it from a `concat`; the result lies in the
    /// state's own buffer, so only the new rows are written.
    Append {
        /// The axis that grows.
        axis: Axis,
    }
}

impl OpDef for Append {
    const MNEMONIC: &'static str = "append";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("append: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("append: meaning")
    }
}
