//! Element types: names, widths and numeric classes; never converts values (see `element`).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The type of one tensor element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// OCP 8-bit float, 4 exponent bits, finite only (no infinities).
    F8E4m3fn,
    /// OCP 8-bit float, 5 exponent bits, with infinities.
    F8E5m2,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Signed 4-bit integer, two to a byte, the low nibble first.
    I4,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 4-bit integer, two to a byte, the low nibble first.
    U4,
    /// One byte that is 0 or 1.
    Bool,
}

/// What kind of number a [`DType`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeClass {
    /// Floating point.
    Float,
    /// Signed integer, two's complement.
    Signed,
    /// Unsigned integer.
    Unsigned,
    /// Truth value.
    Bool,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 17] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::F8E4m3fn,
        DType::F8E5m2,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::I4,
        DType::U64,
        DType::U32,
        DType::U16,
        DType::U8,
        DType::U4,
        DType::Bool,
    ];

    /// The name in IR text and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F8E4m3fn => "f8e4m3fn",
            DType::F8E5m2 => "f8e5m2",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::I4 => "i4",
            DType::U64 => "u64",
            DType::U32 => "u32",
            DType::U16 => "u16",
            DType::U8 => "u8",
            DType::U4 => "u4",
            DType::Bool => "bool",
        }
    }

    /// Width of one element in bits; 8 for `bool`.
    pub fn bits(self) -> u32 {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 64,
            DType::F32 | DType::I32 | DType::U32 => 32,
            DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => 16,
            DType::F8E4m3fn | DType::F8E5m2 | DType::I8 | DType::U8 | DType::Bool => 8,
            DType::I4 | DType::U4 => 4,
        }
    }

    /// Bytes that `elements` packed elements take (4-bit types round up), or `None` on overflow.
    pub fn byte_len(self, elements: usize) -> Option<usize> {
        match self.bits() {
            4 => Some(elements.div_ceil(2)),
            bits => elements.checked_mul(bits as usize / 8),
        }
    }

    /// The kind of number.
    pub fn class(self) -> DTypeClass {
        match self {
            DType::F64
            | DType::F32
            | DType::F16
            | DType::Bf16
            | DType::F8E4m3fn
            | DType::F8E5m2 => DTypeClass::Float,
            DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::I4 => DTypeClass::Signed,
            DType::U64 | DType::U32 | DType::U16 | DType::U8 | DType::U4 => DTypeClass::Unsigned,
            DType::Bool => DTypeClass::Bool,
        }
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        self.class() == DTypeClass::Float
    }

    /// Whether this is a signed or unsigned integer type.
    pub fn is_integer(self) -> bool {
        matches!(self.class(), DTypeClass::Signed | DTypeClass::Unsigned)
    }

    /// The type that arithmetic on this type is carried out in: f32 for the floats narrower
    /// than f32, the type itself otherwise.
    pub fn compute(self) -> DType {
        match self {
            DType::F16 | DType::Bf16 | DType::F8E4m3fn | DType::F8E5m2 => DType::F32,
            other => other,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A string that names no [`DType`].
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an element type")]
pub struct UnknownDType(String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<DType, UnknownDType> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| UnknownDType(text.to_string()))
    }
}
