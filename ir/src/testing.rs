//! What the tests of every crate share: seeded random tensors and numeric comparison. Never used
//! by the product.

mod random_graph;

pub use random_graph::{random_graph, random_inputs};

use crate::dim::{Bindings, Dim};
use crate::dtype::{DType, DTypeClass};
use crate::element::{Element, Number};
use crate::graph::{Graph, NodeKind, Stage};
use crate::interp::Interpreter;
use crate::ops::Op;
use crate::schedule::{Buffer, BufferId, Region};
use crate::tensor::Tensor;
use crate::topology::MemoryId;
use crate::types::{ConcreteType, TensorType};
use std::fmt;

/// A seeded source of numbers, the same on every machine (SplitMix64; Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A source that depends on the seed alone.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number in `0..1`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An integer in `lo..=hi`.
    pub fn integer(&mut self, lo: i64, hi: i64) -> i64 {
        let span = (i128::from(hi) - i128::from(lo) + 1) as u128;
        (i128::from(lo) + (u128::from(self.bits()) % span) as i128) as i64
    }

    /// A tensor: floats in `-1..1`; integers from -8 (unsigned: 0) to 7; truth values.
    ///
    /// # Panics
    /// If the shape is impossible.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        match dtype.class() {
            DTypeClass::Float => self.floats(dtype, shape, -1.0, 1.0),
            DTypeClass::Signed => self.integers(dtype, shape, -8, 7),
            DTypeClass::Unsigned => self.integers(dtype, shape, 0, 7),
            DTypeClass::Bool => self.integers(dtype, shape, 0, 1),
        }
    }

    /// A tensor of numbers in `lo..hi`, rounded to the type.
    ///
    /// # Panics
    /// If the shape is impossible.
    pub fn floats(&mut self, dtype: DType, shape: &[usize], lo: f64, hi: f64) -> Tensor {
        self.fill(dtype, shape, |random| Number::Float(lo + (hi - lo) * random.unit()))
    }

    /// A tensor of integers in `lo..=hi`, wrapped to the type.
    ///
    /// # Panics
    /// If the shape is impossible.
    pub fn integers(&mut self, dtype: DType, shape: &[usize], lo: i64, hi: i64) -> Tensor {
        self.fill(dtype, shape, |random| Number::Signed(random.integer(lo, hi)))
    }

    fn fill(
        &mut self,
        dtype: DType,
        shape: &[usize],
        number: impl Fn(&mut Random) -> Number,
    ) -> Tensor {
        let mut tensor = Tensor::zeros(concrete(dtype, shape));
        for index in 0..tensor.elements() {
            tensor.set(index, number(self));
        }
        tensor
    }
}

/// A tensor from its elements.
///
/// # Panics
/// If there are not as many as the shape asks for.
pub fn tensor<T: Element>(shape: &[usize], elements: &[T]) -> Tensor {
    match Tensor::from_elements(shape, elements) {
        Ok(tensor) => tensor,
        Err(error) => panic!("{error}"),
    }
}

/// A tensor of that type from numbers, rounded.
///
/// # Panics
/// If there are not as many as the shape asks for.
pub fn tensor_of(dtype: DType, shape: &[usize], numbers: &[f64]) -> Tensor {
    let numbers = numbers.iter().map(|x| Number::Float(*x));
    match Tensor::from_numbers(concrete(dtype, shape), numbers) {
        Ok(tensor) => tensor,
        Err(error) => panic!("{error}"),
    }
}

/// A tensor of that type whose elements are computed from their coordinates, rounded.
///
/// # Panics
/// If the shape is impossible.
pub fn tabulate(dtype: DType, shape: &[usize], element: impl Fn(&[usize]) -> Number) -> Tensor {
    let mut tensor = Tensor::zeros(concrete(dtype, shape));
    for place in 0..tensor.elements() {
        let mut rest = place;
        let mut index = vec![0; shape.len()];
        for (coordinate, extent) in index.iter_mut().zip(shape).rev() {
            *coordinate = rest % extent;
            rest /= extent;
        }
        tensor.set(place, element(&index));
    }
    tensor
}

/// The element at coordinates; `None` where one of them is outside.
pub fn element(tensor: &Tensor, index: &[i64]) -> Option<Number> {
    let mut place = 0;
    for (coordinate, extent) in index.iter().zip(tensor.shape()) {
        let coordinate = usize::try_from(*coordinate).ok().filter(|c| c < extent)?;
        place = place * extent + coordinate;
    }
    Some(tensor.get(place))
}

/// The elements as `f64`.
pub fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.numbers().map(Number::to_float).collect()
}

