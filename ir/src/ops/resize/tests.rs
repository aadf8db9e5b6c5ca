//! Tests of `resize` against values derived by hand; never of another operator.

use super::*;
use crate::interp::Interpreter;
use crate::testing::{Random, assert_close, evaluate_one, floats, symbolic, tensor, tensor_of};
use std::slice::from_ref;

fn resize(mode: ResizeMode, coordinates: CoordinateMode, sizes: &[i64]) -> Resize {
    Resize {
        sizes: sizes.iter().map(|size| Dim::from(*size)).collect(),
        scales: Vec::new(),
        mode,
        coordinates,
        nearest: NearestMode::RoundPreferFloor,
        cubic_coefficient: Float(-0.75),
        exclude_outside: false,
        antialias: false,
        extrapolation: Float(0.0),
        roi: Vec::new(),
    }
}

fn line(op: Resize, values: &[f32]) -> Vec<f64> {
    floats(&evaluate_one(op, &[tensor(&[values.len()], values)]))
}

#[test]
fn coordinates_of_a_ramp_are_its_values() {
    // Linear interpolation of 0, 1, 2 … gives back the coordinate, held at the ends.
    let ramp: Vec<f32> = (0..4).map(|i| i as f32).collect();
    let linear = |coordinates| resize(ResizeMode::Linear, coordinates, &[8]);
    let half_pixel = [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0];
    assert_eq!(line(linear(CoordinateMode::HalfPixel), &ramp), half_pixel);
    assert_eq!(line(linear(CoordinateMode::PytorchHalfPixel), &ramp), half_pixel);
    assert_eq!(line(linear(CoordinateMode::HalfPixelSymmetric), &ramp), half_pixel);
    let asymmetric = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0];
    assert_eq!(line(linear(CoordinateMode::Asymmetric), &ramp), asymmetric);
    let later = [0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0, 3.0];
    assert_eq!(line(linear(CoordinateMode::TfHalfPixelForNn), &ramp), later);
    let op = resize(ResizeMode::Linear, CoordinateMode::AlignCorners, &[7]);
    assert_eq!(line(op, &ramp), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
    let op = resize(ResizeMode::Linear, CoordinateMode::PytorchHalfPixel, &[1]);
    assert_eq!(line(op, &ramp), [0.0]);
    let op = resize(ResizeMode::Linear, CoordinateMode::HalfPixel, &[1]);
    assert_eq!(line(op, &ramp), [1.5]);
}

#[test]
fn a_rounded_size_is_centred_if_symmetric() {
    // 4 * 0.6 = 2.4 elements become 2, half of whose loss lies on either side.
    let op = Resize {
        scales: vec![Float(0.6)],
        ..resize(ResizeMode::Linear, CoordinateMode::HalfPixelSymmetric, &[2])
    };
    let found = line(op, &[0.0, 1.0, 2.0, 3.0]);
    let expected = [0.5 / 0.6 - 0.5 + 1.0 / 3.0, 1.5 / 0.6 - 0.5 + 1.0 / 3.0];
    assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{found:?}");
}

#[test]
fn a_region_is_cropped_and_extrapolated() {
    let op = Resize {
        roi: vec![Float(0.5), Float(1.5)],
        extrapolation: Float(9.0),
        ..resize(ResizeMode::Linear, CoordinateMode::TfCropAndResize, &[3])
    };
    assert_eq!(line(op.clone(), &[0.0, 1.0, 2.0, 3.0, 4.0]), [2.0, 4.0, 9.0]);
    let op = Resize { mode: ResizeMode::Nearest, ..op };
    assert_eq!(line(op.clone(), &[0.0, 1.0, 2.0, 3.0, 4.0]), [2.0, 4.0, 9.0]);
    let op = Resize { roi: vec![Float(0.25), Float(0.75)], sizes: vec![Dim::ONE], ..op };
    assert_eq!(line(op, &[0.0, 1.0, 2.0, 3.0, 4.0]), [2.0]);
}

#[test]
fn nearest_rounds_as_asked() {
    // Coordinates 0.5, 2.5, 4.5.
    let half = resize(ResizeMode::Nearest, CoordinateMode::HalfPixel, &[3]);
    for (nearest, expected) in [
        (NearestMode::RoundPreferFloor, [0.0, 2.0, 4.0]),
        (NearestMode::RoundPreferCeil, [1.0, 3.0, 5.0]),
        (NearestMode::Floor, [0.0, 2.0, 4.0]),
        (NearestMode::Ceil, [1.0, 3.0, 5.0]),
    ] {
        let op = Resize { nearest, ..half.clone() };
        assert_eq!(line(op, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), expected, "{nearest:?}");
    }
    // 7 * (3 / 7) is 3 exactly, whatever the quotient rounds to.
    let op = Resize {
        nearest: NearestMode::Floor,
        ..resize(ResizeMode::Nearest, CoordinateMode::Asymmetric, &[49])
    };
    let ramp: Vec<f32> = (0..21).map(|i| i as f32).collect();
    let expected: Vec<f64> = (0..49).map(|i| f64::from(i * 21 / 49)).collect();
    assert_eq!(line(op, &ramp), expected);
}

