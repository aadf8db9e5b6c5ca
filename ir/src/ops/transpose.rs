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
