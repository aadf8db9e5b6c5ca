//! The table of scalar functions: name, operand types and expression of each; nothing else may
//! define what an elementwise operator computes.

use crate::attribute::{Attribute, Attributes, Float};
use crate::attribute_words;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, ScalarMeaning, TypeError, check};
use crate::scalar::{Binary, Expr, Unary};
use crate::text::{AttributeParser, AttributePrinter, Cursor, SyntaxError};
use crate::types::TensorType;
use std::fmt;

attribute_words! {
    /// How the Gaussian error linear unit is computed.
    GeluForm {
        /// `0.5 x (1 + erf(x / √2))`.
        Erf = "erf",
        /// `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
        Tanh = "tanh",
        /// `x sigmoid(1.702 x)`.
        Quick = "quick",
    }
}

/// Which element types the operands of a scalar function may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Any,
    Numeric,
    Float,
    Integer,
    Bool,
    /// A truth value, then operands of one type.
    Choice,
}

impl Class {
    fn accepts(self, dtype: DType) -> bool {
        match self {
            Class::Any | Class::Choice => true,
            Class::Numeric => dtype != DType::Bool,
            Class::Float => dtype.is_float(),
            Class::Integer => dtype.is_integer(),
            Class::Bool => dtype == DType::Bool,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Class::Any | Class::Choice => "any type",
            Class::Numeric => "a number",
            Class::Float => "a float",
            Class::Integer => "an integer",
            Class::Bool => "bool",
        }
    }
}

macro_rules! scalars {
    (@result $dtype:ident same) => { $dtype };
    (@result $dtype:ident [$other:expr]) => { $other };
    ($(
        $(#[$meta:meta])*
        $name:ident $({ $($field:ident: $ty:ty),* })? = $mnemonic:literal
            $class:ident($($operand:ident),+) -> $result:tt : $body:expr;
    )*) => {
        /// An elementwise function with its parameters. Operands broadcast, NumPy's way.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // Parameters are explained with their function.
        pub enum Scalar {
            $($(#[$meta])* $name $({ $($field: $ty),* })?),*
        }

        impl Scalar {
            /// The names of all scalar functions, in the order of the table.
            pub const MNEMONICS: &'static [&'static str] = &[$($mnemonic),*];

            /// The name in IR text.
            pub fn mnemonic(&self) -> &'static str {
                match self { $(Scalar::$name $({ $($field: _),* })? => $mnemonic),* }
            }

            /// Reads the parameters of the function of that name; `None` if there is none.
            pub fn parse(
                mnemonic: &str,
                cursor: &mut Cursor<'_>,
            ) -> Option<Result<Scalar, SyntaxError>> {
                $(if mnemonic == $mnemonic {
                    return Some((|| {
                        #[allow(unused_mut)]
                        let mut _list = AttributeParser::new(cursor)?;
                        $($(let $field = _list.field(stringify!($field))?;)*)?
                        _list.finish()?;
                        Ok(Scalar::$name $({ $($field),* })?)
                    })());
                })*
                let _ = cursor;
                None
            }

            fn class(&self) -> Class {
                match self { $(Scalar::$name $({ $($field: _),* })? => Class::$class),* }
            }

            /// How many operands it takes.
            pub fn arity(&self) -> usize {
                match self {
                    $(Scalar::$name $({ $($field: _),* })? => [$(stringify!($operand)),+].len()),*
                }
            }

            fn result(&self, dtype: DType) -> DType {
                match self {
                    $(#[allow(unused_variables)]
                    Scalar::$name $({ $($field),* })? => scalars!(@result dtype $result)),*
                }
            }

            /// The function as an expression over its operands.
            pub fn expr(&self) -> Expr {
                match self {
                    $(#[allow(unused_variables)]
                    Scalar::$name $({ $($field),* })? => {
                        let mut operands = (0u8..).map(Expr::Operand);
                        $(let $operand = operands.next().unwrap_or(Expr::Operand(u8::MAX));)+
                        $body
                    }),*
                }
            }
        }

        impl Attributes for Scalar {
            fn print_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                #[allow(unused_mut)]
                let mut list = AttributePrinter::new(f);
                match self {
                    $(Scalar::$name $({ $($field),* })? => {
                        $($(list.field(stringify!($field), $field)?;)*)?
                    }),*
                }
                list.finish()
            }

            /// A scalar function's parameters depend on its name: use [`Scalar::parse`].
            fn parse_attributes(cursor: &mut Cursor<'_>) -> Result<Scalar, SyntaxError> {
                Err(cursor.error("the name of a scalar function"))
            }

            fn visit_attribute_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
                match self {
                    $(Scalar::$name $({ $($field),* })? => {
                        $($(Attribute::visit_dims($field, visit);)*)?
                        let _ = &visit;
                    }),*
                }
            }
        }
    };
}

