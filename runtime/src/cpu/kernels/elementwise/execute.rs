//! Runs a compiled program on one block of elements; the loops are plain, so that they vectorise
//! for the machine that the caller dispatched to. Must never allocate in a block.

use super::compile::{Instruction, Lane, Program, Register};
use super::math;
use half::{bf16, f16};
use membar_ir::dtype::DType;
use membar_ir::element::{F8E4m3fn, F8E5m2, Number};
use membar_ir::scalar::{Binary, Unary};

/// Elements in a block: all registers of a usual program fit the first-level cache.
pub(super) const BLOCK: usize = 512;

/// The registers of one lane.
#[derive(Default)]
pub(super) struct Bank<T> {
    data: Vec<T>,
}

impl<T: Copy + Default> Bank<T> {
    fn new(registers: usize) -> Bank<T> {
        Bank { data: vec![T::default(); registers * BLOCK] }
    }

    #[inline(always)]
    pub fn get(&self, index: usize) -> &[T] {
        &self.data[index * BLOCK..(index + 1) * BLOCK]
    }

    #[inline(always)]
    pub fn get_mut(&mut self, index: usize) -> &mut [T] {
        &mut self.data[index * BLOCK..(index + 1) * BLOCK]
    }

    /// A result and the registers before it.
    #[inline(always)]
    fn split(&mut self, to: usize) -> (&[T], &mut [T]) {
        let (before, rest) = self.data.split_at_mut(to * BLOCK);
        (before, &mut rest[..BLOCK])
    }
}

#[inline(always)]
fn part<T>(before: &[T], index: usize, count: usize) -> &[T] {
    &before[index * BLOCK..index * BLOCK + count]
}

/// All registers of a program.
pub(super) struct Registers {
    pub f32: Bank<f32>,
    pub f64: Bank<f64>,
    pub i32: Bank<i32>,
    pub i64: Bank<i64>,
    pub bool: Bank<u8>,
}

impl Registers {
    /// Registers with the constants filled in.
    pub fn new(program: &Program) -> Registers {
        let count = |lane: Lane| program.registers[lane as usize];
        let mut registers = Registers {
            f32: Bank::new(count(Lane::F32)),
            f64: Bank::new(count(Lane::F64)),
            i32: Bank::new(count(Lane::I32)),
            i64: Bank::new(count(Lane::I64)),
            bool: Bank::new(count(Lane::Bool)),
        };
        for (register, number) in &program.constants {
            registers.fill(*register, *number);
        }
        registers
    }

    fn fill(&mut self, register: Register, number: Number) {
        let index = register.index;
        match register.lane {
            Lane::F32 => self.f32.get_mut(index).fill(number.to_float() as f32),
            Lane::F64 => self.f64.get_mut(index).fill(number.to_float()),
            Lane::I32 => self.i32.get_mut(index).fill(number.to_integer() as i32),
            Lane::I64 => self.i64.get_mut(index).fill(number.to_integer() as i64),
            Lane::Bool => self.bool.get_mut(index).fill(number.to_bool().into()),
        }
    }
}

#[inline(always)]
fn map<T: Copy, R>(to: &mut [R], a: &[T], f: impl Fn(T) -> R) {
    for (to, a) in to.iter_mut().zip(a) {
        *to = f(*a);
    }
}

#[inline(always)]
fn zip<T: Copy, R>(to: &mut [R], a: &[T], b: &[T], f: impl Fn(T, T) -> R) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = f(*a, *b);
    }
}

/// Runs every instruction on the first `count` elements of the registers.
#[inline(always)]
pub(super) fn run(program: &Program, registers: &mut Registers, count: usize) {
    for instruction in &program.code {
        step(instruction, registers, count);
    }
}

