//! Elements in memory and single numbers: conversions between element types, exact and
//! deterministic on every machine; never whole tensors.

use crate::dtype::{DType, DTypeClass};
use bytemuck::Pod;
use half::{bf16, f16};

/// A Rust type that is stored as one element of a tensor. 4-bit types have none: they are packed.
pub trait Element: Pod + Send + Sync {
    /// The element type.
    const DTYPE: DType;

    /// The number that the element holds.
    fn to_number(self) -> Number;

    /// The element nearest to a number, as [`Number::to_float`] and [`Number::to_integer`] round.
    fn from_number(number: Number) -> Self;
}

/// A truth value in memory: 0 or 1; any other byte counts as true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(transparent)]
pub struct Bool(pub u8);

/// An [`DType::F8E4m3fn`] in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(transparent)]
pub struct F8E4m3fn(pub u8);

/// An [`DType::F8E5m2`] in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(transparent)]
pub struct F8E5m2(pub u8);

/// One number of any element type, without loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A floating-point number.
    Float(f64),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A truth value.
    Bool(bool),
}

impl Number {
    /// The nearest `f64`; truth values are 0 and 1.
    pub fn to_float(self) -> f64 {
        match self {
            Number::Float(x) => x,
            Number::Signed(x) => x as f64,
            Number::Unsigned(x) => x as f64,
            Number::Bool(x) => f64::from(u8::from(x)),
        }
    }

    /// The value as a wide integer; floats are truncated towards zero and saturate at the limits
    /// of 64 bits, NaN is 0.
    pub fn to_integer(self) -> i128 {
        match self {
            Number::Float(x) if x >= 0.0 => i128::from(x as u64),
            Number::Float(x) => i128::from(x as i64),
            Number::Signed(x) => i128::from(x),
            Number::Unsigned(x) => i128::from(x),
            Number::Bool(x) => i128::from(x),
        }
    }

    /// The value as `i64`, or `None` if it does not fit.
    pub fn to_i64(self) -> Option<i64> {
        i64::try_from(self.to_integer()).ok()
    }

    /// Whether the value is not zero; NaN is true.
    pub fn to_bool(self) -> bool {
        match self {
            Number::Float(x) => x != 0.0,
            Number::Signed(x) => x != 0,
            Number::Unsigned(x) => x != 0,
            Number::Bool(x) => x,
        }
    }

    /// The number as an element of `dtype` holds it: floats rounded to nearest, ties to even;
    /// integers wrapped to the width, floats first truncated and saturated to 64 bits.
    /// `saturate` matters for 8-bit floats alone: values beyond the greatest finite one become it
    /// (as ONNX `Cast` does by default) instead of infinity or NaN.
    pub fn round_to(self, dtype: DType, saturate: bool) -> Number {
        match dtype.class() {
            DTypeClass::Bool => Number::Bool(self.to_bool()),
            DTypeClass::Float => Number::Float(round_float(self.to_float(), dtype, saturate)),
            DTypeClass::Signed => {
                let shift = 64 - dtype.bits();
                Number::Signed(((self.to_integer() as i64) << shift) >> shift)
            }
            DTypeClass::Unsigned => {
                let shift = 64 - dtype.bits();
                Number::Unsigned(((self.to_integer() as u64) << shift) >> shift)
            }
        }
    }
}

fn round_float(x: f64, dtype: DType, saturate: bool) -> f64 {
    match dtype {
        DType::F32 => f64::from(x as f32),
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::Bf16 => bf16_from_f64(x).to_f64(),
        DType::F8E4m3fn => decode_f8(encode_f8(x, &E4M3FN, saturate), &E4M3FN),
        DType::F8E5m2 => decode_f8(encode_f8(x, &E5M2, saturate), &E5M2),
        _ => x,
    }
}

/// Rounds once: `f64 -> f32 -> bf16` would round twice.
fn bf16_from_f64(x: f64) -> bf16 {
    bf16::from_f64(x)
}

/// An 8-bit float format.
struct F8Format {
    mantissa_bits: u32,
    bias: i32,
    /// The code of the greatest finite magnitude.
    greatest: u8,
    /// The code of infinity, for formats that have one.
    infinity: Option<u8>,
    nan: u8,
}

const E4M3FN: F8Format =
    F8Format { mantissa_bits: 3, bias: 7, greatest: 0x7e, infinity: None, nan: 0x7f };
const E5M2: F8Format =
    F8Format { mantissa_bits: 2, bias: 15, greatest: 0x7b, infinity: Some(0x7c), nan: 0x7e };

fn decode_f8(code: u8, format: &F8Format) -> f64 {
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let magnitude = code & 0x7f;
    if Some(magnitude) == format.infinity {
        return sign * f64::INFINITY;
    }
    if magnitude > format.greatest {
        return f64::NAN;
    }
    let mantissa = i32::from(magnitude & ((1 << format.mantissa_bits) - 1));
    let exponent = i32::from(magnitude >> format.mantissa_bits);
    let hidden = if exponent == 0 { 0 } else { 1 << format.mantissa_bits };
    let scale = exponent.max(1) - format.bias - format.mantissa_bits as i32;
    sign * f64::from(mantissa + hidden) * libm::scalbn(1.0, scale)
}

