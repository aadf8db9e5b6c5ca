//! Scalar expressions as C++ text, with the arithmetic of the reference evaluation. Must never see a
//! tensor.

use super::dims::compute_type;
use membar_ir::dtype::{DType, DTypeClass};
use membar_ir::element::Number;
use membar_ir::op::ScalarMeaning;
use membar_ir::scalar::{Binary, Expr, Unary, limit};

/// Text with the type that it is computed in; `None` for a constant, which takes the type of what
/// it meets.
struct Typed {
    text: String,
    dtype: Option<DType>,
    constant: Option<Number>,
}

/// The meaning of an elementwise operator on operands that are C++ expressions in the compute types
/// of `dtypes`; the result is in the compute type of the result's element type.
pub(crate) fn scalar(meaning: &ScalarMeaning, operands: &[String], dtypes: &[DType]) -> String {
    let value = expression(&meaning.expr, operands, dtypes);
    let dtype = value.dtype.unwrap_or(DType::F64);
    let value = typed_as(value, dtype);
    if dtype == meaning.result.compute() {
        return value;
    }
    // Integers of another width, or floats: as the result's `round_to` does it.
    convert(&value, dtype, meaning.result, true)
}

fn expression(expr: &Expr, operands: &[String], dtypes: &[DType]) -> Typed {
    let go = |e: &Expr| expression(e, operands, dtypes);
    let dtype = |i: &u8| dtypes.get(usize::from(*i)).copied().unwrap_or(DType::F32);
    let constant = |number| Typed { text: String::new(), dtype: None, constant: Some(number) };
    match expr {
        Expr::Operand(i) => {
            typed(operands.get(usize::from(*i)).cloned().unwrap_or_default(), dtype(i).compute())
        }
        Expr::Constant(value) => constant(Number::Float(value.0)),
        Expr::Integer(value) => constant(Number::Signed(*value)),
        Expr::Greatest(i) => {
            let compute = dtype(i).compute();
            typed(literal(limit(dtype(i), true), compute), compute)
        }
        Expr::Least(i) => {
            let compute = dtype(i).compute();
            typed(literal(limit(dtype(i), false), compute), compute)
        }
        Expr::Unary(function, a) => unary(*function, go(a)),
        Expr::Binary(function, a, b) => binary(*function, go(a), go(b)),
        Expr::Select(condition, a, b) => {
            let condition = go(condition);
            let dtype = condition.dtype.unwrap_or(DType::F64);
            let condition = truth(&typed_as(condition, dtype), dtype);
            let (a, b, dtype) = unify(go(a), go(b));
            typed(format!("({condition} ? {a} : {b})"), dtype)
        }
        Expr::Cast { to, saturate, value } => {
            let value = go(value);
            if let (Some(number), None) = (value.constant, value.dtype) {
                let rounded = number.round_to(*to, *saturate);
                return typed(literal(rounded, to.compute()), to.compute());
            }
            let dtype = value.dtype.unwrap_or(DType::F64);
            let text = typed_as(value, dtype);
            typed(convert(&text, dtype, *to, *saturate), to.compute())
        }
    }
}

fn typed(text: String, dtype: DType) -> Typed {
    Typed { text, dtype: Some(dtype), constant: None }
}

/// The text of a value in that type; constants are rounded to it.
fn typed_as(value: Typed, dtype: DType) -> String {
    match (value.dtype, value.constant) {
        (None, Some(number)) => literal(number.round_to(dtype, true), dtype),
        _ => value.text,
    }
}

fn unify(a: Typed, b: Typed) -> (String, String, DType) {
    let dtype = a.dtype.or(b.dtype).unwrap_or(DType::F64);
    (typed_as(a, dtype), typed_as(b, dtype), dtype)
}

fn truth(text: &str, dtype: DType) -> String {
    if dtype == DType::Bool { text.to_string() } else { format!("({text} != 0)") }
}

