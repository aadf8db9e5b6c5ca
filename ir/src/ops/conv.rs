//! `conv`: its attributes, inference and meaning; nothing of any other operator.

use super::values::{floats, integers, store};
use super::window::Window;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;
use std::num::Wrapping;
use std::ops::{Add, Mul};

operator! {
    /// Convolution in 1, 2, 3 … spatial dimensions; products add up in f32 or wider.
    ///
    /// Operands: x `[N, C, D…]`, weights `[M, C / groups, K…]` and, if `bias`, bias `[M]`; result:
    /// `[N, M, …]`. Integers (i8, u8, i32, any mix) give i32. Lists have one item a spatial
    /// dimension.
    Conv {
        /// Steps of the window.
        strides: Vec<i64>,
        /// Steps inside the window.
        dilations: Vec<i64>,
        /// Zeros before each spatial dimension.
        before: Vec<i64>,
        /// Zeros after it.
        after: Vec<i64>,
        /// Groups of channels.
        groups: i64,
        /// Whether there is a bias.
        bias: bool,
    }
}

impl OpDef for Conv {
    const MNEMONIC: &'static str = "conv";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let (x, weights) = if self.bias {
            let [x, weights, _] = check::arity(operands)?;
            (x, weights)
        } else {
            let [x, weights] = check::arity(operands)?;
            (x, weights)
        };
        check::rank_at_least(operands, 0, 3)?;
        check::rank(operands, 1, x.rank())?;
        let dtype = self.result_dtype(operands)?;
        let window = self.window();
        window.check(x.rank() - 2)?;
        window.check_padding()?;
        let groups = check_groups(self.groups)?;
        let channels = weights.shape[1].clone() * groups.clone();
        check::equal(&x.shape[1], &channels, "channels of the operand and of all groups")?;
        check_divisible(&weights.shape[0], &groups)?;
        let mut shape = vec![x.shape[0].clone(), weights.shape[0].clone()];
        for (axis, (extent, kernel)) in x.shape[2..].iter().zip(&weights.shape[2..]).enumerate() {
            shape.push(window.count(axis, extent, kernel, false)?);
        }
        let result = TensorType::new(dtype, shape);
        if self.bias {
            check_bias(operands, &result)?;
        }
        Ok(vec![result])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        let [_, weights, ..] = operands else { return Dim::ZERO };
        let taps: Dim = weights.shape[1..].iter().cloned().product();
        Dim::from(2) * taps * outputs[0].elements()
    }
}

fn evaluate(op: &Conv, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let ty = &evaluation.outputs[0];
    if ty.dtype.is_float() {
        let operands: Vec<Vec<f64>> = evaluation.operands.iter().map(floats).collect();
        let result = convolve(op, evaluation, &operands);
        return Ok(vec![store(ty, &result)?]);
    }
    let wrapping = |tensor| integers(tensor).into_iter().map(|x| Wrapping(x as i64)).collect();
    let operands: Vec<Vec<Wrapping<i64>>> = evaluation.operands.iter().map(wrapping).collect();
    let result = convolve(op, evaluation, &operands);
    let result: Vec<i32> = result.into_iter().map(|x| x.0 as i32).collect();
    Ok(vec![Tensor::from_elements(&ty.shape, &result)?])
}

/// How many windows are gathered before the weights pass over them: enough to use each weight
/// often while it is in cache.
const WINDOWS: usize = 32;

