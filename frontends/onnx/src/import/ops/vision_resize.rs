//! Resampling: `Resize`, `Upsample`, `GridSample`. Sizes and scales are resolved here; never an
//! interpolation.

use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::Dim;
use membar_ir::attribute::Float;
use membar_ir::ops::{
    CoordinateMode, GridMode, GridPadding, GridSample, NearestMode, Resize, ResizeMode,
};

type Outcome = Result<(), NodeError>;

/// `Resize`: scales alone before opset 11; then scales or sizes, of some axes since opset 18.
pub(crate) fn resize(cx: &mut NodeContext<'_, '_>) -> Outcome {
    if cx.opset() < 11 {
        let scales = floats(cx, 1)?;
        return asymmetric(cx, &scales);
    }
    let ty = cx.ty(0)?;
    let rank = ty.rank();
    let axes: Vec<usize> = match cx.attribute::<&[i64]>("axes")? {
        Some(axes) => {
            cx.axes(axes, rank)?;
            let axes = axes.iter().map(|axis| cx.axis(*axis, rank).map(|axis| axis.index()));
            axes.collect::<Result<_, _>>()?
        }
        None => (0..rank).collect(),
    };
    let scales = if cx.has(2) { floats(cx, 2)? } else { Vec::new() };
    let sizes = if cx.has(3) { cx.dims(3)? } else { Vec::new() };
    let target = match (scales.is_empty(), sizes.is_empty()) {
        (false, true) => scaled(&ty.shape, &axes, &scales)?,
        (true, false) => sized(cx, &ty.shape, &axes, &sizes)?,
        _ => return Err(NodeError::new("either scales or sizes are expected")),
    };
    let coordinates = coordinates(cx)?;
    let roi = match coordinates {
        CoordinateMode::TfCropAndResize => region(cx, rank, &axes)?,
        CoordinateMode::HalfPixel
        | CoordinateMode::HalfPixelSymmetric
        | CoordinateMode::PytorchHalfPixel
        | CoordinateMode::AlignCorners
        | CoordinateMode::Asymmetric
        | CoordinateMode::TfHalfPixelForNn => Vec::new(),
    };
    let nearest = match cx.attribute_or("nearest_mode", "round_prefer_floor")? {
        "round_prefer_floor" | "" => NearestMode::RoundPreferFloor,
        "round_prefer_ceil" => NearestMode::RoundPreferCeil,
        "floor" => NearestMode::Floor,
        "ceil" => NearestMode::Ceil,
        other => return Err(NodeError::new(format!("nearest_mode `{other}`"))),
    };
    let op = Resize {
        sizes: target.sizes,
        scales: target.scales,
        mode: mode(cx)?,
        coordinates,
        nearest,
        cubic_coefficient: cx.attribute_or("cubic_coeff_a", -0.75_f32)?.into(),
        exclude_outside: cx.flag("exclude_outside", false)?,
        antialias: cx.flag("antialias", false)?,
        extrapolation: cx.attribute_or("extrapolation_value", 0.0_f32)?.into(),
        roi,
    };
    let x = cx.operand(0)?;
    let result = cx.emit(op, &[x])?;
    cx.output(0, result)
}

/// `Upsample`: scales as an attribute before opset 9, as an operand since.
pub(crate) fn upsample(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let scales =
        if cx.opset() < 9 { cx.required::<&[f32]>("scales")?.to_vec() } else { floats(cx, 1)? };
    asymmetric(cx, &scales)
}

/// Resampling before opset 11: output index over scale, rounded down where the tensor grows and
/// up where it shrinks (onnxruntime).
fn asymmetric(cx: &mut NodeContext<'_, '_>, scales: &[f32]) -> Outcome {
    let ty = cx.ty(0)?;
    let axes: Vec<usize> = (0..ty.rank()).collect();
    let target = scaled(&ty.shape, &axes, scales)?;
    let mode = mode(cx)?;
    let grows = scales.iter().all(|scale| *scale >= 1.0);
    let shrinks = scales.iter().all(|scale| *scale <= 1.0);
    if mode == ResizeMode::Nearest && !grows && !shrinks {
        return Err(NodeError::new(format!("scales {scales:?}, which grow and shrink at once")));
    }
    let op = Resize {
        sizes: target.sizes,
        scales: target.scales,
        mode,
        coordinates: CoordinateMode::Asymmetric,
        nearest: if grows { NearestMode::Floor } else { NearestMode::Ceil },
        cubic_coefficient: Float(-0.75),
        exclude_outside: false,
        antialias: false,
        extrapolation: Float(0.0),
        roi: Vec::new(),
    };
    let x = cx.operand(0)?;
    let result = cx.emit(op, &[x])?;
    cx.output(0, result)
}

