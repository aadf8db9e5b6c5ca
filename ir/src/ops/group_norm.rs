//! `group_norm`: its attributes, inference and meaning; nothing of any other operator.

use super::compose::Compose;
use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::types::TensorType;

operator! {
    /// Normalises each group of channels of each batch item, statistics in f32 or wider. (ONNX
    /// GroupNormalization, opset 21; InstanceNormalization has a group for each channel)
    ///
    /// Operands: x `[N, C, …]`, scale `[C]`, bias `[C]`; result: y in x's type.
    GroupNorm {
        /// Number of groups; divides the channels.
        groups: i64,
        /// Added to the variance.
        epsilon: Float,
    }
}

impl OpDef for GroupNorm {
    const MNEMONIC: &'static str = "group_norm";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, _, _] = check::arity(operands)?;
        check::rank_at_least(operands, 0, 2)?;
        let channels = &x.shape[1];
        if self.groups < 1 || channels.exact_div(&Dim::from(self.groups)).is_none() {
            return Err(TypeError::invalid(format!(
                "{} groups do not divide {channels} channels",
                self.groups
            )));
        }
        check::dtype(operands, 0, "a float", DType::is_float)?;
        for index in 1..3 {
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
            let groups = Dim::from(self.groups);
            let inner: Dim = ty.shape[1..].iter().cloned().product();
            let inner = inner.exact_div(&groups).ok_or_else(|| {
                TypeError::invalid(format!("{groups} groups do not divide {inner}"))
            })?;
            let grouped = g.reshape(x, vec![ty.shape[0].clone(), groups, inner])?;
            let normal = g.standardise(grouped, 2..3, self.epsilon.0)?.normal;
            let normal = g.reshape(normal, ty.shape.clone())?;
            let [scale, bias] = [inputs[1], inputs[2]];
            let scale = g.cast(scale, compute)?;
            let scale = g.along(scale, 1, ty.rank())?;
            let bias = g.cast(bias, compute)?;
            let bias = g.along(bias, 1, ty.rank())?;
            let scaled = g.mul(normal, scale)?;
            let result = g.add(scaled, bias)?;
            Ok(vec![g.cast(result, ty.dtype)?])
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Sum, difference, square, sum, factor, scale and bias for each element.
        Dim::from(7) * operands[0].elements()
    }
}