/// The convolution of operands already read, in the type in which products add up.
fn convolve<A: Accumulator>(op: &Conv, evaluation: &Evaluation<'_>, operands: &[Vec<A>]) -> Vec<A> {
    let (x, weights) = (&operands[0], &operands[1]);
    let x_shape = evaluation.operands[0].shape();
    let weights_shape = evaluation.operands[1].shape();
    let (spatial, kernel) = (&x_shape[2..], &weights_shape[2..]);
    let counts = &evaluation.outputs[0].shape[2..];
    let [area, places] = [spatial, counts].map(|shape| shape.iter().product::<usize>());
    let (channels, features) = (x_shape[1], weights_shape[0]);
    let group_features = features / op.groups as usize;
    let group_channels = weights_shape[1];
    let length: usize = weights_shape[1..].iter().product();
    let mut result = biased(operands.get(2), x_shape[0], features, places);
    let window = op.window();
    let sweep = window.sweep(spatial, kernel, counts);
    // Where nothing adds up, the shapes of windows and places are backed by no memory.
    if length == 0 || result.is_empty() {
        return result;
    }
    let mut patches = Vec::with_capacity(WINDOWS * length);
    for first in (0..places).step_by(WINDOWS) {
        let last = places.min(first + WINDOWS);
        let taps: Vec<_> = (first..last).map(|place| sweep.taps(place)).collect();
        for (batch, feature) in blocks(x_shape[0], features, group_features) {
            let group = feature / group_features;
            patches.clear();
            for taps in &taps {
                for channel in group * group_channels..(group + 1) * group_channels {
                    let line = &x[(batch * channels + channel) * area..][..area];
                    patches.extend(taps.iter().map(|tap| tap.map_or(A::default(), |t| line[t])));
                }
            }
            for feature in feature..feature + group_features {
                let row = &weights[feature * length..][..length];
                let results = &mut result[(batch * features + feature) * places..][first..last];
                for (sum, patch) in results.iter_mut().zip(patches.chunks_exact(length)) {
                    *sum = *sum + dot(row, patch);
                }
            }
        }
    }
    result
}

/// A type in which products add up.
pub(super) trait Accumulator:
    Copy + Default + Add<Output = Self> + Mul<Output = Self>
{
}

impl<T: Copy + Default + Add<Output = T> + Mul<Output = T>> Accumulator for T {}

/// Each batch with the first feature of each group.
pub(super) fn blocks(
    batches: usize,
    features: usize,
    group_features: usize,
) -> impl Iterator<Item = (usize, usize)> {
    (0..batches).flat_map(move |batch| {
        (0..features).step_by(group_features.max(1)).map(move |feature| (batch, feature))
    })
}

/// Results `[batches, features, places]` that hold the bias so far.
pub(super) fn biased<A: Accumulator>(
    bias: Option<&Vec<A>>,
    batches: usize,
    features: usize,
    places: usize,
) -> Vec<A> {
    let mut result = vec![A::default(); batches * features * places];
    if let Some(bias) = bias {
        for (line, bias) in result.chunks_exact_mut(places.max(1)).zip(bias.iter().cycle()) {
            line.fill(*bias);
        }
    }
    result
}

