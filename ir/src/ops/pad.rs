//! `pad`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::{attribute_words, operator};

operator! {
    /// Adds elements before and after each dimension.
    ///
    /// Operands: a tensor and, in mode `constant`, a scalar of its element type. Amounts are not
    /// negative; `reflect` and `wrap` need a dimension that is long enough.
    Pad {
        /// Where the new elements come from.
        mode: PadMode,
        /// How many before, a dimension.
        before: Vec<Dim>,
        /// How many after, a dimension.
        after: Vec<Dim>,
    }
}

attribute_words! {
    /// Where padding comes from.
    PadMode {
        /// The scalar operand.
        Constant = "constant",
        /// The nearest element.
        Edge = "edge",
        /// Mirrored, the edge element not repeated.
        Reflect = "reflect",
        /// Periodic.
        Wrap = "wrap",
    }
}

impl OpDef for Pad {
    const MNEMONIC: &'static str = "pad";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("pad: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("pad: meaning")
    }
}
