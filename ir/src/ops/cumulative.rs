//! `cumulative`: its attributes, inference and meaning; nothing of any other operator.

use crate::dtype::DType;
use crate::element::Number;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// Running sum or product along an axis; the result has the operand's type. Floats add up in f32
    /// or wider, integers wrap.
    Cumulative {
        /// Sum or product.
        kind: CumulativeKind,
        /// The axis.
        axis: Axis,
        /// Whether an element leaves itself out.
        exclusive: bool,
        /// Whether it runs from the end.
        reverse: bool,
    }
}

attribute_words! {
    /// Sum or product.
    CumulativeKind {
        /// Sum.
        Sum = "sum",
        /// Product.
        Prod = "prod",
    }
}

impl OpDef for Cumulative {
    const MNEMONIC: &'static str = "cumulative";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::dtype(operands, 0, "a number", |d| d != DType::Bool)?;
        check::axis(self.axis, x.rank())?;
        Ok(vec![x.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }
}

fn evaluate(op: &Cumulative, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let x = &evaluation.operands[0];
    let ty = evaluation.outputs[0].clone();
    let sum = op.kind == CumulativeKind::Sum;
    let result = if x.dtype().is_float() {
        let (start, step): (f64, fn(f64, f64) -> f64) =
            if sum { (0.0, |a, b| a + b) } else { (1.0, |a, b| a * b) };
        let results = op.run(x.shape(), &x.to_floats(), start, step);
        Tensor::from_numbers(ty, results.into_iter().map(Number::Float))?
    } else {
        let (start, step): (i64, fn(i64, i64) -> i64) =
            if sum { (0, i64::wrapping_add) } else { (1, i64::wrapping_mul) };
        let results = op.run(x.shape(), &x.to_integers(), start, step);
        Tensor::from_numbers(ty, results.into_iter().map(Number::Signed))?
    };
    Ok(vec![result])
}

impl Cumulative {
    fn run<T: Copy>(
        &self,
        shape: &[usize],
        elements: &[T],
        start: T,
        step: fn(T, T) -> T,
    ) -> Vec<T> {
        let (outer, inner) = shape.split_at(self.axis.index());
        let (extent, inner) = (inner[0], inner[1..].iter().product::<usize>());
        let mut results = vec![start; elements.len()];
        for outer in 0..outer.iter().product() {
            for inner_index in 0..inner {
                let mut running = start;
                for i in 0..extent {
                    let i = if self.reverse { extent - 1 - i } else { i };
                    let position = (outer * extent + i) * inner + inner_index;
                    let next = step(running, elements[position]);
                    results[position] = if self.exclusive { running } else { next };
                    running = next;
                }
            }
        }
        results
    }
}
