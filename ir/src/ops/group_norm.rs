//! `group_norm`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::operator;

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

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("group_norm: meaning")
    }
}