scalars! {
    /// `-x`; integers wrap.
    Neg = "neg" Numeric(x) -> same : -x;
    /// `|x|`.
    Abs = "abs" Numeric(x) -> same : Unary::Abs.of(x);
    /// -1, 0 or 1; NaN stays.
    Sign = "sign" Numeric(x) -> same : Unary::Sign.of(x);
    /// Largest integer not above x.
    Floor = "floor" Float(x) -> same : Unary::Floor.of(x);
    /// Least integer not below x.
    Ceil = "ceil" Float(x) -> same : Unary::Ceil.of(x);
    /// Nearest integer, ties to even.
    Round = "round" Float(x) -> same : Unary::Round.of(x);
    /// `1 / x`.
    Reciprocal = "reciprocal" Float(x) -> same : 1.0 / x;
    /// `√x`.
    Sqrt = "sqrt" Float(x) -> same : Unary::Sqrt.of(x);
    /// `1 / √x`.
    Rsqrt = "rsqrt" Float(x) -> same : 1.0 / Unary::Sqrt.of(x);
    /// `eˣ`.
    Exp = "exp" Float(x) -> same : Unary::Exp.of(x);
    /// Natural logarithm.
    Log = "log" Float(x) -> same : Unary::Log.of(x);
    /// Sine.
    Sin = "sin" Float(x) -> same : Unary::Sin.of(x);
    /// Cosine.
    Cos = "cos" Float(x) -> same : Unary::Cos.of(x);
    /// Tangent.
    Tan = "tan" Float(x) -> same : Unary::Tan.of(x);
    /// Inverse sine.
    Asin = "asin" Float(x) -> same : Unary::Asin.of(x);
    /// Inverse cosine.
    Acos = "acos" Float(x) -> same : Unary::Acos.of(x);
    /// Inverse tangent.
    Atan = "atan" Float(x) -> same : Unary::Atan.of(x);
    /// Hyperbolic sine.
    Sinh = "sinh" Float(x) -> same : Unary::Sinh.of(x);
    /// Hyperbolic cosine.
    Cosh = "cosh" Float(x) -> same : Unary::Cosh.of(x);
    /// Hyperbolic tangent.
    Tanh = "tanh" Float(x) -> same : Unary::Tanh.of(x);
    /// Inverse hyperbolic sine.
    Asinh = "asinh" Float(x) -> same : Unary::Asinh.of(x);
    /// Inverse hyperbolic cosine.
    Acosh = "acosh" Float(x) -> same : Unary::Acosh.of(x);
    /// Inverse hyperbolic tangent.
    Atanh = "atanh" Float(x) -> same : Unary::Atanh.of(x);
    /// Error function.
    Erf = "erf" Float(x) -> same : Unary::Erf.of(x);
    /// Whether x is NaN.
    IsNan = "is_nan" Float(x) -> [DType::Bool] : Unary::IsNan.of(x);
    /// Whether x is an infinity of a sign that counts.
    IsInf { negative: bool, positive: bool } = "is_inf" Float(x) -> [DType::Bool] :
        match (negative, positive) {
            (true, true) => Unary::IsInf.of(x),
            (true, false) => Binary::Equal.of(x, Expr::constant(f64::NEG_INFINITY)),
            (false, true) => Binary::Equal.of(x, Expr::constant(f64::INFINITY)),
            (false, false) => Expr::Cast {
                to: DType::Bool,
                saturate: true,
                value: Box::new(Expr::Integer(0)),
            },
        };
    /// `max(x, 0)`.
    Relu = "relu" Numeric(x) -> same : Binary::Max.of(x, Expr::constant(0.0));
    /// `alpha x` if negative, else `x`.
    LeakyRelu { alpha: Float } = "leaky_relu" Float(x) -> same :
        Expr::select(negative(&x), x.clone() * constant(alpha), x);
    /// `slope x` if negative, else `x`.
    Prelu = "prelu" Numeric(x, slope) -> same : Expr::select(negative(&x), x.clone() * slope, x);
    /// 0 unless x is greater than alpha, then `x`; NaN stays.
    ThresholdedRelu { alpha: Float } = "thresholded_relu" Float(x) -> same :
        Expr::select(
            Binary::LessOrEqual.of(x.clone(), constant(alpha)),
            Expr::constant(0.0),
            x,
        );
    /// `alpha (eˣ - 1)` if negative, else `x`.
    Elu { alpha: Float } = "elu" Float(x) -> same :
        Expr::select(negative(&x), Unary::Expm1.of(x.clone()) * constant(alpha), x);
    /// `gamma alpha (eˣ - 1)` if negative, else `gamma x`.
    Selu { alpha: Float, gamma: Float } = "selu" Float(x) -> same :
        constant(gamma)
            * Expr::select(negative(&x), Unary::Expm1.of(x.clone()) * constant(alpha), x);
    /// `max(0, x) + min(0, alpha (e^(x / alpha) - 1))`.
    Celu { alpha: Float } = "celu" Float(x) -> same :
        Binary::Max.of(x.clone(), Expr::constant(0.0))
            + Binary::Min.of(
                Unary::Expm1.of(x / constant(alpha)) * constant(alpha),
                Expr::constant(0.0),
            );
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid = "sigmoid" Float(x) -> same : sigmoid(x);
    /// `max(0, min(1, alpha x + beta))`.
    HardSigmoid { alpha: Float, beta: Float } = "hard_sigmoid" Float(x) -> same :
        unit_interval(x * constant(alpha) + constant(beta));
    /// `x sigmoid(beta x)`; SiLU at beta = 1.
    Swish { beta: Float } = "swish" Float(x) -> same :
        x.clone() * sigmoid(if beta.0 == 1.0 { x } else { x * constant(beta) });
    /// `x max(0, min(1, x / 6 + 1 / 2))`.
    HardSwish = "hard_swish" Float(x) -> same : x.clone() * unit_interval(x * (1.0 / 6.0) + 0.5);
    /// `log(1 + eˣ)`.
    Softplus = "softplus" Float(x) -> same : softplus(x);
    /// `x / (1 + |x|)`.
    Softsign = "softsign" Float(x) -> same : x.clone() / (Unary::Abs.of(x) + 1.0);
    /// `x tanh(softplus(x))`.
    Mish = "mish" Float(x) -> same : x.clone() * Unary::Tanh.of(softplus(x));
    /// Gaussian error linear unit.
    Gelu { form: GeluForm } = "gelu" Float(x) -> same : match form {
        GeluForm::Erf => {
            x.clone() * 0.5 * (Unary::Erf.of(x * std::f64::consts::FRAC_1_SQRT_2) + 1.0)
        }
        GeluForm::Tanh => {
            let cube = x.clone() * x.clone() * x.clone();
            let inner = (x.clone() + cube * 0.044715) * 0.797_884_560_802_865_4;
            x * 0.5 * (Unary::Tanh.of(inner) + 1.0)
        }
        GeluForm::Quick => x.clone() * sigmoid(x * 1.702),
    };
    /// `x + bias` below -lambda, `x - bias` above lambda, else 0. Floats alone: ONNX adds a
    /// fractional bias to an integer in floating point, so an importer casts there and back.
    Shrink { lambda: Float, bias: Float } = "shrink" Float(x) -> same :
        Expr::select(
            Binary::Less.of(x.clone(), Expr::Constant(Float(-lambda.0))),
            x.clone() + constant(bias),
            Expr::select(
                Binary::Greater.of(x.clone(), constant(lambda)),
                x - constant(bias),
                Expr::constant(0.0),
            ),
        );
    /// Logical negation.
    Not = "not" Bool(x) -> same : Unary::Not.of(x);
    /// Complement of every bit.
    BitNot = "bit_not" Integer(x) -> same : Unary::BitNot.of(x);
    /// Conversion; integers wrap, floats truncate to integers, 8-bit floats saturate if told to.
    Cast { to: DType, saturate: bool } = "cast" Any(x) -> [*to] :
        Expr::Cast { to: *to, saturate: *saturate, value: Box::new(x) };
    /// `x + y`.
    Add = "add" Numeric(x, y) -> same : x + y;
    /// `x - y`.
    Sub = "sub" Numeric(x, y) -> same : x - y;
    /// `x y`.
    Mul = "mul" Numeric(x, y) -> same : x * y;
    /// `x / y`; integers truncate towards zero, and give 0 where y is 0.
    Div = "div" Numeric(x, y) -> same : x / y;
    /// `xʸ`; integers wrap, and truncate towards zero where y is negative.
    Pow = "pow" Numeric(x, y) -> same : Binary::Pow.of(x, y);
    /// The lesser; NaN if either is.
    Min = "min" Any(x, y) -> same : Binary::Min.of(x, y);
    /// The greater; NaN if either is.
    Max = "max" Any(x, y) -> same : Binary::Max.of(x, y);
    /// `min(max(x, lo), hi)`.
    Clip = "clip" Numeric(x, lo, hi) -> same : Binary::Min.of(Binary::Max.of(x, lo), hi);
    /// Remainder with the sign of the divisor.
    FloorMod = "floor_mod" Numeric(x, y) -> same : Binary::FloorMod.of(x, y);
    /// Remainder with the sign of the dividend.
    TruncMod = "trunc_mod" Numeric(x, y) -> same : Binary::TruncMod.of(x, y);
    /// Both.
    And = "and" Bool(x, y) -> same : Binary::And.of(x, y);
    /// Either.
    Or = "or" Bool(x, y) -> same : Binary::Or.of(x, y);
    /// One alone.
    Xor = "xor" Bool(x, y) -> same : Binary::Xor.of(x, y);
    /// Bitwise and.
    BitAnd = "bit_and" Integer(x, y) -> same : Binary::BitAnd.of(x, y);
    /// Bitwise or.
    BitOr = "bit_or" Integer(x, y) -> same : Binary::BitOr.of(x, y);
    /// Bitwise exclusive or.
    BitXor = "bit_xor" Integer(x, y) -> same : Binary::BitXor.of(x, y);
    /// Shift left; 0 from the width on, and for negative amounts.
    ShiftLeft = "shift_left" Integer(x, y) -> same : Binary::ShiftLeft.of(x, y);
    /// Shift right, copying the sign of signed types; from the width on, and for negative
    /// amounts, nothing else is left: 0 or -1.
    ShiftRight = "shift_right" Integer(x, y) -> same : Binary::ShiftRight.of(x, y);
    /// `x < y`.
    Less = "less" Any(x, y) -> [DType::Bool] : Binary::Less.of(x, y);
    /// `x ≤ y`.
    LessOrEqual = "less_or_equal" Any(x, y) -> [DType::Bool] : Binary::LessOrEqual.of(x, y);
    /// `x > y`.
    Greater = "greater" Any(x, y) -> [DType::Bool] : Binary::Greater.of(x, y);
    /// `x ≥ y`.
    GreaterOrEqual = "greater_or_equal" Any(x, y) -> [DType::Bool] :
        Binary::GreaterOrEqual.of(x, y);
    /// `x = y`.
    Equal = "equal" Any(x, y) -> [DType::Bool] : Binary::Equal.of(x, y);
    /// `x ≠ y`.
    NotEqual = "not_equal" Any(x, y) -> [DType::Bool] : Binary::NotEqual.of(x, y);
    /// `then` where the condition holds, else `otherwise`.
    Select = "select" Choice(condition, then, otherwise) -> same :
        Expr::select(condition, then, otherwise);
}

