//! `layer_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Layer normalisation over the dimensions from `axis` on: `(x - mean) / sqrt(variance + epsilon)
    /// * scale + bias`, statistics in f32 or wider. (ONNX LayerNormalization)
    ///
    /// Operands: x, scale and, if `bias`, bias, both broadcasting to x; results: y in x's type and, if
    /// `statistics`, mean and 1/deviation in the compute type with the normalised dimensions 1.
    LayerNorm {
        /// First normalised dimension.
        axis: Axis,
        /// Added to the variance.
        epsilon: Float,
        /// Whether there is a bias.
        bias: bool,
        /// Whether mean and 1/deviation are results too.
        statistics: bool,
    }
}

impl OpDef for LayerNorm {
    const MNEMONIC: &'static str = "layer_norm";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("layer_norm: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("layer_norm: meaning")
    }
}
