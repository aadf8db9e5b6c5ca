//! `broadcast`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Repeats along dimensions of 1 and along new outer dimensions, NumPy's way, until the shape is
    /// `shape`.
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
        todo!("broadcast: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}
