//! `rms_norm`: its attributes, inference and meaning; nothing of any other operator.

use super::compose::Compose;
use super::{ReduceKind, Scalar};
use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::types::{Axis, TensorType};

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

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| {
            let mut g = Compose(graph);
            let dtype = g.ty(inputs[0]).dtype;
            let compute = dtype.compute();
            let x = g.cast(inputs[0], compute)?;
            let square = g.mul(x, x)?;
            let axes = self.axis.index()..g.ty(x).rank();
            let mean = g.reduce(ReduceKind::Mean, square, axes)?;
            let epsilon = g.constant(compute, self.epsilon.0);
            let sum = g.add(mean, epsilon)?;
            let factor = g.op(Scalar::Rsqrt, &[sum])?;
            let normal = g.mul(x, factor)?;
            let scale = g.cast(inputs[1], compute)?;
            let result = g.mul(normal, scale)?;
            Ok(vec![g.cast(result, dtype)?])
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Square, sum, factor, scale for each element.
        Dim::from(4) * operands[0].elements()
    }
}
