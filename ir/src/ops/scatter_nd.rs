//! `scatter_nd`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::ops::ScatterReduction;
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Copies data, then writes updates by index tuples (ONNX ScatterND).
    ///
    /// Operands: data, integer indices `[…, k]`, updates.
    ScatterNd {
        /// What happens to the element that was there.
        reduction: ScatterReduction,
    }
}

impl OpDef for ScatterNd {
    const MNEMONIC: &'static str = "scatter_nd";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("scatter_nd: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("scatter_nd: meaning")
    }
}
