//! `matmul`: its attributes, inference and meaning; nothing of any other operator.

use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Matrix product over the two innermost dimensions; outer dimensions broadcast, NumPy's way.
    ///
    /// Operands: `[…, M, K]` and `[…, K, N]`, both of rank 2 or more; result: `result[…, M, N]`.
    /// Floats multiply and add in `acc`; integers (i8, u8, i32 in any mix) in `acc`, wrapping.
    Matmul {
        /// Type of the accumulator.
        acc: DType,
        /// Element type of the result.
        result: DType,
    }
}

impl OpDef for Matmul {
    const MNEMONIC: &'static str = "matmul";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("matmul: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("matmul: meaning")
    }
}
