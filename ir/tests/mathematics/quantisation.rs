//! Quantisation, dequantisation and rotary embedding.

use crate::{check_symbolic, refuse};
use membar_ir::ops::{Dequantize, Quantize, RotaryEmbedding};
use membar_ir::testing::{Random, assert_close, evaluate_one, floats, tensor, tensor_of};
use membar_ir::{Axis, DType, Tensor};

fn quantize(dtype: DType, zero_point: bool) -> Quantize {
    Quantize { dtype, axis: None, block: None, zero_point, saturate: true }
}

#[test]
fn quantisation_rounds_to_even_and_saturates() {
    let x = tensor(&[7], &[1.0f32, 3.0, 5.0, -5.0, 1000.0, -1000.0, f32::NAN]);
    let operands = [x, tensor(&[], &[2f32]), tensor(&[], &[10u8])];
    let found = evaluate_one(quantize(DType::U8, true), &operands);
    assert_eq!(floats(&found), [10.0, 12.0, 12.0, 8.0, 255.0, 0.0, 0.0]);
    let found = evaluate_one(quantize(DType::I8, false), &operands[..2]);
    assert_eq!(floats(&found)[..6], [0.0, 2.0, 2.0, -2.0, 127.0, -128.0]);
    let found = evaluate_one(quantize(DType::I4, false), &operands[..2]);
    assert_eq!(floats(&found)[..6], [0.0, 2.0, 2.0, -2.0, 7.0, -8.0]);
    let found = evaluate_one(quantize(DType::I16, false), &operands[..2]);
    assert_eq!(floats(&found)[..6], [0.0, 2.0, 2.0, -2.0, 500.0, -500.0]);
}

#[test]
fn eight_bit_floats_saturate_if_told_to() {
    let operands = [tensor(&[3], &[1.5f32, 1e6, 0.3]), tensor(&[], &[2f32])];
    let found = floats(&evaluate_one(quantize(DType::F8E4m3fn, false), &operands));
    assert_eq!(found, [0.75, 448.0, 0.15625]);
    let op = Quantize { saturate: false, ..quantize(DType::F8E5m2, false) };
    let found = floats(&evaluate_one(op, &operands));
    assert_eq!(found, [0.75, f64::INFINITY, 0.15625]);
    let quantised = tensor_of(DType::F8E4m3fn, &[2], &[0.75, -448.0]);
    let op = Dequantize { dtype: DType::F32, axis: None, block: None, zero_point: false };
    assert_eq!(floats(&evaluate_one(op, &[quantised, tensor(&[], &[2f32])])), [1.5, -896.0]);
}

#[test]
fn parameters_run_along_an_axis() {
    let x = tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let op = Quantize { axis: Some(Axis(1)), ..quantize(DType::I8, true) };
    let types: [&[&str]; 3] = [&["N", "C"], &["C"], &["C"]];
    let operands = [x, tensor(&[3], &[1f32, 0.5, 0.25]), tensor(&[3], &[0i8, 1, -1])];
    let found = check_symbolic(op, &types, &[("N", 2), ("C", 3)], &operands);
    assert_eq!(floats(&found[0]), [1.0, 5.0, 11.0, 4.0, 11.0, 23.0]);
    let op = Dequantize { dtype: DType::F16, axis: Some(Axis(0)), block: None, zero_point: true };
    let operands = [found[0].clone(), tensor(&[2], &[0.5f32, 2.0]), tensor(&[2], &[1i8, -128])];
    let types: [&[&str]; 3] = [&["N", "C"], &["N"], &["N"]];
    let found = check_symbolic(op, &types, &[("N", 2), ("C", 3)], &operands);
    assert_eq!(floats(&found[0]), [0.0, 2.0, 5.0, 264.0, 278.0, 302.0]);
}

#[test]
fn blocks_share_a_scale_and_the_last_may_be_short() {
    let x = tensor_of(DType::I4, &[5, 2], &[1.0, 2.0, 3.0, 4.0, -5.0, 6.0, 7.0, -8.0, 1.0, 2.0]);
    let scale = tensor(&[3, 2], &[1f32, 10.0, 2.0, 20.0, 3.0, 30.0]);
    let zero_point = tensor_of(DType::I4, &[3, 2], &[0.0, 1.0, 2.0, 0.0, 0.0, 0.0]);
    let op =
        Dequantize { dtype: DType::F32, axis: Some(Axis(0)), block: Some(2), zero_point: true };
    let types: [&[&str]; 3] = [&["5", "N"], &["3", "N"], &["3", "N"]];
    let operands = [x.clone(), scale.clone(), zero_point.clone()];
    let found = check_symbolic(op, &types, &[("N", 2)], &operands);
    let expected = [1.0, 10.0, 3.0, 30.0, -14.0, 120.0, 10.0, -160.0, 3.0, 60.0];
    assert_eq!(floats(&found[0]), expected);
    let op = Quantize { axis: Some(Axis(0)), block: Some(2), ..quantize(DType::I4, true) };
    let operands = [found[0].clone(), scale, zero_point];
    assert_eq!(check_symbolic(op, &types, &[("N", 2)], &operands)[0], x);
}

