//! Reference evaluation of scalar expressions, one element at a time; simple enough to trust.

use super::{Binary, Expr, Unary};
use crate::dtype::{DType, DTypeClass};
use crate::element::Number;

/// A number with the type that arithmetic on it is carried out in; `None` for a constant, which
/// takes the type of what it meets.
#[derive(Clone, Copy, Debug)]
struct Typed {
    number: Number,
    dtype: Option<DType>,
}

/// The value of an expression for one element. `operands` are the elements and `dtypes` their
/// types; the result is rounded as [`round_result`] does.
///
/// An operand that is not there counts as NaN; inference excludes it.
pub fn evaluate(expr: &Expr, operands: &[Number], dtypes: &[DType], result: DType) -> Number {
    round_result(eval(expr, operands, dtypes).number, result)
}

/// Rounds a computed value to the type of the result. Finite values beyond the greatest 8-bit
/// float become it; infinities stay where the type has them.
pub fn round_result(number: Number, dtype: DType) -> Number {
    number.round_to(dtype, number.to_float().is_finite())
}

fn eval(expr: &Expr, operands: &[Number], dtypes: &[DType]) -> Typed {
    let go = |e: &Expr| eval(e, operands, dtypes);
    let operand_type = |i: &u8| dtypes.get(usize::from(*i)).copied().unwrap_or(DType::F32);
    match expr {
        Expr::Operand(i) => {
            let number = operands.get(usize::from(*i)).copied();
            typed(number.unwrap_or(Number::Float(f64::NAN)), operand_type(i).compute())
        }
        Expr::Constant(value) => Typed { number: Number::Float(value.0), dtype: None },
        Expr::Integer(value) => Typed { number: Number::Signed(*value), dtype: None },
        Expr::Greatest(i) => typed(limit(operand_type(i), true), operand_type(i).compute()),
        Expr::Least(i) => typed(limit(operand_type(i), false), operand_type(i).compute()),
        Expr::Unary(function, a) => unary(*function, go(a)),
        Expr::Binary(function, a, b) => binary(*function, go(a), go(b)),
        Expr::Select(condition, a, b) => {
            let (a, b) = unify(go(a), go(b));
            if go(condition).number.to_bool() { a } else { b }
        }
        Expr::Cast { to, saturate, value } => {
            typed(go(value).number.round_to(*to, *saturate), to.compute())
        }
    }
}

fn typed(number: Number, dtype: DType) -> Typed {
    Typed { number, dtype: Some(dtype) }
}

/// Gives a constant the type of the other side; two constants count as f64.
fn unify(a: Typed, b: Typed) -> (Typed, Typed) {
    let dtype = a.dtype.or(b.dtype).unwrap_or(DType::F64);
    let convert = |x: Typed| match x.dtype {
        Some(_) => x,
        None => typed(x.number.round_to(dtype, true), dtype),
    };
    (convert(a), convert(b))
}

/// The greatest or least value of a type: the infinities for floats.
pub fn limit(dtype: DType, greatest: bool) -> Number {
    match (dtype.class(), greatest) {
        (DTypeClass::Float, true) => Number::Float(f64::INFINITY),
        (DTypeClass::Float, false) => Number::Float(f64::NEG_INFINITY),
        (DTypeClass::Signed, true) => Number::Signed(i64::MAX >> (64 - dtype.bits())),
        (DTypeClass::Signed, false) => Number::Signed(i64::MIN >> (64 - dtype.bits())),
        (DTypeClass::Unsigned, true) => Number::Unsigned(u64::MAX >> (64 - dtype.bits())),
        (DTypeClass::Unsigned, false) => Number::Unsigned(0),
        (DTypeClass::Bool, greatest) => Number::Bool(greatest),
    }
}

