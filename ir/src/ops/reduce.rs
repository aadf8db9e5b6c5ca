//! `reduce`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Number;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::scalar;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// Reduces over axes; with no axes nothing changes.
    ///
    /// Operand: numbers, for `max` and `min` truth values too; the result has its type. The reference
    /// evaluation adds and multiplies floats in f64 and rounds once.
    ///
    /// An empty reduction gives the neutral value: 0, 1, the least or greatest value (infinities for
    /// floats); for `mean` NaN, or 0 for integers.
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
        /// Sum over count; integers truncate towards zero.
        Mean = "mean",
        /// Product, in f32 or wider for floats, wrapping for integers.
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
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        operands[0].elements()
    }
}

fn evaluate(op: &Reduce, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let x = &evaluation.operands[0];
    let ty = evaluation.outputs[0].clone();
    let count: usize = op.axes.iter().map(|axis| x.shape()[axis.index()]).product();
    let fold = Fold { shape: x.shape(), axes: &op.axes, results: ty.elements() };
    let dtype = x.dtype();
    let numbers: Vec<Number> = if dtype.is_float() {
        let x = x.to_floats();
        let results = match op.kind {
            ReduceKind::Sum => fold.run(&x, 0.0, |a, b| a + b),
            ReduceKind::Mean => {
                let sums = fold.run(&x, 0.0, |a, b| a + b).into_iter();
                sums.map(|sum| sum / count as f64).collect()
            }
            ReduceKind::Prod => fold.run(&x, 1.0, |a, b| a * b),
            ReduceKind::Max => fold.run(&x, f64::NEG_INFINITY, |a, b| pick(a, b, a > b)),
            ReduceKind::Min => fold.run(&x, f64::INFINITY, |a, b| pick(a, b, a < b)),
        };
        results.into_iter().map(Number::Float).collect()
    } else {
        let x: Vec<i128> = x.numbers().map(Number::to_integer).collect();
        let limit = |greatest| scalar::limit(dtype, greatest).to_integer();
        let results = match op.kind {
            ReduceKind::Sum => fold.run(&x, 0, i128::wrapping_add),
            ReduceKind::Mean => {
                let sums = fold.run(&x, 0, i128::wrapping_add).into_iter();
                sums.map(|sum| sum.checked_div(count as i128).unwrap_or(0)).collect()
            }
            ReduceKind::Prod => fold.run(&x, 1, i128::wrapping_mul),
            ReduceKind::Max => fold.run(&x, limit(false), i128::max),
            ReduceKind::Min => fold.run(&x, limit(true), i128::min),
        };
        // The low 64 bits are right whatever the sign; rounding keeps the type's own of them.
        results.into_iter().map(|value| Number::Signed(value as i64)).collect()
    };
    Ok(vec![Tensor::from_numbers(ty, numbers)?])
}

/// The first if it wins, else the second; NaN if either is.
fn pick(a: f64, b: f64, first: bool) -> f64 {
    if first || a.is_nan() { a } else { b }
}

/// A reduction of a row-major tensor of that shape over those axes.
struct Fold<'a> {
    shape: &'a [usize],
    axes: &'a [Axis],
    results: usize,
}

impl Fold<'_> {
    fn run<T: Copy>(&self, elements: &[T], start: T, step: impl Fn(T, T) -> T) -> Vec<T> {
        let mut results = vec![start; self.results];
        // Strides of the result as the operand's index runs; reduced axes stand still.
        let mut strides = vec![0; self.shape.len()];
        let mut stride = 1;
        for axis in (0..self.shape.len()).rev() {
            if !self.axes.contains(&Axis::from(axis)) {
                strides[axis] = stride;
                stride *= self.shape[axis];
            }
        }
        let (outer, row, step_in_row) = match (self.shape.split_last(), strides.last()) {
            (Some((row, outer)), Some(stride)) => (outer, *row, *stride),
            _ => (self.shape, 1, 0),
        };
        let mut index = vec![0; outer.len()];
        for row in elements.chunks(row.max(1)) {
            let mut target: usize = index.iter().zip(&strides).map(|(i, s)| i * s).sum();
            for element in row {
                results[target] = step(results[target], *element);
                target += step_in_row;
            }
            for axis in (0..outer.len()).rev() {
                index[axis] += 1;
                if index[axis] < outer[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        results
    }
}
