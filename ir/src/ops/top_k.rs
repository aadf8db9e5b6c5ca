//! `top_k`: its attributes, inference and meaning; nothing of any other operator.

use super::arg_reduce::order_keys;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};

operator! {
    /// The `k` greatest or least elements along an axis, in order; equal ones by ascending index. NaN
    /// counts as greater than every number.
    ///
    /// Results: the values, and their indices as `i64`.
    TopK {
        /// The axis.
        axis: Axis,
        /// How many.
        k: Dim,
        /// Greatest, else least.
        largest: bool,
    }
}

impl OpDef for TopK {
    const MNEMONIC: &'static str = "top_k";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::axis(self.axis, x.rank())?;
        let extent = &x.shape[self.axis.index()];
        if let (Some(k), Some(extent)) = (self.k.as_constant(), extent.as_constant())
            && !(0..=extent).contains(&k)
        {
            return Err(TypeError::invalid(format!("{k} elements of a dimension of {extent}")));
        }
        let mut shape = x.shape.clone();
        shape[self.axis.index()] = self.k.clone();
        Ok(vec![TensorType::new(x.dtype, shape.clone()), TensorType::new(DType::I64, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        operands[0].elements()
    }
}

fn evaluate(op: &TopK, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let x = &evaluation.operands[0];
    let keys = order_keys(x, i128::MAX);
    let ty = evaluation.outputs[0].clone();
    let (outer, inner) = x.shape().split_at(op.axis.index());
    let (extent, inner) = (inner[0], inner[1..].iter().product::<usize>());
    let k = ty.shape[op.axis.index()];
    let mut values = Tensor::zeros(ty.clone());
    let mut indices = vec![0i64; values.elements()];
    for outer in 0..outer.iter().product() {
        for inner_index in 0..inner {
            let position = |i: usize| (outer * extent + i) * inner + inner_index;
            let mut order: Vec<usize> = (0..extent).collect();
            // Stable: equal elements stay in the order of their indices.
            if op.largest {
                order.sort_by_key(|i| std::cmp::Reverse(keys[position(*i)]));
            } else {
                order.sort_by_key(|i| keys[position(*i)]);
            }
            for (rank, i) in order.into_iter().take(k).enumerate() {
                let target = (outer * k + rank) * inner + inner_index;
                values.set(target, x.get(position(i)));
                indices[target] = i as i64;
            }
        }
    }
    Ok(vec![values, Tensor::from_elements(&ty.shape, &indices)?])
}
