//! Scalar expressions as flat programs over typed lanes; must never touch an element (see
//! `execute`).

use membar_ir::dtype::{DType, DTypeClass};
use membar_ir::element::Number;
use membar_ir::op::ScalarMeaning;
use membar_ir::scalar::{Binary, Expr, Unary};
use std::collections::BTreeMap;

/// The machine types that a program computes in. Narrow integers compute in wider lanes and are
/// wrapped after each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    F32,
    F64,
    I32,
    I64,
    Bool,
}

/// A register: some elements of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register {
    pub lane: Lane,
    pub index: usize,
}

/// One step of a program. Sources have lower indices than results in their lane.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    Unary {
        function: Unary,
        to: Register,
        a: Register,
    },
    Binary {
        function: Binary,
        width: u32,
        to: Register,
        a: Register,
        b: Register,
    },
    Select {
        condition: Register,
        to: Register,
        a: Register,
        b: Register,
    },
    /// Another lane, as `Number::round_to` converts.
    Convert {
        to: Register,
        a: Register,
    },
    /// Rounds to a narrow float type, or wraps to a narrow integer type, inside its lane.
    Narrow {
        dtype: DType,
        saturate: bool,
        to: Register,
        a: Register,
    },
    /// Rounds f64, or a wide integer, to a narrow float at once.
    NarrowWide {
        dtype: DType,
        saturate: bool,
        to: Register,
        a: Register,
    },
}

/// A program for blocks of elements.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    /// The register of each operand that is read.
    pub operands: Vec<(usize, Register)>,
    pub constants: Vec<(Register, Number)>,
    pub code: Vec<Instruction>,
    pub result: Option<Register>,
    /// Registers a lane, in the order of [`Lane`].
    pub registers: [usize; 5],
    /// About how many simple operations an element costs.
    pub cost: usize,
}

/// The lane of a type; `None` if programs cannot compute in it.
pub(super) fn lane(dtype: DType) -> Option<Lane> {
    Some(match dtype {
        DType::F32 | DType::F16 | DType::Bf16 | DType::F8E4m3fn | DType::F8E5m2 => Lane::F32,
        DType::F64 => Lane::F64,
        DType::I64 | DType::U32 => Lane::I64,
        DType::I32 | DType::I16 | DType::I8 | DType::U16 | DType::U8 => Lane::I32,
        DType::Bool => Lane::Bool,
        DType::U64 | DType::U4 | DType::I4 => return None,
    })
}

/// The program of an expression over operands of these types; `None` if it needs a type or a
/// function that programs lack.
pub(super) fn compile(meaning: &ScalarMeaning, dtypes: &[DType]) -> Option<Program> {
    for dtype in dtypes.iter().chain([&meaning.result]) {
        lane(*dtype)?;
    }
    let mut compiler = Compiler { dtypes, program: Program::default(), made: BTreeMap::new() };
    let value = compiler.expr(&meaning.expr)?;
    let result = match value {
        Typed::Constant(number) => compiler.constant(number, meaning.result)?,
        // Storing rounds once.
        Typed::Value { register, dtype }
            if register.lane == Lane::F32 && meaning.result.compute() == DType::F32 =>
        {
            (register, dtype)
        }
        Typed::Value { .. } => compiler.cast(value, meaning.result, true)?,
    };
    compiler.program.result = Some(result.0);
    Some(compiler.program)
}

struct Compiler<'a> {
    dtypes: &'a [DType],
    program: Program,
    made: BTreeMap<Expr, Typed>,
}

/// What an expression gave: a constant still without a type, or a register.
#[derive(Clone, Copy)]
enum Typed {
    Constant(Number),
    Value { register: Register, dtype: DType },
}

