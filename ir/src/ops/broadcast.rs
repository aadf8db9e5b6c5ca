//! `broadcast`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::interp::broadcast_strides;
use crate::movement::{Elements, Loop, StridedCopy, build, row_major};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Repeats along dimensions of 1 and along new outer dimensions, NumPy's way, until the shape
    /// is `shape`.
    Broadcast {
        /// The shape of the result; the operand broadcasts to it.
        shape: Vec<Dim>,
    }
}

impl OpDef for Broadcast {
    const MNEMONIC: &'static str = "broadcast";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        let Some(new) = self.shape.len().checked_sub(x.rank()) else {
            return Err(TypeError::Rank {
                operand: 0,
                expected: format!("at most {}", self.shape.len()),
                found: x.rank(),
            });
        };
        for (i, (from, to)) in x.shape.iter().zip(&self.shape[new..]).enumerate() {
            if !from.is(1) {
                check::equal(from, to, &format!("broadcast dimension {}", new + i))?;
            }
        }
        Ok(vec![TensorType::new(x.dtype, self.shape.clone())])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(_: &Broadcast, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (x, ty) = (&evaluation.operands[0], &evaluation.outputs[0]);
    let strides = broadcast_strides(x.shape(), &ty.shape);
    let loops = ty.shape.iter().zip(strides).zip(row_major(&ty.shape));
    let loops = loops.map(|((extent, from), to)| Loop { extent: *extent, from: from as isize, to });
    let copy = StridedCopy { from: 0, to: 0, loops: loops.collect() };
    let elements = Elements::of(x);
    Ok(vec![build(ty, |target| copy.run(elements.width, &elements.bytes, target))?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate};

    #[test]
    fn dimensions_of_one_repeat() {
        let mut random = Random::new(2);
        let cases: [(&[usize], &[usize]); 6] = [
            (&[], &[3, 5]),
            (&[5], &[3, 5]),
            (&[3, 1], &[3, 7]),
            (&[4, 1, 3, 1], &[2, 4, 5, 3, 6]),
            (&[1, 5], &[0, 5]),
            (&[2, 3], &[2, 3]),
        ];
        for dtype in [DType::F32, DType::I64, DType::U4] {
            for (from, to) in cases {
                let x = random.tensor(dtype, from);
                let shape: Vec<Dim> = to.iter().map(|d| Dim::from(*d as i64)).collect();
                let expected = tabulate(dtype, to, |index| {
                    let aligned = index[to.len() - from.len()..].iter().zip(from);
                    let index: Vec<i64> =
                        aligned.map(|(i, d)| if *d == 1 { 0 } else { *i as i64 }).collect();
                    element(&x, &index).unwrap_or(crate::Number::Bool(true))
                });
                assert_eq!(evaluate_one(Broadcast { shape }, &[x]), expected, "{from:?} {to:?}");
            }
        }
    }

    #[test]
    fn other_dimensions_must_be_equal() {
        let to = symbolic(DType::F32, &["B", "4", "S"]);
        let broadcast = Broadcast { shape: to.shape.clone() };
        for from in [&["4", "S"][..], &["1", "1"], &["B", "1", "S"], &[]] {
            assert_eq!(broadcast.infer(&[symbolic(DType::F32, from)]), Ok(vec![to.clone()]));
        }
        let mismatch = broadcast.infer(&[symbolic(DType::F32, &["4", "T"])]);
        assert!(matches!(mismatch, Err(TypeError::Mismatch { .. })));
        let longer = broadcast.infer(&[symbolic(DType::F32, &["1", "1", "1", "1"])]);
        assert!(matches!(longer, Err(TypeError::Rank { .. })));
    }
}
