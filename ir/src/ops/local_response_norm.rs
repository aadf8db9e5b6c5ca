//! `local_response_norm`: its attributes, inference and meaning; nothing of any other operator.

use super::compose::Compose;
use super::{Pool, PoolKind, Scalar};
use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::types::TensorType;

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

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| {
            let mut g = Compose(graph);
            let ty = g.ty(inputs[0]).clone();
            let compute = ty.dtype.compute();
            let x = g.cast(inputs[0], compute)?;
            let square = g.mul(x, x)?;
            // The mean over a window of channels, padding counted, is Σ / size.
            let channels = ty.shape[1].clone();
            let inner: Dim = ty.shape[2..].iter().cloned().product();
            let image = vec![ty.shape[0].clone(), Dim::ONE, channels, inner];
            let image = g.reshape(square, image)?;
            let before = (self.size - 1) / 2;
            let window = Pool {
                kind: PoolKind::Average,
                kernel: vec![self.size, 1],
                strides: vec![1, 1],
                dilations: vec![1, 1],
                before: vec![before, 0],
                after: vec![self.size - 1 - before, 0],
                ceil: false,
                count_padding: true,
                power: 2,
                indices: false,
                column_major: false,
            };
            let mean = g.op(window, &[image])?;
            let mean = g.reshape(mean, ty.shape.clone())?;
            let [alpha, beta, bias] =
                [self.alpha, self.beta, self.bias].map(|value| g.constant(compute, value.0));
            let scaled = g.mul(mean, alpha)?;
            let base = g.add(scaled, bias)?;
            let divisor = g.op(Scalar::Pow, &[base, beta])?;
            let result = g.div(x, divisor)?;
            Ok(vec![g.cast(result, ty.dtype)?])
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Square, sum of the window, factor, bias, power, quotient for each element.
        Dim::from(self.size.saturating_add(5)) * operands[0].elements()
    }
}
