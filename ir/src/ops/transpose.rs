//! `transpose`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{Elements, Loop, StridedCopy, build, row_major};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// Permutes dimensions: dimension `i` of the result is dimension `perm[i]` of the operand.
    Transpose {
        /// A permutation of the operand's axes.
        perm: Vec<Axis>,
    }
}

impl OpDef for Transpose {
    const MNEMONIC: &'static str = "transpose";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        let mut seen = vec![false; x.rank()];
        for axis in &self.perm {
            match seen.get_mut(axis.index()) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(self.not_a_permutation(x.rank())),
            }
        }
        if self.perm.len() != x.rank() {
            return Err(self.not_a_permutation(x.rank()));
        }
        let shape: Vec<Dim> = self.perm.iter().map(|axis| x.shape[axis.index()].clone()).collect();
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &Transpose, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (x, ty) = (&evaluation.operands[0], &evaluation.outputs[0]);
    let strides = row_major(x.shape());
    let loops = ty.shape.iter().zip(&op.perm).zip(row_major(&ty.shape));
    let loops =
        loops.map(|((extent, axis), to)| Loop { extent: *extent, from: strides[axis.index()], to });
    let copy = StridedCopy { from: 0, to: 0, loops: loops.collect() };
    let elements = Elements::of(x);
    Ok(vec![build(ty, |target| copy.run(elements.width, &elements.bytes, target))?])
}

impl Transpose {
    fn not_a_permutation(&self, rank: usize) -> TypeError {
        let perm: Vec<u32> = self.perm.iter().map(|axis| axis.0).collect();
        TypeError::invalid(format!("{perm:?} is not a permutation of the axes of rank {rank}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate};
    use std::slice::from_ref;

    fn transpose(perm: &[usize]) -> Transpose {
        Transpose { perm: perm.iter().map(|axis| Axis::from(*axis)).collect() }
    }

    #[test]
    fn elements_move_to_permuted_coordinates() {
        let mut random = Random::new(1);
        let shapes: [(&[usize], &[usize]); 8] = [
            (&[37, 65], &[1, 0]),
            (&[3, 70, 33], &[2, 1, 0]),
            (&[5, 3, 7], &[1, 0, 2]),
            (&[2, 3, 5, 7], &[0, 2, 1, 3]),
            (&[2, 35, 1, 40], &[3, 2, 0, 1]),
            (&[4, 0, 3], &[2, 0, 1]),
            (&[9], &[0]),
            (&[], &[]),
        ];
        for dtype in [DType::F64, DType::F32, DType::Bf16, DType::I8, DType::U4, DType::Bool] {
            for (shape, perm) in shapes {
                let x = random.tensor(dtype, shape);
                let permuted: Vec<usize> = perm.iter().map(|axis| shape[*axis]).collect();
                let expected = tabulate(dtype, &permuted, |index| {
                    let mut from = vec![0; index.len()];
                    for (axis, at) in perm.iter().zip(index) {
                        from[*axis] = *at as i64;
                    }
                    element(&x, &from).unwrap_or(crate::Number::Bool(true))
                });
                assert_eq!(evaluate_one(transpose(perm), &[x]), expected, "{shape:?} {perm:?}");
            }
        }
    }

    #[test]
    fn shapes_are_permuted_and_permutations_checked() {
        let x = symbolic(DType::F16, &["B", "3", "S"]);
        let expected = symbolic(DType::F16, &["S", "B", "3"]);
        assert_eq!(transpose(&[2, 0, 1]).infer(from_ref(&x)), Ok(vec![expected]));
        for perm in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[0, 1, 2, 3]] {
            assert!(transpose(perm).infer(from_ref(&x)).is_err(), "{perm:?}");
        }
    }
}