#[inline(always)]
fn step(instruction: &Instruction, registers: &mut Registers, n: usize) {
    match *instruction {
        Instruction::Unary { function, to, a } => unary(function, to, a, registers, n),
        Instruction::Binary { function, width, to, a, b } => {
            if function.is_comparison() {
                compare(function, to, a, b, registers, n);
            } else {
                binary(function, width, to, a, b, registers, n);
            }
        }
        Instruction::Select { condition, to, a, b } => select(condition, to, a, b, registers, n),
        Instruction::Convert { to, a } => convert(to, a, registers, n),
        Instruction::Narrow { dtype, saturate, to, a } => {
            narrow(dtype, saturate, to, a, registers, n);
        }
        Instruction::NarrowWide { dtype, saturate, to, a } => {
            let out = &mut registers.f32.get_mut(to.index)[..n];
            match a.lane {
                Lane::F64 => {
                    map(out, &registers.f64.get(a.index)[..n], |x| round_float(x, dtype, saturate))
                }
                Lane::I64 => map(out, &registers.i64.get(a.index)[..n], |x| {
                    round_float(x as f64, dtype, saturate)
                }),
                Lane::I32 => map(out, &registers.i32.get(a.index)[..n], |x| {
                    round_float(f64::from(x), dtype, saturate)
                }),
                Lane::Bool => map(out, &registers.bool.get(a.index)[..n], f32::from),
                // Narrowed inside its lane.
                Lane::F32 => {}
            }
        }
    }
}

/// A float rounded to a narrow type, once.
fn round_float(x: f64, dtype: DType, saturate: bool) -> f32 {
    Number::Float(x).round_to(dtype, saturate).to_float() as f32
}

#[inline(always)]
fn narrow(
    dtype: DType,
    saturate: bool,
    to: Register,
    a: Register,
    registers: &mut Registers,
    n: usize,
) {
    match to.lane {
        Lane::F32 => {
            let (before, out) = registers.f32.split(to.index);
            let (a, out) = (part(before, a.index, n), &mut out[..n]);
            match dtype {
                DType::F16 => map(out, a, |x| f16::from_f32(x).to_f32()),
                DType::Bf16 => map(out, a, |x| bf16::from_f32(x).to_f32()),
                _ => map(out, a, |x| round_float(f64::from(x), dtype, saturate)),
            }
        }
        Lane::I32 => {
            let (before, out) = registers.i32.split(to.index);
            let (a, out) = (part(before, a.index, n), &mut out[..n]);
            match dtype {
                DType::I16 => map(out, a, |x| i32::from(x as i16)),
                DType::I8 => map(out, a, |x| i32::from(x as i8)),
                DType::U16 => map(out, a, |x| i32::from(x as u16)),
                DType::U8 => map(out, a, |x| i32::from(x as u8)),
                _ => out.copy_from_slice(a),
            }
        }
        Lane::I64 => {
            let (before, out) = registers.i64.split(to.index);
            map(&mut out[..n], part(before, a.index, n), |x| i64::from(x as u32));
        }
        // The other lanes hold one type each.
        Lane::F64 | Lane::Bool => {}
    }
}

/// Floats become integers as `Number::to_integer` says, before they wrap.
#[inline(always)]
fn truncate(x: f64) -> i64 {
    if x >= 0.0 { (x as u64) as i64 } else { x as i64 }
}

