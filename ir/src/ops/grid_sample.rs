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

    fn operations(&self, operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        let taps: i64 = match self.mode {
            GridMode::Nearest => return Dim::ZERO,
            GridMode::Linear => 2,
            GridMode::Cubic => 4,
        };
        let spatial = operands[0].rank().saturating_sub(2) as u32;
        outputs[0].elements() * Dim::from(2 * taps.saturating_pow(spatial))
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
    if ty.elements() == 0 {
        return Ok(vec![Tensor::zeros(ty.clone())]);
    }
    if spatial.contains(&0) {
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
                taps.iter().fold(0.0, |sum, (at, weight)| sum + weight * source[*at]);
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
            // A position on the outer half of an element at the border is still inside.
            GridPadding::Border if self.inside(position, extent) => position,
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

    /// Whether a position lies between the ends of a dimension.
    fn inside(&self, position: f64, extent: usize) -> bool {
        let least = self.least();
        (least..=extent as f64 - 1.0 - least).contains(&position)
    }

    /// The position to which the coordinate -1 leads.
    fn least(&self) -> f64 {
        if self.align_corners { 0.0 } else { -0.5 }
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
        let least = self.least();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, evaluate_one, floats, symbolic, tensor, tensor_of};

    fn sampler(mode: GridMode, padding: GridPadding, align_corners: bool) -> GridSample {
        GridSample { mode, padding, align_corners }
    }

    /// Samples a line at coordinates; the other spatial dimension has one element.
    fn line(op: GridSample, values: &[f32], coordinates: &[f32]) -> Vec<f64> {
        let x = tensor(&[1, 1, 1, values.len()], values);
        let grid: Vec<f32> = coordinates.iter().flat_map(|c| [*c, 0.0]).collect();
        floats(&evaluate_one(op, &[x, tensor(&[1, 1, coordinates.len(), 2], &grid)]))
    }

    #[test]
    fn coordinates_reach_from_edge_to_edge_or_centre_to_centre() {
        let ramp = [0.0f32, 1.0, 2.0, 3.0];
        let at = [-1.0f32, -0.5, 0.0, 0.25, 1.0];
        let aligned = sampler(GridMode::Linear, GridPadding::Border, true);
        assert_eq!(line(aligned, &ramp, &at), [0.0, 0.75, 1.5, 1.875, 3.0]);
        let edges = sampler(GridMode::Linear, GridPadding::Border, false);
        assert_eq!(line(edges, &ramp, &at), [0.0, 0.5, 1.5, 2.0, 3.0]);
        let zeros = sampler(GridMode::Linear, GridPadding::Zeros, false);
        assert_eq!(line(zeros, &[4.0, 1.0, 2.0, 8.0], &at), [2.0, 2.5, 1.5, 2.0, 4.0]);
    }

    #[test]
    fn outside_is_padded() {
        // Positions -3, -1.5, 4, 6.25 of the four elements at 0..=3.
        let at = [-2.25f32, -1.5, 1.25, 2.375];
        let values = [1.0f32, 2.0, 4.0, 8.0];
        let sample = |mode, padding| line(sampler(mode, padding, false), &values, &at);
        assert_eq!(sample(GridMode::Nearest, GridPadding::Zeros), [0.0; 4]);
        assert_eq!(sample(GridMode::Nearest, GridPadding::Border), [1.0, 1.0, 8.0, 8.0]);
        // Mirrored at -0.5 and 3.5: 2, 0.5, 3, 0.75.
        assert_eq!(sample(GridMode::Linear, GridPadding::Reflection), [4.0, 1.5, 8.0, 1.75]);
        // Mirrored at the centres 0 and 3: -1.875 to 1.875 and so on.
        let aligned = sampler(GridMode::Linear, GridPadding::Reflection, true);
        let found = line(aligned, &values, &[-2.0, 1.5, 3.0]);
        assert_eq!(found, [3.0, 5.0, 1.0]);
    }

    #[test]
    fn strange_coordinates_touch_nothing_outside() {
        for padding in [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection] {
            for mode in [GridMode::Nearest, GridMode::Linear, GridMode::Cubic] {
                for align_corners in [false, true] {
                    let op = sampler(mode, padding, align_corners);
                    let at = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];
                    let found = line(op, &[2.0, 2.0], &at);
                    let expected = if padding == GridPadding::Zeros { 0.0 } else { 2.0 };
                    assert_eq!(found, [expected; 4], "{mode:?} {padding:?}");
                }
            }
        }
    }

    #[test]
    fn cubic_reproduces_elements_and_parabolas() {
        let op = sampler(GridMode::Cubic, GridPadding::Border, true);
        let values = [3.0f32, -1.0, 4.0, 7.0, 2.0];
        assert_eq!(line(op.clone(), &values, &[-1.0, -0.5, 0.0, 0.5, 1.0]), values.map(f64::from));
        // Halfway the weights at a = -0.75 are -3/32, 19/32, 19/32, -3/32.
        let halfway = (-3.0 * 3.0 - 19.0 + 19.0 * 4.0 - 3.0 * 7.0) / 32.0;
        assert_eq!(line(op, &values, &[-0.25]), [halfway]);
    }

    #[test]
    fn volumes_are_interpolated_in_every_dimension() {
        let mut random = Random::new(29);
        let x = random.tensor(DType::F32, &[2, 3, 3, 4, 5]);
        let grid = random.floats(DType::F32, &[2, 2, 3, 2, 3], -0.6, 0.6);
        let (values, coordinates) = (floats(&x), floats(&grid));
        let mut expected = Vec::new();
        for batch in 0..2 {
            for channel in 0..3 {
                for point in 0..12 {
                    let at = |axis: usize, extent: f64| {
                        let c = coordinates[(batch * 12 + point) * 3 + 2 - axis];
                        ((c + 1.0) * extent - 1.0) / 2.0
                    };
                    let position = [at(0, 3.0), at(1, 4.0), at(2, 5.0)];
                    let mut sum = 0.0;
                    for corner in 0..8usize {
                        let bits = [corner >> 2 & 1, corner >> 1 & 1, corner & 1];
                        let (mut weight, mut place) = (1.0, batch * 3 + channel);
                        for ((bit, position), extent) in bits.iter().zip(position).zip([3, 4, 5]) {
                            let base = position.floor();
                            let fraction = position - base;
                            weight *= if *bit == 1 { fraction } else { 1.0 - fraction };
                            place = place * extent + base as usize + bit;
                        }
                        sum += weight * values[place];
                    }
                    expected.push(sum);
                }
            }
        }
        let op = sampler(GridMode::Linear, GridPadding::Zeros, false);
        let expected = tensor_of(DType::F32, &[2, 3, 2, 3, 2], &expected);
        assert_close(&evaluate_one(op, &[x, grid]), &expected, 64);
    }

    #[test]
    fn shapes_follow_the_grid() {
        let op = sampler(GridMode::Linear, GridPadding::Zeros, false);
        let x = symbolic(DType::F32, &["B", "C", "H", "W"]);
        let of = |dims: &[&str]| op.infer(&[x.clone(), symbolic(DType::F32, dims)]);
        let expected = symbolic(DType::F32, &["B", "C", "P", "Q"]);
        assert_eq!(of(&["B", "P", "Q", "2"]), Ok(vec![expected]));
        assert!(matches!(of(&["A", "P", "Q", "2"]), Err(TypeError::Mismatch { .. })));
        assert!(of(&["B", "P", "Q", "3"]).is_err());
        assert!(of(&["B", "P", "2"]).is_err());
        let integer = symbolic(DType::I32, &["B", "P", "Q", "2"]);
        assert!(op.infer(&[x.clone(), integer]).is_err());
    }
}
