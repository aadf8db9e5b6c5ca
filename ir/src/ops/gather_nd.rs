//! `gather_nd`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{self, Elements, build, copy_runs, resolve_tuples};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Takes slices by index tuples, the innermost dimension of the indices (ONNX GatherND).
    ///
    /// Operands: data, and integer indices `[…, k]`; negative indices count from the end.
    GatherNd {
        /// How many outer dimensions data and indices share.
        batch_dims: u32,
    }
}

impl OpDef for GatherNd {
    const MNEMONIC: &'static str = "gather_nd";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [data, indices] = check::arity(operands)?;
        check::index_dtype(operands, 1)?;
        let batch = self.batch_dims as usize;
        let tuple = check::index_tuple(operands, 0, 1, batch)?;
        let outer = indices.rank() - 1;
        for (axis, (d, i)) in data.shape.iter().zip(&indices.shape[..outer]).enumerate().take(batch)
        {
            check::equal(d, i, &format!("batch dimension {axis} of gather_nd"))?;
        }
        let mut shape = indices.shape[..outer].to_vec();
        shape.extend_from_slice(&data.shape[batch + tuple..]);
        Ok(vec![TensorType::new(data.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &GatherNd, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [data, indices] = evaluation.operands else {
        return Err(EvalError::Invalid("gather_nd takes data and indices".to_string()));
    };
    if evaluation.outputs[0].elements() == 0 {
        return Ok(vec![Tensor::zeros(evaluation.outputs[0].clone())]);
    }
    let batch = op.batch_dims as usize;
    let (outer, length) = match indices.shape().split_last() {
        Some((length, outer)) => (outer, *length),
        None => return Err(EvalError::Invalid("gather_nd indices of rank 0".to_string())),
    };
    let tuples: usize = outer[batch..].iter().product();
    let batches: usize = outer[..batch].iter().product();
    let extents = &data.shape()[batch..batch + length];
    let run: usize = data.shape()[batch + length..].iter().product();
    let slices: usize = extents.iter().product();
    let indices = movement::indices(indices)?;
    let from = resolve_tuples(&indices, batches * tuples, extents)?;
    let elements = Elements::of(data);
    let result = build(&evaluation.outputs[0], |target| {
        let places = from.iter().enumerate();
        let places = places.map(|(to, from)| ((to / tuples * slices + from) * run, to * run));
        copy_runs(elements.width, run, &elements.bytes, target, places);
        Ok(())
    })?;
    Ok(vec![result])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::element::Number;
    use crate::interp::Interpreter;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate, tensor};

    #[test]
    fn tuples_select_slices() {
        let mut random = Random::new(10);
        for (batch, indices_shape, shape) in [
            (0, &[4, 2][..], &[4, 5][..]),
            (0, &[3], &[]),
            (0, &[2, 3, 1], &[2, 3, 4, 5]),
            (1, &[3, 6, 1], &[3, 6, 5]),
            (2, &[3, 4, 1], &[3, 4]),
            (0, &[5, 0], &[5, 3, 4, 5]),
        ] {
            let data = random.tensor(DType::F32, &[3, 4, 5]);
            let indices = random.integers(DType::I64, indices_shape, -3, 2);
            let outer = indices_shape.len() - 1;
            let expected = tabulate(DType::F32, shape, |index| {
                let index: Vec<i64> = index.iter().map(|i| *i as i64).collect();
                let mut from = index[..batch].to_vec();
                for item in 0..indices_shape[outer] as i64 {
                    let at = [&index[..outer], &[item]].concat();
                    let chosen = element(&indices, &at).and_then(Number::to_i64);
                    let extent = data.shape()[from.len()] as i64;
                    from.push(chosen.map_or(i64::MAX, |i| i.rem_euclid(extent)));
                }
                from.extend(&index[outer..]);
                element(&data, &from).unwrap_or(Number::Bool(true))
            });
            let op = GatherNd { batch_dims: batch as u32 };
            assert_eq!(evaluate_one(op, &[data, indices]), expected, "{indices_shape:?}");
        }
    }

    #[test]
    fn tuples_must_fit() {
        let data = symbolic(DType::F32, &["B", "S", "D"]);
        let of = |batch_dims, dims: &[&str]| {
            GatherNd { batch_dims }.infer(&[data.clone(), symbolic(DType::I64, dims)])
        };
        assert_eq!(of(1, &["B", "N", "1"]), Ok(vec![symbolic(DType::F32, &["B", "N", "D"])]));
        assert!(matches!(of(1, &["C", "N", "1"]), Err(TypeError::Mismatch { .. })));
        assert!(of(0, &["N", "4"]).is_err());
        assert!(of(0, &["N", "K"]).is_err());
        assert!(of(3, &["B", "S", "D", "1"]).is_err());
        assert!(of(0, &[]).is_err());
        let operands = [tensor(&[2], &[1f32, 2.0]), tensor(&[1, 1], &[2i64])];
        let failed = Interpreter::default().evaluate(&GatherNd { batch_dims: 0 }.into(), &operands);
        assert!(failed.is_err());
    }
}