fn unary(function: Unary, a: Typed) -> Typed {
    let dtype = a.dtype.unwrap_or(DType::F64);
    let value = a.number;
    let truth = |value: bool| typed(Number::Bool(value), DType::Bool);
    let integral = |f: fn(i128) -> i128| {
        typed(wrap(f(value.to_integer()), dtype).round_to(dtype, true), dtype)
    };
    match function {
        Unary::IsNan => truth(value.to_float().is_nan()),
        Unary::IsInf => truth(value.to_float().is_infinite()),
        Unary::Not => truth(!value.to_bool()),
        Unary::BitNot => integral(|x| !x),
        // f32 functions round once where they are computed in f32, as kernels do.
        _ if dtype == DType::F32 => {
            let result = float_unary_f32(function, value.to_float() as f32);
            typed(Number::Float(result.into()), dtype)
        }
        _ if dtype.is_float() => {
            typed(Number::Float(float_unary_f64(function, value.to_float())), dtype)
        }
        Unary::Neg => integral(|x| -x),
        Unary::Abs => integral(i128::abs),
        Unary::Sign => integral(i128::signum),
        // Inference lets the other functions at floats alone.
        _ => typed(Number::Float(f64::NAN), dtype),
    }
}

macro_rules! float_unary {
    ($name:ident, $float:ty, $($function:ident: $path:path),*) => {
        /// A function from floats to floats; NaN for the others.
        pub(super) fn $name(function: Unary, x: $float) -> $float {
            match function {
                Unary::Neg => -x,
                Unary::Abs => x.abs(),
                Unary::Sign if x > 0.0 => 1.0,
                Unary::Sign if x < 0.0 => -1.0,
                Unary::Sign => x,
                $(Unary::$function => $path(x),)*
                Unary::IsNan | Unary::IsInf | Unary::Not | Unary::BitNot => <$float>::NAN,
            }
        }
    };
}

float_unary!(
    float_unary_f64,
    f64,
    Floor: libm::floor,
    Ceil: libm::ceil,
    Round: libm::rint,
    Trunc: libm::trunc,
    Sqrt: libm::sqrt,
    Exp: libm::exp,
    Expm1: libm::expm1,
    Log: libm::log,
    Log1p: libm::log1p,
    Sin: libm::sin,
    Cos: libm::cos,
    Tan: libm::tan,
    Asin: libm::asin,
    Acos: libm::acos,
    Atan: libm::atan,
    Sinh: libm::sinh,
    Cosh: libm::cosh,
    Tanh: libm::tanh,
    Asinh: libm::asinh,
    Acosh: libm::acosh,
    Atanh: libm::atanh,
    Erf: libm::erf
);
float_unary!(
    float_unary_f32,
    f32,
    Floor: libm::floorf,
    Ceil: libm::ceilf,
    Round: libm::rintf,
    Trunc: libm::truncf,
    Sqrt: libm::sqrtf,
    Exp: libm::expf,
    Expm1: libm::expm1f,
    Log: libm::logf,
    Log1p: libm::log1pf,
    Sin: libm::sinf,
    Cos: libm::cosf,
    Tan: libm::tanf,
    Asin: libm::asinf,
    Acos: libm::acosf,
    Atan: libm::atanf,
    Sinh: libm::sinhf,
    Cosh: libm::coshf,
    Tanh: libm::tanhf,
    Asinh: libm::asinhf,
    Acosh: libm::acoshf,
    Atanh: libm::atanhf,
    Erf: libm::erff
);

fn binary(function: Binary, a: Typed, b: Typed) -> Typed {
    let (a, b) = unify(a, b);
    let dtype = a.dtype.unwrap_or(DType::F64);
    if function.is_comparison() {
        return typed(Number::Bool(compare(function, a.number, b.number)), DType::Bool);
    }
    let number = match dtype.class() {
        DTypeClass::Float => {
            let (x, y) = (a.number.to_float(), b.number.to_float());
            let value = if dtype == DType::F32 {
                f64::from(float_binary_f32(function, x as f32, y as f32))
            } else {
                float_binary_f64(function, x, y)
            };
            Number::Float(value)
        }
        DTypeClass::Bool => {
            let (x, y) = (a.number.to_bool(), b.number.to_bool());
            Number::Bool(truth_binary(function, x, y))
        }
        DTypeClass::Signed | DTypeClass::Unsigned => {
            let value =
                integer_binary(function, a.number.to_integer(), b.number.to_integer(), dtype);
            wrap(value, dtype)
        }
    };
    typed(number.round_to(dtype, true), dtype)
}