/// The sum of products of two lists of equal length. Four partial sums let the processor overlap
/// the additions.
pub(super) fn dot<A: Accumulator>(a: &[A], b: &[A]) -> A {
    let mut sums = [A::default(); 4];
    let (a, b) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    for (a, b) in a.0.iter().zip(b.0) {
        for i in 0..4 {
            sums[i] = sums[i] + a[i] * b[i];
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a.1.iter().zip(b.1)) {
        *sum = *sum + *a * *b;
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

impl Conv {
    fn window(&self) -> Window<'_> {
        Window {
            strides: &self.strides,
            dilations: &self.dilations,
            before: &self.before,
            after: &self.after,
        }
    }

    /// Floats stay what they are; integers give i32.
    fn result_dtype(&self, operands: &[TensorType]) -> Result<DType, TypeError> {
        let integer = |dtype| matches!(dtype, DType::I8 | DType::U8 | DType::I32);
        let expected = "a floating-point type, i8, u8 or i32";
        let x = check::dtype(operands, 0, expected, |dtype| dtype.is_float() || integer(dtype))?;
        if x.is_float() {
            check::dtype_is(operands, 1, x)?;
            return Ok(x);
        }
        check::dtype(operands, 1, "i8, u8 or i32", integer)?;
        Ok(DType::I32)
    }
}

/// There is at least one group.
pub(super) fn check_groups(groups: i64) -> Result<Dim, TypeError> {
    if groups < 1 {
        return Err(TypeError::invalid(format!("{groups} groups, expected at least 1")));
    }
    Ok(Dim::from(groups))
}

/// The groups share the channels evenly, as far as is known.
pub(super) fn check_divisible(channels: &Dim, groups: &Dim) -> Result<(), TypeError> {
    match channels.modulo(groups).and_then(|rest| rest.as_constant()) {
        Some(rest) if rest != 0 => {
            Err(TypeError::invalid(format!("{channels} channels in {groups} groups")))
        }
        _ => Ok(()),
    }
}

/// Operand 2 is a bias for the result's channels.
pub(super) fn check_bias(operands: &[TensorType], result: &TensorType) -> Result<(), TypeError> {
    check::dtype_is(operands, 2, result.dtype)?;
    check::rank(operands, 2, 1)?;
    check::equal(&operands[2].shape[0], &result.shape[1], "bias and channels of the result")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, element, evaluate_one, symbolic, tabulate};
    use crate::{Number, Tensor};

    /// The definition, with two spatial dimensions.
    fn by_definition(op: &Conv, x: &Tensor, weights: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let [channels, rows, columns] = [1, 2, 3].map(|axis| weights.shape()[axis] as i64);
        let group = weights.shape()[0] / op.groups as usize;
        let types = [x, weights].map(|t| crate::interp::static_type(t.ty()));
        let plain = Conv { bias: false, ..op.clone() };
        let shape = plain.infer(&types).ok().and_then(|types| types[0].static_shape());
        let dtype = if x.dtype().is_float() { x.dtype() } else { DType::I32 };
        tabulate(dtype, &shape.unwrap_or_default(), |index| {
            let [batch, feature, row, column] = [0, 1, 2, 3].map(|axis| index[axis] as i64);
            let mut sum = bias.map_or(0.0, |bias| bias.get(feature as usize).to_float());
            for c in 0..channels {
                for i in 0..rows {
                    for j in 0..columns {
                        let channel = feature / group as i64 * channels + c;
                        let row = row * op.strides[0] + i * op.dilations[0] - op.before[0];
                        let column = column * op.strides[1] + j * op.dilations[1] - op.before[1];
                        let x = element(x, &[batch, channel, row, column]);
                        let weight = element(weights, &[feature, c, i, j]);
                        let product = x.zip(weight).map(|(x, w)| x.to_float() * w.to_float());
                        sum += product.unwrap_or(0.0);
                    }
                }
            }
            Number::Float(sum)
        })
    }

    fn conv(steps: [i64; 8], groups: i64, bias: bool) -> Conv {
        let pair = |i: usize| steps[i..i + 2].to_vec();
        Conv { strides: pair(0), dilations: pair(2), before: pair(4), after: pair(6), groups, bias }
    }

    #[test]
    fn convolutions_follow_the_definition() {
        let mut random = Random::new(21);
        for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
            for (steps, groups) in [
                ([1, 1, 1, 1, 0, 0, 0, 0], 1),
                ([2, 1, 1, 2, 1, 2, 0, 1], 1),
                ([1, 3, 2, 1, 2, 0, 2, 1], 2),
                ([2, 2, 1, 1, 1, 1, 1, 1], 6),
            ] {
                let x = random.tensor(dtype, &[2, 6, 9, 7]);
                let weights = random.tensor(dtype, &[12, 6 / groups as usize, 3, 2]);
                let bias = random.tensor(dtype, &[12]);
                let op = conv(steps, groups, true);
                let expected = by_definition(&op, &x, &weights, Some(&bias));
                assert_close(&evaluate_one(op, &[x, weights, bias]), &expected, 36);
            }
        }
    }

    #[test]
    fn integers_are_exact_in_i32() {
        let mut random = Random::new(22);
        for (left, right) in
            [(DType::U8, DType::I8), (DType::I8, DType::I8), (DType::I32, DType::U8)]
        {
            let x = random.integers(left, &[1, 3, 5, 6], 0, 127);
            let weights = random.integers(right, &[4, 3, 3, 3], 0, 127);
            let op = conv([1, 1, 1, 1, 1, 1, 1, 1], 1, false);
            let expected = by_definition(&op, &x, &weights, None);
            assert_eq!(evaluate_one(op, &[x, weights]), expected);
        }
    }

    #[test]
    fn one_and_three_dimensions_agree_with_two() {
        let mut random = Random::new(23);
        let x = random.tensor(DType::F32, &[2, 3, 10]);
        let weights = random.tensor(DType::F32, &[5, 3, 4]);
        let wide = conv([1, 2, 1, 2, 0, 1, 0, 3], 1, false);
        let shaped = |t: &Tensor, shape: &[usize]| t.reshaped(shape).unwrap_or_else(|_| t.clone());
        let operands = [shaped(&x, &[2, 3, 1, 10]), shaped(&weights, &[5, 3, 1, 4])];
        let expected = evaluate_one(wide.clone(), &operands);
        let last = |list: &[i64]| vec![list[1]];
        let line = Conv {
            strides: last(&wide.strides),
            dilations: last(&wide.dilations),
            before: last(&wide.before),
            after: last(&wide.after),
            ..wide.clone()
        };
        let result = evaluate_one(line, &[x, weights]);
        assert_eq!(result.bytes(), expected.bytes());
        let deep = |list: &[i64], first: i64| vec![first, list[0], list[1]];
        let volume = Conv {
            strides: deep(&wide.strides, 1),
            dilations: deep(&wide.dilations, 1),
            before: deep(&wide.before, 0),
            after: deep(&wide.after, 0),
            ..wide
        };
        let operands =
            [shaped(&operands[0], &[2, 3, 1, 1, 10]), shaped(&operands[1], &[5, 3, 1, 1, 4])];
        assert_eq!(evaluate_one(volume, &operands).bytes(), expected.bytes());
    }

    #[test]
    fn shapes_follow_symbols_and_misfits_are_reported() {
        let x = symbolic(DType::F32, &["B", "4", "H", "W"]);
        let op = conv([2, 1, 1, 1, 1, 1, 1, 1], 2, false);
        let of = |weights: &[&str]| op.infer(&[x.clone(), symbolic(DType::F32, weights)]);
        let half = (Dim::symbol("H") + Dim::ONE).floor_div(&Dim::from(2));
        let rows = half.unwrap_or(Dim::ZERO);
        let shape = vec![Dim::symbol("B"), Dim::from(6), rows, Dim::symbol("W")];
        assert_eq!(of(&["6", "2", "3", "3"]), Ok(vec![TensorType::new(DType::F32, shape)]));
        assert!(matches!(of(&["6", "4", "3", "3"]), Err(TypeError::Mismatch { .. })));
        assert!(of(&["5", "2", "3", "3"]).is_err());
        assert!(of(&["6", "2", "3"]).is_err());
        let small = TensorType::fixed(DType::F32, &[1, 4, 1, 9]);
        assert!(op.infer(&[small, TensorType::fixed(DType::F32, &[6, 2, 4, 3])]).is_err());
        let mixed = symbolic(DType::F16, &["6", "2", "3", "3"]);
        assert!(matches!(op.infer(&[x, mixed]), Err(TypeError::DType { operand: 1, .. })));
    }

    #[test]
    fn operations_are_two_for_each_product() {
        let types = [[1, 4, 8, 8], [6, 2, 3, 3]].map(|s| TensorType::fixed(DType::F32, &s));
        let op = conv([1, 1, 1, 1, 1, 1, 1, 1], 2, false);
        let outputs = op.infer(&types).unwrap_or_default();
        assert_eq!(op.operations(&types, &outputs), Dim::from(2 * (6 * 64) * (2 * 9)));
    }
}
