//! `grid_sample`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
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

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, grid] = check::arity(operands)?;
        check::rank_at_least(operands, 0, 3)?;
        check::rank(operands, 1, x.rank())?;
        check::dtype(operands, 0, "a number", |dtype| dtype != DType::Bool)?;
        check::dtype(operands, 1, "a floating-point type", DType::is_float)?;
        let spatial = x.rank() - 2;
        check::equal(&x.shape[0], &grid.shape[0], "batch of the operand and the grid")?;
        let coordinates = Dim::from(spatial as i64);
        check::equal(&grid.shape[spatial + 1], &coordinates, "coordinates in the grid")?;
        let mut shape = x.shape[..2].to_vec();
        shape.extend_from_slice(&grid.shape[1..=spatial]);
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("grid_sample: meaning")
    }
}
