//! `gather_elements`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{self, Elements, build, copy_runs, places, resolve, row_major};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// Takes elements by index along an axis, NumPy's `take_along_axis`.
    ///
    /// Operands: data, and integer indices of the same rank; the result has the indices' shape.
    /// Negative indices count from the end. (ONNX GatherElements)
    GatherElements {
        /// The axis that is indexed.
        axis: Axis,
    }
}

impl OpDef for GatherElements {
    const MNEMONIC: &'static str = "gather_elements";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices] = check::arity(operands)?;
        check::axis(self.axis, data.rank())?;
        check::index_dtype(operands, 1)?;
        check::rank(operands, 1, data.rank())?;
        check::indices_fit(&data.shape, &indices.shape, self.axis)?;
        Ok(vec![TensorType::new(data.dtype, indices.shape.clone())])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &GatherElements, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let data = &evaluation.operands[0];
    let from = element_places(op.axis, data.shape(), &evaluation.operands[1])?;
    let elements = Elements::of(data);
    let result = build(&evaluation.outputs[0], |target| {
        let places = from.iter().enumerate().map(|(to, from)| (*from, to));
        copy_runs(elements.width, 1, &elements.bytes, target, places);
        Ok(())
    })?;
    Ok(vec![result])
}

/// For each index, in row-major order, the element of data of `shape` that it names: at the
/// index's own coordinates, except along the axis.
pub(super) fn element_places(
    axis: Axis,
    shape: &[usize],
    indices: &Tensor,
) -> Result<Vec<usize>, EvalError> {
    let axis = axis.index();
    let mut strides = row_major(shape);
    let stride = std::mem::take(&mut strides[axis]) as usize;
    let lines = places(indices.shape(), &strides);
    let indices = movement::indices(indices)?;
    lines.zip(indices).map(|(line, i)| Ok(line + resolve(i, shape[axis])? * stride)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::element::Number;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate};

    #[test]
    fn elements_are_taken_at_their_own_coordinates() {
        let mut random = Random::new(9);
        for dtype in [DType::F32, DType::I8, DType::U4] {
            let data = random.tensor(dtype, &[4, 5, 6]);
            for axis in 0..3 {
                let extent = data.shape()[axis] as i64;
                let mut shape = [3, 4, 5];
                shape[axis] = 7;
                let indices = random.integers(DType::I64, &shape, -extent, extent - 1);
                let expected = tabulate(dtype, &shape, |index| {
                    let mut from: Vec<i64> = index.iter().map(|i| *i as i64).collect();
                    let chosen = element(&indices, &from).and_then(Number::to_i64);
                    from[axis] = chosen.map_or(i64::MAX, |i| i.rem_euclid(extent));
                    element(&data, &from).unwrap_or(Number::Bool(true))
                });
                let op = GatherElements { axis: Axis::from(axis) };
                assert_eq!(evaluate_one(op, &[data.clone(), indices]), expected);
            }
        }
    }

    #[test]
    fn indices_have_the_rank_of_the_data_and_fit_it() {
        let data = symbolic(DType::F32, &["B", "5"]);
        let op = GatherElements { axis: Axis(1) };
        let of = |dims: &[&str]| op.infer(&[data.clone(), symbolic(DType::I64, dims)]);
        assert_eq!(of(&["B", "9"]), Ok(vec![symbolic(DType::F32, &["B", "9"])]));
        assert!(of(&["B"]).is_err());
        let op = GatherElements { axis: Axis(0) };
        assert!(op.infer(&[data.clone(), symbolic(DType::I64, &["B", "6"])]).is_err());
    }
}
