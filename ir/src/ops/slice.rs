//! `slice`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{Elements, Loop, StridedCopy, build, row_major};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

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
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &Slice, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (x, ty) = (&evaluation.operands[0], &evaluation.outputs[0]);
    let mut copy = StridedCopy { from: 0, to: 0, loops: Vec::with_capacity(ty.shape.len()) };
    if ty.elements() == 0 {
        return Ok(vec![Tensor::zeros(ty.clone())]);
    }
    let strides = row_major(x.shape()).into_iter().zip(row_major(&ty.shape));
    for (axis, (from, to)) in strides.enumerate() {
        let (start, step, extent) =
            (evaluation.dim(&op.starts[axis])?, op.steps[axis], ty.shape[axis]);
        // Steps matter only between elements; those of a slice of one may be of any size.
        let last = i128::from(start) + i128::from(step) * (extent as i128 - 1);
        for position in [i128::from(start), last] {
            if position < 0 || position >= x.shape()[axis] as i128 {
                return Err(EvalError::Invalid(format!(
                    "the slice of dimension {axis} reaches element {position} of {}",
                    x.shape()[axis]
                )));
            }
        }
        copy.from += start as isize * from;
        let stride = if extent > 1 { step as isize * from } else { 0 };
        copy.loops.push(Loop { extent, from: stride, to });
    }
    let elements = Elements::of(x);
    Ok(vec![build(ty, |target| copy.run(elements.width, &elements.bytes, target))?])
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