#[test]
fn nearest_moves_any_element() {
    let x = tensor(&[1, 2], &[i64::MAX, i64::MIN + 1]);
    let op = resize(ResizeMode::Nearest, CoordinateMode::Asymmetric, &[2, 4]);
    let expected = [i64::MAX, i64::MAX, i64::MIN + 1, i64::MIN + 1];
    let expected = tensor(&[2, 4], &[expected, expected].concat());
    let op = Resize { nearest: NearestMode::Floor, ..op };
    assert_eq!(evaluate_one(op, &[x]), expected);
}

#[test]
fn cubic_weights_are_keys_polynomial() {
    // At 1.5 between elements, a = -0.5: -1/16, 9/16, 9/16, -1/16.
    let op = Resize {
        cubic_coefficient: Float(-0.5),
        ..resize(ResizeMode::Cubic, CoordinateMode::HalfPixel, &[1])
    };
    let values = [3.0f32, -1.0, 4.0, 7.0];
    let middle = (-3.0 - 9.0 + 9.0 * 4.0 - 7.0) / 16.0;
    assert_eq!(line(op, &values), [middle]);
    // At -0.25 two weights lie outside; without them the others are scaled up.
    let op = resize(ResizeMode::Cubic, CoordinateMode::HalfPixel, &[8]);
    let weights: Vec<f64> = [1.75, 0.75, 0.25, 1.25].map(|t| cubic(t, -0.75)).to_vec();
    let held = (weights[0] + weights[1] + weights[2]) * 3.0 - weights[3];
    assert!((line(op.clone(), &values)[0] - held).abs() < 1e-6);
    let op = Resize { exclude_outside: true, ..op };
    let inside = (weights[2] * 3.0 - weights[3]) / (weights[2] + weights[3]);
    assert!((line(op, &values)[0] - inside).abs() < 1e-5);
}

#[test]
fn antialiasing_averages_over_a_wider_window() {
    let op =
        Resize { antialias: true, ..resize(ResizeMode::Linear, CoordinateMode::HalfPixel, &[2]) };
    // At half the size the triangle around 0.5 reaches from -1.5 to 2.5.
    let [a, b, c] = [0.75, 0.75, 0.25];
    let first = (0.25 * 8.0 + a * 8.0 + b * 4.0 + c * 2.0) / 2.0;
    let found = line(op.clone(), &[8.0, 4.0, 2.0, 1.0]);
    assert!((found[0] - first).abs() < 1e-6, "{found:?}");
    let up = Resize { sizes: vec![Dim::from(7)], ..op.clone() };
    let plain = Resize { antialias: false, ..up.clone() };
    let values = [3.0f32, -1.0, 4.0, 7.0];
    let pair = line(up, &values).into_iter().zip(line(plain, &values));
    assert!(pair.into_iter().all(|(x, y)| (x - y).abs() < 1e-6));
}

#[test]
fn dimensions_are_resampled_one_after_another() {
    let mut random = Random::new(27);
    let x = random.tensor(DType::F32, &[2, 3, 4, 5]);
    for mode in [ResizeMode::Linear, ResizeMode::Cubic, ResizeMode::Nearest] {
        let both = resize(mode, CoordinateMode::HalfPixel, &[2, 3, 7, 3]);
        let rows = resize(mode, CoordinateMode::HalfPixel, &[2, 3, 7, 5]);
        let columns = resize(mode, CoordinateMode::HalfPixel, &[2, 3, 7, 3]);
        let separate = evaluate_one(columns, &[evaluate_one(rows, from_ref(&x))]);
        assert_close(&evaluate_one(both, from_ref(&x)), &separate, 16);
    }
}

#[test]
fn integers_are_rounded_and_saturate() {
    let op = resize(ResizeMode::Cubic, CoordinateMode::HalfPixel, &[6]);
    let x = tensor(&[3], &[0u8, 255, 0]);
    let floating = floats(&evaluate_one(op.clone(), &[tensor(&[3], &[0f32, 255.0, 0.0])]));
    let expected: Vec<f64> = floating.iter().map(|x| x.clamp(0.0, 255.0)).collect();
    assert!(floating.iter().any(|x| *x < 0.0));
    let expected: Vec<f64> = expected.iter().map(|x| libm::rint(*x)).collect();
    assert_eq!(evaluate_one(op, &[x]), tensor_of(DType::U8, &[6], &expected));
}

#[test]
fn misfits_are_reported() {
    let x = symbolic(DType::F32, &["B", "H"]);
    let op = resize(ResizeMode::Linear, CoordinateMode::HalfPixel, &[2, 9]);
    assert!(op.infer(from_ref(&x)).is_ok());
    for wrong in [
        Resize { sizes: vec![Dim::ONE], ..op.clone() },
        Resize { sizes: vec![Dim::from(-1), Dim::ONE], ..op.clone() },
        Resize { scales: vec![Float(1.0)], ..op.clone() },
        Resize { scales: vec![Float(1.0), Float(f64::NAN)], ..op.clone() },
        Resize { roi: vec![Float(0.0)], ..op.clone() },
        Resize { coordinates: CoordinateMode::TfCropAndResize, ..op.clone() },
    ] {
        assert!(wrong.infer(from_ref(&x)).is_err(), "{wrong:?}");
    }
    let empty = tensor::<f32>(&[2, 0], &[]);
    assert!(Interpreter::default().evaluate(&op.clone().into(), &[empty]).is_err());
    let tiny = Resize { scales: vec![Float(1.0), Float(1e-9)], antialias: true, ..op };
    let x = Random::new(28).tensor(DType::F32, &[2, 3]);
    assert!(Interpreter::default().evaluate(&tiny.into(), &[x]).is_err());
}
