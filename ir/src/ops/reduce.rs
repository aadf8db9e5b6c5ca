//! `reduce`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// Reduces over axes. With no axes it changes nothing but, for `mean`, nothing either.
    ///
    /// The neutral value of an empty reduction: 0, 1, the least or greatest value; NaN for `mean`.
    Reduce {
        /// The reduction.
        kind: ReduceKind,
        /// The axes, ascending, each once.
        axes: Vec<Axis>,
        /// Whether the axes stay, as dimensions of 1.
        keep: bool,
    }
}

attribute_words! {
    /// A reduction.
    ReduceKind {
        /// Sum, in f32 or wider for floats, wrapping for integers.
        Sum = "sum",
        /// Sum over count.
        Mean = "mean",
        /// Product.
        Prod = "prod",
        /// Greatest; NaN if any is.
        Max = "max",
        /// Least; NaN if any is.
        Min = "min",
    }
}

impl OpDef for Reduce {
    const MNEMONIC: &'static str = "reduce";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        match self.kind {
            ReduceKind::Sum | ReduceKind::Mean | ReduceKind::Prod => {
                check::dtype(operands, 0, "a number", |d| d != DType::Bool)?;
            }
            ReduceKind::Max | ReduceKind::Min => {}
        }
        for axis in &self.axes {
            check::axis(*axis, x.rank())?;
        }
        if !self.axes.is_sorted_by(|a, b| a < b) {
            return Err(TypeError::invalid("reduced axes must ascend, each once"));
        }
        let mut shape = Vec::with_capacity(x.rank());
        for (index, dim) in x.shape.iter().enumerate() {
            if !self.axes.contains(&Axis::from(index)) {
                shape.push(dim.clone());
            } else if self.keep {
                shape.push(Dim::ONE);
            }
        }
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("reduce: meaning")
    }
}
