//! `dequantize`: its attributes, inference and meaning; nothing of any other operator.

use super::compose::Compose;
use super::quantize::{parameter_shape, spread};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::types::{Axis, TensorType};

operator! {
    /// `(x - zero point) * scale`. (ONNX DequantizeLinear)
    ///
    /// Operands: x (i32, integer of at most 16 bits, or 8-bit float); scale (float); and, if `zero_point`, a zero point of x's
    /// type; shapes as for `quantize`. Result: x's shape in `dtype`, computed in f32 or wider.
    Dequantize {
        /// Element type of the result.
        dtype: DType,
        /// Per-axis or blocked.
        axis: Option<Axis>,
        /// Elements along the axis that share a scale.
        block: Option<i64>,
        /// Whether there is a zero point.
        zero_point: bool,
    }
}

impl OpDef for Dequantize {
    const MNEMONIC: &'static str = "dequantize";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        check::count(operands, 2 + usize::from(self.zero_point))?;
        let x = &operands[0];
        check::dtype(operands, 0, "i32, an integer of at most 16 bits, or an 8-bit float", |d| {
            d == DType::I32 || d.is_integer() && d.bits() <= 16 || d.is_float() && d.bits() == 8
        })?;
        check::dtype(operands, 1, "a float", DType::is_float)?;
        if !self.dtype.is_float() {
            return Err(TypeError::invalid(format!("dequantisation to {}", self.dtype)));
        }
        if self.zero_point {
            check::dtype_is(operands, 2, x.dtype)?;
        }
        for parameter in &operands[1..] {
            parameter_shape(&x.shape, &parameter.shape, self.axis, self.block)?;
        }
        Ok(vec![TensorType::new(self.dtype, x.shape.clone())])
    }

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| {
            let mut g = Compose(graph);
            let [x, scale] = [inputs[0], inputs[1]];
            let wide = self.dtype == DType::F64 || g.ty(scale).dtype == DType::F64;
            let compute = if wide { DType::F64 } else { DType::F32 };
            let shape = g.shape(x);
            // The difference of integers is exact.
            let difference = if g.ty(x).dtype.is_integer() { DType::I32 } else { compute };
            let mut y = g.cast(x, difference)?;
            if let Some(zero_point) = inputs.get(2) {
                let zero_point = g.cast(*zero_point, difference)?;
                let zero_point = spread(&mut g, zero_point, &shape, self.axis, self.block)?;
                y = g.sub(y, zero_point)?;
            }
            let y = g.cast(y, compute)?;
            let scale = g.cast(scale, compute)?;
            let scale = spread(&mut g, scale, &shape, self.axis, self.block)?;
            let result = g.mul(y, scale)?;
            Ok(vec![g.cast(result, self.dtype)?])
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Difference and product for each element.
        Dim::from(2) * operands[0].elements()
    }
}
