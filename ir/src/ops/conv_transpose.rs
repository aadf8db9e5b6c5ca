//! `conv_transpose`: its attributes, inference and meaning; nothing of any other operator.

use super::conv::{biased, blocks, check_bias, check_divisible, check_groups, dot};
use super::values::{floats, store};
use super::window::Window;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::tensor::Tensor;
use crate::types::TensorType;

operator! {
    /// Transposed convolution; products add up in f32 or wider. (ONNX ConvTranspose)
    ///
    /// Operands: x `[N, C, D…]`, weights `[C, M / groups, K…]` and, if `bias`, bias `[M]`; result:
    /// `[N, M, …]`, each spatial dimension
    /// `stride * (D - 1) + output_padding + (K - 1) * dilation + 1 - before - after`. `before` and
    /// `after` may be negative.
    ConvTranspose {
        /// Steps of the window.
        strides: Vec<i64>,
        /// Steps inside the window.
        dilations: Vec<i64>,
        /// Elements cut off before each spatial dimension.
        before: Vec<i64>,
        /// Elements cut off after it.
        after: Vec<i64>,
        /// Elements added at the end.
        output_padding: Vec<i64>,
        /// Groups of channels.
        groups: i64,
        /// Whether there is a bias.
        bias: bool,
    }
}

impl OpDef for ConvTranspose {
    const MNEMONIC: &'static str = "conv_transpose";

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
        let dtype = check::dtype(operands, 0, "a floating-point type", DType::is_float)?;
        check::dtype_is(operands, 1, dtype)?;
        let window = self.window();
        window.check(x.rank() - 2)?;
        check::length("output_padding", self.output_padding.len(), x.rank() - 2)?;
        if let Some(amount) = self.output_padding.iter().find(|amount| **amount < 0) {
            return Err(TypeError::invalid(format!("an output padding of {amount}")));
        }
        let groups = check_groups(self.groups)?;
        check::equal(&x.shape[1], &weights.shape[0], "channels of the operand and the weights")?;
        check_divisible(&x.shape[1], &groups)?;
        let mut shape = vec![x.shape[0].clone(), weights.shape[1].clone() * groups];
        for (axis, (extent, kernel)) in x.shape[2..].iter().zip(&weights.shape[2..]).enumerate() {
            let [stride, added, before, after] = [
                self.strides[axis],
                self.output_padding[axis],
                self.before[axis],
                self.after[axis],
            ]
            .map(Dim::from);
            let whole = (extent.clone() - Dim::ONE) * stride + window.reach(axis, kernel);
            let size = whole + added - before - after;
            check::not_negative(&size, "a spatial dimension of the result")?;
            shape.push(size);
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

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        let [x, weights, ..] = operands else { return Dim::ZERO };
        let taps: Dim = weights.shape[1..].iter().cloned().product();
        Dim::from(2) * taps * x.elements()
    }
}

fn evaluate(op: &ConvTranspose, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let ty = &evaluation.outputs[0];
    let operands: Vec<Vec<f64>> = evaluation.operands.iter().map(floats).collect();
    let (x, weights) = (&operands[0], &operands[1]);
    let x_shape = evaluation.operands[0].shape();
    let weights_shape = evaluation.operands[1].shape();
    let (counts, kernel, spatial) = (&x_shape[2..], &weights_shape[2..], &ty.shape[2..]);
    let [area, places, taps] =
        [counts, spatial, kernel].map(|shape| shape.iter().product::<usize>());
    let (channels, features) = (x_shape[1], ty.shape[1]);
    let (group_features, group_channels) = (weights_shape[1], channels / op.groups as usize);
    let mut result = biased(operands.get(2), x_shape[0], features, places);
    // Where nothing adds up, the shape of the window is backed by no memory.
    if channels == 0 || result.is_empty() {
        return Ok(vec![store(ty, &result)?]);
    }
    // The innermost sum is over channels: weights are turned to [M, K…, C / groups].
    let turned: Vec<f64> = (0..features * taps * group_channels)
        .map(|i| {
            let (rest, channel) = (i / group_channels, i % group_channels);
            let (feature, tap) = (rest / taps, rest % taps);
            let (group, feature) = (feature / group_features, feature % group_features);
            let channel = group * group_channels + channel;
            weights[(channel * group_features + feature) * taps + tap]
        })
        .collect();
    // Each element of the operand is a window over the result, into which it adds.
    let window = op.window();
    let sweep = window.sweep(spatial, kernel, counts);
    for place in 0..area {
        let targets = sweep.taps(place);
        for (batch, feature) in blocks(x_shape[0], features, group_features) {
            let first = batch * channels + feature / group_features * group_channels;
            let column: Vec<f64> =
                (first..first + group_channels).map(|channel| x[channel * area + place]).collect();
            for feature in feature..feature + group_features {
                let line = &mut result[(batch * features + feature) * places..][..places];
                for (tap, target) in targets.iter().enumerate() {
                    if let Some(target) = target {
                        let row = &turned[(feature * taps + tap) * group_channels..];
                        line[*target] += dot(&row[..group_channels], &column);
                    }
                }
            }
        }
    }
    Ok(vec![store(ty, &result)?])
}

