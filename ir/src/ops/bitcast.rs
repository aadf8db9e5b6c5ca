//! `bitcast`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Reads the same bytes as another element type and shape of the same size in bytes.
    Bitcast {
        /// Element type of the result.
        dtype: DType,
        /// Shape of the result.
        shape: Vec<Dim>,
    }
}

impl OpDef for Bitcast {
    const MNEMONIC: &'static str = "bitcast";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        let result = TensorType::new(self.dtype, self.shape.clone());
        check::equal(&x.bytes(), &result.bytes(), "sizes in bytes")?;
        Ok(vec![result])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(_: &Bitcast, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    Ok(vec![evaluation.operands[0].reinterpreted(evaluation.outputs[0].clone())?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{evaluate_one, symbolic, tensor};
    use std::slice::from_ref;

    #[test]
    fn bytes_stay() {
        let x = tensor(&[2], &[1f32, -2.0]);
        let bits = Bitcast { dtype: DType::U32, shape: vec![Dim::from(2)] };
        let expected = tensor(&[2], &[0x3f80_0000u32, 0xc000_0000]);
        assert_eq!(evaluate_one(bits, &[x]), expected);
        let packed = tensor(&[2], &[0x21u8, 0x43]);
        let nibbles = Bitcast { dtype: DType::U4, shape: vec![Dim::from(2), Dim::from(2)] };
        let unpacked = evaluate_one(nibbles, &[packed]);
        assert_eq!(crate::testing::floats(&unpacked), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn sizes_in_bytes_must_be_equal() {
        let x = symbolic(DType::U8, &["N", "16"]);
        let to = |dtype, dims: &[&str]| Bitcast { dtype, shape: symbolic(dtype, dims).shape };
        assert!(to(DType::U4, &["N", "32"]).infer(from_ref(&x)).is_ok());
        assert!(to(DType::F32, &["4", "N"]).infer(from_ref(&x)).is_ok());
        assert!(to(DType::U4, &["N", "16"]).infer(from_ref(&x)).is_err());
        assert!(to(DType::F16, &["M", "8"]).infer(&[x]).is_err());
    }
}
