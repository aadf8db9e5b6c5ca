//! Matrix products: `MatMul`, `Gemm`. Never quantised ones.

use super::shape::reshaped;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::ops::{Matmul, Scalar, Transpose};
use membar_ir::{Axis, Dim, ValueId};

type Outcome = Result<(), NodeError>;

/// The product of two tensors of rank 2 or more, accumulated in the compute type.
pub(crate) fn product(
    cx: &mut NodeContext<'_, '_>,
    left: ValueId,
    right: ValueId,
) -> Result<ValueId, NodeError> {
    let dtype = cx.type_of(left).dtype;
    cx.emit(Matmul { acc: dtype.compute(), result: dtype }, &[left, right])
}

/// Exchanges the two innermost dimensions.
pub(crate) fn transposed(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
) -> Result<ValueId, NodeError> {
    let rank = cx.type_of(value).rank();
    let mut perm: Vec<Axis> = (0..rank).map(Axis::from).collect();
    if rank < 2 {
        return Err(NodeError::new(format!("a matrix of rank {rank}")));
    }
    perm.swap(rank - 2, rank - 1);
    cx.emit(Transpose { perm }, &[value])
}

/// `MatMul`: vectors count as a row on the left, as a column on the right.
pub(crate) fn matmul(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let (mut left, mut right) = (cx.operand(0)?, cx.operand(1)?);
    let (row, column) = (cx.type_of(left).rank() == 1, cx.type_of(right).rank() == 1);
    if row {
        let mut shape = cx.type_of(left).shape;
        shape.insert(0, Dim::ONE);
        left = reshaped(cx, left, shape)?;
    }
    if column {
        let mut shape = cx.type_of(right).shape;
        shape.push(Dim::ONE);
        right = reshaped(cx, right, shape)?;
    }
    let mut result = product(cx, left, right)?;
    let mut shape = cx.type_of(result).shape;
    if column {
        shape.pop();
    }
    if row {
        shape.remove(shape.len() - if column { 1 } else { 2 });
    }
    result = reshaped(cx, result, shape)?;
    cx.output(0, result)
}

/// `Gemm`: `alpha A' B' + beta C`.
pub(crate) fn gemm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let (mut left, mut right) = (cx.operand(0)?, cx.operand(1)?);
    if cx.flag("transA", false)? {
        left = transposed(cx, left)?;
    }
    if cx.flag("transB", false)? {
        right = transposed(cx, right)?;
    }
    let result = product(cx, left, right)?;
    let mut result = scaled(cx, result, "alpha")?;
    if let Some(addend) = cx.optional(2)? {
        let addend = scaled(cx, addend, "beta")?;
        result = cx.emit(Scalar::Add, &[result, addend])?;
    }
    cx.output(0, result)
}

fn scaled(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    attribute: &str,
) -> Result<ValueId, NodeError> {
    let factor = cx.attribute_or(attribute, 1.0_f32)?;
    if factor == 1.0 {
        return Ok(value);
    }
    let dtype = cx.type_of(value).dtype;
    let factor = cx.scalar(dtype, factor.into())?;
    cx.emit(Scalar::Mul, &[value, factor])
}
