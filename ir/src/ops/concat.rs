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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::Append;
    use crate::testing::{Random, element, evaluate_one, symbolic, tabulate};
    use std::slice::from_ref;

    #[test]
    fn operands_follow_each_other() {
        let mut random = Random::new(5);
        for dtype in [DType::F32, DType::U8, DType::U4] {
            for axis in 0..3 {
                let parts: Vec<Tensor> = [3, 0, 1, 4]
                    .into_iter()
                    .map(|extent| {
                        let mut shape = [5, 3, 7];
                        shape[axis] = extent;
                        random.tensor(dtype, &shape)
                    })
                    .collect();
                let mut shape = [5, 3, 7];
                shape[axis] = 8;
                let expected = tabulate(dtype, &shape, |index| {
                    let mut index: Vec<i64> = index.iter().map(|i| *i as i64).collect();
                    for part in &parts {
                        if let Some(number) = element(part, &index) {
                            return number;
                        }
                        index[axis] -= part.shape()[axis] as i64;
                    }
                    crate::Number::Bool(true)
                });
                let concat = Concat { axis: Axis::from(axis) };
                assert_eq!(evaluate_one(concat, &parts), expected);
                let append = Append { axis: Axis::from(axis) };
                let pair = [parts[0].clone(), parts[3].clone()];
                let joined = evaluate_one(Concat { axis: Axis::from(axis) }, &pair);
                assert_eq!(evaluate_one(append, &pair), joined);
            }
        }
    }

    #[test]
    fn symbolic_extents_add_up() {
        let past = symbolic(DType::F16, &["B", "2", "P", "8"]);
        let rows = symbolic(DType::F16, &["B", "2", "S", "8"]);
        let concat = Concat { axis: Axis(2) };
        let joined = concat.infer(&[past.clone(), rows.clone()]).map(|types| types[0].clone());
        let sum = Dim::symbol("P") + Dim::symbol("S");
        assert_eq!(joined.map(|ty| ty.shape[2].clone()), Ok(sum));
        let other = symbolic(DType::F16, &["C", "2", "S", "8"]);
        let mismatch = concat.infer(&[past.clone(), other]);
        assert!(matches!(mismatch, Err(TypeError::Mismatch { .. })));
        let wide = symbolic(DType::F32, &["B", "2", "S", "8"]);
        assert!(matches!(concat.infer(&[past.clone(), wide]), Err(TypeError::DType { .. })));
        assert!(Concat { axis: Axis(4) }.infer(from_ref(&past)).is_err());
        assert!(concat.infer(&[]).is_err());
        assert!(Append { axis: Axis(2) }.infer(&[past, rows.clone(), rows]).is_err());
    }
}
