//! `dequantize`: its attributes, inference and meaning; nothing of any other operator.

use crate::dtype::DType;
use super::quantize::parameter_shape;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// `(x - zero point) * scale`. (ONNX DequantizeLinear)
    ///
    /// Operands: x (integer or 8-bit float, or i32); scale (float); and, if `zero_point`, a zero point of x's
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
        check::dtype(operands, 0, "an integer or an 8-bit float", |d| {
            d.is_integer() || d.is_float() && d.bits() == 8
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

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("dequantize: meaning")
    }
}
