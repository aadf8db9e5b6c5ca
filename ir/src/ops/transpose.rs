//! `transpose`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

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
        todo!("transpose: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

impl Transpose {
    fn not_a_permutation(&self, rank: usize) -> TypeError {
        let perm: Vec<u32> = self.perm.iter().map(|axis| axis.0).collect();
        TypeError::invalid(format!("{perm:?} is not a permutation of the axes of rank {rank}"))
    }
}