/// An integer wrapped to 64 bits of the type's signedness; `round_to` wraps it to the width.
fn wrap(value: i128, dtype: DType) -> Number {
    if dtype.class() == DTypeClass::Unsigned {
        Number::Unsigned(value as u64)
    } else {
        Number::Signed(value as i64)
    }
}

fn compare(function: Binary, a: Number, b: Number) -> bool {
    let ordering = match (a, b) {
        (Number::Float(_), _) | (_, Number::Float(_)) => a.to_float().partial_cmp(&b.to_float()),
        _ => Some(a.to_integer().cmp(&b.to_integer())),
    };
    holds(function, ordering)
}

/// Whether a comparison holds for two values in that order; `None`: one is NaN.
pub(super) fn holds(function: Binary, ordering: Option<std::cmp::Ordering>) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match function {
        Binary::Less => ordering == Some(Less),
        Binary::LessOrEqual => matches!(ordering, Some(Less | Equal)),
        Binary::Greater => ordering == Some(Greater),
        Binary::GreaterOrEqual => matches!(ordering, Some(Greater | Equal)),
        Binary::Equal => ordering == Some(Equal),
        _ => ordering != Some(Equal),
    }
}

pub(super) fn truth_binary(function: Binary, x: bool, y: bool) -> bool {
    match function {
        Binary::And | Binary::Min | Binary::Mul | Binary::BitAnd => x && y,
        Binary::Xor | Binary::BitXor => x != y,
        _ => x || y,
    }
}

macro_rules! float_binary {
    ($name:ident, $float:ty, $pow:path, $fmod:path) => {
        /// A function of two floats; NaN for those of integers and truth values.
        pub(super) fn $name(function: Binary, x: $float, y: $float) -> $float {
            match function {
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::Div => x / y,
                Binary::Pow => $pow(x, y),
                Binary::Min if x.is_nan() || y.is_nan() => <$float>::NAN,
                Binary::Min => x.min(y),
                Binary::Max if x.is_nan() || y.is_nan() => <$float>::NAN,
                Binary::Max => x.max(y),
                Binary::TruncMod => $fmod(x, y),
                Binary::FloorMod => {
                    let remainder = $fmod(x, y);
                    let wrong_sign = remainder != 0.0 && (remainder < 0.0) != (y < 0.0);
                    if wrong_sign { remainder + y } else { remainder }
                }
                // Inference lets bitwise and logical functions at integers and truth values alone.
                _ => <$float>::NAN,
            }
        }
    };
}

float_binary!(float_binary_f64, f64, libm::pow, libm::fmod);
float_binary!(float_binary_f32, f32, libm::powf, libm::fmodf);

fn integer_binary(function: Binary, x: i128, y: i128, dtype: DType) -> i128 {
    let width = i128::from(dtype.bits());
    match function {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x.wrapping_mul(y),
        Binary::Div => x.checked_div(y).unwrap_or(0),
        Binary::Pow => integer_power(x, y),
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        Binary::TruncMod => x.checked_rem(y).unwrap_or(0),
        Binary::FloorMod => {
            let remainder = x.checked_rem(y).unwrap_or(0);
            if remainder != 0 && (remainder < 0) != (y < 0) { remainder + y } else { remainder }
        }
        Binary::BitAnd | Binary::And => x & y,
        Binary::BitOr | Binary::Or => x | y,
        Binary::BitXor | Binary::Xor => x ^ y,
        Binary::ShiftLeft if (0..width).contains(&y) => x << y,
        Binary::ShiftRight if (0..width).contains(&y) => x >> y,
        Binary::ShiftRight if x < 0 => -1,
        _ => 0,
    }
}

/// `x^y` modulo 2^128, so right modulo 2^64; negative powers truncate towards zero.
fn integer_power(x: i128, y: i128) -> i128 {
    if y < 0 {
        return match x {
            1 => 1,
            -1 => 1 - 2 * (y & 1),
            _ => 0,
        };
    }
    let (mut base, mut exponent, mut power) = (x, y, 1i128);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    power
}
