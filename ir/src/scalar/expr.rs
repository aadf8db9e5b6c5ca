//! Scalar expressions over typed operands; never an evaluation (see `evaluate`).

use crate::attribute::Float;
use crate::dtype::DType;
use std::ops;

/// An expression over the operands of an elementwise operator.
///
/// Arithmetic is carried out in the compute type of its operands ([`DType::compute`]): f16, bf16
/// and 8-bit floats widen to f32 when an operand is read, and only the result is rounded back.
/// Integers wrap. Comparisons give truth values. Both sides of a binary function have one type;
/// a [`Expr::Constant`] takes the type of the other side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expr {
    /// The operand of that position.
    Operand(u8),
    /// A constant; converted to the type of what it meets: f64 where it meets no operand.
    Constant(Float),
    /// An integer constant, for those that an `f64` does not hold; converted as other constants.
    Integer(i64),
    /// The greatest value of the type of the operand at this position: infinity for floats.
    Greatest(u8),
    /// The least value of the type of the operand at this position: -infinity for floats.
    Least(u8),
    /// A function of one argument.
    Unary(Unary, Box<Expr>),
    /// A function of two arguments of one type.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// The second if the first, a truth value, holds, else the third.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A conversion, as [`Number::round_to`](crate::element::Number::round_to) does it.
    Cast {
        /// To what type.
        to: DType,
        /// Whether 8-bit floats saturate.
        saturate: bool,
        /// What is converted.
        value: Box<Expr>,
    },
}

/// A function of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // The names are the mathematical functions.
pub enum Unary {
    Neg,
    Abs,
    /// -1, 0 or 1; NaN stays.
    Sign,
    Floor,
    Ceil,
    /// To the nearest integer, ties to even.
    Round,
    Trunc,
    Sqrt,
    Exp,
    Expm1,
    Log,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    IsNan,
    /// Whether the value is +infinity or -infinity.
    IsInf,
    /// Logical negation of a truth value.
    Not,
    /// Complement of every bit of an integer.
    BitNot,
}

/// A function of two arguments of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // The names are the mathematical functions.
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Integers truncate towards zero; division by zero gives 0 for integers.
    Div,
    Pow,
    /// NaN if either is NaN.
    Min,
    /// NaN if either is NaN.
    Max,
    /// Remainder with the sign of the divisor; integer modulo 0 is 0.
    FloorMod,
    /// Remainder with the sign of the dividend, C's `fmod`; integer modulo 0 is 0.
    TruncMod,
    And,
    Or,
    Xor,
    BitAnd,
    BitOr,
    BitXor,
    /// Shifts by the width or more, or by less than 0, give 0.
    ShiftLeft,
    /// Copies the sign of signed types; shifts by the width or more, or by less than 0, leave
    /// nothing else.
    ShiftRight,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Unary {
    /// Applies the function.
    pub fn of(self, value: Expr) -> Expr {
        Expr::Unary(self, Box::new(value))
    }
}

impl Binary {
    /// Applies the function.
    pub fn of(self, left: Expr, right: Expr) -> Expr {
        Expr::Binary(self, Box::new(left), Box::new(right))
    }

    /// Whether the result is a truth value whatever the type of the arguments.
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            Binary::Less
                | Binary::LessOrEqual
                | Binary::Greater
                | Binary::GreaterOrEqual
                | Binary::Equal
                | Binary::NotEqual
        )
    }
}

impl Expr {
    /// A constant.
    pub fn constant(value: f64) -> Expr {
        Expr::Constant(Float(value))
    }

    /// `self` if `condition`, else `other`.
    pub fn select(condition: Expr, then: Expr, otherwise: Expr) -> Expr {
        Expr::Select(Box::new(condition), Box::new(then), Box::new(otherwise))
    }

    /// How many functions one evaluation applies; conversions are not counted.
    pub fn operations(&self) -> i64 {
        match self {
            Expr::Operand(_)
            | Expr::Constant(_)
            | Expr::Integer(_)
            | Expr::Greatest(_)
            | Expr::Least(_) => 0,
            Expr::Unary(_, a) => 1 + a.operations(),
            Expr::Binary(_, a, b) => 1 + a.operations() + b.operations(),
            Expr::Select(c, a, b) => 1 + c.operations() + a.operations() + b.operations(),
            Expr::Cast { value, .. } => value.operations(),
        }
    }

    /// Replaces each operand by an expression: `operands[i]` for operand `i`.
    pub fn substitute(&self, operands: &[Expr]) -> Expr {
        let sub = |e: &Expr| Box::new(e.substitute(operands));
        match self {
            Expr::Operand(i) => operands.get(usize::from(*i)).cloned().unwrap_or(self.clone()),
            Expr::Constant(_) | Expr::Integer(_) | Expr::Greatest(_) | Expr::Least(_) => {
                self.clone()
            }
            Expr::Unary(f, a) => Expr::Unary(*f, sub(a)),
            Expr::Binary(f, a, b) => Expr::Binary(*f, sub(a), sub(b)),
            Expr::Select(c, a, b) => Expr::Select(sub(c), sub(a), sub(b)),
            Expr::Cast { to, saturate, value } => {
                Expr::Cast { to: *to, saturate: *saturate, value: sub(value) }
            }
        }
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident $function:ident),*) => {$(
        impl ops::$trait for Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                Binary::$function.of(self, other)
            }
        }
        impl ops::$trait<f64> for Expr {
            type Output = Expr;
            fn $method(self, other: f64) -> Expr {
                Binary::$function.of(self, Expr::constant(other))
            }
        }
        impl ops::$trait<Expr> for f64 {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                Binary::$function.of(Expr::constant(self), other)
            }
        }
    )*};
}

arithmetic!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        Unary::Neg.of(self)
    }
}
