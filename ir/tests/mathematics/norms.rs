//! Softmax and the normalisations, against direct formulas.

use crate::{check_symbolic, refuse};
use membar_ir::attribute::Float;
use membar_ir::ops::{
    BatchNorm, GroupNorm, LayerNorm, LocalResponseNorm, LogSoftmax, RmsNorm, Softmax,
};
use membar_ir::testing::{Random, assert_close, evaluate_one, floats, tensor, tensor_of};
use membar_ir::{Axis, DType};

const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];

/// Mean and variance.
fn moments(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64)
}

#[test]
fn softmax_matches_its_formula_and_sums_to_one() {
    for dtype in DTYPES {
        let x = Random::new(2).floats(dtype, &[3, 5, 7], -8.0, 8.0);
        let data = floats(&x);
        for axis in 0..3u32 {
            let (extent, inner) = ([3, 5, 7][axis as usize], [35, 7, 1][axis as usize]);
            let at =
                |position: usize| position / (extent * inner) * extent * inner + position % inner;
            let sum = |position: usize| -> f64 {
                (0..extent).map(|i| data[at(position) + i * inner].exp()).sum()
            };
            let expected: Vec<f64> = (0..data.len()).map(|p| data[p].exp() / sum(p)).collect();
            let logs: Vec<f64> = (0..data.len()).map(|p| data[p] - sum(p).ln()).collect();
            let (types, bindings) = ([&["A", "B", "C"][..]], [("A", 3), ("B", 5), ("C", 7)]);
            let x = std::slice::from_ref(&x);
            let found = &check_symbolic(Softmax { axis: Axis(axis) }, &types, &bindings, x)[0];
            assert_close(found, &tensor_of(dtype, &[3, 5, 7], &expected), extent);
            let total: f64 = floats(found).iter().sum();
            assert!((total - (105 / extent) as f64).abs() < 0.1, "{dtype} {axis}: {total}");
            let found = &check_symbolic(LogSoftmax { axis: Axis(axis) }, &types, &bindings, x)[0];
            assert_close(found, &tensor_of(dtype, &[3, 5, 7], &logs), extent);
        }
    }
}

#[test]
fn softmax_holds_at_extremes() {
    let run =
        |x: &[f32]| floats(&evaluate_one(Softmax { axis: Axis(0) }, &[tensor(&[x.len()], x)]));
    assert_eq!(run(&[1e4, 1e4]), [0.5, 0.5]);
    assert_eq!(run(&[f32::NEG_INFINITY, 3.0]), [0.0, 1.0]);
    assert!(run(&[f32::NEG_INFINITY; 2]).iter().all(|x| x.is_nan()));
    let x = [tensor(&[2], &[-1e4f32, 1e4])];
    assert_eq!(floats(&evaluate_one(LogSoftmax { axis: Axis(0) }, &x)), [-2e4, 0.0]);
    refuse(Softmax { axis: Axis(1) }, &[(DType::F32, &["N"])]);
    refuse(Softmax { axis: Axis(0) }, &[(DType::I32, &["N"])]);
}

#[test]
fn layer_norm_matches_its_formula() {
    for dtype in DTYPES {
        let mut random = Random::new(21);
        let x = random.floats(dtype, &[3, 2, 7], -2.0, 3.0);
        let scale = random.floats(dtype, &[2, 7], 0.5, 1.5);
        let bias = random.floats(dtype, &[7], -1.0, 1.0);
        let op = LayerNorm { axis: Axis(1), epsilon: Float(1e-3), bias: true, statistics: true };
        let types: [&[&str]; 3] = [&["B", "2", "7"], &["2", "7"], &["7"]];
        let found =
            check_symbolic(op, &types, &[("B", 3)], &[x.clone(), scale.clone(), bias.clone()]);
        let (data, scale, bias) = (floats(&x), floats(&scale), floats(&bias));
        let (mut expected, mut means, mut factors) = (vec![], vec![], vec![]);
        for row in data.chunks(14) {
            let (mean, variance) = moments(row);
            let factor = 1.0 / (variance + 1e-3).sqrt();
            means.push(mean);
            factors.push(factor);
            for (i, x) in row.iter().enumerate() {
                expected.push((x - mean) * factor * scale[i] + bias[i % 7]);
            }
        }
        assert_close(&found[0], &tensor_of(dtype, &[3, 2, 7], &expected), 14);
        assert_close(&found[1], &tensor_of(dtype.compute(), &[3, 1, 1], &means), 14);
        assert_close(&found[2], &tensor_of(dtype.compute(), &[3, 1, 1], &factors), 14);
    }
}

