//! `bitcast`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

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

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("bitcast: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("bitcast: meaning")
    }
}
