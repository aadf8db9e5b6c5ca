//! `scatter_elements`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// Copies data, then writes updates by index along an axis (ONNX ScatterElements).
    ///
    /// Operands: data, integer indices, updates of the indices' shape.
    ScatterElements {
        /// The axis that is indexed.
        axis: Axis,
        /// What happens to the element that was there.
        reduction: ScatterReduction,
    }
}

attribute_words! {
    /// What happens to the element that was there.
    ScatterReduction {
        /// It is replaced; of several updates the last counts.
        Replace = "replace",
        /// Sum.
        Add = "add",
        /// Product.
        Mul = "mul",
        /// The greater.
        Max = "max",
        /// The lesser.
        Min = "min",
    }
}

impl OpDef for ScatterElements {
    const MNEMONIC: &'static str = "scatter_elements";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("scatter_elements: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("scatter_elements: meaning")
    }
}
