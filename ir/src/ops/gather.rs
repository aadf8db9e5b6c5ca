//! `gather`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{self, resolve, take};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// Takes slices by index along an axis, NumPy's `take`.
    ///
    /// Operands: data of rank r, integer indices of rank q; result: rank r - 1 + q, the indices'
    /// dimensions in the place of the axis. Negative indices count from the end.
    Gather {
        /// The axis that is indexed.
        axis: Axis,
    }
}

impl OpDef for Gather {
    const MNEMONIC: &'static str = "gather";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices] = check::arity(operands)?;
        check::axis(self.axis, data.rank())?;
        check::index_dtype(operands, 1)?;
        let mut shape = data.shape.clone();
        let axis = self.axis.index();
        shape.splice(axis..=axis, indices.shape.iter().cloned());
        Ok(vec![TensorType::new(data.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &Gather, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [data, indices] = evaluation.operands else {
        return Err(EvalError::Invalid("gather takes data and indices".to_string()));
    };
    let axis = op.axis.index();
    let extent = data.shape()[axis];
    let indices: Vec<usize> = movement::indices(indices)?
        .into_iter()
        .map(|index| resolve(index, extent))
        .collect::<Result<_, _>>()?;
    let taken = take(data, axis, &indices)?;
    Ok(vec![taken.reshaped(&evaluation.outputs[0].shape)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::element::Number;
    use crate::interp::Interpreter;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate, tensor};

    #[test]
    fn slices_are_taken_by_index() {
        let mut random = Random::new(7);
        for (dtype, indices) in [(DType::F32, DType::I64), (DType::U4, DType::I32)] {
            let data = random.tensor(dtype, &[4, 7, 3]);
            for axis in 0..3 {
                let extent = data.shape()[axis] as i64;
                let indices = random.integers(indices, &[2, 5], -extent, extent - 1);
                let mut shape = data.shape().to_vec();
                shape.splice(axis..=axis, [2, 5]);
                let expected = tabulate(dtype, &shape, |index| {
                    let mut from: Vec<i64> = index.iter().map(|i| *i as i64).collect();
                    let chosen = element(&indices, &from[axis..axis + 2]);
                    let chosen = chosen.and_then(Number::to_i64).unwrap_or(i64::MAX);
                    from.splice(
                        axis..axis + 2,
                        [if chosen < 0 { chosen + extent } else { chosen }],
                    );
                    element(&data, &from).unwrap_or(Number::Bool(true))
                });
                let op = Gather { axis: Axis::from(axis) };
                assert_eq!(evaluate_one(op, &[data.clone(), indices]), expected);
            }
        }
    }

    #[test]
    fn indices_out_of_range_are_errors() {
        let data = Random::new(8).tensor(DType::F32, &[3, 2]);
        for index in [3i64, -4] {
            let op = Gather { axis: Axis(0) };
            let failed = Interpreter::default()
                .evaluate(&op.into(), &[data.clone(), tensor(&[1], &[index])]);
            assert!(failed.is_err_and(|error| error.to_string().contains("out of range")));
        }
    }

    #[test]
    fn a_scalar_index_removes_the_axis() {
        let data = symbolic(DType::F16, &["V", "D"]);
        let op = Gather { axis: Axis(0) };
        let of = |dtype, dims: &[&str]| op.infer(&[data.clone(), symbolic(dtype, dims)]);
        assert_eq!(of(DType::I64, &[]), Ok(vec![symbolic(DType::F16, &["D"])]));
        assert_eq!(of(DType::I32, &["B", "S"]), Ok(vec![symbolic(DType::F16, &["B", "S", "D"])]));
        assert!(matches!(of(DType::U8, &[]), Err(TypeError::DType { operand: 1, .. })));
        assert!(Gather { axis: Axis(2) }.infer(&[data.clone(), data]).is_err());
    }
}
