//! `top_k`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// The `k` greatest or least elements along an axis, in order; equal ones by ascending index.
    ///
    /// Results: the values, and their indices as `i64`.
    TopK {
        /// The axis.
        axis: Axis,
        /// How many.
        k: Dim,
        /// Greatest, else least.
        largest: bool,
    }
}

impl OpDef for TopK {
    const MNEMONIC: &'static str = "top_k";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::axis(self.axis, x.rank())?;
        let extent = &x.shape[self.axis.index()];
        if let (Some(k), Some(extent)) = (self.k.as_constant(), extent.as_constant())
            && !(0..=extent).contains(&k)
        {
            return Err(TypeError::invalid(format!("{k} elements of a dimension of {extent}")));
        }
        let mut shape = x.shape.clone();
        shape[self.axis.index()] = self.k.clone();
        Ok(vec![TensorType::new(x.dtype, shape.clone()), TensorType::new(DType::I64, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("top_k: meaning")
    }
}
