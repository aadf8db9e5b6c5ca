//! `arg_reduce`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Number;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// The index of the greatest or least element along an axis, `i64`. NaN wins over every number,
    /// as it does in NumPy. An axis without elements is an error.
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
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        operands[0].elements()
    }
}

fn evaluate(op: &ArgReduce, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let x = &evaluation.operands[0];
    let largest = op.kind == ArgKind::Max;
    let keys = order_keys(x, if largest { i128::MAX } else { i128::MIN });
    let (outer, inner) = x.shape().split_at(op.axis.index());
    let (extent, inner) = (inner[0], inner[1..].iter().product::<usize>());
    let mut indices = Vec::with_capacity(evaluation.outputs[0].elements());
    for outer in 0..outer.iter().product() {
        for inner_index in 0..inner {
            let key = |i: usize| keys[(outer * extent + i) * inner + inner_index];
            let mut best = 0;
            for i in 1..extent {
                let better = if largest { key(i) > key(best) } else { key(i) < key(best) };
                if better || (op.last && key(i) == key(best)) {
                    best = i;
                }
            }
            indices.push(best as i64);
        }
    }
    Ok(vec![Tensor::from_elements(&evaluation.outputs[0].shape, &indices)?])
}

/// Integers in the order of the elements; equal elements (0 and -0 too) have equal keys, and NaN
/// has that of `nan`.
pub(super) fn order_keys(tensor: &Tensor, nan: i128) -> Vec<i128> {
    let key = |number: Number| match number {
        Number::Float(x) if x.is_nan() => nan,
        // The bits of floats of one sign are in the order of their magnitudes.
        Number::Float(x) => {
            let magnitude = i128::from(x.abs().to_bits());
            if x < 0.0 { -magnitude } else { magnitude }
        }
        Number::Signed(_) | Number::Unsigned(_) | Number::Bool(_) => number.to_integer(),
    };
    tensor.numbers().map(key).collect()
}
