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