impl ConvTranspose {
    fn window(&self) -> Window<'_> {
        Window {
            strides: &self.strides,
            dilations: &self.dilations,
            before: &self.before,
            after: &self.after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, evaluate_one, symbolic, tensor_of};

    #[test]
    fn each_element_spreads_over_its_window() {
        let mut random = Random::new(24);
        for dtype in [DType::F32, DType::F64, DType::F16] {
            for (stride, dilation, before, after, added, groups) in [
                (1, 1, 0, 0, 0, 1),
                (2, 1, 1, 0, 1, 1),
                (3, 2, 1, 2, 2, 2),
                (2, 1, -1, 0, 0, 1),
                (1, 2, 2, -2, 0, 4),
            ] {
                let (channels, group_features, kernel, extent) = (4, 3, 3, 5);
                let features = group_features * groups;
                let x = random.tensor(dtype, &[2, channels, extent, 1]);
                let weights = random.tensor(dtype, &[channels, group_features, kernel, 2]);
                let bias = random.tensor(dtype, &[features]);
                let reach = (kernel as i64 - 1) * dilation + 1;
                let size = stride * (extent as i64 - 1) + added + reach - before - after;
                let size = size as usize;
                let mut sums = vec![0.0; 2 * features * size * 2];
                for (place, sum) in sums.iter_mut().enumerate() {
                    *sum = bias.get(place / 2 / size % features).to_float();
                }
                for batch in 0..2 {
                    for channel in 0..channels {
                        let group = channel / (channels / groups);
                        for (i, f, k) in (0..extent * group_features * kernel).map(|n| {
                            let (rest, k) = (n / kernel, n % kernel);
                            (rest / group_features, rest % group_features, k)
                        }) {
                            let row = i as i64 * stride + k as i64 * dilation - before;
                            if !(0..size as i64).contains(&row) {
                                continue;
                            }
                            let x = x.get((batch * channels + channel) * extent + i).to_float();
                            let feature = batch * features + group * group_features + f;
                            for column in 0..2 {
                                let at = ((channel * group_features + f) * kernel + k) * 2 + column;
                                sums[(feature * size + row as usize) * 2 + column] +=
                                    x * weights.get(at).to_float();
                            }
                        }
                    }
                }
                let op = ConvTranspose {
                    strides: vec![stride, 1],
                    dilations: vec![dilation, 1],
                    before: vec![before, 0],
                    after: vec![after, 0],
                    output_padding: vec![added, 0],
                    groups: groups as i64,
                    bias: true,
                };
                let expected = tensor_of(dtype, &[2, features, size, 2], &sums);
                assert_close(&evaluate_one(op, &[x, weights, bias]), &expected, 12);
            }
        }
    }

    #[test]
    fn shapes_follow_symbols_and_misfits_are_reported() {
        let op = ConvTranspose {
            strides: vec![2],
            dilations: vec![1],
            before: vec![1],
            after: vec![1],
            output_padding: vec![0],
            groups: 1,
            bias: false,
        };
        let x = symbolic(DType::F32, &["B", "8", "L"]);
        let of = |op: &ConvTranspose, weights: &[&str]| {
            op.infer(&[x.clone(), symbolic(DType::F32, weights)])
        };
        let length = Dim::from(2) * Dim::symbol("L");
        let shape = vec![Dim::symbol("B"), Dim::from(3), length];
        assert_eq!(of(&op, &["8", "3", "4"]), Ok(vec![TensorType::new(DType::F32, shape)]));
        assert!(matches!(of(&op, &["4", "3", "4"]), Err(TypeError::Mismatch { .. })));
        assert!(of(&ConvTranspose { groups: 3, ..op.clone() }, &["8", "3", "4"]).is_err());
        assert!(
            of(&ConvTranspose { output_padding: vec![-1], ..op.clone() }, &["8", "3", "4"])
                .is_err()
        );
        let one = TensorType::fixed(DType::F32, &[1, 8, 1]);
        let cut = ConvTranspose { before: vec![9], ..op };
        assert!(cut.infer(&[one, TensorType::fixed(DType::F32, &[8, 3, 4])]).is_err());
    }
}
