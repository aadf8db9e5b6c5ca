//! `conv_transpose`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Transposed convolution; products add up in f32 or wider. (ONNX ConvTranspose)
    ///
    /// Operands: x `[N, C, D…]`, weights `[C, M / groups, K…]` and, if `bias`, bias `[M]`; result:
    /// `[N, M, …]`, each spatial dimension
    /// `stride * (D - 1) + output_padding + (K - 1) * dilation + 1 - before - after`. `before` and
    /// `after` may be negative.
    ConvTranspose {
        /// Steps of the window.
        strides: Vec<i64>,
        /// Steps inside the window.
        dilations: Vec<i64>,
        /// Elements cut off before each spatial dimension.
        before: Vec<i64>,
        /// Elements cut off after it.
        after: Vec<i64>,
        /// Elements added at the end.
        output_padding: Vec<i64>,
        /// Groups of channels.
        groups: i64,
        /// Whether there is a bias.
        bias: bool,
    }
}

impl OpDef for ConvTranspose {
    const MNEMONIC: &'static str = "conv_transpose";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("conv_transpose: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("conv_transpose: meaning")
    }
}
