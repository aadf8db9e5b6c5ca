//! `conv`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Convolution in 1, 2, 3 … spatial dimensions; products add up in f32 or wider.
    ///
    /// Operands: x `[N, C, D…]`, weights `[M, C / groups, K…]` and, if `bias`, bias `[M]`; result:
    /// `[N, M, …]`. Integers (i8, u8, i32, any mix) give i32. Lists have one item a spatial dimension.
    Conv {
        /// Steps of the window.
        strides: Vec<i64>,
        /// Steps inside the window.
        dilations: Vec<i64>,
        /// Zeros before each spatial dimension.
        before: Vec<i64>,
        /// Zeros after it.
        after: Vec<i64>,
        /// Groups of channels.
        groups: i64,
        /// Whether there is a bias.
        bias: bool,
    }
}

impl OpDef for Conv {
    const MNEMONIC: &'static str = "conv";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("conv: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("conv: meaning")
    }
}
