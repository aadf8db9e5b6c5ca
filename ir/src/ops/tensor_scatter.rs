//! `tensor_scatter`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Writes rows into a cache at an index for each batch (ONNX TensorScatter, opset 24).
    ///
    /// Operands: cache `[B, …, C, …]`, update `[B, …, N, …]`, and, if `indices`, write indices `i64[B]`
    /// (else all 0); result: the cache's shape.
    TensorScatter {
        /// The axis that is indexed; not the batch.
        axis: Axis,
        /// Whether there are write indices.
        indices: bool,
        /// Whether writing wraps around at the end; else it must fit.
        circular: bool,
    }
}

impl OpDef for TensorScatter {
    const MNEMONIC: &'static str = "tensor_scatter";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("tensor_scatter: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("tensor_scatter: meaning")
    }
}
