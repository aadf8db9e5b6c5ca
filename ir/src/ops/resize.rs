//! `resize`: its attributes, inference and meaning; nothing of any other operator.

use super::values::{floats, store};
use crate::attribute::Float;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Number;
use crate::movement::take;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::tensor::Tensor;
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
        /// `i * (in - 1) / (out - 1)`, where `out` is `scale * in` before it is rounded.
        AlignCorners = "align_corners",
        /// `(i + 0.5) / scale`, of Resize before opset 13.
        TfHalfPixelForNn = "tf_half_pixel_for_nn",
        /// `i / scale`.
        Asymmetric = "asymmetric",
        /// Over a region of interest, its ends as fractions of `in - 1`.
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
            | CoordinateMode::TfHalfPixelForNn
            | CoordinateMode::Asymmetric => 0,
        };
        check::length("roi", self.roi.len(), bounds)?;
        Ok(vec![TensorType::new(x.dtype, self.sizes.clone())])
    }

    fn operations(&self, operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        let taps = match self.mode {
            ResizeMode::Nearest => return Dim::ZERO,
            ResizeMode::Linear => 2,
            ResizeMode::Cubic => 4,
        };
        let pairs = operands.iter().flat_map(|x| x.shape.iter().zip(&self.sizes));
        let resampled = pairs.filter(|(from, to)| from != to).count() as i64;
        outputs[0].elements() * Dim::from(2 * taps * resampled)
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }
}

fn evaluate(op: &Resize, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (x, ty) = (&evaluation.operands[0], &evaluation.outputs[0]);
    if ty.elements() == 0 {
        return Ok(vec![Tensor::zeros(ty.clone())]);
    }
    let mut lines: Vec<Line> = (0..x.shape().len())
        .map(|axis| Line::new(op, axis, x.shape()[axis], ty.shape[axis]))
        .filter(|line| !line.is_identity())
        .collect();
    for line in &lines {
        if line.source == 0 {
            return Err(EvalError::Invalid(format!(
                "dimension {} has no elements to sample",
                line.axis
            )));
        }
        if op.antialias && line.shrink() * (line.source as f64) < LEAST_SIZE {
            return Err(EvalError::Invalid(format!(
                "dimension {} shrinks by {}, too much for antialiasing",
                line.axis,
                line.shrink()
            )));
        }
    }
    // Shrinking first keeps every intermediate at most as large as the operand or the result.
    lines.sort_by(|a, b| {
        (a.size as u128 * b.source as u128).cmp(&(b.size as u128 * a.source as u128))
    });
    match op.mode {
        ResizeMode::Nearest => {
            let mut result = x.clone();
            for line in &lines {
                result = nearest(op, &result, line)?;
            }
            Ok(vec![result])
        }
        ResizeMode::Linear | ResizeMode::Cubic => {
            let (mut values, mut shape) = (floats(x), x.shape().to_vec());
            for line in &lines {
                values = interpolate(op, &values, &mut shape, line);
            }
            Ok(vec![store(ty, &values)?])
        }
    }
}

/// A dimension shrinks to at least one element, before rounding to half of one. The filter widens
/// as the scale shrinks, so a scale far below that has no use and would cost without bound.
const LEAST_SIZE: f64 = 0.25;

/// One dimension that is resampled.
struct Line {
    axis: usize,
    /// Elements of the operand.
    source: usize,
    /// Elements of the result.
    size: usize,
    /// Size over source, where it is not their exact ratio.
    scale: Option<f64>,
    /// Start and end of the region of interest.
    region: Option<(f64, f64)>,
    coordinates: CoordinateMode,
}

impl Line {
    fn new(op: &Resize, axis: usize, source: usize, size: usize) -> Line {
        let end = op.roi.get(op.sizes.len() + axis);
        Line {
            axis,
            source,
            size,
            scale: op.scales.get(axis).map(|scale| scale.0),
            region: op.roi.get(axis).zip(end).map(|(start, end)| (start.0, end.0)),
            coordinates: op.coordinates,
        }
    }

    fn is_identity(&self) -> bool {
        self.size == self.source
            && self.scale.is_none_or(|scale| scale == 1.0)
            && self.region.is_none_or(|region| region == (0.0, 1.0))
    }

    /// The scale, at most 1.
    fn shrink(&self) -> f64 {
        self.scale.unwrap_or(self.size as f64 / self.source as f64).min(1.0)
    }

