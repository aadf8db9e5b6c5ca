//! `resize`: its attributes, inference and meaning; nothing of any other operator.

use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::{attribute_words, operator};

operator! {
    /// Resamples to another size. (ONNX Resize, opset 19)
    ///
    /// Operand: x; result: `sizes`. Lists have one item for each dimension of x, `roi` two; a scale
    /// of 1 leaves its dimension alone if the size is the operand's too.
    Resize {
        /// Shape of the result.
        sizes: Vec<Dim>,
        /// Output size over input size as the coordinate transformation uses it; empty if it is
        /// their exact ratio, which may depend on symbols.
        scales: Vec<Float>,
        /// Interpolation.
        mode: ResizeMode,
        /// How an output index becomes an input coordinate.
        coordinates: CoordinateMode,
        /// How `nearest` rounds.
        nearest: NearestMode,
        /// The a of cubic interpolation.
        cubic_coefficient: Float,
        /// Whether weights outside the input are 0, the rest renormalised.
        exclude_outside: bool,
        /// Whether downsampling widens the filter.
        antialias: bool,
        /// The value outside the input, for `tf_crop_and_resize`.
        extrapolation: Float,
        /// Starts, then ends, for `tf_crop_and_resize`; empty otherwise.
        roi: Vec<Float>,
    }
}

attribute_words! {
    /// Interpolation.
    ResizeMode {
        /// Nearest element.
        Nearest = "nearest",
        /// Multilinear.
        Linear = "linear",
        /// Cubic in each dimension.
        Cubic = "cubic",
    }
}

attribute_words! {
    /// How an output index becomes an input coordinate.
    CoordinateMode {
        /// `(i + 0.5) / scale - 0.5`.
        HalfPixel = "half_pixel",
        /// As `half_pixel`, centred when the size was rounded.
        HalfPixelSymmetric = "half_pixel_symmetric",
        /// As `half_pixel`, 0 for an output of one element.
        PytorchHalfPixel = "pytorch_half_pixel",
        /// `i * (in - 1) / (out - 1)`.
        AlignCorners = "align_corners",
        /// `i / scale`.
        Asymmetric = "asymmetric",
        /// Over a region of interest.
        TfCropAndResize = "tf_crop_and_resize",
    }
}

attribute_words! {
    /// How `nearest` rounds.
    NearestMode {
        /// Halves down.
        RoundPreferFloor = "round_prefer_floor",
        /// Halves up.
        RoundPreferCeil = "round_prefer_ceil",
        /// Down.
        Floor = "floor",
        /// Up.
        Ceil = "ceil",
    }
}

impl OpDef for Resize {
    const MNEMONIC: &'static str = "resize";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::dtype(operands, 0, "a number", |dtype| dtype != DType::Bool)?;
        check::length("sizes", self.sizes.len(), x.rank())?;
        for size in &self.sizes {
            check::not_negative(size, "a size")?;
        }
        if !self.scales.is_empty() {
            check::length("scales", self.scales.len(), x.rank())?;
        }
        if let Some(scale) = self.scales.iter().find(|s| !(s.0.is_finite() && s.0 > 0.0)) {
            return Err(TypeError::invalid(format!("a scale of {}", scale.0)));
        }
        let bounds = match self.coordinates {
            CoordinateMode::TfCropAndResize => 2 * x.rank(),
            CoordinateMode::HalfPixel
            | CoordinateMode::HalfPixelSymmetric
            | CoordinateMode::PytorchHalfPixel
            | CoordinateMode::AlignCorners
            | CoordinateMode::Asymmetric => 0,
        };
        check::length("roi", self.roi.len(), bounds)?;
        Ok(vec![TensorType::new(x.dtype, self.sizes.clone())])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("resize: meaning")
    }
}
