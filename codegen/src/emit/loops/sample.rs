//! Resampling: `resize` and `grid_sample`, one thread an element of the result. Must never know how
//! operands lie in memory.

use crate::emit::EmitError;
use crate::emit::headers::SAMPLE;
use crate::emit::index::Index;
use crate::emit::kernel::KernelBuilder;
use crate::emit::pointwise::{Applied, Reads};
use crate::emit::scalar::{convert, literal};
use membar_ir::dtype::DType;
use membar_ir::element::Number;
use membar_ir::ops::{
    CoordinateMode, GridMode, GridPadding, GridSample, NearestMode, Resize, ResizeMode,
};

fn double(value: f64) -> String {
    literal(Number::Float(value), DType::F64)
}

fn coordinates(mode: CoordinateMode) -> &'static str {
    match mode {
        CoordinateMode::HalfPixel => "HALF_PIXEL",
        CoordinateMode::HalfPixelSymmetric => "HALF_PIXEL_SYMMETRIC",
        CoordinateMode::PytorchHalfPixel => "PYTORCH_HALF_PIXEL",
        CoordinateMode::AlignCorners => "ALIGN_CORNERS",
        CoordinateMode::TfHalfPixelForNn => "TF_HALF_PIXEL_FOR_NN",
        CoordinateMode::Asymmetric => "ASYMMETRIC",
        CoordinateMode::TfCropAndResize => "TF_CROP_AND_RESIZE",
    }
}

fn nearest(mode: NearestMode) -> &'static str {
    match mode {
        NearestMode::RoundPreferFloor => "ROUND_PREFER_FLOOR",
        NearestMode::RoundPreferCeil => "ROUND_PREFER_CEIL",
        NearestMode::Floor => "FLOOR",
        NearestMode::Ceil => "CEIL",
    }
}

pub(super) fn resize(
    op: &Resize,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let x = &applied.operands[0];
    let rank = x.rank();
    kernel.header(SAMPLE);
    let outside = kernel.name("outside");
    kernel.line(format!("bool {outside} = false;"));
    let mut axes = index.axes.clone();
    // The dimensions that are resampled, with their lines and coordinates.
    let mut lines = Vec::new();
    for axis in 0..rank {
        let (start, end) = match (op.roi.get(axis), op.roi.get(rank + axis)) {
            (Some(start), Some(end)) => (start.0, end.0),
            _ => (0.0, 1.0),
        };
        let scale = op.scales.get(axis).map_or(0.0, |scale| scale.0);
        let same = x.shape[axis] == op.sizes[axis];
        if same && (scale == 0.0 || scale == 1.0) && (start, end) == (0.0, 1.0) {
            continue;
        }
        let line = kernel.name("line");
        kernel.line(format!(
            "const Line {line} = {{{}, i64({}), i64({}), {}, {}, {}}};",
            coordinates(op.coordinates),
            kernel.dim(&x.shape[axis]),
            kernel.dim(&op.sizes[axis]),
            double(scale),
            double(start),
            double(end),
        ));
        let at = kernel.bind(
            "f64",
            "at",
            format!("line_coordinate({line}, i64({}), {outside})", index.axes[axis]),
        );
        lines.push((axis, line, at));
    }
    let extrapolation = double(op.extrapolation.0);
    if op.mode == ResizeMode::Nearest {
        for (axis, line, at) in &lines {
            let mode = nearest(op.nearest);
            axes[*axis] = format!("idx(nearest_element({mode}, {at}, {line}.source))");
        }
        let value = reads.read(kernel, 0, &Index::at(&x.shape, axes))?;
        let other = convert(&extrapolation, DType::F64, x.dtype, true);
        return Ok(if op.roi.is_empty() {
            value
        } else {
            format!("({outside} ? {other} : {value})")
        });
    }
    let sum = kernel.name("sum");
    kernel.line(format!("f64 {sum} = 0.0;"));
    let mut weights = vec!["1.0".to_string()];
    let cubic = op.mode == ResizeMode::Cubic;
    for (axis, line, at) in &lines {
        let taps = kernel.bind(
            "Taps",
            "taps",
            format!(
                "resize_taps({line}, {at}, {cubic}, {}, {}, {})",
                double(op.cubic_coefficient.0),
                op.exclude_outside,
                op.antialias
            ),
        );
        let k = kernel.name("k");
        kernel.open(format!("for (i64 {k} = {taps}.first; {k} <= {taps}.last; ++{k})"));
        weights.push(kernel.bind("f64", "w", format!("{taps}.weight({k})")));
        axes[*axis] = kernel.bind("idx", "e", format!("idx({taps}.element({k}))"));
    }
    let value = reads.read(kernel, 0, &Index::at(&x.shape, axes))?;
    kernel.line(format!("{sum} += {} * f64({value});", weights.join(" * ")));
    for _ in &lines {
        kernel.close();
    }
    if !op.roi.is_empty() {
        kernel.line(format!("if ({outside}) {sum} = {extrapolation};"));
    }
    Ok(convert(&sum, DType::F64, x.dtype, true))
}

