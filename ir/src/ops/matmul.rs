//! `matmul`: its attributes, inference and meaning; nothing of any other operator.

use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
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

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [a, b] = check::arity(operands)?;
        for index in 0..2 {
            check::rank_at_least(operands, index, 2)?;
            check::dtype(operands, index, "a number", |d| d != DType::Bool)?;
        }
        if a.dtype.is_float() || b.dtype.is_float() {
            check::dtype_is(operands, 1, a.dtype)?;
        }
        for (name, dtype) in [("accumulator", self.acc), ("result", self.result)] {
            if dtype.is_float() != a.dtype.is_float() || dtype == DType::Bool {
                return Err(TypeError::invalid(format!(
                    "{name} type {dtype} for a product of {} and {}",
                    a.dtype, b.dtype
                )));
            }
        }
        let (a_outer, a_inner) = a.shape.split_at(a.rank() - 2);
        let (b_outer, b_inner) = b.shape.split_at(b.rank() - 2);
        check::equal(&a_inner[1], &b_inner[0], "inner dimension of matmul")?;
        let mut shape = check::broadcast(a_outer, b_outer)?;
        shape.extend([a_inner[0].clone(), b_inner[1].clone()]);
        Ok(vec![TensorType::new(self.result, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("matmul: meaning")
    }
}
