//! `pad`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{Elements, Loop, StridedCopy, build, row_major, take};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::tensor::Tensor;
use crate::types::ConcreteType;
use crate::types::TensorType;
use crate::{attribute_words, operator};

operator! {
    /// Adds elements before and after each dimension.
    ///
    /// Operands: a tensor and, in mode `constant`, a scalar of its element type. Amounts are not
    /// negative; `reflect` and `wrap` repeat as often as it takes.
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
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &Pad, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (x, ty) = (&evaluation.operands[0], &evaluation.outputs[0]);
    let before: Vec<usize> =
        op.before.iter().map(|dim| evaluation.extent(dim)).collect::<Result<_, _>>()?;
    if op.mode == PadMode::Constant {
        return Ok(vec![surround(x, &evaluation.operands[1], &before, ty)?]);
    }
    if ty.elements() == 0 {
        return Ok(vec![Tensor::zeros(ty.clone())]);
    }
    let mut result = x.clone();
    for (axis, (before, size)) in before.iter().zip(&ty.shape).enumerate() {
        let extent = x.shape()[axis];
        if *size == extent {
            continue;
        }
        if extent == 0 {
            return Err(EvalError::Invalid(format!(
                "dimension {axis} has no elements that could pad it in mode `{}`",
                op.mode.word()
            )));
        }
        let indices = (0..*size).map(|i| source_index(op.mode, i as i64 - *before as i64, extent));
        result = take(&result, axis, &indices.collect::<Vec<usize>>())?;
    }
    Ok(vec![result])
}

/// Where the element at `position`, counted from the first of the operand, comes from.
fn source_index(mode: PadMode, position: i64, extent: usize) -> usize {
    let extent = extent as i64;
    let index = match mode {
        PadMode::Constant | PadMode::Edge => position.clamp(0, extent - 1),
        PadMode::Wrap => position.rem_euclid(extent),
        PadMode::Reflect => {
            let period = (2 * (extent - 1)).max(1);
            let phase = position.rem_euclid(period);
            if phase < extent { phase } else { period - phase }
        }
    };
    index as usize
}

fn surround(
    x: &Tensor,
    value: &Tensor,
    before: &[usize],
    ty: &ConcreteType,
) -> Result<Tensor, EvalError> {
    let strides = row_major(&ty.shape);
    let loops = x.shape().iter().zip(row_major(x.shape())).zip(&strides);
    let loops = loops.map(|((extent, from), to)| Loop { extent: *extent, from, to: *to });
    let to = before.iter().zip(&strides).map(|(before, stride)| *before as isize * stride).sum();
    let copy = StridedCopy { from: 0, to, loops: loops.collect() };
    let (elements, value) = (Elements::of(x), Elements::of(value));
    build(ty, |target| {
        for element in target.chunks_exact_mut(value.width) {
            element.copy_from_slice(&value.bytes);
        }
        copy.run(elements.width, &elements.bytes, target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate, tensor};
    use std::slice::from_ref;

    fn pad(mode: PadMode, before: &[i64], after: &[i64]) -> Pad {
        let dims = |list: &[i64]| list.iter().map(|d| Dim::from(*d)).collect();
        Pad { mode, before: dims(before), after: dims(after) }
    }

    #[test]
    fn a_line_is_continued_as_its_mode_says() {
        let x = tensor(&[4], &[1i32, 2, 3, 4]);
        for (mode, expected) in [
            (PadMode::Edge, [1, 1, 1, 1, 2, 3, 4, 4, 4]),
            (PadMode::Reflect, [4, 3, 2, 1, 2, 3, 4, 3, 2]),
            (PadMode::Wrap, [2, 3, 4, 1, 2, 3, 4, 1, 2]),
        ] {
            let padded = evaluate_one(pad(mode, &[3], &[2]), from_ref(&x));
            assert_eq!(padded, tensor(&[9], &expected), "{mode:?}");
        }
        let padded = evaluate_one(pad(PadMode::Constant, &[1], &[2]), &[x, tensor(&[], &[9i32])]);
        assert_eq!(padded, tensor(&[7], &[9, 1, 2, 3, 4, 9, 9]));
    }

    #[test]
    fn amounts_beyond_the_extent_go_back_and_forth() {
        let x = tensor(&[3], &[1i32, 2, 3]);
        let padded = evaluate_one(pad(PadMode::Reflect, &[5], &[4]), from_ref(&x));
        assert_eq!(padded, tensor(&[12], &[2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3]));
        let padded = evaluate_one(pad(PadMode::Wrap, &[4], &[5]), &[x]);
        assert_eq!(padded, tensor(&[12], &[3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]));
        let padded = evaluate_one(pad(PadMode::Reflect, &[2], &[1]), &[tensor(&[1], &[7i32])]);
        assert_eq!(padded, tensor(&[4], &[7i32; 4]));
    }

    #[test]
    fn results_without_elements_cost_nothing() {
        let x = tensor::<f32>(&[0, 1], &[]);
        let padded = evaluate_one(pad(PadMode::Edge, &[0, 1 << 40], &[0, 0]), &[x]);
        assert_eq!(padded.shape(), [0, (1 << 40) + 1]);
    }

    #[test]
    fn constants_surround_a_box() {
        let mut random = Random::new(6);
        for dtype in [DType::F32, DType::F16, DType::I4, DType::Bool] {
            let x = random.tensor(dtype, &[3, 1, 5]);
            let value = random.tensor(dtype, &[]);
            let expected = tabulate(dtype, &[6, 1, 7], |index| {
                let index = [index[0] as i64 - 2, index[1] as i64, index[2] as i64];
                element(&x, &index).unwrap_or(value.get(0))
            });
            let op = pad(PadMode::Constant, &[2, 0, 0], &[1, 0, 2]);
            assert_eq!(evaluate_one(op, &[x, value]), expected, "{dtype}");
        }
    }

    #[test]
    fn amounts_may_be_symbolic_but_not_negative() {
        let x = symbolic(DType::F32, &["S", "3"]);
        let op = Pad {
            mode: PadMode::Edge,
            before: vec![Dim::symbol("P"), Dim::ZERO],
            after: vec![Dim::ONE, Dim::from(2)],
        };
        let sum = Dim::symbol("S") + Dim::symbol("P") + Dim::ONE;
        let expected = TensorType::new(DType::F32, vec![sum, Dim::from(5)]);
        assert_eq!(op.infer(from_ref(&x)), Ok(vec![expected]));
        assert!(pad(PadMode::Edge, &[-1, 0], &[0, 0]).infer(from_ref(&x)).is_err());
        assert!(pad(PadMode::Edge, &[1], &[1]).infer(from_ref(&x)).is_err());
        assert!(pad(PadMode::Constant, &[1, 0], &[0, 0]).infer(&[x]).is_err());
    }
}
