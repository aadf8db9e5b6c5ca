//! `matmul`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Number;
use crate::interp::broadcast_strides;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Matrix product over the two innermost dimensions; outer dimensions broadcast, NumPy's way.
    ///
    /// Operands: `[…, M, K]` and `[…, K, N]`, both of rank 2 or more; result: `result[…, M, N]`.
    /// Floats, both of one type, multiply and add in `acc`, or wider: the reference evaluation adds in
    /// f64 and rounds once to the result. Integers, in any mix, multiply and add in `acc`, wrapping.
    Matmul {
        /// Type of the accumulator.
        acc: DType,
        /// Element type of the result.
        result: DType,
    }
}

impl OpDef for Matmul {
    const MNEMONIC: &'static str = "matmul";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [a, b] = check::arity(operands)?;
        for index in 0..2 {
            check::rank_at_least(operands, index, 2)?;
            check::dtype(operands, index, "a number", |d| d != DType::Bool)?;
        }
        if a.dtype.is_float() || b.dtype.is_float() {
            check::dtype_is(operands, 1, a.dtype)?;
        }
        for (name, dtype) in [("accumulator", self.acc), ("result", self.result)] {
            if dtype.is_float() != a.dtype.is_float() || dtype == DType::Bool {
                return Err(TypeError::invalid(format!(
                    "{name} type {dtype} for a product of {} and {}",
                    a.dtype, b.dtype
                )));
            }
        }
        let (a_outer, a_inner) = a.shape.split_at(a.rank() - 2);
        let (b_outer, b_inner) = b.shape.split_at(b.rank() - 2);
        check::equal(&a_inner[1], &b_inner[0], "inner dimension of matmul")?;
        let mut shape = check::broadcast(a_outer, b_outer)?;
        shape.extend([a_inner[0].clone(), b_inner[1].clone()]);
        Ok(vec![TensorType::new(self.result, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        let inner = operands[0].shape.last().cloned().unwrap_or(Dim::ONE);
        Dim::from(2) * outputs[0].elements() * inner
    }
}

fn evaluate(op: &Matmul, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [a, b] = [&evaluation.operands[0], &evaluation.operands[1]];
    let ty = evaluation.outputs[0].clone();
    let result = if op.acc.is_float() {
        let sums = multiply(
            (a.shape(), &a.to_floats()),
            (b.shape(), &b.to_floats()),
            &ty.shape,
            |sum, x, y| sum + x * y,
        );
        Tensor::from_numbers(ty, sums.into_iter().map(Number::Float))?
    } else {
        let sums = multiply(
            (a.shape(), &a.to_integers()),
            (b.shape(), &b.to_integers()),
            &ty.shape,
            |sum: i64, x, y| sum.wrapping_add(x.wrapping_mul(y)),
        );
        // Sums modulo 2^64 are right modulo the accumulator's width too.
        let wrapped = sums.into_iter().map(|sum| Number::Signed(sum).round_to(op.acc, true));
        Tensor::from_numbers(ty, wrapped)?
    };
    Ok(vec![result])
}

/// The product of row-major matrices with their shapes; `step` adds a product to a sum.
fn multiply<T: Copy + Default>(
    (a_shape, a): (&[usize], &[T]),
    (b_shape, b): (&[usize], &[T]),
    shape: &[usize],
    step: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    let (outer, inner) = shape.split_at(shape.len() - 2);
    let (m, n, k) = (inner[0], inner[1], a_shape[a_shape.len() - 1]);
    let a_strides = broadcast_strides(&a_shape[..a_shape.len() - 2], outer);
    let b_strides = broadcast_strides(&b_shape[..b_shape.len() - 2], outer);
    let mut sums = vec![T::default(); shape.iter().product()];
    if sums.is_empty() {
        return sums;
    }
    for (batch, sums) in sums.chunks_mut(m * n).enumerate() {
        let (mut rest, mut a_matrix, mut b_matrix) = (batch, 0, 0);
        for axis in (0..outer.len()).rev() {
            let index = rest % outer[axis];
            rest /= outer[axis];
            a_matrix += index * a_strides[axis];
            b_matrix += index * b_strides[axis];
        }
        let (a, b) = (&a[a_matrix * m * k..], &b[b_matrix * k * n..]);
        for (i, row) in sums.chunks_mut(n).enumerate() {
            for j in 0..k {
                let x = a[i * k + j];
                for (sum, y) in row.iter_mut().zip(&b[j * n..(j + 1) * n]) {
                    *sum = step(*sum, x, *y);
                }
            }
        }
    }
    sums
}