#[inline(always)]
fn convert(to: Register, a: Register, registers: &mut Registers, n: usize) {
    macro_rules! lanes {
        ($from:ident, $to:ident, $f:expr) => {{
            let a = &registers.$from.get(a.index)[..n];
            map(&mut registers.$to.get_mut(to.index)[..n], a, $f)
        }};
    }
    match (a.lane, to.lane) {
        (Lane::F32, Lane::F64) => lanes!(f32, f64, f64::from),
        (Lane::F32, Lane::I32) => lanes!(f32, i32, |x| truncate(f64::from(x)) as i32),
        (Lane::F32, Lane::I64) => lanes!(f32, i64, |x| truncate(f64::from(x))),
        (Lane::F32, Lane::Bool) => lanes!(f32, bool, |x| u8::from(x != 0.0)),
        (Lane::F64, Lane::F32) => lanes!(f64, f32, |x| x as f32),
        (Lane::F64, Lane::I32) => lanes!(f64, i32, |x| truncate(x) as i32),
        (Lane::F64, Lane::I64) => lanes!(f64, i64, truncate),
        (Lane::F64, Lane::Bool) => lanes!(f64, bool, |x| u8::from(x != 0.0)),
        (Lane::I32, Lane::F32) => lanes!(i32, f32, |x| x as f32),
        (Lane::I32, Lane::F64) => lanes!(i32, f64, f64::from),
        (Lane::I32, Lane::I64) => lanes!(i32, i64, i64::from),
        (Lane::I32, Lane::Bool) => lanes!(i32, bool, |x| u8::from(x != 0)),
        (Lane::I64, Lane::F32) => lanes!(i64, f32, |x| x as f64 as f32),
        (Lane::I64, Lane::F64) => lanes!(i64, f64, |x| x as f64),
        (Lane::I64, Lane::I32) => lanes!(i64, i32, |x| x as i32),
        (Lane::I64, Lane::Bool) => lanes!(i64, bool, |x| u8::from(x != 0)),
        (Lane::Bool, Lane::F32) => lanes!(bool, f32, f32::from),
        (Lane::Bool, Lane::F64) => lanes!(bool, f64, f64::from),
        (Lane::Bool, Lane::I32) => lanes!(bool, i32, i32::from),
        (Lane::Bool, Lane::I64) => lanes!(bool, i64, i64::from),
        // A value never converts to its own lane.
        (Lane::F32, Lane::F32)
        | (Lane::F64, Lane::F64)
        | (Lane::I32, Lane::I32)
        | (Lane::I64, Lane::I64)
        | (Lane::Bool, Lane::Bool) => {}
    }
}

#[inline(always)]
fn select(
    condition: Register,
    to: Register,
    a: Register,
    b: Register,
    registers: &mut Registers,
    n: usize,
) {
    macro_rules! lane {
        ($bank:ident) => {{
            let condition = &registers.bool.get(condition.index)[..n];
            let (before, out) = registers.$bank.split(to.index);
            let (a, b) = (part(before, a.index, n), part(before, b.index, n));
            for (((out, c), a), b) in out[..n].iter_mut().zip(condition).zip(a).zip(b) {
                *out = if *c != 0 { *a } else { *b };
            }
        }};
    }
    match to.lane {
        Lane::F32 => lane!(f32),
        Lane::F64 => lane!(f64),
        Lane::I32 => lane!(i32),
        Lane::I64 => lane!(i64),
        Lane::Bool => {
            let (before, out) = registers.bool.split(to.index);
            let c = part(before, condition.index, n);
            let (a, b) = (part(before, a.index, n), part(before, b.index, n));
            for (((out, c), a), b) in out[..n].iter_mut().zip(c).zip(a).zip(b) {
                *out = if *c != 0 { *a } else { *b };
            }
        }
    }
}

#[inline(always)]
fn compare(
    function: Binary,
    to: Register,
    a: Register,
    b: Register,
    registers: &mut Registers,
    n: usize,
) {
    macro_rules! functions {
        ($out:expr, $a:expr, $b:expr) => {
            match function {
                Binary::Less => zip($out, $a, $b, |x, y| u8::from(x < y)),
                Binary::LessOrEqual => zip($out, $a, $b, |x, y| u8::from(x <= y)),
                Binary::Greater => zip($out, $a, $b, |x, y| u8::from(x > y)),
                Binary::GreaterOrEqual => zip($out, $a, $b, |x, y| u8::from(x >= y)),
                Binary::Equal => zip($out, $a, $b, |x, y| u8::from(x == y)),
                _ => zip($out, $a, $b, |x, y| u8::from(x != y)),
            }
        };
    }
    macro_rules! lane {
        ($bank:ident) => {{
            let (a, b) = (&registers.$bank.get(a.index)[..n], &registers.$bank.get(b.index)[..n]);
            functions!(&mut registers.bool.get_mut(to.index)[..n], a, b)
        }};
    }
    match a.lane {
        Lane::F32 => lane!(f32),
        Lane::F64 => lane!(f64),
        Lane::I32 => lane!(i32),
        Lane::I64 => lane!(i64),
        Lane::Bool => {
            let (before, out) = registers.bool.split(to.index);
            functions!(&mut out[..n], part(before, a.index, n), part(before, b.index, n))
        }
    }
}

