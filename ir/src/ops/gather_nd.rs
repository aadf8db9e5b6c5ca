//! `gather_nd`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
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

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("gather_nd: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("gather_nd: meaning")
    }
}
