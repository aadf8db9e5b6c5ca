//! `grid_sample`: its attributes, inference and meaning; nothing of any other operator.

use crate::op::{Meaning, OpDef, TypeError};
use crate::types::TensorType;
use crate::{attribute_words, operator};

operator! {
    /// Samples at given coordinates. (ONNX GridSample, opset 22)
    ///
    /// Operands: x `[N, C, D…]`, grid `[N, D_out…, k]` with coordinates in -1..1, innermost dimension first; result:
    /// `[N, C, D_out…]`.
    GridSample {
        /// Interpolation.
        mode: GridMode,
        /// What lies outside.
        padding: GridPadding,
        /// Whether -1 and 1 are the centres of the corner elements, else their outer edges.
        align_corners: bool,
    }
}

attribute_words! {
    /// Interpolation.
    GridMode {
        /// Multilinear.
        Linear = "linear",
        /// Nearest, ties to even.
        Nearest = "nearest",
        /// Cubic, a = -0.75.
        Cubic = "cubic",
    }
}

attribute_words! {
    /// What lies outside.
    GridPadding {
        /// 0.
        Zeros = "zeros",
        /// The nearest element.
        Border = "border",
        /// Mirrored.
        Reflection = "reflection",
    }
}

impl OpDef for GridSample {
    const MNEMONIC: &'static str = "grid_sample";

    fn infer(&self, _operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        todo!("grid_sample: infer")
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("grid_sample: meaning")
    }
}
