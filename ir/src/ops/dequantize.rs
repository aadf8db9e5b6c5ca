//! `dequantize`: its attributes, inference and meaning; nothing of any other operator.

use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError};
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

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("dequantize: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("dequantize: meaning")
    }
}