    /// The coordinate in the operand that an element of the result samples; `None` outside, where
    /// that has a value of its own.
    fn coordinate(&self, index: usize) -> Option<f64> {
        let (i, n, m) = (index as f64, self.source as f64, self.size as f64);
        // The size before it was rounded.
        let width = self.scale.map_or(m, |scale| scale * n);
        // Where the ratio is exact, a product before the quotient keeps integers exact.
        let unscaled = |x: f64| self.scale.map_or(x * n / m, |scale| x / scale);
        let half_pixel = || unscaled(i + 0.5) - 0.5;
        let along = |length: f64| if index == 0 { 0.0 } else { i * length / (width - 1.0) };
        let coordinate = match self.coordinates {
            CoordinateMode::HalfPixel => half_pixel(),
            CoordinateMode::HalfPixelSymmetric => n / 2.0 * (1.0 - m / width) + half_pixel(),
            CoordinateMode::PytorchHalfPixel if self.size == 1 => 0.0,
            CoordinateMode::PytorchHalfPixel => half_pixel(),
            CoordinateMode::AlignCorners => along(n - 1.0),
            CoordinateMode::TfHalfPixelForNn => unscaled(i + 0.5),
            CoordinateMode::Asymmetric => unscaled(i),
            CoordinateMode::TfCropAndResize => {
                let (start, end) = self.region.unwrap_or((0.0, 1.0));
                let coordinate = if self.size == 1 {
                    0.5 * (start + end) * (n - 1.0)
                } else {
                    start * (n - 1.0) + along((end - start) * (n - 1.0))
                };
                if !(0.0..=n - 1.0).contains(&coordinate) {
                    return None;
                }
                coordinate
            }
        };
        // Far outside all coordinates are alike; this keeps integer arithmetic from overflowing.
        Some(coordinate.clamp(-FAR, FAR))
    }
}

const FAR: f64 = (1u64 << 52) as f64;

fn nearest(op: &Resize, x: &Tensor, line: &Line) -> Result<Tensor, EvalError> {
    let coordinates: Vec<Option<f64>> = (0..line.size).map(|i| line.coordinate(i)).collect();
    let last = line.source.saturating_sub(1) as f64;
    let index = |coordinate: &Option<f64>| {
        coordinate.map_or(0, |x| round(op.nearest, x).clamp(0.0, last) as usize)
    };
    let indices: Vec<usize> = coordinates.iter().map(index).collect();
    let mut result = take(x, line.axis, &indices)?;
    let run: usize = x.shape()[line.axis + 1..].iter().product();
    let outside = (0..result.elements())
        .filter(|place| coordinates[place / run % line.size].is_none())
        .collect::<Vec<_>>();
    for place in outside {
        result.set(place, Number::Float(op.extrapolation.0));
    }
    Ok(result)
}

fn round(mode: NearestMode, x: f64) -> f64 {
    match mode {
        NearestMode::RoundPreferFloor => libm::ceil(x - 0.5),
        NearestMode::RoundPreferCeil => libm::floor(x + 0.5),
        NearestMode::Floor => libm::floor(x),
        NearestMode::Ceil => libm::ceil(x),
    }
}

/// Resamples values of `shape` along one dimension; `shape` becomes that of the result.
fn interpolate(op: &Resize, values: &[f64], shape: &mut [usize], line: &Line) -> Vec<f64> {
    let outer: usize = shape[..line.axis].iter().product();
    let run: usize = shape[line.axis + 1..].iter().product();
    shape[line.axis] = line.size;
    let mut result = vec![0.0; outer * line.size * run];
    for index in 0..line.size {
        let weights = line.coordinate(index).map(|coordinate| weights(op, line, coordinate));
        for o in 0..outer {
            let target = &mut result[(o * line.size + index) * run..][..run];
            match &weights {
                None => target.fill(op.extrapolation.0),
                Some(weights) => {
                    for (place, weight) in weights {
                        let source = &values[(o * line.source + place) * run..][..run];
                        for (sum, value) in target.iter_mut().zip(source) {
                            *sum += weight * value;
                        }
                    }
                }
            }
        }
    }
    result
}

/// The elements that a coordinate is interpolated from, with their weights.
fn weights(op: &Resize, line: &Line, coordinate: f64) -> Vec<(usize, f64)> {
    let support = match op.mode {
        ResizeMode::Cubic => 2.0,
        ResizeMode::Nearest | ResizeMode::Linear => 1.0,
    };
    let shrink = if op.antialias { line.shrink() } else { 1.0 };
    let reach = support / shrink;
    let first = libm::floor(coordinate - reach) as i64 + 1;
    let last = libm::ceil(coordinate + reach) as i64 - 1;
    let filter = |distance: f64| match op.mode {
        ResizeMode::Cubic => cubic(distance, op.cubic_coefficient.0),
        ResizeMode::Nearest | ResizeMode::Linear => (1.0 - distance).max(0.0),
    };
    let end = line.source as i64 - 1;
    let mut weights: Vec<(i64, f64)> =
        (first..=last).map(|at| (at, filter((at as f64 - coordinate).abs() * shrink))).collect();
    if op.exclude_outside {
        weights.retain(|(at, _)| (0..=end).contains(at));
    }
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let total = if (op.antialias || op.exclude_outside) && total != 0.0 { total } else { 1.0 };
    weights.into_iter().map(|(at, weight)| (at.clamp(0, end) as usize, weight / total)).collect()
}

/// The weight of an element at a distance in cubic convolution (Keys 1981).
pub(super) fn cubic(distance: f64, a: f64) -> f64 {
    let t = distance;
    if t <= 1.0 {
        ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
    } else if t < 2.0 {
        ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