#[allow(clippy::redundant_closure, reason = "a function's name is called one element at a time")]
#[inline(always)]
fn unary(function: Unary, to: Register, a: Register, registers: &mut Registers, n: usize) {
    macro_rules! float {
        ($bank:ident, $type:ident, $exp:expr, $expm1:expr, $log:expr, $tanh:expr, $erf:expr) => {{
            if to.lane == Lane::Bool {
                let a = &registers.$bank.get(a.index)[..n];
                let out = &mut registers.bool.get_mut(to.index)[..n];
                match function {
                    Unary::IsInf => map(out, a, |x| u8::from(x.is_infinite())),
                    _ => map(out, a, |x| u8::from(x.is_nan())),
                }
                return;
            }
            let (before, out) = registers.$bank.split(to.index);
            let (a, out) = (part(before, a.index, n), &mut out[..n]);
            match function {
                Unary::Neg => map(out, a, |x| -x),
                Unary::Abs => map(out, a, $type::abs),
                Unary::Sign => map(out, a, |x| {
                    if x > 0.0 {
                        1.0
                    } else if x < 0.0 {
                        -1.0
                    } else {
                        x
                    }
                }),
                Unary::Floor => map(out, a, $type::floor),
                Unary::Ceil => map(out, a, $type::ceil),
                Unary::Round => map(out, a, $type::round_ties_even),
                Unary::Trunc => map(out, a, $type::trunc),
                Unary::Sqrt => map(out, a, $type::sqrt),
                Unary::Exp => map(out, a, $exp),
                Unary::Expm1 => map(out, a, $expm1),
                Unary::Log => map(out, a, $log),
                Unary::Tanh => map(out, a, $tanh),
                Unary::Erf => map(out, a, $erf),
                Unary::Log1p => map(out, a, $type::ln_1p),
                Unary::Sin => map(out, a, $type::sin),
                Unary::Cos => map(out, a, $type::cos),
                Unary::Tan => map(out, a, $type::tan),
                Unary::Asin => map(out, a, $type::asin),
                Unary::Acos => map(out, a, $type::acos),
                Unary::Atan => map(out, a, $type::atan),
                Unary::Sinh => map(out, a, $type::sinh),
                Unary::Cosh => map(out, a, $type::cosh),
                Unary::Asinh => map(out, a, $type::asinh),
                Unary::Acosh => map(out, a, $type::acosh),
                Unary::Atanh => map(out, a, $type::atanh),
                // The compiler gives these to other lanes.
                Unary::IsNan | Unary::IsInf | Unary::Not | Unary::BitNot => {}
            }
        }};
    }
    macro_rules! integer {
        ($bank:ident, $type:ident) => {{
            let (before, out) = registers.$bank.split(to.index);
            let (a, out) = (part(before, a.index, n), &mut out[..n]);
            match function {
                Unary::Neg => map(out, a, $type::wrapping_neg),
                Unary::Abs => map(out, a, $type::wrapping_abs),
                Unary::Sign => map(out, a, $type::signum),
                // The compiler takes no other function of integers.
                _ => map(out, a, |x| !x),
            }
        }};
    }
    match a.lane {
        Lane::F32 => float!(
            f32,
            f32,
            |x| math::exp(x),
            |x| math::expm1(x),
            |x| math::log(x),
            |x| math::tanh(x),
            |x| math::erf(x)
        ),
        Lane::F64 => float!(f64, f64, f64::exp, f64::exp_m1, f64::ln, f64::tanh, libm::erf),
        Lane::I32 => integer!(i32, i32),
        Lane::I64 => integer!(i64, i64),
        Lane::Bool => {
            let (before, out) = registers.bool.split(to.index);
            map(&mut out[..n], part(before, a.index, n), |x| x ^ 1);
        }
    }
}

