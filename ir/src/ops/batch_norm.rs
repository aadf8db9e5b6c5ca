//! `batch_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Batch normalisation with given statistics: `(x - mean) / sqrt(variance + epsilon) * scale + bias`.
    ///
    /// Operands: x `[N, C, …]` (or `[N]`, with C = 1), scale, bias, mean, variance, each `[C]`; result: y in x's type.
    BatchNorm {
        /// Added to the variance.
        epsilon: Float,
    }
}

impl OpDef for BatchNorm {
    const MNEMONIC: &'static str = "batch_norm";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("batch_norm: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("batch_norm: meaning")
    }
}
