//! `local_response_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Local response normalisation across channels: `x / (bias + alpha / size * Σ x²)^beta`, the sum over
    /// `size` neighbouring channels. (ONNX LRN)
    ///
    /// Operand: x `[N, C, …]`.
    LocalResponseNorm {
        /// How many channels.
        size: i64,
        /// Factor of the sum.
        alpha: Float,
        /// Exponent.
        beta: Float,
        /// Added to the sum.
        bias: Float,
    }
}

impl OpDef for LocalResponseNorm {
    const MNEMONIC: &'static str = "local_response_norm";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::dtype(operands, 0, "a float", DType::is_float)?;
        check::rank_at_least(operands, 0, 2)?;
        if self.size < 1 {
            return Err(TypeError::invalid(format!("a window of {} channels", self.size)));
        }
        Ok(vec![x.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("local_response_norm: meaning")
    }
}
