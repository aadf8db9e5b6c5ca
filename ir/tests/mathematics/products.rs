//! Matrix products, counters and dimensions as data.

use crate::{check_symbolic, refuse};
use membar_ir::op::TypeError;
use membar_ir::ops::{Dims, Iota, Matmul, Op};
use membar_ir::testing::{Random, assert_close, evaluate_one, floats, symbolic, tensor, tensor_of};
use membar_ir::{Axis, DType, Dim, Tensor};

fn product(a: &Tensor, b: &Tensor, (i, j): (usize, usize), (n, k): (usize, usize)) -> f64 {
    let (a, b) = (floats(a), floats(b));
    (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum()
}

#[test]
fn products_match_sums() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        let mut random = Random::new(5);
        let (m, n, k) = (5, 7, 37);
        let a = random.tensor(dtype, &[m, k]);
        let b = random.tensor(dtype, &[k, n]);
        let op = Matmul { acc: dtype.compute(), result: dtype };
        let types: [&[&str]; 2] = [&["M", "K"], &["K", "N"]];
        let bindings = [("M", 5), ("K", 37), ("N", 7)];
        let found = check_symbolic(op, &types, &bindings, &[a.clone(), b.clone()]);
        let expected: Vec<f64> =
            (0..m * n).map(|index| product(&a, &b, (index / n, index % n), (n, k))).collect();
        assert_close(&found[0], &tensor_of(dtype, &[m, n], &expected), k);
    }
}

#[test]
fn outer_dimensions_broadcast() {
    let mut random = Random::new(6);
    let a = random.integers(DType::I32, &[3, 1, 2, 4], -9, 9);
    let b = random.integers(DType::I32, &[5, 4, 1], -9, 9);
    let op = Matmul { acc: DType::I32, result: DType::I32 };
    let found = evaluate_one(op, &[a.clone(), b.clone()]);
    assert_eq!(found.shape(), [3, 5, 2, 1]);
    let (a, b, found) = (floats(&a), floats(&b), floats(&found));
    for x in 0..3 {
        for y in 0..5 {
            for i in 0..2 {
                let sum: f64 = (0..4).map(|k| a[(x * 2 + i) * 4 + k] * b[y * 4 + k]).sum();
                assert_eq!(found[(x * 5 + y) * 2 + i], sum);
            }
        }
    }
}

#[test]
fn integers_mix_and_wrap() {
    let a = tensor(&[1, 2], &[-128i8, 127]);
    let b = tensor(&[2, 1], &[255u8, 255]);
    let op = Matmul { acc: DType::I32, result: DType::I32 };
    assert_eq!(evaluate_one(op.clone(), &[a, b]), tensor(&[1, 1], &[-255i32]));
    let a = tensor(&[1, 2], &[i32::MAX, 1]);
    let b = tensor(&[2, 1], &[1i32, 1]);
    assert_eq!(evaluate_one(op, &[a, b]), tensor(&[1, 1], &[i32::MIN]));
    let big = tensor(&[1, 1], &[u64::MAX]);
    let op = Matmul { acc: DType::U64, result: DType::U64 };
    assert_eq!(evaluate_one(op, &[big.clone(), big]), tensor(&[1, 1], &[1u64]));
}

#[test]
fn an_empty_inner_dimension_gives_zero() {
    let op = Matmul { acc: DType::F32, result: DType::F32 };
    let empty = |shape: &[usize]| tensor::<f32>(shape, &[]);
    assert_eq!(
        evaluate_one(op.clone(), &[empty(&[2, 0]), empty(&[0, 3])]),
        tensor(&[2, 3], &[0f32; 6])
    );
    assert_eq!(evaluate_one(op, &[empty(&[0, 2]), tensor(&[2, 3], &[1f32; 6])]).shape(), [0, 3]);
}

#[test]
fn ill_typed_products_are_refused() {
    let op = || Matmul { acc: DType::F32, result: DType::F32 };
    let error = refuse(op(), &[(DType::F32, &["M", "K"]), (DType::F32, &["L", "N"])]);
    assert!(matches!(error, TypeError::Mismatch { .. }));
    refuse(op(), &[(DType::F32, &["K"]), (DType::F32, &["K", "N"])]);
    refuse(op(), &[(DType::F32, &["M", "K"]), (DType::F16, &["K", "N"])]);
    refuse(op(), &[(DType::I8, &["M", "K"]), (DType::I8, &["K", "N"])]);
    refuse(op(), &[(DType::F32, &["2", "M", "K"]), (DType::F32, &["3", "K", "N"])]);
}

#[test]
fn products_count_their_operations() {
    let op = Op::from(Matmul { acc: DType::F32, result: DType::F32 });
    let types = [symbolic(DType::F32, &["B", "M", "K"]), symbolic(DType::F32, &["K", "7"])];
    let outputs = op.infer(&types).unwrap_or_default();
    let s = Dim::symbol;
    assert_eq!(op.operations(&types, &outputs), Dim::from(14) * s("B") * s("M") * s("K"));
}

#[test]
fn counters_count_and_dimensions_are_data() {
    let iota = |axis, dtype| Iota { shape: vec![Dim::symbol("N"), Dim::from(3)], axis, dtype };
    let found = check_symbolic(iota(Axis(0), DType::I64), &[], &[("N", 2)], &[]);
    assert_eq!(found[0], tensor(&[2, 3], &[0i64, 0, 0, 1, 1, 1]));
    let found = check_symbolic(iota(Axis(1), DType::F16), &[], &[("N", 2)], &[]);
    assert_eq!(floats(&found[0]), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    refuse(iota(Axis(2), DType::I64), &[]);
    refuse(iota(Axis(0), DType::Bool), &[]);
    let dims = Dims { values: vec![Dim::symbol("N") + Dim::ONE, Dim::from(-1)] };
    let found = check_symbolic(dims, &[], &[("N", 4)], &[]);
    assert_eq!(found[0], tensor(&[2], &[5i64, -1]));
}