#[inline(always)]
fn binary(
    function: Binary,
    width: u32,
    to: Register,
    a: Register,
    b: Register,
    registers: &mut Registers,
    n: usize,
) {
    macro_rules! float {
        ($bank:ident, $type:ident) => {{
            let (before, out) = registers.$bank.split(to.index);
            let (a, b, out) = (part(before, a.index, n), part(before, b.index, n), &mut out[..n]);
            match function {
                Binary::Add => zip(out, a, b, |x, y| x + y),
                Binary::Sub => zip(out, a, b, |x, y| x - y),
                Binary::Mul => zip(out, a, b, |x, y| x * y),
                Binary::Div => zip(out, a, b, |x, y| x / y),
                // A square, as norms write it.
                Binary::Pow if b.iter().all(|y| *y == 2.0) => map(out, a, |x| x * x),
                Binary::Pow => zip(out, a, b, $type::powf),
                Binary::Min => zip(out, a, b, |x, y| if x < y || x.is_nan() { x } else { y }),
                Binary::Max => zip(out, a, b, |x, y| if x > y || x.is_nan() { x } else { y }),
                Binary::TruncMod => zip(out, a, b, |x, y| x % y),
                Binary::FloorMod => zip(out, a, b, |x, y| {
                    let remainder = x % y;
                    let wrong_sign = remainder != 0.0 && (remainder < 0.0) != (y < 0.0);
                    if wrong_sign { remainder + y } else { remainder }
                }),
                // Inference lets bitwise and logical functions at integers and truth values alone.
                _ => out.fill($type::NAN),
            }
        }};
    }
    macro_rules! integer {
        ($bank:ident, $type:ident) => {{
            let (before, out) = registers.$bank.split(to.index);
            let (a, b, out) = (part(before, a.index, n), part(before, b.index, n), &mut out[..n]);
            let shifts = |y: $type| (0..width as $type).contains(&y);
            match function {
                Binary::Add => zip(out, a, b, $type::wrapping_add),
                Binary::Sub => zip(out, a, b, $type::wrapping_sub),
                Binary::Mul => zip(out, a, b, $type::wrapping_mul),
                Binary::Div => {
                    zip(out, a, b, |x, y| if y == 0 { 0 } else { x.wrapping_div(y) });
                }
                Binary::Pow => zip(out, a, b, |x, y| integer_power(x.into(), y.into()) as $type),
                Binary::Min => zip(out, a, b, |x, y| x.min(y)),
                Binary::Max => zip(out, a, b, |x, y| x.max(y)),
                Binary::TruncMod => {
                    zip(out, a, b, |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) });
                }
                Binary::FloorMod => zip(out, a, b, |x, y| {
                    let remainder = if y == 0 { 0 } else { x.wrapping_rem(y) };
                    if remainder != 0 && (remainder < 0) != (y < 0) {
                        remainder + y
                    } else {
                        remainder
                    }
                }),
                Binary::BitAnd | Binary::And => zip(out, a, b, |x, y| x & y),
                Binary::BitOr | Binary::Or => zip(out, a, b, |x, y| x | y),
                Binary::BitXor | Binary::Xor => zip(out, a, b, |x, y| x ^ y),
                Binary::ShiftLeft => {
                    zip(out, a, b, |x, y| if shifts(y) { x.wrapping_shl(y as u32) } else { 0 });
                }
                Binary::ShiftRight => {
                    zip(out, a, b, |x, y| match shifts(y) {
                        true => x.wrapping_shr(y as u32),
                        false => -$type::from(x < 0),
                    });
                }
                // Comparisons are done elsewhere.
                _ => out.fill(0),
            }
        }};
    }
    match a.lane {
        Lane::F32 => float!(f32, f32),
        Lane::F64 => float!(f64, f64),
        Lane::I32 => integer!(i32, i32),
        Lane::I64 => integer!(i64, i64),
        Lane::Bool => {
            let (before, out) = registers.bool.split(to.index);
            let (a, b) = (part(before, a.index, n), part(before, b.index, n));
            let out = &mut out[..n];
            match function {
                Binary::And | Binary::Min | Binary::Mul | Binary::BitAnd => {
                    zip(out, a, b, |x, y| x & y);
                }
                Binary::Xor | Binary::BitXor => zip(out, a, b, |x, y| x ^ y),
                _ => zip(out, a, b, |x, y| x | y),
            }
        }
    }
}