fn constant(value: &Float) -> Expr {
    Expr::Constant(*value)
}

fn negative(x: &Expr) -> Expr {
    Binary::Less.of(x.clone(), Expr::constant(0.0))
}

fn sigmoid(x: Expr) -> Expr {
    1.0 / (Unary::Exp.of(-x) + 1.0)
}

fn softplus(x: Expr) -> Expr {
    Binary::Max.of(x.clone(), Expr::constant(0.0))
        + Unary::Log1p.of(Unary::Exp.of(-Unary::Abs.of(x)))
}

fn unit_interval(x: Expr) -> Expr {
    Binary::Max.of(Binary::Min.of(x, Expr::constant(1.0)), Expr::constant(0.0))
}

impl OpDef for Scalar {
    const MNEMONIC: &'static str = "scalar";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        if operands.len() != self.arity() {
            let expected = self.arity().to_string();
            return Err(TypeError::Arity { expected, found: operands.len() });
        }
        let class = self.class();
        let first = usize::from(class == Class::Choice);
        if first == 1 {
            check::dtype_is(operands, 0, DType::Bool)?;
        }
        let dtype = check::dtype(operands, first, class.describe(), |d| class.accepts(d))?;
        for index in first + 1..operands.len() {
            check::dtype_is(operands, index, dtype)?;
        }
        let mut shape = operands[0].shape.clone();
        for operand in &operands[1..] {
            shape = check::broadcast(&shape, &operand.shape)?;
        }
        Ok(vec![TensorType::new(self.result(dtype), shape)])
    }

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        let first = usize::from(self.class() == Class::Choice);
        let dtype = operands.get(first).map_or(DType::F32, |ty| ty.dtype);
        Meaning::Scalar(ScalarMeaning { expr: self.expr(), result: self.result(dtype) })
    }

    fn operations(&self, _operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        let elements: Dim = outputs.iter().map(TensorType::elements).sum();
        Dim::from(self.expr().operations()) * elements
    }
}
