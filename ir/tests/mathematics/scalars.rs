//! The scalar table: ONNX's rules at the edges; every function against its direct formula.

use crate::{check_symbolic, refuse};
use membar_ir::attribute::Float;
use membar_ir::op::TypeError;
use membar_ir::ops::{GeluForm, Scalar};
use membar_ir::scalar::{Binary, Expr, evaluate as evaluate_expr};
use membar_ir::testing::{Random, assert_close, evaluate_one, floats, tensor, tensor_of};
use membar_ir::{DType, Number, Tensor};

const INFINITY: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn unary(scalar: Scalar, x: &[f32]) -> Vec<f32> {
    let result = evaluate_one(scalar, &[tensor(&[x.len()], x)]);
    floats(&result).into_iter().map(|x| x as f32).collect()
}

fn binary<T: membar_ir::element::Element>(scalar: Scalar, x: &[T], y: &[T]) -> Tensor {
    evaluate_one(scalar, &[tensor(&[x.len()], x), tensor(&[y.len()], y)])
}

#[track_caller]
fn same(found: Vec<f32>, expected: &[f32]) {
    let bits = |x: &f32| if x.is_nan() { None } else { Some(x.to_bits()) };
    let equal = found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| bits(a) == bits(b));
    assert!(equal, "{found:?}, expected {expected:?}");
}

#[test]
fn float_edges_follow_onnx() {
    same(unary(Scalar::Sign, &[-3.5, -0.0, 0.0, 7.0, NAN]), &[-1.0, -0.0, 0.0, 1.0, NAN]);
    same(
        unary(Scalar::Round, &[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.51]),
        &[0.0, 2.0, 2.0, -0.0, -2.0, -2.0, 3.0],
    );
    same(unary(Scalar::Relu, &[-1.0, 2.0, NAN]), &[0.0, 2.0, NAN]);
    same(unary(Scalar::Sigmoid, &[-1e4, 0.0, 1e4]), &[0.0, 0.5, 1.0]);
    same(unary(Scalar::Softplus, &[-1e4, 1e4, NAN]), &[0.0, 1e4, NAN]);
    same(unary(Scalar::HardSwish, &[-3.0, 3.0, 9.0, -9.0]), &[-0.0, 3.0, 9.0, -0.0]);
    let relu = Scalar::ThresholdedRelu { alpha: Float(1.0) };
    same(unary(relu, &[0.5, 1.0, 1.5, NAN]), &[0.0, 0.0, 1.5, NAN]);
    let celu = Scalar::Celu { alpha: Float(2.0) };
    same(unary(celu, &[1e4, 1.5, 0.0, -1e4]), &[1e4, 1.5, 0.0, -2.0]);
    let shrink = Scalar::Shrink { lambda: Float(1.5), bias: Float(0.5) };
    same(unary(shrink, &[-2.0, -1.5, 1.0, 1.5, 3.0, NAN]), &[-1.5, 0.0, 0.0, 0.0, 2.5, 0.0]);
}