impl Compiler<'_> {
    fn register(&mut self, lane: Lane) -> Register {
        let count = &mut self.program.registers[lane as usize];
        *count += 1;
        Register { lane, index: *count - 1 }
    }

    fn expr(&mut self, expr: &Expr) -> Option<Typed> {
        if let Some(made) = self.made.get(expr) {
            return Some(*made);
        }
        let made = self.fresh(expr)?;
        self.made.insert(expr.clone(), made);
        Some(made)
    }

    fn fresh(&mut self, expr: &Expr) -> Option<Typed> {
        Some(match expr {
            Expr::Operand(i) => {
                let dtype = self.dtypes.get(usize::from(*i))?.compute();
                let register = self.register(lane(dtype)?);
                self.program.operands.push((usize::from(*i), register));
                Typed::Value { register, dtype }
            }
            Expr::Constant(value) => Typed::Constant(Number::Float(value.0)),
            Expr::Integer(value) => Typed::Constant(Number::Signed(*value)),
            Expr::Greatest(i) => self.limit(*i, true)?,
            Expr::Least(i) => self.limit(*i, false)?,
            Expr::Unary(function, a) => {
                let a = self.expr(a)?;
                self.unary(*function, a)?
            }
            Expr::Binary(function, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                self.binary(*function, a, b)?
            }
            Expr::Select(condition, a, b) => {
                let condition = self.expr(condition)?;
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                let (condition, _) = self.cast(condition, DType::Bool, true)?;
                let (a, b, dtype) = self.unify(a, b)?;
                let to = self.register(a.lane);
                self.push(Instruction::Select { condition, to, a, b }, 1);
                Typed::Value { register: to, dtype }
            }
            Expr::Cast { to, saturate, value } => {
                let value = self.expr(value)?;
                let (register, dtype) = self.cast(value, *to, *saturate)?;
                Typed::Value { register, dtype }
            }
        })
    }

    fn push(&mut self, instruction: Instruction, cost: usize) {
        self.program.code.push(instruction);
        self.program.cost += cost;
    }

    /// A register that holds a constant rounded to a type.
    fn constant(&mut self, number: Number, dtype: DType) -> Option<(Register, DType)> {
        let register = self.register(lane(dtype)?);
        self.program.constants.push((register, number.round_to(dtype, true)));
        Some((register, dtype.compute()))
    }

    fn limit(&mut self, operand: u8, greatest: bool) -> Option<Typed> {
        let dtype = *self.dtypes.get(usize::from(operand))?;
        let number = match (dtype.class(), greatest) {
            (DTypeClass::Float, true) => Number::Float(f64::INFINITY),
            (DTypeClass::Float, false) => Number::Float(f64::NEG_INFINITY),
            (DTypeClass::Signed, true) => Number::Signed(i64::MAX >> (64 - dtype.bits())),
            (DTypeClass::Signed, false) => Number::Signed(i64::MIN >> (64 - dtype.bits())),
            (DTypeClass::Unsigned, true) => Number::Unsigned(u64::MAX >> (64 - dtype.bits())),
            (DTypeClass::Unsigned, false) => Number::Unsigned(0),
            (DTypeClass::Bool, greatest) => Number::Bool(greatest),
        };
        let dtype = dtype.compute();
        let (register, dtype) = self.constant(number, dtype)?;
        Some(Typed::Value { register, dtype })
    }

    /// Both in one type; a constant takes the type of the other, two constants are f64.
    fn unify(&mut self, a: Typed, b: Typed) -> Option<(Register, Register, DType)> {
        let dtype = match (a, b) {
            (Typed::Value { dtype, .. }, Typed::Constant(_))
            | (Typed::Constant(_), Typed::Value { dtype, .. }) => dtype,
            (Typed::Value { dtype, .. }, Typed::Value { dtype: other, .. }) => {
                if dtype != other {
                    return None;
                }
                dtype
            }
            (Typed::Constant(_), Typed::Constant(_)) => DType::F64,
        };
        let mut convert = |x: Typed| match x {
            Typed::Value { register, .. } => Some(register),
            Typed::Constant(number) => self.constant(number, dtype).map(|(register, _)| register),
        };
        Some((convert(a)?, convert(b)?, dtype))
    }

    fn unary(&mut self, function: Unary, a: Typed) -> Option<Typed> {
        let (a, dtype) = match a {
            Typed::Value { register, dtype } => (register, dtype),
            Typed::Constant(number) => self.constant(number, DType::F64)?,
        };
        let is_float = dtype.is_float();
        let (result, cost) = match function {
            Unary::Neg | Unary::Abs | Unary::Sign if dtype == DType::Bool => return None,
            Unary::Neg | Unary::Abs | Unary::Sign => (dtype, 1),
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc if is_float => (dtype, 1),
            Unary::Sqrt if is_float => (dtype, 4),
            Unary::Exp | Unary::Expm1 | Unary::Log | Unary::Tanh | Unary::Erf if is_float => {
                (dtype, 10)
            }
            Unary::Log1p
            | Unary::Sin
            | Unary::Cos
            | Unary::Tan
            | Unary::Asin
            | Unary::Acos
            | Unary::Atan
            | Unary::Sinh
            | Unary::Cosh
            | Unary::Asinh
            | Unary::Acosh
            | Unary::Atanh
                if is_float =>
            {
                (dtype, 40)
            }
            Unary::IsNan | Unary::IsInf if is_float => (DType::Bool, 1),
            Unary::Not if dtype == DType::Bool => (DType::Bool, 1),
            Unary::BitNot if dtype.is_integer() => (dtype, 1),
            _ => return None,
        };
        let to = self.register(lane(result)?);
        self.push(Instruction::Unary { function, to, a }, cost);
        Some(self.wrapped(to, result))
    }

    fn binary(&mut self, function: Binary, a: Typed, b: Typed) -> Option<Typed> {
        let (a, b, dtype) = self.unify(a, b)?;
        let result = if function.is_comparison() { DType::Bool } else { dtype };
        let cost = match function {
            Binary::Pow | Binary::FloorMod | Binary::TruncMod => 40,
            Binary::Div => 4,
            _ => 1,
        };
        let to = self.register(lane(result)?);
        self.push(Instruction::Binary { function, width: dtype.bits(), to, a, b }, cost);
        Some(if function.is_comparison() {
            Typed::Value { register: to, dtype: DType::Bool }
        } else {
            self.wrapped(to, result)
        })
    }

    /// Integers narrower than their lane wrap after every step.
    fn wrapped(&mut self, register: Register, dtype: DType) -> Typed {
        let narrow = matches!(dtype, DType::I16 | DType::I8 | DType::U32 | DType::U16 | DType::U8);
        if !narrow {
            return Typed::Value { register, dtype };
        }
        let to = self.register(register.lane);
        self.push(Instruction::Narrow { dtype, saturate: true, to, a: register }, 1);
        Typed::Value { register: to, dtype }
    }

    /// The value rounded to an element type, in the compute type of that.
    fn cast(&mut self, value: Typed, to: DType, saturate: bool) -> Option<(Register, DType)> {
        let (mut register, from) = match value {
            Typed::Value { register, dtype } => (register, dtype),
            Typed::Constant(number) => {
                let number = number.round_to(to, saturate);
                let register = self.register(lane(to)?);
                self.program.constants.push((register, number));
                return Some((register, to.compute()));
            }
        };
        let result = to.compute();
        if from == to {
            return Some((register, result));
        }
        let target = lane(to)?;
        let narrow_float = to != result;
        if narrow_float && register.lane != Lane::F32 {
            let wide = self.register(target);
            self.push(Instruction::NarrowWide { dtype: to, saturate, to: wide, a: register }, 4);
            return Some((wide, result));
        }
        if register.lane != target {
            let converted = self.register(target);
            self.push(Instruction::Convert { to: converted, a: register }, 1);
            register = converted;
        }
        let narrow_integer =
            matches!(to, DType::I32 | DType::I16 | DType::I8 | DType::U32 | DType::U16 | DType::U8);
        if narrow_float || narrow_integer {
            let narrowed = self.register(target);
            self.push(Instruction::Narrow { dtype: to, saturate, to: narrowed, a: register }, 1);
            register = narrowed;
        }
        Some((register, result))
    }
}
