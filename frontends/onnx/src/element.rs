//! The element types of ONNX tensors. A type is only listed here; whether an operator takes it is
//! never decided here.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum ElementType {
    F64,
    F32,
    F16,
    BF16,
    F8E4M3FN,
    F8E5M2,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    /// Two elements a byte, the first in the low nibble.
    I4,
    /// Two elements a byte, the first in the low nibble.
    U4,
    /// A type that Membar has no equivalent of, by its number in `TensorProto.DataType`; 0 is
    /// ONNX's own "undefined". It is an error only where a value of it is used.
    Unsupported(i32),
}

impl ElementType {
    /// The type of a number in `TensorProto.DataType`.
    pub fn from_onnx(code: i32) -> Self {
        SUPPORTED
            .iter()
            .find(|row| row.code == code)
            .map_or(Self::Unsupported(code), |row| row.element_type)
    }

    /// The number in `TensorProto.DataType`.
    pub fn to_onnx(self) -> i32 {
        match self {
            Self::Unsupported(code) => code,
            supported => supported.row().map_or(0, |row| row.code),
        }
    }

    /// Whether Membar has an equivalent of this type.
    pub fn is_supported(self) -> bool {
        !matches!(self, Self::Unsupported(_))
    }

    /// Bits of one element; `None` for an unsupported type.
    pub fn bits(self) -> Option<u64> {
        self.row().map(|row| row.bits)
    }

    /// Bytes that `count` elements take, the last one padded to a whole byte; `None` for an
    /// unsupported type or where the size does not fit 64 bits.
    pub fn byte_length(self, count: u64) -> Option<u64> {
        let bits = self.bits()?;
        if bits >= 8 {
            count.checked_mul(bits / 8)
        } else {
            Some(count.div_ceil(8 / bits))
        }
    }

    fn row(self) -> Option<&'static Row> {
        SUPPORTED.iter().find(|row| row.element_type == self)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(code) => {
                match UNSUPPORTED.iter().find(|(number, _)| number == code) {
                    Some((_, name)) => f.write_str(name),
                    None => write!(f, "element type {code}"),
                }
            }
            supported => f.write_str(supported.row().map_or("", |row| row.name)),
        }
    }
}

struct Row {
    code: i32,
    element_type: ElementType,
    name: &'static str,
    bits: u64,
}

const fn row(code: i32, element_type: ElementType, name: &'static str, bits: u64) -> Row {
    Row {
        code,
        element_type,
        name,
        bits,
    }
}

/// Numbers from `TensorProto.DataType` in `proto/onnx.proto`.
static SUPPORTED: [Row; 17] = [
    row(11, ElementType::F64, "f64", 64),
    row(1, ElementType::F32, "f32", 32),
    row(10, ElementType::F16, "f16", 16),
    row(16, ElementType::BF16, "bf16", 16),
    row(17, ElementType::F8E4M3FN, "f8e4m3fn", 8),
    row(19, ElementType::F8E5M2, "f8e5m2", 8),
    row(7, ElementType::I64, "i64", 64),
    row(6, ElementType::I32, "i32", 32),
    row(5, ElementType::I16, "i16", 16),
    row(3, ElementType::I8, "i8", 8),
    row(13, ElementType::U64, "u64", 64),
    row(12, ElementType::U32, "u32", 32),
    row(4, ElementType::U16, "u16", 16),
    row(2, ElementType::U8, "u8", 8),
    row(9, ElementType::Bool, "bool", 8),
    row(22, ElementType::I4, "i4", 4),
    row(21, ElementType::U4, "u4", 4),
];

static UNSUPPORTED: [(i32, &str); 12] = [
    (0, "an undefined element type"),
    (8, "string"),
    (14, "complex64"),
    (15, "complex128"),
    (18, "f8e4m3fnuz"),
    (20, "f8e5m2fnuz"),
    (23, "f4e2m1"),
    (24, "f8e8m0"),
    (25, "u2"),
    (26, "i2"),
    (27, "f6e2m3"),
    (28, "f6e3m2"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::tensor_proto::DataType;

    #[test]
    fn every_type_of_the_proto_is_listed_once() {
        for code in 0..=28 {
            assert!(DataType::try_from(code).is_ok());
            let rows = SUPPORTED.iter().filter(|row| row.code == code).count();
            let named = UNSUPPORTED
                .iter()
                .filter(|(number, _)| *number == code)
                .count();
            assert_eq!(rows + named, 1, "code {code}");
            assert_eq!(ElementType::from_onnx(code).to_onnx(), code);
        }
        assert!(
            DataType::try_from(29).is_err(),
            "onnx.proto has a new type; list it here"
        );
        assert_eq!(ElementType::from_onnx(77).to_string(), "element type 77");
    }

    #[test]
    fn packed_types_round_up_to_bytes() {
        assert_eq!(ElementType::I4.byte_length(0), Some(0));
        assert_eq!(ElementType::I4.byte_length(5), Some(3));
        assert_eq!(ElementType::F64.byte_length(3), Some(24));
        assert_eq!(ElementType::F64.byte_length(u64::MAX / 4), None);
        assert_eq!(ElementType::from_onnx(8).byte_length(1), None);
    }
}