/// `x^y` modulo 2^64; negative powers truncate towards zero.
fn integer_power(x: i64, y: i64) -> i64 {
    if y < 0 {
        return match x {
            1 => 1,
            -1 => 1 - 2 * (y & 1),
            _ => 0,
        };
    }
    let (mut base, mut exponent, mut power) = (x, y, 1i64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    power
}

/// Some elements of an operand.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a> {
    pub dtype: DType,
    pub bytes: &'a [u8],
    /// The first.
    pub offset: usize,
    /// From one to the next; 0 repeats the first.
    pub stride: usize,
    pub count: usize,
}

/// Elements of memory to a register, from position `at` on.
#[inline(always)]
pub(super) fn load(from: Elements<'_>, to: Register, at: usize, registers: &mut Registers) {
    let Elements { dtype, bytes, offset, stride, count } = from;
    macro_rules! from {
        ($type:ty, $bank:ident, $f:expr) => {{
            let data: &[$type] = bytemuck::cast_slice(bytes);
            let out = &mut registers.$bank.get_mut(to.index)[at..at + count];
            match stride {
                0 => out.fill($f(data[offset])),
                1 => map(out, &data[offset..offset + count], $f),
                _ => {
                    for (out, x) in out.iter_mut().zip(data[offset..].iter().step_by(stride)) {
                        *out = $f(*x);
                    }
                }
            }
        }};
    }
    match dtype {
        DType::F32 => from!(f32, f32, |x: f32| x),
        DType::F16 => from!(f16, f32, |x: f16| x.to_f32()),
        DType::Bf16 => from!(bf16, f32, |x: bf16| f32::from_bits(u32::from(x.to_bits()) << 16)),
        DType::F8E4m3fn => from!(u8, f32, |x: u8| F8E4m3fn(x).to_f64() as f32),
        DType::F8E5m2 => from!(u8, f32, |x: u8| F8E5m2(x).to_f64() as f32),
        DType::F64 => from!(f64, f64, |x: f64| x),
        DType::I64 => from!(i64, i64, |x: i64| x),
        DType::U32 => from!(u32, i64, |x: u32| i64::from(x)),
        DType::I32 => from!(i32, i32, |x: i32| x),
        DType::I16 => from!(i16, i32, |x: i16| i32::from(x)),
        DType::I8 => from!(i8, i32, |x: i8| i32::from(x)),
        DType::U16 => from!(u16, i32, |x: u16| i32::from(x)),
        DType::U8 => from!(u8, i32, |x: u8| i32::from(x)),
        DType::Bool => from!(u8, bool, |x: u8| u8::from(x != 0)),
        // The compiler refuses these.
        DType::U64 | DType::U4 | DType::I4 => {}
    }
}

/// A register to contiguous memory.
#[inline(always)]
pub(super) fn store(dtype: DType, from: Register, registers: &Registers, out: &mut [u8]) {
    macro_rules! to {
        ($type:ty, $bank:ident, $f:expr) => {{
            let out: &mut [$type] = bytemuck::cast_slice_mut(out);
            map(out, registers.$bank.get(from.index), $f)
        }};
    }
    match dtype {
        DType::F32 => to!(f32, f32, |x| x),
        DType::F16 => to!(f16, f32, f16::from_f32),
        DType::Bf16 => to!(bf16, f32, bf16::from_f32),
        // A finite result saturates; an infinity stays what the format has for it.
        DType::F8E4m3fn => {
            to!(u8, f32, |x: f32| F8E4m3fn::from_f64(f64::from(x), x.is_finite()).0)
        }
        DType::F8E5m2 => to!(u8, f32, |x: f32| F8E5m2::from_f64(f64::from(x), x.is_finite()).0),
        DType::F64 => to!(f64, f64, |x| x),
        DType::I64 => to!(i64, i64, |x| x),
        DType::U32 => to!(u32, i64, |x| x as u32),
        DType::I32 => to!(i32, i32, |x| x),
        DType::I16 => to!(i16, i32, |x| x as i16),
        DType::I8 => to!(i8, i32, |x| x as i8),
        DType::U16 => to!(u16, i32, |x| x as u16),
        DType::U8 => to!(u8, i32, |x| x as u8),
        DType::Bool => to!(u8, bool, |x| x),
        // The compiler refuses these.
        DType::U64 | DType::U4 | DType::I4 => {}
    }
}
