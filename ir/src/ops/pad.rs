//! `pad`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
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

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let x = match self.mode {
            PadMode::Constant => {
                let [x, _] = check::arity(operands)?;
                check::dtype_is(operands, 1, x.dtype)?;
                check::rank(operands, 1, 0)?;
                x
            }
            PadMode::Edge | PadMode::Reflect | PadMode::Wrap => {
                let [x] = check::arity(operands)?;
                x
            }
        };
        check::length("before", self.before.len(), x.rank())?;
        check::length("after", self.after.len(), x.rank())?;
        let mut shape = Vec::with_capacity(x.rank());
        for ((dim, before), after) in x.shape.iter().zip(&self.before).zip(&self.after) {
            for amount in [before, after] {
                check::not_negative(amount, "an amount of padding")?;
            }
            shape.push(dim.clone() + before.clone() + after.clone());
        }
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("pad: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}