pub(super) fn grid_sample(
    op: &GridSample,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let (x, grid) = (&applied.operands[0], &applied.operands[1]);
    let spatial = x.rank() - 2;
    kernel.header(SAMPLE);
    let outside = match op.padding {
        GridPadding::Zeros => "ZEROS",
        GridPadding::Border => "BORDER",
        GridPadding::Reflection => "REFLECTION",
    };
    let least = if op.align_corners { "0.0" } else { "-0.5" };
    let (first, last) = match op.mode {
        GridMode::Nearest => (0, 0),
        GridMode::Linear => (0, 1),
        GridMode::Cubic => (-1, 2),
    };
    let sum = kernel.name("sum");
    kernel.line(format!("f64 {sum} = 0.0;"));
    let mut point = vec![index.axes[0].clone()];
    point.extend_from_slice(&index.axes[2..]);
    let mut axes = index.axes[..2].to_vec();
    let mut weights = vec!["1.0".to_string()];
    let mut positions = Vec::new();
    for axis in 0..spatial {
        let mut at = point.clone();
        // Coordinates stand innermost dimension first.
        at.push((spatial - 1 - axis).to_string());
        let coordinate = reads.read(kernel, 1, &Index::at(&grid.shape, at))?;
        let extent = kernel.dim(&x.shape[2 + axis]);
        let extent = kernel.bind("i64", "n", format!("i64({extent})"));
        let position = kernel.bind(
            "f64",
            "p",
            format!(
                "grid_settle(grid_position({coordinate}, {extent}, {}), {extent}, {outside}, {}, \
                 {least})",
                op.align_corners,
                op.mode == GridMode::Nearest
            ),
        );
        positions.push((extent, position));
    }
    for (extent, position) in &positions {
        let k = kernel.name("k");
        kernel.open(format!("for (int {k} = {first}; {k} <= {last}; ++{k})"));
        let at = kernel.bind("f64", "at", format!("floor({position}) + f64({k})"));
        let element =
            kernel.bind("i64", "e", format!("grid_element({at}, {extent}, {outside}, {least})"));
        kernel.line(format!("if ({element} < 0) continue;"));
        let distance = format!("fabs({position} - {at})");
        weights.push(match op.mode {
            GridMode::Nearest => "1.0".to_string(),
            GridMode::Linear => format!("(1.0 - {distance})"),
            GridMode::Cubic => format!("cubic_filter({distance}, -0.75)"),
        });
        axes.push(format!("idx({element})"));
    }
    let value = reads.read(kernel, 0, &Index::at(&x.shape, axes))?;
    kernel.line(format!("{sum} += {} * f64({value});", weights.join(" * ")));
    for _ in &positions {
        kernel.close();
    }
    Ok(convert(&sum, DType::F64, x.dtype, true))
}
