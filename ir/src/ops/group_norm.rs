//! `group_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Normalises each group of channels of each batch item, statistics in f32 or wider. (ONNX
    /// GroupNormalization, opset 21; InstanceNormalization has a group for each channel)
    ///
    /// Operands: x `[N, C, …]`, scale `[C]`, bias `[C]`; result: y in x's type.
    GroupNorm {
        /// Number of groups; divides the channels.
        groups: i64,
        /// Added to the variance.
        epsilon: Float,
    }
}

impl OpDef for GroupNorm {
    const MNEMONIC: &'static str = "group_norm";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("group_norm: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("group_norm: meaning")
    }
}
