//! `rms_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Root-mean-square normalisation over the dimensions from `axis` on: `x / sqrt(mean(x²) + epsilon)
    /// * scale`, statistics in f32 or wider. (ONNX RMSNormalization, opset 23)
    ///
    /// Operands: x, and scale, broadcasting to x; result: y in x's type.
    RmsNorm {
        /// First normalised dimension.
        axis: Axis,
        /// Added to the mean square.
        epsilon: Float,
    }
}

impl OpDef for RmsNorm {
    const MNEMONIC: &'static str = "rms_norm";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, scale] = check::arity(operands)?;
        check::axis(self.axis, x.rank())?;
        for index in 0..2 {
            check::dtype(operands, index, "a float", DType::is_float)?;
        }
        check::broadcasts_to(&scale.shape, &x.shape)?;
        Ok(vec![x.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("rms_norm: meaning")
    }
}
