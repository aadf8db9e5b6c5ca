//! `scatter_elements`: its attributes, inference and meaning; nothing of any other operator.

use super::gather_elements::element_places;
use crate::dim::Dim;
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

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        self.reduction.operations(operands)
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
    /// Arithmetic operations of a scatter of operand 2: one for each update that is not a copy.
    pub(super) fn operations(self, operands: &[TensorType]) -> Dim {
        match self {
            ScatterReduction::Replace => Dim::ZERO,
            ScatterReduction::Add
            | ScatterReduction::Mul
            | ScatterReduction::Max
            | ScatterReduction::Min => operands.get(2).map_or(Dim::ZERO, TensorType::elements),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::interp::Interpreter;
    use crate::testing::{Random, evaluate_one, symbolic, tensor};

    const REDUCTIONS: [ScatterReduction; 5] = [
        ScatterReduction::Replace,
        ScatterReduction::Add,
        ScatterReduction::Mul,
        ScatterReduction::Max,
        ScatterReduction::Min,
    ];

    #[test]
    fn updates_meet_in_their_order() {
        let data = tensor(&[5], &[1f32, 2.0, 3.0, 4.0, 5.0]);
        let indices = tensor(&[4], &[1i64, -2, 1, 3]);
        let updates = tensor(&[4], &[10f32, -20.0, 0.5, 7.0]);
        let expected = [
            [1.0, 0.5, 3.0, 7.0, 5.0],
            [1.0, 12.5, 3.0, -9.0, 5.0],
            [1.0, 10.0, 3.0, -560.0, 5.0],
            [1.0, 10.0, 3.0, 7.0, 5.0],
            [1.0, 0.5, 3.0, -20.0, 5.0],
        ];
        for (reduction, expected) in REDUCTIONS.into_iter().zip(expected) {
            let op = ScatterElements { axis: Axis(0), reduction };
            let result = evaluate_one(op, &[data.clone(), indices.clone(), updates.clone()]);
            assert_eq!(result, tensor(&[5], &expected.map(|x| x as f32)), "{reduction:?}");
        }
    }

    #[test]
    fn updates_land_along_each_axis() {
        let mut random = Random::new(11);
        for dtype in [DType::F32, DType::I32, DType::U4, DType::Bool] {
            for axis in 0..2 {
                let data = random.tensor(dtype, &[5, 4]);
                let indices = random.integers(DType::I32, &[3, 4], -4, 3);
                let updates = random.tensor(dtype, &[3, 4]);
                let mut expected = data.clone();
                for row in 0..3 {
                    for column in 0..4 {
                        let index = indices.get(row * 4 + column).to_i64().unwrap_or(0);
                        let index = index.rem_euclid([5, 4][axis]) as usize;
                        let to = if axis == 0 { index * 4 + column } else { row * 4 + index };
                        expected.set(to, updates.get(row * 4 + column));
                    }
                }
                let reduction = ScatterReduction::Replace;
                let op = ScatterElements { axis: Axis::from(axis), reduction };
                assert_eq!(evaluate_one(op, &[data, indices, updates]), expected);
            }
        }
    }

    #[test]
    fn integers_wrap_and_nan_spreads() {
        let (data, index) = (tensor(&[1], &[i64::MAX]), tensor(&[1], &[0i64]));
        let add = ScatterElements { axis: Axis(0), reduction: ScatterReduction::Add };
        let sum = evaluate_one(add, &[data, index.clone(), tensor(&[1], &[1i64])]);
        assert_eq!(sum, tensor(&[1], &[i64::MIN]));
        for reduction in [ScatterReduction::Max, ScatterReduction::Min] {
            let op = ScatterElements { axis: Axis(0), reduction };
            let operands = [tensor(&[1], &[1f32]), index.clone(), tensor(&[1], &[f32::NAN])];
            assert!(evaluate_one(op, &operands).get(0).to_float().is_nan());
        }
    }

    #[test]
    fn operands_must_fit() {
        let data = symbolic(DType::F32, &["B", "5"]);
        let op = ScatterElements { axis: Axis(1), reduction: ScatterReduction::Add };
        let of = |indices: &[&str], updates: &[&str]| {
            op.infer(&[data.clone(), symbolic(DType::I64, indices), symbolic(DType::F32, updates)])
        };
        assert_eq!(of(&["B", "2"], &["B", "2"]), Ok(vec![data.clone()]));
        assert!(matches!(of(&["B", "2"], &["B", "3"]), Err(TypeError::Mismatch { .. })));
        assert!(of(&["2"], &["2"]).is_err());
        let operands = [tensor(&[2], &[1f32, 2.0]), tensor(&[1], &[2i64]), tensor(&[1], &[0f32])];
        let op = ScatterElements { axis: Axis(0), reduction: ScatterReduction::Add };
        assert!(Interpreter::default().evaluate(&op.into(), &operands).is_err());
    }
}