#[test]
fn infinities_are_told_by_sign() {
    let x = [NAN, INFINITY, -INFINITY, 0.0, f32::MAX];
    let found = |negative, positive| unary(Scalar::IsInf { negative, positive }, &x);
    same(found(true, true), &[0.0, 1.0, 1.0, 0.0, 0.0]);
    same(found(true, false), &[0.0, 0.0, 1.0, 0.0, 0.0]);
    same(found(false, true), &[0.0, 1.0, 0.0, 0.0, 0.0]);
    same(found(false, false), &[0.0; 5]);
    same(unary(Scalar::IsNan, &x), &[1.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn extremes_propagate_nan() {
    let (x, y) = ([1.0, NAN, 3.0f32], [2.0, 0.0, NAN]);
    same(
        floats(&binary(Scalar::Max, &x, &y)).iter().map(|x| *x as f32).collect(),
        &[2.0, NAN, NAN],
    );
    same(
        floats(&binary(Scalar::Min, &x, &y)).iter().map(|x| *x as f32).collect(),
        &[1.0, NAN, NAN],
    );
    let scalar = |x: f32| tensor(&[], &[x]);
    let clip = [tensor(&[4], &[-5.0, 0.5, 5.0, NAN]), scalar(-1.0), scalar(1.0)];
    same(
        floats(&evaluate_one(Scalar::Clip, &clip)).iter().map(|x| *x as f32).collect(),
        &[-1.0, 0.5, 1.0, NAN],
    );
    // Where the limits cross, the upper one wins.
    let crossed = [tensor(&[2], &[0.0f32, 9.0]), scalar(3.0), scalar(1.0)];
    assert_eq!(floats(&evaluate_one(Scalar::Clip, &crossed)), [1.0, 1.0]);
}

#[test]
fn remainders_have_the_sign_of_divisor_or_dividend() {
    let (x, y) = ([-7, 7, -7, 7, 6, 5i32], [3, -3, -3, 3, 3, 0]);
    assert_eq!(floats(&binary(Scalar::FloorMod, &x, &y)), [2.0, -2.0, -1.0, 1.0, 0.0, 0.0]);
    assert_eq!(floats(&binary(Scalar::TruncMod, &x, &y)), [-1.0, 1.0, -1.0, 1.0, 0.0, 0.0]);
    let (x, y) = ([-4.3, 7.2, 5.0f64], [2.1, -3.4, 8.0]);
    let found = binary(Scalar::TruncMod, &x, &y);
    assert_close(&found, &tensor(&[3], &[-0.1f64, 0.4, 5.0]), 64);
    let found = binary(Scalar::FloorMod, &x, &y);
    assert_close(&found, &tensor(&[3], &[2.0f64, -3.0, 5.0]), 64);
}

#[test]
fn integers_wrap_truncate_and_never_trap() {
    assert_eq!(
        floats(&binary(Scalar::Div, &[7, -7, 7, 5i8], &[2, 2, -2, 0])),
        [3.0, -3.0, -3.0, 0.0]
    );
    assert_eq!(binary(Scalar::Div, &[i64::MIN], &[-1]), tensor(&[1], &[i64::MIN]));
    assert_eq!(binary(Scalar::Add, &[250u8, 1], &[10, 2]), tensor(&[2], &[4u8, 3]));
    assert_eq!(binary(Scalar::Sub, &[1u32], &[2]), tensor(&[1], &[u32::MAX]));
    assert_eq!(
        binary(Scalar::Mul, &[u64::MAX, 1 << 40], &[u64::MAX, 1 << 30]),
        tensor(&[2], &[1u64, 0])
    );
    assert_eq!(evaluate_one(Scalar::Neg, &[tensor(&[2], &[1u8, 0])]), tensor(&[2], &[255u8, 0]));
    assert_eq!(
        evaluate_one(Scalar::Abs, &[tensor(&[2], &[i8::MIN, -3])]),
        tensor(&[2], &[i8::MIN, 3])
    );
    assert_eq!(
        binary(Scalar::Pow, &[2, -3, 2, 1, -1, 0i64], &[62, 3, -1, -5, -5, 0]),
        tensor(&[6], &[1i64 << 62, -27, 0, 1, -1, 1])
    );
    assert_eq!(evaluate_one(Scalar::Relu, &[tensor(&[2], &[-3i32, 4])]), tensor(&[2], &[0i32, 4]));
    assert_eq!(binary(Scalar::Prelu, &[-3i64, 4], &[5, 5]), tensor(&[2], &[-15i64, 4]));
    assert_eq!(
        evaluate_one(Scalar::Sign, &[tensor(&[3], &[-3i64, 0, 9])]),
        tensor(&[3], &[-1i64, 0, 1])
    );
}

#[test]
fn shifts_end_at_the_width() {
    let (x, y) = ([1, 200, 3, 255u8], [7, 1, 8, 3]);
    assert_eq!(binary(Scalar::ShiftLeft, &x, &y), tensor(&[4], &[128u8, 144, 0, 248]));
    assert_eq!(binary(Scalar::ShiftRight, &x, &y), tensor(&[4], &[0u8, 100, 0, 31]));
    assert_eq!(
        binary(Scalar::ShiftRight, &[-8i16, -8, 8, -8, 8], &[1, 16, 16, -1, -1]),
        tensor(&[5], &[-4i16, -1, 0, -1, 0])
    );
    assert_eq!(binary(Scalar::ShiftLeft, &[3i16, 3], &[16, -1]), tensor(&[2], &[0i16, 0]));
    assert_eq!(
        evaluate_one(Scalar::BitNot, &[tensor(&[2], &[0u16, 0xff])]),
        tensor(&[2], &[u16::MAX, 0xff00])
    );
}

#[test]
fn large_integers_compare_and_meet_constants_exactly() {
    let big = (1i64 << 53) + 1;
    assert_eq!(floats(&binary(Scalar::Equal, &[big, big], &[big - 1, big])), [0.0, 1.0]);
    assert_eq!(floats(&binary(Scalar::Less, &[1u64], &[u64::MAX])), [1.0]);
    let sum = Binary::Add.of(Expr::Operand(0), Expr::Integer(big));
    let found = evaluate_expr(&sum, &[Number::Signed(1)], &[DType::I64], DType::I64);
    assert_eq!(found, Number::Signed(big + 1));
    let product = Binary::Mul.of(Expr::Operand(0), Expr::Integer(3));
    let found = evaluate_expr(&product, &[Number::Float(0.5)], &[DType::F32], DType::F32);
    assert_eq!(found, Number::Float(1.5));
}

#[test]
fn narrow_floats_round_once_at_the_end() {
    // In f16 the square alone would overflow, and 1 + 2^-11 would lose its tail.
    let x = tensor_of(DType::F16, &[1], &[300.0]);
    let gelu = Scalar::Gelu { form: GeluForm::Tanh };
    assert_eq!(floats(&evaluate_one(gelu, &[x])), [300.0]);
    let x = tensor_of(DType::F16, &[1], &[0.000_977]);
    let softsign = floats(&evaluate_one(Scalar::Softsign, std::slice::from_ref(&x)))[0];
    let exact = floats(&x)[0] / (1.0 + floats(&x)[0]);
    assert_eq!(softsign, half::f16::from_f64(exact).to_f64());
}

#[test]
fn infinities_survive_in_the_float_that_has_them() {
    let x = tensor_of(DType::F32, &[3], &[1e9, f64::INFINITY, -1e9]);
    let cast = |to, saturate| {
        floats(&evaluate_one(Scalar::Cast { to, saturate }, std::slice::from_ref(&x)))
    };
    assert_eq!(cast(DType::F8E5m2, false), [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY]);
    assert_eq!(cast(DType::F8E5m2, true), [57344.0, 57344.0, -57344.0]);
    assert!(cast(DType::F8E4m3fn, false).iter().all(|x| x.is_nan()));
    assert_eq!(cast(DType::F8E4m3fn, true), [448.0, 448.0, -448.0]);
    let x = tensor_of(DType::F8E5m2, &[2], &[f64::INFINITY, 40960.0]);
    assert_eq!(floats(&evaluate_one(Scalar::Add, &[x.clone(), x])), [f64::INFINITY, 57344.0]);
}

#[test]
fn functions_match_their_formulas() {
    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }
    fn softplus(x: f64) -> f64 {
        x.exp().ln_1p()
    }
    type Formula = fn(f64) -> f64;
    let (alpha, gamma) = (Float(0.75), Float(1.25));
    let table: Vec<(Scalar, Formula)> = vec![
        (Scalar::Reciprocal, |x| 1.0 / x),
        (Scalar::Exp, f64::exp),
        (Scalar::Sin, f64::sin),
        (Scalar::Cos, f64::cos),
        (Scalar::Tan, f64::tan),
        (Scalar::Asin, f64::asin),
        (Scalar::Acos, f64::acos),
        (Scalar::Atan, f64::atan),
        (Scalar::Sinh, f64::sinh),
        (Scalar::Cosh, f64::cosh),
        (Scalar::Tanh, f64::tanh),
        (Scalar::Asinh, f64::asinh),
        (Scalar::Atanh, f64::atanh),
        (Scalar::Floor, f64::floor),
        (Scalar::Ceil, f64::ceil),
        (Scalar::Abs, f64::abs),
        (Scalar::Neg, |x| -x),
        (Scalar::LeakyRelu { alpha }, |x| if x < 0.0 { 0.75 * x } else { x }),
        (Scalar::Elu { alpha }, |x| if x < 0.0 { 0.75 * (x.exp() - 1.0) } else { x }),
        (Scalar::Selu { alpha, gamma }, |x| {
            1.25 * if x < 0.0 { 0.75 * (x.exp() - 1.0) } else { x }
        }),
        (Scalar::Celu { alpha }, |x| x.max(0.0) + (0.75 * ((x / 0.75).exp() - 1.0)).min(0.0)),
        (Scalar::Sigmoid, sigmoid),
        (Scalar::HardSigmoid { alpha: Float(0.4), beta: Float(0.3) }, |x| {
            (0.4 * x + 0.3).clamp(0.0, 1.0)
        }),
        (Scalar::Swish { beta: Float(1.0) }, |x| x * sigmoid(x)),
        (Scalar::Swish { beta: Float(2.5) }, |x| x * sigmoid(2.5 * x)),
        (Scalar::HardSwish, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        (Scalar::Softplus, softplus),
        (Scalar::Softsign, |x| x / (1.0 + x.abs())),
        (Scalar::Mish, |x| x * softplus(x).tanh()),
        (Scalar::Gelu { form: GeluForm::Erf }, |x| {
            0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2))
        }),
        (Scalar::Gelu { form: GeluForm::Tanh }, |x| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }),
        (Scalar::Gelu { form: GeluForm::Quick }, |x| x * sigmoid(1.702 * x)),
    ];
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        let x = Random::new(11).floats(dtype, &[7, 13], -0.95, 0.95);
        for (scalar, formula) in &table {
            let expected: Vec<f64> = floats(&x).into_iter().map(formula).collect();
            let found = evaluate_one(scalar.clone(), std::slice::from_ref(&x));
            assert_close(&found, &tensor_of(dtype, &[7, 13], &expected), 1);
        }
        let x = Random::new(12).floats(dtype, &[7, 13], 1.0, 9.0);
        let positive: [(Scalar, Formula); 4] = [
            (Scalar::Sqrt, f64::sqrt),
            (Scalar::Rsqrt, |x| 1.0 / x.sqrt()),
            (Scalar::Log, f64::ln),
            (Scalar::Acosh, f64::acosh),
        ];
        for (scalar, formula) in positive {
            let expected: Vec<f64> = floats(&x).into_iter().map(formula).collect();
            let found = evaluate_one(scalar, std::slice::from_ref(&x));
            assert_close(&found, &tensor_of(dtype, &[7, 13], &expected), 1);
        }
    }
}