/// A conversion of a value in `from`, a compute type, to the compute type of `to`, rounded to `to`.
pub(crate) fn convert(text: &str, from: DType, to: DType, saturate: bool) -> String {
    if from == to {
        return text.to_string();
    }
    let wide = if from == DType::F64 { "f64" } else { "f32" };
    match (to, to.class()) {
        (_, DTypeClass::Bool) => truth(text, from),
        (DType::F64, _) => format!("f64({text})"),
        (DType::F32, _) => format!("f32({text})"),
        (DType::F16, _) => format!("widen(to_f16({wide}({text})))"),
        (DType::Bf16, _) => format!("widen(to_bf16({wide}({text})))"),
        (DType::F8E4m3fn | DType::F8E5m2, _) => {
            format!("widen(to_{}(f64({text}), {saturate}))", to.name())
        }
        (DType::I4, _) => format!("wrap_i4(to_signed({text}))"),
        (DType::U4, _) => format!("wrap_u4(to_unsigned({text}))"),
        (_, DTypeClass::Signed) => format!("{}(to_signed({text}))", to.name()),
        (_, _) => format!("{}(to_unsigned({text}))", to.name()),
    }
}

/// A number as a literal of a compute type.
pub(crate) fn literal(number: Number, dtype: DType) -> String {
    let text = plain_literal(number, dtype);
    // `- -1` is well, `--1` is not.
    if text.starts_with('-') { format!("({text})") } else { text }
}

fn plain_literal(number: Number, dtype: DType) -> String {
    match dtype {
        DType::F64 => float_text(number.to_float(), ""),
        dtype if dtype.is_float() => {
            let value = number.to_float() as f32;
            if value.is_finite() {
                format!("{value:?}f")
            } else {
                format!("__int_as_float({:#x})", value.to_bits() as i32)
            }
        }
        DType::Bool => number.to_bool().to_string(),
        dtype => {
            let name = compute_type(dtype);
            match number.round_to(dtype, true) {
                Number::Signed(i64::MIN) => format!("{name}(-9223372036854775807LL - 1)"),
                Number::Unsigned(value) => format!("{name}({value}ULL)"),
                other => format!("{name}({}LL)", other.to_integer()),
            }
        }
    }
}

fn float_text(value: f64, suffix: &str) -> String {
    if value.is_finite() {
        return format!("{value:?}{suffix}");
    }
    format!("__longlong_as_double({:#x}LL)", value.to_bits())
}

fn unary(function: Unary, a: Typed) -> Typed {
    let dtype = a.dtype.unwrap_or(DType::F64);
    let x = typed_as(a, dtype);
    let suffix = if dtype == DType::F32 { "f" } else { "" };
    let name = match function {
        Unary::IsNan if dtype.is_float() => return typed(format!("is_nan({x})"), DType::Bool),
        Unary::IsInf if dtype.is_float() => {
            return typed(format!("(isinf({x}) != 0)"), DType::Bool);
        }
        Unary::IsNan | Unary::IsInf => return typed("false".to_string(), DType::Bool),
        Unary::Not => return typed(format!("(!{})", truth(&x, dtype)), DType::Bool),
        Unary::BitNot => return typed(wrapped(&format!("~u64({x})"), dtype), dtype),
        Unary::Neg if dtype.is_float() => return typed(format!("(-{x})"), dtype),
        Unary::Neg => return typed(wrapped(&format!("0 - u64({x})"), dtype), dtype),
        Unary::Abs if !dtype.is_float() => {
            return typed(wrapped(&format!("int_abs({x})"), dtype), dtype);
        }
        Unary::Sign if !dtype.is_float() => return typed(format!("int_sign({x})"), dtype),
        Unary::Sign => return typed(format!("float_sign({x})"), dtype),
        Unary::Abs => "fabs",
        Unary::Floor => "floor",
        Unary::Ceil => "ceil",
        Unary::Round => "rint",
        Unary::Trunc => "trunc",
        Unary::Sqrt => "sqrt",
        Unary::Exp => "exp",
        Unary::Expm1 => "expm1",
        Unary::Log => "log",
        Unary::Log1p => "log1p",
        Unary::Sin => "sin",
        Unary::Cos => "cos",
        Unary::Tan => "tan",
        Unary::Asin => "asin",
        Unary::Acos => "acos",
        Unary::Atan => "atan",
        Unary::Sinh => "sinh",
        Unary::Cosh => "cosh",
        Unary::Tanh => "tanh",
        Unary::Asinh => "asinh",
        Unary::Acosh => "acosh",
        Unary::Atanh => "atanh",
        Unary::Erf => "erf",
    };
    typed(format!("{name}{suffix}({x})"), dtype)
}

