//! `quantize`: its attributes, inference and meaning; nothing of any other operator.

use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// `saturate(round(x / scale) + zero point)`; ties round to even. (ONNX QuantizeLinear)
    ///
    /// Operands: x; scale (float); and, if `zero_point`, the zero point of the result's type. Scale and zero point are
    /// scalars, or, with `axis`, `[C]` for that axis of x, or, with `block` too, of x's rank with
    /// ceil(C / block) along the axis.
    Quantize {
        /// Element type of the result: an integer or 8-bit float.
        dtype: DType,
        /// Per-axis or blocked.
        axis: Option<Axis>,
        /// Elements along the axis that share a scale.
        block: Option<i64>,
        /// Whether there is a zero point.
        zero_point: bool,
        /// Whether 8-bit floats saturate.
        saturate: bool,
    }
}

impl OpDef for Quantize {
    const MNEMONIC: &'static str = "quantize";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("quantize: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("quantize: meaning")
    }
}
