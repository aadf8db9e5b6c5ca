//! `top_k`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// The `k` greatest or least elements along an axis, in order; equal ones by ascending index.
    ///
    /// Results: the values, and their indices as `i64`.
    TopK {
        /// The axis.
        axis: Axis,
        /// How many.
        k: Dim,
        /// Greatest, else least.
        largest: bool,
    }
}

impl OpDef for TopK {
    const MNEMONIC: &'static str = "top_k";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("top_k: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("top_k: meaning")
    }
}
