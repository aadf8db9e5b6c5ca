//! The element types of ONNX tensors. A type is only listed here; whether an operator takes it is
//! never decided here.

use membar_ir::DType;
use std::fmt;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementType {
    /// A type of the IR.
    Supported(DType),
    /// A type that the IR has no equivalent of, by its number in `TensorProto.DataType`; 0 is
    /// ONNX's own "undefined". It is an error only where a value of it is used.
    Unsupported(i32),
}

impl ElementType {
    /// The type of a number in `TensorProto.DataType`, which is also what attributes such as
    /// `Cast`'s `to` hold.
    pub fn from_onnx(code: i32) -> Self {
        SUPPORTED
            .iter()
            .find(|(number, _)| *number == code)
            .map_or(Self::Unsupported(code), |(_, dtype)| Self::Supported(*dtype))
    }

    /// The type of the IR; `None` for an unsupported one.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Self::Supported(dtype) => Some(dtype),
            Self::Unsupported(_) => None,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supported(dtype) => dtype.fmt(f),
            Self::Unsupported(code) => {
                match UNSUPPORTED.iter().find(|(number, _)| number == code) {
                    Some((_, name)) => f.write_str(name),
                    None => write!(f, "element type {code}"),
                }
            }
        }
    }
}

/// Numbers from `TensorProto.DataType` in `proto/onnx.proto`.
static SUPPORTED: [(i32, DType); 17] = [
    (11, DType::F64),
    (1, DType::F32),
    (10, DType::F16),
    (16, DType::Bf16),
    (17, DType::F8E4m3fn),
    (19, DType::F8E5m2),
    (7, DType::I64),
    (6, DType::I32),
    (5, DType::I16),
    (3, DType::I8),
    (22, DType::I4),
    (13, DType::U64),
    (12, DType::U32),
    (4, DType::U16),
    (2, DType::U8),
    (21, DType::U4),
    (9, DType::Bool),
];

/// Numbers from the same list that only have a name here.
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
            let supported = SUPPORTED.iter().filter(|(number, _)| *number == code).count();
            let named = UNSUPPORTED.iter().filter(|(number, _)| *number == code).count();
            assert_eq!(supported + named, 1, "code {code}");
        }
        assert!(DataType::try_from(29).is_err(), "onnx.proto has a new type; list it here");
        assert_eq!(ElementType::from_onnx(77).to_string(), "element type 77");
    }

    #[test]
    fn every_type_of_the_ir_has_a_number() {
        for dtype in DType::ALL {
            let codes = SUPPORTED.iter().filter(|(_, listed)| *listed == dtype).count();
            assert_eq!(codes, 1, "{dtype}");
        }
    }
}