#[test]
fn symbolic_blocks_that_divide() {
    let x = tensor(&[2, 4], &[1u8, 2, 3, 4, 5, 6, 7, 8]);
    let scale = tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0]);
    let op =
        Dequantize { dtype: DType::F32, axis: Some(Axis(1)), block: Some(2), zero_point: false };
    let found = check_symbolic(op, &[&["N", "4"], &["N", "2"]], &[("N", 2)], &[x, scale]);
    assert_eq!(floats(&found[0]), [1.0, 2.0, 6.0, 8.0, 15.0, 18.0, 28.0, 32.0]);
}

#[test]
fn wide_integers_dequantise_exactly() {
    let op = Dequantize { dtype: DType::F64, axis: None, block: None, zero_point: true };
    let operands = [tensor(&[1], &[i32::MAX]), tensor(&[], &[1f64]), tensor(&[], &[i32::MAX - 3])];
    assert_eq!(floats(&evaluate_one(op, &operands)), [3.0]);
}

#[test]
fn ill_typed_quantisation_is_refused() {
    let x: (DType, &[&str]) = (DType::F32, &["N", "5"]);
    let s: (DType, &[&str]) = (DType::F32, &[]);
    refuse(quantize(DType::I32, false), &[x, s]);
    refuse(quantize(DType::F16, false), &[x, s]);
    refuse(quantize(DType::U8, true), &[x, s]);
    refuse(quantize(DType::U8, true), &[x, s, (DType::I8, &[])]);
    refuse(quantize(DType::U8, false), &[x, (DType::F32, &["1"])]);
    let axis = Quantize { axis: Some(Axis(1)), ..quantize(DType::U8, false) };
    refuse(axis.clone(), &[x, (DType::F32, &["4"])]);
    refuse(Quantize { block: Some(2), ..axis.clone() }, &[x, (DType::F32, &["N", "2"])]);
    refuse(Quantize { block: Some(0), ..axis }, &[x, (DType::F32, &["N", "3"])]);
    refuse(Quantize { block: Some(2), ..quantize(DType::U8, false) }, &[x, s]);
    let op = Dequantize { dtype: DType::F32, axis: None, block: None, zero_point: false };
    refuse(op.clone(), &[(DType::I64, &["N"]), s]);
    refuse(op, &[(DType::U8, &["N"]), (DType::I32, &[])]);
}

/// Rotates by the definition.
fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Vec<f64> {
    let [batch, heads, rows, width] = *x.shape() else { panic!("rank") };
    let pairs = cos.shape()[2];
    let (x, shared, cos, sin) = (floats(x), cos.shape()[0] == 1, floats(cos), floats(sin));
    let mut result = x.clone();
    for b in 0..batch {
        for h in 0..heads {
            for s in 0..rows {
                let row = ((b * heads + h) * rows + s) * width;
                for i in 0..pairs {
                    let angle = ((if shared { 0 } else { b }) * rows + s) * pairs + i;
                    let (p, q) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + pairs) };
                    let (a, b) = (x[row + p], x[row + q]);
                    result[row + p] = a * cos[angle] - b * sin[angle];
                    result[row + q] = a * sin[angle] + b * cos[angle];
                }
            }
        }
    }
    result
}

#[test]
fn rotary_embedding_rotates_pairs() {
    for dtype in [DType::F32, DType::F64, DType::F16] {
        for interleaved in [false, true] {
            for (width, batches) in [(6, 2), (9, 1)] {
                let mut random = Random::new(31);
                let x = random.tensor(dtype, &[2, 3, 5, width]);
                let cos = random.tensor(dtype, &[batches, 5, 3]);
                let sin = random.tensor(dtype, &[batches, 5, 3]);
                let expected = rotate(&x, &cos, &sin, interleaved);
                let (width, batch) = (width.to_string(), if batches == 1 { "1" } else { "B" });
                let types: [&[&str]; 3] =
                    [&["B", "H", "S", &width], &[batch, "S", "3"], &[batch, "S", "3"]];
                let bindings = [("B", 2), ("H", 3), ("S", 5)];
                let found = check_symbolic(
                    RotaryEmbedding { interleaved },
                    &types,
                    &bindings,
                    &[x.clone(), cos, sin],
                );
                assert_close(&found[0], &tensor_of(dtype, x.shape(), &expected), 2);
            }
        }
    }
    let op = || RotaryEmbedding { interleaved: false };
    let f = |dims: &'static [&'static str]| (DType::F32, dims);
    refuse(op(), &[f(&["B", "H", "S", "4"]), f(&["1", "S", "3"]), f(&["1", "S", "3"])]);
    refuse(op(), &[f(&["B", "H", "S", "8"]), f(&["1", "S", "3"]), f(&["1", "S", "4"])]);
    refuse(op(), &[f(&["B", "H", "S", "8"]), f(&["1", "T", "3"]), f(&["1", "T", "3"])]);
    refuse(op(), &[f(&["B", "S", "8"]), f(&["1", "S", "3"]), f(&["1", "S", "3"])]);
}
