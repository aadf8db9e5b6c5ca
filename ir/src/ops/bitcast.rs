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
        check::equal(&byte_len(x), &byte_len(&result), "sizes in bytes")?;
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

/// Size in bytes, packed.
fn byte_len(ty: &TensorType) -> Dim {
    let elements = ty.elements();
    match i64::from(ty.dtype.bits()) {
        4 => elements.ceil_div(&Dim::from(2)).unwrap_or(Dim::ZERO),
        bits => elements * Dim::from(bits / 8),
    }
}