/// A tensor type from words such as `"B"`, `"12"`: digits are constants, all else symbols.
pub fn symbolic(dtype: DType, dims: &[&str]) -> TensorType {
    let dim = |word: &&str| word.parse::<i64>().map_or_else(|_| Dim::symbol(word), Dim::from);
    TensorType::new(dtype, dims.iter().map(dim).collect::<Vec<_>>())
}

/// Gives every value but weights a region of its own, at the upper ends of all ranges, and
/// schedules the nodes in topological order. Values that have a region keep it.
///
/// # Panics
/// If a shape is impossible.
pub fn plan(mut graph: Graph) -> Graph {
    let upper: Bindings =
        graph.symbols.iter().map(|(s, range)| (s.clone(), range.hi.unwrap_or(64))).collect();
    let order = graph.order();
    let mut offset = 0u64;
    let buffer = BufferId(1_000);
    for id in &order {
        if matches!(graph.node(*id).kind, NodeKind::Weight(_)) {
            continue;
        }
        for value in graph.node(*id).outputs().to_vec() {
            if graph.value(value).region.is_some() {
                continue;
            }
            let bytes = graph
                .ty(value)
                .concrete(&upper)
                .map_or_else(|error| panic!("{error}"), |ty| ty.byte_len() as u64);
            graph.value_mut(value).region = Some(Region::contiguous(buffer, offset, bytes));
            offset = (offset + bytes).next_multiple_of(64);
        }
    }
    graph.buffers.insert(buffer, Buffer { bytes: offset, memory: MemoryId(0) });
    graph.schedule = order;
    graph.stage = Stage::Scheduled;
    graph
}

/// Evaluates an operator by its meaning.
///
/// # Panics
/// If it fails; the message is the error's.
pub fn evaluate(op: impl Into<Op>, operands: &[Tensor]) -> Vec<Tensor> {
    match Interpreter::default().evaluate(&op.into(), operands) {
        Ok(results) => results,
        Err(error) => panic!("{error}"),
    }
}

/// Evaluates an operator that has one result.
///
/// # Panics
/// As [`evaluate`].
pub fn evaluate_one(op: impl Into<Op>, operands: &[Tensor]) -> Tensor {
    evaluate(op, operands).swap_remove(0)
}

fn concrete(dtype: DType, shape: &[usize]) -> ConcreteType {
    match ConcreteType::new(dtype, shape.to_vec()) {
        Ok(ty) => ty,
        Err(error) => panic!("{error}"),
    }
}

/// How far a result may be from its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Bound of ‖out − ref‖ / ‖ref‖.
    pub norm: f64,
    /// Bound of |out − ref| for each element, as a fraction of |ref| plus the root mean square of
    /// the reference (which stands for the magnitude of what was added up).
    pub element: f64,
}

impl Tolerance {
    /// No difference at all; NaN equals NaN.
    pub const EXACT: Tolerance = Tolerance { norm: 0.0, element: 0.0 };

    /// The tolerance for a result of `dtype` whose elements each come from `length` added terms
    /// (1 for elementwise functions). Integers and truth values are exact.
    ///
    /// Rounding the result costs one unit roundoff of `dtype`, and independent errors of `length`
    /// additions in the compute type grow as the square root.
    pub fn of(dtype: DType, length: usize) -> Tolerance {
        if !dtype.is_float() {
            return Tolerance::EXACT;
        }
        let additions = (length.max(1) as f64).sqrt() * roundoff(dtype.compute());
        let bound = roundoff(dtype) + additions;
        Tolerance { norm: 4.0 * bound, element: 16.0 * bound }
    }
}

/// Half the distance from 1 to the next greater number of a float type.
fn roundoff(dtype: DType) -> f64 {
    let bits = match dtype {
        DType::F32 => 24,
        DType::F16 => 11,
        DType::Bf16 => 8,
        DType::F8E4m3fn => 4,
        DType::F8E5m2 => 3,
        _ => 53,
    };
    libm::scalbn(1.0, -bits)
}

/// How two tensors differ.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// Their types.
    Type {
        /// Of the result.
        found: ConcreteType,
        /// Of the reference.
        expected: ConcreteType,
    },
    /// An element, beyond its tolerance.
    Element {
        /// Row-major index of the worst element.
        index: usize,
        /// In the result.
        found: f64,
        /// In the reference.
        expected: f64,
        /// How many elements are beyond tolerance.
        count: usize,
    },
    /// The whole, beyond tolerance.
    Norm {
        /// ‖out − ref‖ / ‖ref‖.
        found: f64,
        /// Its bound.
        limit: f64,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Type { found, expected } => write!(f, "{found}, expected {expected}"),
            Difference::Element { index, found, expected, count } => write!(
                f,
                "element {index} is {found}, expected {expected}; {count} elements are off"
            ),
            Difference::Norm { found, limit } => {
                write!(f, "relative norm of the difference {found:e}, limit {limit:e}")
            }
        }
    }
}

