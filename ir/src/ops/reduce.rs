//! `reduce`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// Reduces over axes. With no axes it changes nothing but, for `mean`, nothing either.
    ///
    /// The neutral value of an empty reduction: 0, 1, the least or greatest value; NaN for `mean`.
    Reduce {
        /// The reduction.
        kind: ReduceKind,
        /// The axes, ascending, each once.
        axes: Vec<Axis>,
        /// Whether the axes stay, as dimensions of 1.
        keep: bool,
    }
}

attribute_words! {
    /// A reduction.
    ReduceKind {
        /// Sum, in f32 or wider for floats, wrapping for integers.
        Sum = "sum",
        /// Sum over count.
        Mean = "mean",
        /// Product.
        Prod = "prod",
        /// Greatest; NaN if any is.
        Max = "max",
        /// Least; NaN if any is.
        Min = "min",
    }
}

impl OpDef for Reduce {
    const MNEMONIC: &'static str = "reduce";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("reduce: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("reduce: meaning")
    }
}