#[test]
fn layer_norm_keeps_precision_far_from_zero() {
    // In f16 the statistics would be lost; E[x²] - E[x]² would be in f32.
    let x = tensor_of(DType::F32, &[1, 4], &[10000.0, 10001.0, 10002.0, 10003.0]);
    let scale = tensor(&[4], &[1f32; 4]);
    let op = LayerNorm { axis: Axis(1), epsilon: Float(0.0), bias: false, statistics: false };
    let found = evaluate_one(op, &[x, scale]);
    let factor = 1.0 / 1.25f64.sqrt();
    let expected: Vec<f64> = [-1.5, -0.5, 0.5, 1.5].iter().map(|x| x * factor).collect();
    assert_close(&found, &tensor_of(DType::F32, &[1, 4], &expected), 4);
}

#[test]
fn rms_norm_matches_its_formula() {
    for dtype in DTYPES {
        let mut random = Random::new(22);
        let x = random.floats(dtype, &[2, 3, 5], -2.0, 3.0);
        let scale = random.floats(DType::F32, &[5], 0.5, 1.5);
        let op = RmsNorm { axis: Axis(2), epsilon: Float(1e-2) };
        let types: [&[&str]; 2] = [&["B", "S", "5"], &["5"]];
        let bindings = [("B", 2), ("S", 3)];
        let found = check_symbolic(op, &types, &bindings, &[x.clone(), scale.clone()]);
        let (data, scale) = (floats(&x), floats(&scale));
        let mut expected = Vec::new();
        for row in data.chunks(5) {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / 5.0;
            expected.extend(row.iter().zip(&scale).map(|(x, s)| x / (mean + 1e-2).sqrt() * s));
        }
        assert_close(&found[0], &tensor_of(dtype, &[2, 3, 5], &expected), 5);
    }
}

#[test]
fn group_norm_matches_its_formula() {
    for dtype in DTYPES {
        let mut random = Random::new(23);
        let x = random.floats(dtype, &[2, 6, 5], -2.0, 3.0);
        let scale = random.floats(dtype, &[6], 0.5, 1.5);
        let bias = random.floats(dtype, &[6], -1.0, 1.0);
        let op = GroupNorm { groups: 3, epsilon: Float(1e-3) };
        let types: [&[&str]; 3] = [&["B", "6", "L"], &["6"], &["6"]];
        let bindings = [("B", 2), ("L", 5)];
        let operands = [x.clone(), scale.clone(), bias.clone()];
        let found = check_symbolic(op, &types, &bindings, &operands);
        let (data, scale, bias) = (floats(&x), floats(&scale), floats(&bias));
        let mut expected = Vec::new();
        for (group, values) in data.chunks(10).enumerate() {
            let (mean, variance) = moments(values);
            for (i, x) in values.iter().enumerate() {
                let channel = group % 3 * 2 + i / 5;
                let normal = (x - mean) / (variance + 1e-3).sqrt();
                expected.push(normal * scale[channel] + bias[channel]);
            }
        }
        assert_close(&found[0], &tensor_of(dtype, &[2, 6, 5], &expected), 10);
    }
}