fn floats(cx: &mut NodeContext<'_, '_>, index: usize) -> Result<Vec<f32>, NodeError> {
    Ok(cx.constant(index)?.to_floats().into_iter().map(|value| value as f32).collect())
}

fn mode(cx: &NodeContext<'_, '_>) -> Result<ResizeMode, NodeError> {
    Ok(match cx.attribute_or("mode", "nearest")? {
        "nearest" => ResizeMode::Nearest,
        // Upsample's first name for it is `bilinear`.
        "linear" | "bilinear" => ResizeMode::Linear,
        "cubic" => ResizeMode::Cubic,
        other => return Err(NodeError::new(format!("mode `{other}`"))),
    })
}

fn coordinates(cx: &NodeContext<'_, '_>) -> Result<CoordinateMode, NodeError> {
    Ok(match cx.attribute_or("coordinate_transformation_mode", "half_pixel")? {
        "half_pixel" => CoordinateMode::HalfPixel,
        "half_pixel_symmetric" => CoordinateMode::HalfPixelSymmetric,
        "pytorch_half_pixel" => CoordinateMode::PytorchHalfPixel,
        "align_corners" => CoordinateMode::AlignCorners,
        "asymmetric" => CoordinateMode::Asymmetric,
        "tf_crop_and_resize" => CoordinateMode::TfCropAndResize,
        "tf_half_pixel_for_nn" => CoordinateMode::TfHalfPixelForNn,
        other => {
            return Err(NodeError::new(format!("coordinate_transformation_mode `{other}`")));
        }
    })
}

/// What a tensor is resized to; `scales` as the operator takes them.
#[derive(Debug, PartialEq)]
struct Target {
    sizes: Vec<Dim>,
    scales: Vec<Float>,
}

/// floor(extent * scale) along the axes.
fn scaled(shape: &[Dim], axes: &[usize], scales: &[f32]) -> Result<Target, NodeError> {
    check_length("scales", scales.len(), axes.len())?;
    let mut target = Target { sizes: shape.to_vec(), scales: vec![Float(1.0); shape.len()] };
    for (axis, scale) in axes.iter().zip(scales) {
        let extent = &shape[*axis];
        target.sizes[*axis] = product(extent, *scale)?;
        target.scales[*axis] = Float::from(*scale);
    }
    // Whole numbers are the exact ratio: one spelling keeps equal operators equal.
    if scales.iter().all(|scale| scale.fract() == 0.0) {
        target.scales.clear();
    }
    Ok(target)
}

/// floor(extent * scale), in f32 where the extent is fixed (as onnxruntime does); where it is not
/// the scale must be a fraction of a power of two.
fn product(extent: &Dim, scale: f32) -> Result<Dim, NodeError> {
    let invalid = || NodeError::new(format!("a scale of {scale}"));
    if !(scale.is_finite() && scale > 0.0) {
        return Err(invalid());
    }
    if let Some(extent) = extent.as_constant() {
        let size = (extent as f32 * scale).floor();
        return if size < i32::MAX as f32 { Ok(Dim::from(size as i64)) } else { Err(invalid()) };
    }
    let most = 1_i64 << 16;
    let mut denominator = 1_i64;
    while denominator < most && (scale * denominator as f32).fract() != 0.0 {
        denominator *= 2;
    }
    let numerator = scale * denominator as f32;
    if numerator.fract() != 0.0 || numerator >= i32::MAX as f32 {
        return Err(NodeError::new(format!(
            "a scale of {scale} for a dimension of `{extent}`; a fixed dimension is expected"
        )));
    }
    let product = extent.clone() * Dim::from(numerator as i64);
    product.floor_div(&Dim::from(denominator)).ok_or_else(invalid)
}

/// Given sizes; with `keep_aspect_ratio_policy` they are limits to one common scale.
fn sized(
    cx: &NodeContext<'_, '_>,
    shape: &[Dim],
    axes: &[usize],
    sizes: &[Dim],
) -> Result<Target, NodeError> {
    check_length("sizes", sizes.len(), axes.len())?;
    let mut target = Target { sizes: shape.to_vec(), scales: Vec::new() };
    let policy: fn(f32, f32) -> f32 =
        match cx.attribute_or("keep_aspect_ratio_policy", "stretch")? {
            "stretch" => {
                for (axis, size) in axes.iter().zip(sizes) {
                    target.sizes[*axis] = size.clone();
                }
                return Ok(target);
            }
            "not_larger" => f32::min,
            "not_smaller" => f32::max,
            other => return Err(NodeError::new(format!("keep_aspect_ratio_policy `{other}`"))),
        };
    keep_ratio(shape, axes, sizes, policy)
}

