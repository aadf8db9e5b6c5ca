//! `batch_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Batch normalisation with given statistics: `(x - mean) / sqrt(variance + epsilon) * scale + bias`.
    ///
    /// Operands: x `[N, C, …]` (or `[N]`, with C = 1), scale, bias, mean, variance, each `[C]`; result: y in x's type.
    BatchNorm {
        /// Added to the variance.
        epsilon: Float,
    }
}

impl OpDef for BatchNorm {
    const MNEMONIC: &'static str = "batch_norm";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, ..]: &[TensorType; 5] = check::arity(operands)?;
        check::rank_at_least(operands, 0, 1)?;
        check::dtype(operands, 0, "a float", DType::is_float)?;
        let channels = x.shape.get(1).unwrap_or(&Dim::ONE);
        for index in 1..5 {
            check::dtype(operands, index, "a float", DType::is_float)?;
            check::rank(operands, index, 1)?;
            check::equal(channels, &operands[index].shape[0], "channels")?;
        }
        Ok(vec![x.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("batch_norm: meaning")
    }
}
