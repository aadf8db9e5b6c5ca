//! `tensor_scatter`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// Writes rows into a cache at an index for each batch (ONNX TensorScatter, opset 24).
    ///
    /// Operands: cache `[B, …, C, …]`, update `[B, …, N, …]`, and, if `indices`, write indices `i64[B]`
    /// (else all 0); result: the cache's shape.
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
        todo!("tensor_scatter: meaning")
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}
