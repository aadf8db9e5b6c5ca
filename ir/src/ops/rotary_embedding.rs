//! `rotary_embedding`: its attributes, inference and meaning; nothing of any other operator.

use super::Concat;
use super::compose::Compose;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::types::Axis;
use crate::types::TensorType;

operator! {
    /// Rotary position embedding over the first `2 * R` elements of each row; the others pass.
    ///
    /// Operands: x `[B, H, S, D]`, cos and sin `[B or 1, S, R]`, already gathered by position, in x's
    /// type; result: x's type. Half-split pairs are (i, i + R), interleaved ones (2i, 2i + 1).
    RotaryEmbedding {
        /// How pairs are formed.
        interleaved: bool,
    }
}

impl OpDef for RotaryEmbedding {
    const MNEMONIC: &'static str = "rotary_embedding";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, cos, sin] = check::arity(operands)?;
        check::dtype(operands, 0, "a float", DType::is_float)?;
        check::rank(operands, 0, 4)?;
        for (index, table) in [(1, cos), (2, sin)] {
            check::dtype_is(operands, index, x.dtype)?;
            check::rank(operands, index, 3)?;
            if !table.shape[0].is(1) {
                check::equal(&x.shape[0], &table.shape[0], "batch")?;
            }
            check::equal(&x.shape[2], &table.shape[1], "sequence")?;
        }
        check::equal(&cos.shape[2], &sin.shape[2], "rotated pairs")?;
        let rotated = Dim::from(2) * cos.shape[2].clone();
        if (x.shape[3].clone() - rotated.clone()).as_constant().is_some_and(|rest| rest < 0) {
            return Err(TypeError::invalid(format!(
                "{rotated} elements to rotate in rows of {}",
                x.shape[3]
            )));
        }
        Ok(vec![x.clone()])
    }

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| {
            let mut g = Compose(graph);
            let ty = g.ty(inputs[0]).clone();
            let compute = ty.dtype.compute();
            let x = g.cast(inputs[0], compute)?;
            let table = g.shape(inputs[1]);
            let pairs = table[2].clone();
            let over_heads = vec![table[0].clone(), Dim::ONE, table[1].clone(), pairs.clone()];
            let cos = g.cast(inputs[1], compute)?;
            let cos = g.reshape(cos, over_heads.clone())?;
            let sin = g.cast(inputs[2], compute)?;
            let over_heads = [&g.shape(inputs[2])[..1], &over_heads[1..]].concat();
            let sin = g.reshape(sin, over_heads)?;
            let (second, step) = match self.interleaved {
                true => (Dim::ONE, 2),
                false => (pairs.clone(), 1),
            };
            let first = g.part(x, 3, (Dim::ZERO, pairs.clone(), step))?;
            let second = g.part(x, 3, (second, pairs.clone(), step))?;
            let [a, b] = [g.mul(first, cos)?, g.mul(second, sin)?];
            let real = g.sub(a, b)?;
            let [a, b] = [g.mul(first, sin)?, g.mul(second, cos)?];
            let imaginary = g.add(a, b)?;
            let rotated = if self.interleaved {
                let column = [g.shape(real), vec![Dim::ONE]].concat();
                let columns = [g.reshape(real, column.clone())?, g.reshape(imaginary, column)?];
                let pairs = g.op(Concat { axis: Axis(4) }, &columns)?;
                let mut row = ty.shape.clone();
                row[3] = Dim::from(2) * table[2].clone();
                g.reshape(pairs, row)?
            } else {
                g.op(Concat { axis: Axis(3) }, &[real, imaginary])?
            };
            let width = Dim::from(2) * pairs;
            let rest = ty.shape[3].clone() - width.clone();
            let result = if rest.is(0) {
                rotated
            } else {
                let rest = g.part(x, 3, (width, rest, 1))?;
                g.op(Concat { axis: Axis(3) }, &[rotated, rest])?
            };
            Ok(vec![g.cast(result, ty.dtype)?])
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Two products and a sum for each rotated element.
        let heads: Dim = operands[0].shape[..3].iter().cloned().product();
        Dim::from(6) * heads * operands[1].shape[2].clone()
    }
}
