//! `concat`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::movement::{Elements, Loop, StridedCopy, build, row_major};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// Joins tensors along an axis; at least one operand, all of one element type, and equal in the
    /// other dimensions.
    Concat {
        /// The axis that grows.
        axis: Axis,
    }
}

impl OpDef for Concat {
    const MNEMONIC: &'static str = "concat";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        check::at_least(operands, 1)?;
        Ok(vec![concatenated(operands, self.axis)?])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, |op, evaluation| join(op.axis, evaluation))
    }

    fn operations(&self, _operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        Dim::ZERO
    }
}

/// Joins the operands along an axis.
pub(super) fn join(axis: Axis, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let ty = &evaluation.outputs[0];
    let strides = row_major(&ty.shape);
    let result = build(ty, |target| {
        let mut first = 0;
        for operand in evaluation.operands {
            let loops = operand.shape().iter().zip(row_major(operand.shape())).zip(&strides);
            let loops = loops.map(|((extent, from), to)| Loop { extent: *extent, from, to: *to });
            let to = first * strides[axis.index()];
            let elements = Elements::of(operand);
            let copy = StridedCopy { from: 0, to, loops: loops.collect() };
            copy.run(elements.width, &elements.bytes, target)?;
            first += operand.shape()[axis.index()] as isize;
        }
        Ok(())
    })?;
    Ok(vec![result])
}

/// The type of tensors joined along an axis, at least one.
pub(super) fn concatenated(operands: &[TensorType], axis: Axis) -> Result<TensorType, TypeError> {
    let first = &operands[0];
    check::axis(axis, first.rank())?;
    let mut result = first.clone();
    for (index, operand) in operands.iter().enumerate().skip(1) {
        check::dtype_is(operands, index, first.dtype)?;
        check::rank(operands, index, first.rank())?;
        for (i, (left, right)) in first.shape.iter().zip(&operand.shape).enumerate() {
            if i != axis.index() {
                let what = format!("dimension {i} of concatenated operands 0 and {index}");
                check::equal(left, right, &what)?;
            }
        }
        let grown = &mut result.shape[axis.index()];
        *grown = grown.clone() + operand.shape[axis.index()].clone();
    }
    Ok(result)
}
