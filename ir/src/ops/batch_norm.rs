//! `batch_norm`: its attributes, inference and meaning; nothing of any other operator.

use super::Scalar;
use super::compose::Compose;
use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::types::TensorType;

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

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| {
            let mut g = Compose(graph);
            let ty = g.ty(inputs[0]).clone();
            let compute = ty.dtype.compute();
            let x = g.cast(inputs[0], compute)?;
            let mut parameters = Vec::with_capacity(4);
            for input in &inputs[1..] {
                let parameter = g.cast(*input, compute)?;
                parameters.push(match ty.rank() {
                    1 => parameter,
                    rank => g.along(parameter, 1, rank)?,
                });
            }
            let [scale, bias, mean, variance] = parameters[..] else {
                return Err(TypeError::invalid("five operands"));
            };
            let epsilon = g.constant(compute, self.epsilon.0);
            let sum = g.add(variance, epsilon)?;
            let factor = g.op(Scalar::Rsqrt, &[sum])?;
            let factor = g.mul(factor, scale)?;
            let centred = g.sub(x, mean)?;
            let scaled = g.mul(centred, factor)?;
            let result = g.add(scaled, bias)?;
            Ok(vec![g.cast(result, ty.dtype)?])
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Difference, factor, bias for each element; the factors are a channel's.
        Dim::from(3) * operands[0].elements()
    }
}