#[test]
fn operands_broadcast() {
    let mut random = Random::new(3);
    let x = random.tensor(DType::F32, &[3, 1, 5]);
    let y = random.tensor(DType::F32, &[4, 1]);
    let types: [&[&str]; 2] = [&["A", "1", "B"], &["C", "1"]];
    let bindings = [("A", 3), ("B", 5), ("C", 4)];
    let found = check_symbolic(Scalar::Sub, &types, &bindings, &[x.clone(), y.clone()]);
    let (x, y) = (floats(&x), floats(&y));
    let mut expected = Vec::new();
    for i in 0..3 {
        for y in &y {
            expected.extend((0..5).map(|k| x[5 * i + k] - y));
        }
    }
    assert_close(&found[0], &tensor_of(DType::F32, &[3, 4, 5], &expected), 1);
    let condition = tensor_of(DType::Bool, &[2], &[1.0, 0.0]);
    let values = [tensor(&[2], &[1i8, 2]), tensor(&[1], &[9i8])];
    let select = [condition, values[0].clone(), values[1].clone()];
    assert_eq!(evaluate_one(Scalar::Select, &select), tensor(&[2], &[1i8, 9]));
}

#[test]
fn ill_typed_operands_are_refused() {
    let f: (DType, &[&str]) = (DType::F32, &["N"]);
    assert!(matches!(refuse(Scalar::Add, &[f]), TypeError::Arity { found: 1, .. }));
    let error = refuse(Scalar::Add, &[f, (DType::F16, &["N"])]);
    assert!(matches!(error, TypeError::DType { operand: 1, .. }));
    assert!(matches!(refuse(Scalar::Add, &[f, (DType::F32, &["M"])]), TypeError::Mismatch { .. }));
    assert!(matches!(refuse(Scalar::Sqrt, &[(DType::I32, &["N"])]), TypeError::DType { .. }));
    assert!(matches!(refuse(Scalar::BitNot, &[f]), TypeError::DType { .. }));
    assert!(matches!(refuse(Scalar::Select, &[f, f, f]), TypeError::DType { operand: 0, .. }));
}
