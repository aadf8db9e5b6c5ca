//! `layer_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Layer normalisation over the dimensions from `axis` on: `(x - mean) / sqrt(variance + epsilon)
    /// * scale + bias`, statistics in f32 or wider. (ONNX LayerNormalization)
    ///
    /// Operands: x, scale and, if `bias`, bias, both broadcasting to x; results: y in x's type and, if
    /// `statistics`, mean and 1/deviation in the compute type with the normalised dimensions 1.
    LayerNorm {
        /// First normalised dimension.
        axis: Axis,
        /// Added to the variance.
        epsilon: Float,
        /// Whether there is a bias.
        bias: bool,
        /// Whether mean and 1/deviation are results too.
        statistics: bool,
    }
}

impl OpDef for LayerNorm {
    const MNEMONIC: &'static str = "layer_norm";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        check::count(operands, 2 + usize::from(self.bias))?;
        let x = &operands[0];
        check::axis(self.axis, x.rank())?;
        check::dtype(operands, 0, "a float", DType::is_float)?;
        for index in 1..operands.len() {
            check::dtype(operands, index, "a float", DType::is_float)?;
            check::broadcasts_to(&operands[index].shape, &x.shape)?;
        }
        let mut types = vec![x.clone()];
        if self.statistics {
            let mut shape = x.shape.clone();
            shape[self.axis.index()..].fill(Dim::ONE);
            types.extend(vec![TensorType::new(x.dtype.compute(), shape); 2]);
        }
        Ok(types)
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("layer_norm: meaning")
    }
}
