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
                for (sum, patch) in results.iter_mut().zip(patches.chunks_exact(length.max(1))) {
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