fn encode_f8(x: f64, format: &F8Format, saturate: bool) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if x.is_nan() {
        return sign | format.nan;
    }
    let magnitude = x.abs();
    let overflow = match (saturate, format.infinity) {
        (true, _) => format.greatest,
        (false, Some(infinity)) => infinity,
        (false, None) => format.nan,
    };
    if magnitude.is_infinite() {
        return sign | overflow;
    }
    // The unit in the last place at this magnitude, subnormals sharing the least one; dividing
    // by a power of two is exact, so rint rounds once, ties to even.
    let exponent = if magnitude == 0.0 { i32::MIN } else { libm::ilogb(magnitude) };
    let exponent = exponent.max(1 - format.bias);
    let ulp = libm::scalbn(1.0, exponent - format.mantissa_bits as i32);
    let units = libm::rint(magnitude / ulp) as i64;
    // Adding the units to the exponent field lets a carry out of the mantissa raise it.
    let field = i64::from(exponent + format.bias - 1) << format.mantissa_bits;
    let code = field + units;
    sign | if code > i64::from(format.greatest) { overflow } else { code as u8 }
}

impl F8E4m3fn {
    /// The value, exactly.
    pub fn to_f64(self) -> f64 {
        decode_f8(self.0, &E4M3FN)
    }

    /// The nearest value; beyond ±448 that, or NaN unless `saturate`.
    pub fn from_f64(x: f64, saturate: bool) -> F8E4m3fn {
        F8E4m3fn(encode_f8(x, &E4M3FN, saturate))
    }
}

impl F8E5m2 {
    /// The value, exactly.
    pub fn to_f64(self) -> f64 {
        decode_f8(self.0, &E5M2)
    }

    /// The nearest value; beyond ±57344 that, or infinity unless `saturate`.
    pub fn from_f64(x: f64, saturate: bool) -> F8E5m2 {
        F8E5m2(encode_f8(x, &E5M2, saturate))
    }
}

macro_rules! element {
    ($type:ty, $dtype:ident, $to:expr, $from:expr) => {
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            fn to_number(self) -> Number {
                let to: fn($type) -> Number = $to;
                to(self)
            }
            fn from_number(number: Number) -> $type {
                let from: fn(Number) -> $type = $from;
                from(number)
            }
        }
    };
}

element!(f64, F64, Number::Float, Number::to_float);
element!(f32, F32, |x| Number::Float(f64::from(x)), |n| n.to_float() as f32);
element!(f16, F16, |x| Number::Float(x.to_f64()), |n| f16::from_f64(n.to_float()));
element!(bf16, Bf16, |x| Number::Float(x.to_f64()), |n| bf16_from_f64(n.to_float()));
element!(F8E4m3fn, F8E4m3fn, |x| Number::Float(x.to_f64()), |n| F8E4m3fn::from_f64(
    n.to_float(),
    true
));
element!(F8E5m2, F8E5m2, |x| Number::Float(x.to_f64()), |n| {
    // An infinity stays one; only finite values saturate.
    F8E5m2::from_f64(n.to_float(), n.to_float().is_finite())
});
element!(i64, I64, Number::Signed, |n| n.to_integer() as i64);
element!(i32, I32, |x| Number::Signed(x.into()), |n| n.to_integer() as i32);
element!(i16, I16, |x| Number::Signed(x.into()), |n| n.to_integer() as i16);
element!(i8, I8, |x| Number::Signed(x.into()), |n| n.to_integer() as i8);
element!(u64, U64, Number::Unsigned, |n| n.to_integer() as u64);
element!(u32, U32, |x| Number::Unsigned(x.into()), |n| n.to_integer() as u32);
element!(u16, U16, |x| Number::Unsigned(x.into()), |n| n.to_integer() as u16);
element!(u8, U8, |x| Number::Unsigned(x.into()), |n| n.to_integer() as u8);
element!(Bool, Bool, |x| Number::Bool(x.0 != 0), |n| Bool(n.to_bool().into()));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_round_trip_and_saturate() {
        for code in 0..=255u8 {
            let x = F8E4m3fn(code).to_f64();
            if !x.is_nan() {
                assert_eq!(F8E4m3fn::from_f64(x, true).0, code);
            }
            let y = F8E5m2(code).to_f64();
            if !y.is_nan() && y.is_finite() {
                assert_eq!(F8E5m2::from_f64(y, true).0, code);
            }
        }
        assert_eq!(F8E4m3fn(0x7e).to_f64(), 448.0);
        assert_eq!(F8E5m2(0x7b).to_f64(), 57344.0);
        assert_eq!(F8E4m3fn::from_f64(1e9, true).to_f64(), 448.0);
        assert!(F8E4m3fn::from_f64(1e9, false).to_f64().is_nan());
        assert_eq!(F8E5m2::from_f64(1e9, false).to_f64(), f64::INFINITY);
        // 464 lies halfway between 448 and the 480 that the format lacks: it rounds to even, over.
        assert!(F8E4m3fn::from_f64(464.0, false).to_f64().is_finite());
        assert!(F8E4m3fn::from_f64(464.1, false).to_f64().is_nan());
    }

    #[test]
    fn integers_wrap_and_floats_truncate() {
        assert_eq!(Number::Signed(300).round_to(DType::U8, true), Number::Unsigned(44));
        assert_eq!(Number::Float(-1.9).round_to(DType::I32, true), Number::Signed(-1));
        assert_eq!(Number::Signed(9).round_to(DType::I4, true), Number::Signed(-7));
        assert_eq!(Number::Float(f64::NAN).round_to(DType::I64, true), Number::Signed(0));
        assert_eq!(Number::Float(f64::NAN).round_to(DType::Bool, true), Number::Bool(true));
    }
}
