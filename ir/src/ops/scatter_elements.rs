//! `scatter_elements`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError, check};
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

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices, updates] = check::arity(operands)?;
        check::axis(self.axis, data.rank())?;
        check::index_dtype(operands, 1)?;
        check::dtype_is(operands, 2, data.dtype)?;
        check::rank(operands, 1, data.rank())?;
        check::rank(operands, 2, data.rank())?;
        check::indices_fit(&data.shape, &indices.shape, self.axis)?;
        for (axis, (i, u)) in indices.shape.iter().zip(&updates.shape).enumerate() {
            check::equal(i, u, &format!("dimension {axis} of indices and updates"))?;
        }
        Ok(vec![data.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("scatter_elements: meaning")
    }
}
