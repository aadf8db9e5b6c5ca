//! `rms_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Root-mean-square normalisation over the dimensions from `axis` on: `x / sqrt(mean(x²) + epsilon)
    /// * scale`, statistics in f32 or wider. (ONNX RMSNormalization, opset 23)
    ///
    /// Operands: x, and scale, broadcasting to x; result: y in x's type.
    RmsNorm {
        /// First normalised dimension.
        axis: Axis,
        /// Added to the mean square.
        epsilon: Float,
    }
}

impl OpDef for RmsNorm {
    const MNEMONIC: &'static str = "rms_norm";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("rms_norm: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("rms_norm: meaning")
    }
}
