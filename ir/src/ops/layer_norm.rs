//! `layer_norm`: its attributes, inference and meaning; nothing of any other operator.

use super::compose::Compose;
use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::types::{Axis, TensorType};

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

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| {
            let mut g = Compose(graph);
            let dtype = g.ty(inputs[0]).dtype;
            let compute = dtype.compute();
            let x = g.cast(inputs[0], compute)?;
            let axes = self.axis.index()..g.ty(x).rank();
            let standard = g.standardise(x, axes, self.epsilon.0)?;
            let scale = g.cast(inputs[1], compute)?;
            let mut result = g.mul(standard.normal, scale)?;
            if let Some(bias) = inputs.get(2) {
                let bias = g.cast(*bias, compute)?;
                result = g.add(result, bias)?;
            }
            let mut results = vec![g.cast(result, dtype)?];
            if self.statistics {
                results.extend([standard.mean, standard.factor]);
            }
            Ok(results)
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Sum, difference, square, sum, factor, scale and bias for each element.
        Dim::from(7) * operands[0].elements()
    }
}
