//! `scatter_elements`: its attributes, inference and meaning; nothing of any other operator.

use super::gather_elements::element_places;
use crate::element::Number;
use crate::movement::{Elements, change, copy_runs};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};
use crate::{attribute_words, operator};

operator! {
    /// Copies data, then writes updates by index along an axis (ONNX ScatterElements).
    ///
    /// Operands: data, integer indices, updates of the indices' shape.
    ScatterElements {
        /// The axis that is indexed.
        axis: Axis,
        /// What happens to the element that was there.
        reduction: ScatterReduction,
    }
}

attribute_words! {
    /// What happens to the element that was there.
    ScatterReduction {
        /// It is replaced; of several updates the last counts.
        Replace = "replace",
        /// Sum.
        Add = "add",
        /// Product.
        Mul = "mul",
        /// The greater.
        Max = "max",
        /// The lesser.
        Min = "min",
    }
}

impl OpDef for ScatterElements {
    const MNEMONIC: &'static str = "scatter_elements";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices, updates] = check::arity(operands)?;
        check::axis(self.axis, data.rank())?;
        check::index_dtype(operands, 1)?;
        check::dtype_is(operands, 2, data.dtype)?;
        check::rank(operands, 1, data.rank())?;
        check::rank(operands, 2, data.rank())?;
        check::indices_fit(&data.shape, &indices.shape, self.axis)?;
        for (axis, (i, u)) in indices.shape.iter().zip(&updates.shape).enumerate() {
            check::equal(i, u, &format!("dimension {axis} of indices and updates"))?;
        }
        Ok(vec![data.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }
}

fn evaluate(op: &ScatterElements, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [data, indices, updates] = evaluation.operands else {
        return Err(EvalError::Invalid("scatter_elements takes three operands".to_string()));
    };
    let to = element_places(op.axis, data.shape(), indices)?;
    Ok(vec![scatter(data, updates, &to, 1, op.reduction)?])
}

/// Data after runs of `run` elements of the updates were combined with those at `to`, in order.
pub(super) fn scatter(
    data: &Tensor,
    updates: &Tensor,
    to: &[usize],
    run: usize,
    reduction: ScatterReduction,
) -> Result<Tensor, EvalError> {
    let mut result = data.clone();
    if reduction == ScatterReduction::Replace {
        let elements = Elements::of(updates);
        return change(result, |target| {
            let places = to.iter().enumerate().map(|(from, to)| (from * run, to * run));
            copy_runs(elements.width, run, &elements.bytes, target, places);
            Ok(())
        });
    }
    for (from, to) in to.iter().enumerate() {
        for i in 0..run {
            let (old, new) = (result.get(to * run + i), updates.get(from * run + i));
            result.set(to * run + i, reduction.combine(old, new));
        }
    }
    Ok(result)
}

impl ScatterReduction {
    /// The element after an update. Integers wrap around; the greater and the lesser of anything
    /// and NaN is NaN.
    fn combine(self, old: Number, new: Number) -> Number {
        match (old, new) {
            (Number::Signed(a), Number::Signed(b)) => Number::Signed(match self {
                ScatterReduction::Replace => b,
                ScatterReduction::Add => a.wrapping_add(b),
                ScatterReduction::Mul => a.wrapping_mul(b),
                ScatterReduction::Max => a.max(b),
                ScatterReduction::Min => a.min(b),
            }),
            (Number::Unsigned(a), Number::Unsigned(b)) => Number::Unsigned(match self {
                ScatterReduction::Replace => b,
                ScatterReduction::Add => a.wrapping_add(b),
                ScatterReduction::Mul => a.wrapping_mul(b),
                ScatterReduction::Max => a.max(b),
                ScatterReduction::Min => a.min(b),
            }),
            (Number::Bool(a), Number::Bool(b)) => Number::Bool(match self {
                ScatterReduction::Replace => b,
                ScatterReduction::Add | ScatterReduction::Max => a | b,
                ScatterReduction::Mul | ScatterReduction::Min => a & b,
            }),
            (a, b) => {
                let (a, b) = (a.to_float(), b.to_float());
                Number::Float(match self {
                    ScatterReduction::Replace => b,
                    ScatterReduction::Add => a + b,
                    ScatterReduction::Mul => a * b,
                    ScatterReduction::Max | ScatterReduction::Min if a.is_nan() || b.is_nan() => {
                        f64::NAN
                    }
                    ScatterReduction::Max => a.max(b),
                    ScatterReduction::Min => a.min(b),
                })
            }
        }
    }
}