fn keep_ratio(
    shape: &[Dim],
    axes: &[usize],
    sizes: &[Dim],
    policy: fn(f32, f32) -> f32,
) -> Result<Target, NodeError> {
    let mut target = Target { sizes: shape.to_vec(), scales: vec![Float(1.0); shape.len()] };
    let fixed = |dim: &Dim| {
        dim.as_constant().ok_or_else(|| {
            NodeError::new(format!(
                "keep_aspect_ratio_policy over a dimension of `{dim}`; a fixed one is expected"
            ))
        })
    };
    let mut scale: Option<f32> = None;
    for (axis, size) in axes.iter().zip(sizes) {
        let this = fixed(size)? as f32 / fixed(&shape[*axis])? as f32;
        scale = Some(scale.map_or(this, |scale| policy(scale, this)));
    }
    let scale = scale.ok_or_else(|| NodeError::new("no axes"))?;
    for axis in axes {
        // Rounds halves up.
        let size = (fixed(&shape[*axis])? as f32 * scale + 0.5).floor();
        target.sizes[*axis] = Dim::from(size as i64);
        target.scales[*axis] = Float::from(scale);
    }
    Ok(target)
}

/// The region of interest: starts, then ends, of each dimension.
fn region(
    cx: &mut NodeContext<'_, '_>,
    rank: usize,
    axes: &[usize],
) -> Result<Vec<Float>, NodeError> {
    let given = floats(cx, 1)?;
    check_length("roi", given.len(), 2 * axes.len())?;
    let mut roi = vec![Float(0.0); rank];
    roi.extend(vec![Float(1.0); rank]);
    for (index, axis) in axes.iter().enumerate() {
        roi[*axis] = Float::from(given[index]);
        roi[rank + *axis] = Float::from(given[axes.len() + index]);
    }
    Ok(roi)
}

fn check_length(what: &str, found: usize, expected: usize) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(NodeError::new(format!("{found} {what}; {expected} are expected")))
}

/// `GridSample`, whose modes have other names before opset 20.
pub(crate) fn grid_sample(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let mode = match cx.attribute_or("mode", "linear")? {
        "linear" | "bilinear" => GridMode::Linear,
        "nearest" => GridMode::Nearest,
        "cubic" | "bicubic" => GridMode::Cubic,
        other => return Err(NodeError::new(format!("mode `{other}`"))),
    };
    let padding = match cx.attribute_or("padding_mode", "zeros")? {
        "zeros" => GridPadding::Zeros,
        "border" => GridPadding::Border,
        "reflection" => GridPadding::Reflection,
        other => return Err(NodeError::new(format!("padding_mode `{other}`"))),
    };
    let align_corners = cx.flag("align_corners", false)?;
    let operands = [cx.operand(0)?, cx.operand(1)?];
    let result = cx.emit(GridSample { mode, padding, align_corners }, &operands)?;
    cx.output(0, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(values: &[i64]) -> Vec<Dim> {
        values.iter().copied().map(Dim::from).collect()
    }

    #[test]
    fn scales_round_down() {
        let target = scaled(&dims(&[1, 3, 5, 7]), &[2, 3], &[0.6, 1.5]).ok();
        let scales = [1.0, 1.0, 0.6_f32, 1.5].map(Float::from).to_vec();
        assert_eq!(target, Some(Target { sizes: dims(&[1, 3, 3, 10]), scales }));
        let target = scaled(&dims(&[2, 2]), &[1], &[3.0]).ok();
        assert_eq!(target, Some(Target { sizes: dims(&[2, 6]), scales: Vec::new() }));
        assert!(scaled(&dims(&[2, 2]), &[1], &[3.0, 1.0]).is_err());
    }

    #[test]
    fn symbolic_dimensions_take_binary_fractions() {
        let height = Dim::symbol("H");
        assert_eq!(product(&height, 2.0).ok(), Some(Dim::from(2) * height.clone()));
        let three_halves = (Dim::from(3) * height.clone()).floor_div(&Dim::from(2));
        assert_eq!(product(&height, 1.5).ok(), three_halves);
        assert!(product(&height, 0.3).is_err());
        assert!(product(&height, -1.0).is_err());
        assert!(product(&Dim::from(4), f32::NAN).is_err());
    }

    #[test]
    fn one_scale_keeps_the_aspect_ratio() {
        let sizes = |policy| {
            let target = keep_ratio(&dims(&[4, 2]), &[0, 1], &dims(&[7, 8]), policy);
            target.ok().map(|target| target.sizes)
        };
        assert_eq!(sizes(f32::min), Some(dims(&[7, 4])));
        assert_eq!(sizes(f32::max), Some(dims(&[16, 8])));
        let symbolic = [Dim::symbol("H")];
        assert!(keep_ratio(&symbolic, &[0], &dims(&[7]), f32::min).is_err());
    }
}
