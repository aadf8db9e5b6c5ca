//! `grid_sample`: its attributes, inference and meaning; nothing of any other operator.

use super::resize::cubic;
use super::values::{floats, store};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::tensor::Tensor;
use crate::types::TensorType;
use crate::{attribute_words, operator};

operator! {
    /// Samples at given coordinates. (ONNX GridSample, opset 22)
    ///
    /// Operands: x `[N, C, D…]`, grid `[N, D_out…, k]` with coordinates in -1..1, innermost
    /// dimension first; result: `[N, C, D_out…]`.
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
        // Interpolation reads up to 4 elements in each dimension, so all their combinations.
        if spatial > MOST_DIMENSIONS {
            return Err(TypeError::Rank {
                operand: 0,
                expected: format!("at most {}", MOST_DIMENSIONS + 2),
                found: x.rank(),
            });
        }
        check::equal(&x.shape[0], &grid.shape[0], "batch of the operand and the grid")?;
        let coordinates = Dim::from(spatial as i64);
        check::equal(&grid.shape[spatial + 1], &coordinates, "coordinates in the grid")?;
        let mut shape = x.shape[..2].to_vec();
        shape.extend_from_slice(&grid.shape[1..=spatial]);
        Ok(vec![TensorType::new(x.dtype, shape)])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }
}

const MOST_DIMENSIONS: usize = 6;

fn evaluate(op: &GridSample, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let [x, grid] = evaluation.operands else {
        return Err(EvalError::Invalid("grid_sample takes a tensor and a grid".to_string()));
    };
    let ty = &evaluation.outputs[0];
    let spatial = &x.shape()[2..];
    if spatial.contains(&0) && ty.elements() > 0 {
        return Err(EvalError::Invalid("a tensor without elements to sample".to_string()));
    }
    let [area, places] = [spatial, &ty.shape[2..]].map(|s| s.iter().product::<usize>());
    let (batches, channels, rank) = (x.shape()[0], x.shape()[1], spatial.len());
    // Coordinates are rounded as kernels round them, so that the nearest element is theirs too.
    let narrow = grid.dtype().compute() == DType::F32;
    let (values, grid) = (floats(x), floats(grid));
    let mut result = vec![0.0; ty.elements()];
    for place in 0..batches * places {
        let (batch, point) = (place / places, place % places);
        let mut taps = vec![(0, 1.0)];
        for (axis, extent) in spatial.iter().enumerate() {
            let coordinate = grid[(place + 1) * rank - 1 - axis];
            let line = op.line(op.position(coordinate, *extent, narrow), *extent);
            let extended = taps.iter().flat_map(|(at, weight)| {
                line.iter().map(move |(next, factor)| (at * extent + next, weight * factor))
            });
            taps = extended.collect();
        }
        for channel in batch * channels..(batch + 1) * channels {
            let source = &values[channel * area..][..area];
            result[channel * places + point] =
                taps.iter().map(|(at, weight)| weight * source[*at]).sum();
        }
    }
    Ok(vec![store(ty, &result)?])
}

impl GridSample {
    /// Where a grid coordinate lies among the elements of a dimension.
    fn position(&self, coordinate: f64, extent: usize, narrow: bool) -> f64 {
        if narrow {
            let (g, n) = (coordinate as f32, extent as f32);
            let corners = (g + 1.0) / 2.0 * (n - 1.0);
            f64::from(if self.align_corners { corners } else { ((g + 1.0) * n - 1.0) / 2.0 })
        } else {
            let (g, n) = (coordinate, extent as f64);
            let corners = (g + 1.0) / 2.0 * (n - 1.0);
            if self.align_corners { corners } else { ((g + 1.0) * n - 1.0) / 2.0 }
        }
    }

    /// The elements of one dimension that a position is interpolated from, with their weights.
    /// A position that is no number counts as before the first element.
    fn line(&self, position: f64, extent: usize) -> Vec<(usize, f64)> {
        let position = if position.is_nan() { -FAR } else { position.clamp(-FAR, FAR) };
        let position = if self.mode == GridMode::Nearest { libm::rint(position) } else { position };
        let position = match self.padding {
            GridPadding::Zeros => position,
            GridPadding::Border => position.clamp(0.0, extent as f64 - 1.0),
            GridPadding::Reflection => self.reflect(position, extent),
        };
        let base = libm::floor(position);
        let weighted = |offsets: std::ops::RangeInclusive<i64>, filter: &dyn Fn(f64) -> f64| {
            offsets
                .filter_map(|offset| {
                    let at = base + offset as f64;
                    Some((self.element(at, extent)?, filter((position - at).abs())))
                })
                .collect()
        };
        match self.mode {
            GridMode::Nearest => weighted(0..=0, &|_| 1.0),
            GridMode::Linear => weighted(0..=1, &|distance| 1.0 - distance),
            GridMode::Cubic => weighted(-1..=2, &|distance| cubic(distance, -0.75)),
        }
    }

    /// The element at a whole position; `None` where 0 stands for it.
    fn element(&self, at: f64, extent: usize) -> Option<usize> {
        let last = extent as f64 - 1.0;
        let inside = match self.padding {
            GridPadding::Zeros if !(0.0..=last).contains(&at) => return None,
            GridPadding::Zeros => at,
            GridPadding::Border => at.clamp(0.0, last),
            GridPadding::Reflection => self.reflect(at, extent).clamp(0.0, last),
        };
        Some(inside as usize)
    }

    /// Mirrors a position at the ends of a dimension until it lies between them.
    fn reflect(&self, position: f64, extent: usize) -> f64 {
        let least = if self.align_corners { 0.0 } else { -0.5 };
        let length = extent as f64 - 1.0 - 2.0 * least;
        if length <= 0.0 {
            return least;
        }
        // The distance from the first mirror, folded over one period there and back.
        let distance = (position - least).abs() % (2.0 * length);
        least + if distance > length { 2.0 * length - distance } else { distance }
    }
}

/// Beyond this all positions are alike; whole numbers up to here are exact.
const FAR: f64 = (1u64 << 48) as f64;
