//! `cumulative`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// Running sum or product along an axis; the result has the operand's type.
    Cumulative {
        /// Sum or product.
        kind: CumulativeKind,
        /// The axis.
        axis: Axis,
        /// Whether an element leaves itself out.
        exclusive: bool,
        /// Whether it runs from the end.
        reverse: bool,
    }
}

attribute_words! {
    /// Sum or product.
    CumulativeKind {
        /// Sum.
        Sum = "sum",
        /// Product.
        Prod = "prod",
    }
}

impl OpDef for Cumulative {
    const MNEMONIC: &'static str = "cumulative";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("cumulative: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("cumulative: meaning")
    }
}
