//! `pool`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::{attribute_words, operator};

operator! {
    /// Pooling over windows in the spatial dimensions of `[N, C, D…]`.
    ///
    /// Results: the pooled tensor and, if `indices` (for `max` alone), the index of each maximum
    /// in the flattened operand, `i64`. Padding never wins a maximum. `before`/`after` are explicit; automatic
    /// padding is resolved before.
    Pool {
        /// What a window becomes.
        kind: PoolKind,
        /// Size of the window.
        kernel: Vec<i64>,
        /// Steps of the window.
        strides: Vec<i64>,
        /// Steps inside the window.
        dilations: Vec<i64>,
        /// Padding before each spatial dimension.
        before: Vec<i64>,
        /// Padding after it.
        after: Vec<i64>,
        /// Whether windows that reach over the end count; one that begins in the padding after the end never does.
        ceil: bool,
        /// Whether `average` divides by the whole window.
        count_padding: bool,
        /// The p of `lp`; 2 otherwise.
        power: i64,
        /// Whether indices are a result too.
        indices: bool,
        /// Whether indices count columns first.
        column_major: bool,
    }
}

attribute_words! {
    /// What a window becomes.
    PoolKind {
        /// Its greatest element.
        Max = "max",
        /// Its mean.
        Average = "average",
        /// `(Σ |x|^p)^(1/p)`.
        Lp = "lp",
    }
}

impl OpDef for Pool {
    const MNEMONIC: &'static str = "pool";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("pool: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("pool: meaning")
    }
}