/// Compares a result with its reference. Non-finite elements must be the same (any NaN is the
/// same as any other).
///
/// # Errors
/// The first of type, elements, norm that differs.
pub fn compare(found: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<(), Difference> {
    if found.ty() != expected.ty() {
        return Err(Difference::Type {
            found: found.ty().clone(),
            expected: expected.ty().clone(),
        });
    }
    if found.bytes() == expected.bytes() {
        return Ok(());
    }
    let (mut squares, mut reference, mut finite) = (0.0, 0.0, 0usize);
    for (x, y) in found.numbers().zip(expected.numbers()) {
        let (x, y) = (x.to_float(), y.to_float());
        if x.is_finite() && y.is_finite() {
            squares += (x - y) * (x - y);
            reference += y * y;
            finite += 1;
        }
    }
    let magnitude = (reference / finite.max(1) as f64).sqrt();
    let mut worst: Option<(f64, usize, f64, f64)> = None;
    let mut count = 0;
    for (index, (a, b)) in found.numbers().zip(expected.numbers()).enumerate() {
        let (x, y) = (a.to_float(), b.to_float());
        let excess = if x.is_finite() && y.is_finite() && a != b {
            // Beyond 2^53 two integers may differ and their nearest f64 not.
            let difference = (x - y).abs().max(f64::MIN_POSITIVE);
            difference - tolerance.element * (y.abs() + magnitude)
        } else if a == b || (x.is_nan() && y.is_nan()) {
            continue;
        } else {
            f64::INFINITY
        };
        if excess > 0.0 {
            count += 1;
            if worst.is_none_or(|(most, ..)| excess > most) {
                worst = Some((excess, index, x, y));
            }
        }
    }
    if let Some((_, index, found, expected)) = worst {
        return Err(Difference::Element { index, found, expected, count });
    }
    let norm = if squares == 0.0 { 0.0 } else { (squares / reference).sqrt() };
    if norm > tolerance.norm {
        return Err(Difference::Norm { found: norm, limit: tolerance.norm });
    }
    Ok(())
}

/// Fails the test unless a result is within [`Tolerance::of`] its type and `length`.
///
/// # Panics
/// If it is not; the message says how they differ.
#[track_caller]
pub fn assert_close(found: &Tensor, expected: &Tensor, length: usize) {
    if let Err(difference) = compare(found, expected, Tolerance::of(expected.dtype(), length)) {
        panic!("{difference}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_sees_what_it_must() {
        let a = tensor(&[3], &[1f32, f32::NAN, f32::INFINITY]);
        let close = tensor(&[3], &[1.000_000_1f32, f32::NAN, f32::INFINITY]);
        let off = tensor(&[3], &[1.001f32, f32::NAN, f32::INFINITY]);
        let sign = tensor(&[3], &[1f32, f32::NAN, f32::NEG_INFINITY]);
        let tolerance = Tolerance::of(DType::F32, 1);
        assert_eq!(compare(&close, &a, tolerance), Ok(()));
        assert!(matches!(compare(&off, &a, tolerance), Err(Difference::Element { index: 0, .. })));
        assert!(matches!(compare(&sign, &a, tolerance), Err(Difference::Element { index: 2, .. })));
        assert!(compare(&a, &tensor(&[3], &[1f64; 3]), tolerance).is_err());
        assert!(compare(&close, &a, Tolerance::EXACT).is_err());
    }

    #[test]
    fn large_integers_are_compared_exactly() {
        let a = tensor(&[1], &[i64::MAX]);
        let b = tensor(&[1], &[i64::MAX - 1]);
        assert!(compare(&a, &b, Tolerance::of(DType::I64, 1)).is_err());
    }

    #[test]
    fn many_small_errors_fail_the_norm() {
        let reference = tensor(&[64], &[1f32; 64]);
        let found = tensor(&[64], &[1f32 + 1e-6; 64]);
        let tolerance = Tolerance { norm: 1e-7, element: 1e-5 };
        assert!(matches!(compare(&found, &reference, tolerance), Err(Difference::Norm { .. })));
    }

    #[test]
    fn random_tensors_depend_on_the_seed_alone() {
        let a = Random::new(7).tensor(DType::F16, &[3, 5]);
        assert_eq!(a, Random::new(7).tensor(DType::F16, &[3, 5]));
        assert_ne!(a, Random::new(8).tensor(DType::F16, &[3, 5]));
        assert!(floats(&a).iter().all(|x| x.abs() <= 1.0));
    }
}