#[test]
fn batch_norm_matches_its_formula() {
    for dtype in DTYPES {
        let mut random = Random::new(24);
        let x = random.floats(dtype, &[2, 3, 2, 2], -2.0, 3.0);
        let [scale, bias, mean] = [0, 1, 2].map(|_| random.floats(dtype, &[3], -1.0, 1.0));
        let variance = random.floats(dtype, &[3], 0.5, 1.5);
        let op = BatchNorm { epsilon: Float(1e-3) };
        let types: [&[&str]; 5] = [&["B", "3", "H", "2"], &["3"], &["3"], &["3"], &["3"]];
        let bindings = [("B", 2), ("H", 2)];
        let operands = [&x, &scale, &bias, &mean, &variance].map(Clone::clone);
        let found = check_symbolic(op, &types, &bindings, &operands);
        let [x, scale, bias, mean, variance] = operands.map(|t| floats(&t));
        let expected: Vec<f64> = (x.iter().enumerate())
            .map(|(i, x)| {
                let c = i / 4 % 3;
                (x - mean[c]) / (variance[c] + 1e-3).sqrt() * scale[c] + bias[c]
            })
            .collect();
        assert_close(&found[0], &tensor_of(dtype, &[2, 3, 2, 2], &expected), 1);
    }
    let one = |value: f32| tensor(&[1], &[value]);
    let operands = [tensor(&[2], &[3f32, 5.0]), one(2.0), one(1.0), one(1.0), one(4.0)];
    let op = BatchNorm { epsilon: Float(0.0) };
    let found =
        check_symbolic(op, &[&["N"], &["1"], &["1"], &["1"], &["1"]], &[("N", 2)], &operands);
    assert_eq!(floats(&found[0]), [3.0, 5.0]);
}

#[test]
fn local_response_norm_sums_neighbouring_channels() {
    for size in [1i64, 2, 3, 4, 9] {
        let x = Random::new(25).floats(DType::F32, &[2, 5, 3], 0.5, 2.0);
        let (alpha, beta, bias) = (Float(0.3), Float(0.75), Float(1.5));
        let op = LocalResponseNorm { size, alpha, beta, bias };
        let types: [&[&str]; 1] = [&["N", "5", "L"]];
        let bindings = [("N", 2), ("L", 3)];
        let found = check_symbolic(op, &types, &bindings, std::slice::from_ref(&x));
        let data = floats(&x);
        let mut expected = Vec::new();
        for (position, x) in data.iter().enumerate() {
            let (n, c, l) = (position / 15, (position / 3 % 5) as i64, position % 3);
            let (first, last) = (c - (size - 1) / 2, c + size / 2);
            let sum: f64 = (first.max(0)..=last.min(4))
                .map(|c| data[n * 15 + c as usize * 3 + l].powi(2))
                .sum();
            expected.push(x / (1.5 + 0.3 / size as f64 * sum).powf(0.75));
        }
        assert_close(&found[0], &tensor_of(DType::F32, &[2, 5, 3], &expected), 9);
    }
}

#[test]
fn ill_typed_normalisations_are_refused() {
    let f = |dims: &'static [&'static str]| (DType::F32, dims);
    let norm = |bias| LayerNorm { axis: Axis(1), epsilon: Float(0.0), bias, statistics: false };
    refuse(norm(true), &[f(&["A", "4"]), f(&["4"])]);
    refuse(norm(false), &[f(&["A", "4"]), f(&["5"])]);
    refuse(norm(false), &[f(&["1", "4"]), f(&["A", "4"])]);
    refuse(norm(false), &[f(&["4"]), f(&["4"])]);
    refuse(norm(false), &[(DType::I32, &["A", "4"]), f(&["4"])]);
    let rms = RmsNorm { axis: Axis(1), epsilon: Float(0.0) };
    refuse(rms, &[f(&["A", "4"]), f(&["2", "A", "4"])]);
    let group = |groups| GroupNorm { groups, epsilon: Float(0.0) };
    refuse(group(4), &[f(&["A", "6"]), f(&["6"]), f(&["6"])]);
    refuse(group(0), &[f(&["A", "6"]), f(&["6"]), f(&["6"])]);
    refuse(group(2), &[f(&["A", "6"]), f(&["2"]), f(&["6"])]);
    let batch = BatchNorm { epsilon: Float(0.0) };
    refuse(batch, &[f(&["A", "6"]), f(&["6"]), f(&["6"]), f(&["6"]), f(&["5"])]);
    let (alpha, beta, bias) = (Float(1.0), Float(1.0), Float(1.0));
    refuse(LocalResponseNorm { size: 0, alpha, beta, bias }, &[f(&["A", "6"])]);
    refuse(LocalResponseNorm { size: 3, alpha, beta, bias }, &[f(&["A"])]);
}
