//! `arg_reduce`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// The index of the greatest or least element along an axis, `i64`.
    ArgReduce {
        /// Which element.
        kind: ArgKind,
        /// The axis.
        axis: Axis,
        /// Whether the axis stays, as a dimension of 1.
        keep: bool,
        /// Whether the last of equal elements counts, else the first.
        last: bool,
    }
}

attribute_words! {
    /// Which element.
    ArgKind {
        /// The greatest.
        Max = "max",
        /// The least.
        Min = "min",
    }
}

impl OpDef for ArgReduce {
    const MNEMONIC: &'static str = "arg_reduce";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::axis(self.axis, x.rank())?;
        if x.shape[self.axis.index()].is(0) {
            return Err(TypeError::invalid(format!("no element along axis {}", self.axis)));
        }
        let mut shape = x.shape.clone();
        if self.keep {
            shape[self.axis.index()] = Dim::ONE;
        } else {
            shape.remove(self.axis.index());
        }
        Ok(vec![TensorType::new(DType::I64, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("arg_reduce: meaning")
    }
}
