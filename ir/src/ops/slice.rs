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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::interp::Interpreter;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate};
    use std::slice::from_ref;

    fn slice(starts: &[i64], sizes: &[i64], steps: &[i64]) -> Slice {
        let dims = |list: &[i64]| list.iter().map(|d| Dim::from(*d)).collect();
        Slice { starts: dims(starts), sizes: dims(sizes), steps: steps.to_vec() }
    }

    #[test]
    fn elements_lie_at_start_plus_steps() {
        let mut random = Random::new(3);
        for dtype in [DType::F32, DType::F16, DType::I4] {
            let x = random.tensor(dtype, &[7, 5, 9]);
            for (starts, sizes, steps) in [
                ([0, 0, 0], [7, 5, 9], [1, 1, 1]),
                ([2, 1, 3], [3, 4, 5], [1, 1, 1]),
                ([6, 4, 8], [7, 3, 3], [-1, -2, -3]),
                ([1, 0, 8], [3, 5, 9], [2, 1, -1]),
                ([6, 2, 8], [1, 1, 1], [i64::MAX, i64::MIN, -7]),
                ([9, 0, 0], [0, 5, 9], [1, 1, 1]),
            ] {
                let shape = sizes.map(|d| d as usize);
                let expected = tabulate(dtype, &shape, |index| {
                    let at = |axis: usize| match index[axis] {
                        0 => starts[axis],
                        i => starts[axis] + i as i64 * steps[axis],
                    };
                    element(&x, &[at(0), at(1), at(2)]).unwrap_or(crate::Number::Bool(true))
                });
                let op = slice(&starts, &sizes, &steps);
                assert_eq!(evaluate_one(op, from_ref(&x)), expected, "{starts:?} {steps:?}");
            }
        }
    }

    #[test]
    fn elements_outside_are_refused_where_they_are_known() {
        let x = TensorType::fixed(DType::F32, &[6]);
        for (start, size, step) in
            [(4, 3, 1), (-1, 1, 1), (6, 1, 1), (2, 4, -1), (0, 4, 2), (0, -1, 1), (0, 2, 0)]
        {
            assert!(slice(&[start], &[size], &[step]).infer(from_ref(&x)).is_err(), "{start}");
        }
        assert!(slice(&[0, 0], &[1, 1], &[1, 1]).infer(&[x]).is_err());
        // The last element of a symbolic dimension exists, the one after it does not.
        let x = symbolic(DType::F32, &["S"]);
        let last =
            |start: Dim| Slice { starts: vec![start], sizes: vec![Dim::ONE], steps: vec![1] };
        let end = Dim::symbol("S");
        assert!(last(end.clone() - Dim::ONE).infer(from_ref(&x)).is_ok());
        assert!(last(end).infer(&[x]).is_err());
    }

    #[test]
    fn evaluation_checks_what_inference_could_not() {
        let x = Random::new(4).tensor(DType::F32, &[6]);
        let failed = Interpreter::default().evaluate(&slice(&[4], &[3], &[1]).into(), &[x]);
        assert!(failed.is_err());
    }
}
