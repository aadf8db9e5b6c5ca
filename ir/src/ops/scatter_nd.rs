//! `scatter_nd`: its attributes, inference and meaning; nothing of any other operator.

use super::scatter_elements::scatter;
use crate::dim::Dim;
use crate::movement::{self, resolve_tuples};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::ops::ScatterReduction;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Copies data, then writes updates by index tuples (ONNX ScatterND).
    ///
    /// Operands: data, integer indices `[…, k]`, updates.
    ScatterNd {
        /// What happens to the element that was there.
        reduction: ScatterReduction,
    }
}

impl OpDef for ScatterNd {
    const MNEMONIC: &'static str = "scatter_nd";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices, updates] = check::arity(operands)?;
        check::index_dtype(operands, 1)?;
        check::dtype_is(operands, 2, data.dtype)?;
        let tuple = check::index_tuple(operands, 0, 1, 0)?;
        let outer = &indices.shape[..indices.rank() - 1];
        let expected: Vec<&Dim> = outer.iter().chain(&data.shape[tuple..]).collect();
        check::rank(operands, 2, expected.len())?;
        for (axis, (e, u)) in expected.into_iter().zip(&updates.shape).enumerate() {
            check::equal(e, u, &format!("dimension {axis} of the updates"))?;
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

fn evaluate(op: &ScatterNd, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [data, indices, updates] = evaluation.operands else {
        return Err(EvalError::Invalid("scatter_nd takes three operands".to_string()));
    };
    if updates.elements() == 0 {
        return Ok(vec![data.clone()]);
    }
    let (outer, length) = match indices.shape().split_last() {
        Some((length, outer)) => (outer, *length),
        None => return Err(EvalError::Invalid("scatter_nd indices of rank 0".to_string())),
    };
    let (extents, inner) = data.shape().split_at(length);
    let indices = movement::indices(indices)?;
    let to = resolve_tuples(&indices, outer.iter().product(), extents)?;
    Ok(vec![scatter(data, updates, &to, inner.iter().product(), op.reduction)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::testing::{Random, evaluate_one, symbolic, tensor};

    #[test]
    fn slices_are_written_by_tuples() {
        let mut random = Random::new(12);
        for dtype in [DType::F32, DType::U8, DType::I4] {
            let data = random.tensor(dtype, &[4, 3, 5]);
            let indices = tensor(&[3, 2], &[0i64, 2, -1, 0, 3, 0]);
            let updates = random.tensor(dtype, &[3, 5]);
            let mut expected = data.clone();
            for (update, (row, column)) in [(0, 2), (3, 0), (3, 0)].into_iter().enumerate() {
                for i in 0..5 {
                    expected.set((row * 3 + column) * 5 + i, updates.get(update * 5 + i));
                }
            }
            let op = ScatterNd { reduction: ScatterReduction::Replace };
            assert_eq!(evaluate_one(op, &[data, indices, updates]), expected);
        }
        let sum = evaluate_one(
            ScatterNd { reduction: ScatterReduction::Add },
            &[
                tensor(&[3], &[1i32, 2, 3]),
                tensor(&[4, 1], &[2i32, 2, 0, 2]),
                tensor(&[4], &[10i32, 20, 30, 40]),
            ],
        );
        assert_eq!(sum, tensor(&[3], &[31, 2, 73]));
    }

    #[test]
    fn updates_have_the_shape_of_tuples_and_slices() {
        let data = symbolic(DType::F32, &["B", "S", "D"]);
        let op = ScatterNd { reduction: ScatterReduction::Replace };
        let of = |indices: &[&str], updates: &[&str]| {
            op.infer(&[data.clone(), symbolic(DType::I64, indices), symbolic(DType::F32, updates)])
        };
        assert_eq!(of(&["N", "2"], &["N", "D"]), Ok(vec![data.clone()]));
        assert!(matches!(of(&["N", "2"], &["N", "S"]), Err(TypeError::Mismatch { .. })));
        assert!(of(&["N", "1"], &["N", "D"]).is_err());
        assert!(of(&["N", "4"], &["N"]).is_err());
    }
}