/// Integer arithmetic on `u64`, wrapped to a type.
fn wrapped(text: &str, dtype: DType) -> String {
    match dtype {
        DType::I4 => format!("wrap_i4(i64({text}))"),
        DType::U4 => format!("wrap_u4(u64({text}))"),
        dtype => format!("{}({text})", dtype.name()),
    }
}

fn binary(function: Binary, a: Typed, b: Typed) -> Typed {
    let (x, y, dtype) = unify(a, b);
    if let Some(operator) = comparison(function) {
        return typed(format!("({x} {operator} {y})"), DType::Bool);
    }
    let text = match dtype.class() {
        DTypeClass::Float => float_binary(function, &x, &y, dtype),
        DTypeClass::Bool => {
            let operator = match function {
                Binary::And | Binary::Min | Binary::Mul | Binary::BitAnd => "&&",
                Binary::Xor | Binary::BitXor => "!=",
                _ => "||",
            };
            format!("({x} {operator} {y})")
        }
        DTypeClass::Signed | DTypeClass::Unsigned => integer_binary(function, &x, &y, dtype),
    };
    typed(text, dtype)
}

fn comparison(function: Binary) -> Option<&'static str> {
    Some(match function {
        Binary::Less => "<",
        Binary::LessOrEqual => "<=",
        Binary::Greater => ">",
        Binary::GreaterOrEqual => ">=",
        Binary::Equal => "==",
        Binary::NotEqual => "!=",
        _ => return None,
    })
}

fn float_binary(function: Binary, x: &str, y: &str, dtype: DType) -> String {
    let suffix = if dtype == DType::F32 { "f" } else { "" };
    match function {
        Binary::Add => format!("({x} + {y})"),
        Binary::Sub => format!("({x} - {y})"),
        Binary::Mul => format!("({x} * {y})"),
        Binary::Div => format!("({x} / {y})"),
        Binary::Pow => format!("pow{suffix}({x}, {y})"),
        Binary::Min => format!("float_min({x}, {y})"),
        Binary::Max => format!("float_max({x}, {y})"),
        Binary::TruncMod => format!("fmod{suffix}({x}, {y})"),
        Binary::FloorMod => format!("float_floor_mod({x}, {y})"),
        // Inference lets bitwise and logical functions at integers and truth values alone.
        _ => literal(Number::Float(f64::NAN), dtype),
    }
}

fn integer_binary(function: Binary, x: &str, y: &str, dtype: DType) -> String {
    let width = dtype.bits();
    let wide = |operator: &str| wrapped(&format!("u64({x}) {operator} u64({y})"), dtype);
    let call = |name: &str| wrapped(&format!("{name}({x}, {y})"), dtype);
    match function {
        Binary::Add => wide("+"),
        Binary::Sub => wide("-"),
        Binary::Mul => wide("*"),
        Binary::Div => call("int_div"),
        Binary::Pow => call("int_pow"),
        Binary::Min => format!("({x} < {y} ? {x} : {y})"),
        Binary::Max => format!("({x} > {y} ? {x} : {y})"),
        Binary::TruncMod => call("int_trunc_mod"),
        Binary::FloorMod => call("int_floor_mod"),
        Binary::BitAnd | Binary::And => wide("&"),
        Binary::BitOr | Binary::Or => wide("|"),
        Binary::BitXor | Binary::Xor => wide("^"),
        Binary::ShiftLeft => wrapped(&format!("int_shift_left({x}, {y}, {width})"), dtype),
        Binary::ShiftRight => wrapped(&format!("int_shift_right({x}, {y}, {width})"), dtype),
        Binary::Less
        | Binary::LessOrEqual
        | Binary::Greater
        | Binary::GreaterOrEqual
        | Binary::Equal
        | Binary::NotEqual => literal(Number::Signed(0), dtype),
    }
}
