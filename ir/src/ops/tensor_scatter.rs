//! `tensor_scatter`: its attributes, inference and meaning; nothing of any other operator.

use super::scatter_elements::scatter;
use crate::dim::Dim;
use crate::movement;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::ops::ScatterReduction;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// Writes rows into a cache at an index for each batch (ONNX TensorScatter, opset 24).
    ///
    /// Operands: cache `[B, …, C, …]`, update `[B, …, N, …]`, and, if `indices`, write indices
    /// `i64[B]` (else all 0); result: the cache's shape.
    TensorScatter {
        /// The axis that is indexed; not the batch.
        axis: Axis,
        /// Whether there are write indices.
        indices: bool,
        /// Whether writing wraps around at the end; else it must fit.
        circular: bool,
    }
}

impl OpDef for TensorScatter {
    const MNEMONIC: &'static str = "tensor_scatter";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let (cache, update) = if self.indices {
            let [cache, update, indices] = check::arity(operands)?;
            check::index_dtype(operands, 2)?;
            check::rank(operands, 2, 1)?;
            check::rank_at_least(operands, 0, 2)?;
            check::equal(&cache.shape[0], &indices.shape[0], "batch of cache and write indices")?;
            (cache, update)
        } else {
            let [cache, update] = check::arity(operands)?;
            check::rank_at_least(operands, 0, 2)?;
            (cache, update)
        };
        check::axis(self.axis, cache.rank())?;
        if self.axis.index() == 0 {
            return Err(TypeError::invalid("axis 0 is the batch, which cannot be scattered along"));
        }
        check::dtype_is(operands, 1, cache.dtype)?;
        check::rank(operands, 1, cache.rank())?;
        for (axis, (c, u)) in cache.shape.iter().zip(&update.shape).enumerate() {
            if axis != self.axis.index() {
                check::equal(c, u, &format!("dimension {axis} of cache and update"))?;
            }
        }
        check::at_most(&update.shape[self.axis.index()], &cache.shape[self.axis.index()], "rows")?;
        Ok(vec![cache.clone()])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

fn evaluate(op: &TensorScatter, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (cache, update) = (&evaluation.operands[0], &evaluation.operands[1]);
    if update.elements() == 0 {
        return Ok(vec![cache.clone()]);
    }
    let axis = op.axis.index();
    let capacity = cache.shape()[axis];
    let rows = update.shape()[axis];
    let run: usize = cache.shape()[axis + 1..].iter().product();
    let lines: usize = cache.shape()[1..axis].iter().product();
    let starts = match evaluation.operands.get(2) {
        Some(indices) => movement::indices(indices)?,
        None => vec![0; cache.shape()[0]],
    };
    let mut places = Vec::with_capacity(starts.len() * lines * rows);
    for (batch, start) in starts.into_iter().enumerate() {
        let first = if op.circular && capacity > 0 {
            start.rem_euclid(capacity as i64) as usize
        } else {
            let out_of_range = EvalError::Index { index: start, extent: capacity };
            let first = usize::try_from(start).map_err(|_| out_of_range.clone())?;
            if first.checked_add(rows).is_none_or(|end| end > capacity) {
                return Err(out_of_range);
            }
            first
        };
        for line in batch * lines..(batch + 1) * lines {
            for row in 0..rows {
                let mut to = first + row;
                if to >= capacity {
                    to -= capacity;
                }
                places.push(line * capacity + to);
            }
        }
    }
    Ok(vec![scatter(cache, update, &places, run, ScatterReduction::Replace)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::interp::Interpreter;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate, tensor};

    #[test]
    fn rows_are_written_at_each_batch_s_index() {
        let mut random = Random::new(13);
        for (axis, circular, starts) in
            [(1, false, [1i64, 3]), (2, false, [0, 2]), (2, true, [4, 9]), (3, true, [6, 0])]
        {
            let cache = random.tensor(DType::F32, &[2, 5, 5, 5]);
            let mut shape = [2, 5, 5, 5];
            shape[axis] = 2;
            let update = random.tensor(DType::F32, &shape);
            let expected = tabulate(DType::F32, cache.shape(), |index| {
                let mut from: Vec<i64> = index.iter().map(|i| *i as i64).collect();
                let old = element(&cache, &from).unwrap_or(crate::Number::Bool(true));
                from[axis] -= starts[index[0]];
                if circular {
                    from[axis] = from[axis].rem_euclid(5);
                }
                element(&update, &from).unwrap_or(old)
            });
            let op = TensorScatter { axis: Axis::from(axis), indices: true, circular };
            let operands = [cache, update, tensor(&[2], &starts)];
            assert_eq!(evaluate_one(op, &operands), expected, "{axis} {circular}");
        }
    }

    #[test]
    fn rows_must_fit() {
        let cache = Random::new(14).tensor(DType::F32, &[1, 4, 3]);
        let update = Random::new(15).tensor(DType::F32, &[1, 2, 3]);
        for start in [3i64, -1, i64::MAX] {
            let op = TensorScatter { axis: Axis(1), indices: true, circular: false };
            let operands = [cache.clone(), update.clone(), tensor(&[1], &[start])];
            assert!(Interpreter::default().evaluate(&op.into(), &operands).is_err(), "{start}");
        }
        let op = TensorScatter { axis: Axis(1), indices: false, circular: false };
        let written = evaluate_one(op.clone(), &[cache.clone(), update.clone()]);
        assert_eq!(written.get(0), update.get(0));
        assert_eq!(written.get(6), cache.get(6));
        let cache = symbolic(DType::F32, &["B", "8", "D"]);
        let of = |rows: &str| op.infer(&[cache.clone(), symbolic(DType::F32, &["B", rows, "D"])]);
        assert_eq!(of("S"), Ok(vec![cache.clone()]));
        assert!(of("9").is_err());
        let batch = TensorScatter { axis: Axis(0), indices: false, circular: false };
        assert!(batch.infer(&[cache.clone(), cache]).is_err());
    }
}
