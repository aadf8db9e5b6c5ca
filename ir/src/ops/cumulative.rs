//! `cumulative`: its attributes, inference and meaning; nothing of any other operator.

use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
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

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::dtype(operands, 0, "a number", |d| d != DType::Bool)?;
        check::axis(self.axis, x.rank())?;
        Ok(vec![x.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("cumulative: meaning")
    }
}
