//! `slice`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// A regular part: element `i` of a dimension of the result is element
    /// `starts + i * steps` of the operand's.
    ///
    /// All lists have one item for each dimension. Every element must lie inside the operand.
    Slice {
        /// The first element taken.
        starts: Vec<Dim>,
        /// How many are taken: the shape of the result.
        sizes: Vec<Dim>,
        /// From one to the next; negative steps run backwards, 0 is invalid.
        steps: Vec<i64>,
    }
}

impl OpDef for Slice {
    const MNEMONIC: &'static str = "slice";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        let rank = x.rank();
        check::length("starts", self.starts.len(), rank)?;
        check::length("sizes", self.sizes.len(), rank)?;
        check::length("steps", self.steps.len(), rank)?;
        for axis in 0..rank {
            self.check_axis(axis, &x.shape[axis])?;
        }
        Ok(vec![TensorType::new(x.dtype, self.sizes.clone())])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("slice: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

impl Slice {
    /// What can be said about one dimension before its numbers are known.
    fn check_axis(&self, axis: usize, extent: &Dim) -> Result<(), TypeError> {
        let (start, size, step) = (&self.starts[axis], &self.sizes[axis], self.steps[axis]);
        if step == 0 {
            return Err(TypeError::invalid(format!("dimension {axis} is sliced with step 0")));
        }
        check::not_negative(size, "the size of a slice")?;
        // An empty slice takes nothing, wherever it starts; an unknown size may be empty.
        if size.as_constant().is_none_or(|size| size == 0) {
            return Ok(());
        }
        let last = start.clone() + (size.clone() - Dim::ONE) * Dim::from(step);
        for position in [start, &last] {
            let below = position.as_constant().is_some_and(|p| p < 0);
            let room = extent.clone() - position.clone();
            if below || room.as_constant().is_some_and(|room| room <= 0) {
                return Err(TypeError::invalid(format!(
                    "the slice of dimension {axis} reaches element {position} of {extent}"
                )));
            }
        }
        Ok(())
    }
}
