//! Constant tensors: their type, shape and the place of their bytes. Weights are described here,
//! never copied.

use crate::element::ElementType;
use crate::error::{ImportError, TensorProblem};
use crate::proto::{TensorProto, tensor_proto};
use crate::source::{Located, Source};
use bytes::Bytes;
use membar_ir::DType;
use std::path::PathBuf;

/// A constant tensor of a model.
///
/// The data is row-major and little-endian, and its length always matches type and shape; 4-bit
/// elements are packed two a byte, the first in the low nibble, and a `bool` is 0 or 1.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorDef {
    /// Name; a tensor of an attribute that has none is called `node/attribute`.
    pub name: String,
    /// Type of the elements.
    pub element_type: ElementType,
    /// Extents; empty for a scalar. Their product fits an `i64`.
    pub shape: Vec<u64>,
    /// Where the bytes are. [`crate::Model::data`] reads them.
    pub data: DataLocation,
}

/// Where the bytes of a tensor are.
#[derive(Debug, Clone, PartialEq)]
pub enum DataLocation {
    /// In a file: the model itself or external data.
    File {
        /// Absolute path without links.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Number of bytes; the region lies within the file.
        length: u64,
    },
    /// In memory.
    Inline(Bytes),
    /// In an external file that does not exist. The importer decides whether that is an error
    /// ([`TensorDef::require_data`]) or random weights take its place.
    Missing {
        /// Absolute path where the file was looked for.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Not looked at, because the element type is unsupported.
    Unsupported,
}

impl TensorDef {
    /// Number of elements.
    pub fn element_count(&self) -> u64 {
        self.shape.iter().fold(1, |count, &extent| count.saturating_mul(extent))
    }

    /// Refuses a tensor whose data cannot be had.
    ///
    /// # Errors
    /// [`ImportError::Tensor`] where the element type is unsupported or the data file is missing.
    pub fn require_data(&self) -> Result<(), ImportError> {
        match &self.data {
            DataLocation::File { .. } | DataLocation::Inline(_) => Ok(()),
            DataLocation::Missing { path, .. } => {
                Err(self.error(TensorProblem::MissingFile { path: path.clone() }))
            }
            DataLocation::Unsupported => {
                Err(self.error(TensorProblem::UnsupportedElementType { found: self.element_type }))
            }
        }
    }

    /// The bytes, without copying.
    pub(crate) fn bytes(&self, source: &Source) -> Result<Bytes, ImportError> {
        self.require_data()?;
        let bytes = match &self.data {
            DataLocation::Inline(bytes) => Some(bytes.clone()),
            DataLocation::File { path, offset, length } => source.region(path, *offset, *length),
            DataLocation::Missing { .. } | DataLocation::Unsupported => None,
        };
        bytes.ok_or_else(|| self.error(TensorProblem::OfAnotherModel))
    }

    pub(crate) fn error(&self, problem: TensorProblem) -> ImportError {
        ImportError::Tensor { tensor: self.name.clone(), problem }
    }
}

/// Describes a tensor of the model; `fallback_name` serves where it has none.
pub(crate) fn describe(
    proto: TensorProto,
    fallback_name: impl FnOnce() -> String,
    source: &mut Source,
) -> Result<TensorDef, ImportError> {
    let name = match &proto.name {
        Some(name) if !name.is_empty() => name.clone(),
        _ => fallback_name(),
    };
    let element_type = ElementType::from_onnx(proto.data_type());
    described(proto, element_type, source)
        .map(|(shape, data)| TensorDef { name: name.clone(), element_type, shape, data })
        .map_err(|problem| ImportError::Tensor { tensor: name, problem })
}

fn described(
    proto: TensorProto,
    element_type: ElementType,
    source: &mut Source,
) -> Result<(Vec<u64>, DataLocation), TensorProblem> {
    if proto.segment.is_some() {
        return Err(TensorProblem::Segmented);
    }
    let shape = extents(&proto.dims)?;
    let Some(dtype) = element_type.dtype() else {
        return Ok((shape, DataLocation::Unsupported));
    };
    let count: u64 = shape.iter().product();
    let length = usize::try_from(count)
        .ok()
        .and_then(|count| dtype.byte_len(count))
        .map(|length| length as u64)
        .ok_or_else(|| TensorProblem::SizeOverflow { shape: proto.dims.clone() })?;
    let wrong_length = |found, expected, unit, field| TensorProblem::WrongLength {
        found,
        expected,
        unit,
        field,
        element_type,
        shape: shape.clone(),
    };

    let location = proto.data_location.unwrap_or(0);
    let data = match tensor_proto::DataLocation::try_from(location) {
        Ok(tensor_proto::DataLocation::External) => {
            let external = External::parse(&proto)?;
            if let Some(found) = external.length
                && found != length
            {
                return Err(wrong_length(found, length, "bytes", "its external file"));
            }
            external.locate(length, source)?
        }
        Ok(tensor_proto::DataLocation::Default) => match stored(&proto)? {
            Stored::Raw(raw) => {
                if raw.len() as u64 != length {
                    return Err(wrong_length(raw.len() as u64, length, "bytes", "`raw_data`"));
                }
                match source.offset_in_model(raw) {
                    Some((path, offset)) => DataLocation::File { path, offset, length },
                    None => DataLocation::Inline(raw.clone()),
                }
            }
            Stored::Fields(Field { name, found }) => {
                // Each entry holds one byte of packed elements.
                let expected = if dtype.bits() < 8 { length } else { count };
                let (bytes, used) = typed(&proto, dtype)?;
                if found != expected || used != name && found > 0 {
                    let found = if used == name { found } else { 0 };
                    return Err(wrong_length(found, expected, "elements", used));
                }
                DataLocation::Inline(bytes)
            }
        },
        Err(_) => return Err(TensorProblem::UnknownLocation { found: location }),
    };
    if dtype == DType::Bool {
        check_bools(&data, source)?;
    }
    Ok((shape, data))
}

fn check_bools(data: &DataLocation, source: &Source) -> Result<(), TensorProblem> {
    let bytes = match data {
        DataLocation::Inline(bytes) => bytes.clone(),
        DataLocation::File { path, offset, length } => {
            source.region(path, *offset, *length).unwrap_or_default()
        }
        DataLocation::Missing { .. } | DataLocation::Unsupported => return Ok(()),
    };
    match bytes.iter().position(|byte| *byte > 1) {
        Some(index) => Err(out_of_range(index, bytes[index].into(), DType::Bool)),
        None => Ok(()),
    }
}

fn extents(dims: &[i64]) -> Result<Vec<u64>, TensorProblem> {
    // Extents of 0 count as 1 here: strides computed later must not overflow either.
    let mut size = 1u64;
    let mut shape = Vec::with_capacity(dims.len());
    for (axis, &extent) in dims.iter().enumerate() {
        let unsigned =
            u64::try_from(extent).map_err(|_| TensorProblem::NegativeDimension { axis, extent })?;
        size = size
            .checked_mul(unsigned.max(1))
            .filter(|&size| i64::try_from(size).is_ok())
            .ok_or_else(|| TensorProblem::SizeOverflow { shape: dims.to_vec() })?;
        shape.push(unsigned);
    }
    Ok(shape)
}

enum Stored<'a> {
    Raw(&'a Bytes),
    Fields(Field),
}

/// One of the typed fields and its number of entries.
#[derive(Clone, Copy)]
struct Field {
    name: &'static str,
    found: u64,
}

/// The one place in the message where a tensor has its data.
fn stored(proto: &TensorProto) -> Result<Stored<'_>, TensorProblem> {
    let field = |name, found: usize| Field { name, found: found as u64 };
    let fields = [
        field("`float_data`", proto.float_data.len()),
        field("`int32_data`", proto.int32_data.len()),
        field("`int64_data`", proto.int64_data.len()),
        field("`double_data`", proto.double_data.len()),
        field("`uint64_data`", proto.uint64_data.len()),
        field("`string_data`", proto.string_data.len()),
    ];
    let mut filled = fields.into_iter().filter(|field| field.found > 0);
    let first = filled.next();
    if let (Some(first), Some(second)) = (first, filled.next()) {
        return Err(TensorProblem::TwoSources { first: first.name, second: second.name });
    }
    match (&proto.raw_data, first) {
        (Some(raw), Some(field)) if !raw.is_empty() => {
            Err(TensorProblem::TwoSources { first: "`raw_data`", second: field.name })
        }
        (_, Some(field)) => Ok(Stored::Fields(field)),
        (Some(raw), None) => Ok(Stored::Raw(raw)),
        (None, None) => Ok(Stored::Fields(field("", 0))),
    }
}

/// The little-endian bytes of the typed field that belongs to the type, and the field's name.
fn typed(proto: &TensorProto, dtype: DType) -> Result<(Bytes, &'static str), TensorProblem> {
    let narrow = |bytes| narrowed(&proto.int32_data, dtype, bytes);
    Ok(match dtype {
        DType::F32 => (little_endian(&proto.float_data, f32::to_le_bytes), "`float_data`"),
        DType::F64 => (little_endian(&proto.double_data, f64::to_le_bytes), "`double_data`"),
        DType::I64 => (little_endian(&proto.int64_data, i64::to_le_bytes), "`int64_data`"),
        DType::U64 => (little_endian(&proto.uint64_data, u64::to_le_bytes), "`uint64_data`"),
        DType::U32 => {
            let mut values = Vec::with_capacity(proto.uint64_data.len());
            for (index, &value) in proto.uint64_data.iter().enumerate() {
                let narrow = u32::try_from(value);
                values.push(narrow.map_err(|_| out_of_range(index, value.into(), dtype))?);
            }
            (little_endian(&values, u32::to_le_bytes), "`uint64_data`")
        }
        DType::I32 => (little_endian(&proto.int32_data, i32::to_le_bytes), "`int32_data`"),
        DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => (narrow(2)?, "`int32_data`"),
        DType::F8E4m3fn
        | DType::F8E5m2
        | DType::I8
        | DType::U8
        | DType::I4
        | DType::U4
        | DType::Bool => (narrow(1)?, "`int32_data`"),
    })
}

fn little_endian<T: Copy, const N: usize>(values: &[T], encode: fn(T) -> [u8; N]) -> Bytes {
    values.iter().flat_map(|&value| encode(value)).collect::<Vec<u8>>().into()
}

/// The low `bytes` bytes of each entry. Writers store narrow integers with or without their sign,
/// so both ranges are taken.
fn narrowed(values: &[i32], dtype: DType, bytes: usize) -> Result<Bytes, TensorProblem> {
    let range = -(1i32 << (8 * bytes - 1))..(1i32 << (8 * bytes));
    let mut out = Vec::with_capacity(values.len().saturating_mul(bytes));
    for (index, value) in values.iter().enumerate() {
        if !range.contains(value) {
            return Err(out_of_range(index, (*value).into(), dtype));
        }
        out.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }
    Ok(out.into())
}

fn out_of_range(index: usize, value: i128, dtype: DType) -> TensorProblem {
    TensorProblem::ElementOutOfRange { index, value, dtype }
}

/// The entries of `external_data`.
struct External<'a> {
    location: &'a str,
    offset: u64,
    length: Option<u64>,
}

impl<'a> External<'a> {
    fn parse(proto: &'a TensorProto) -> Result<Self, TensorProblem> {
        let entry = |key: &str| {
            let mut entries = proto.external_data.iter().rev();
            entries.find(|entry| entry.key() == key).map(|entry| entry.value())
        };
        let number = |key: &'static str| match entry(key) {
            None => Ok(None),
            Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
                let expected = "a number of bytes";
                TensorProblem::MalformedExternal { key, found: format!("`{text}`"), expected }
            }),
        };
        let location = entry("location").unwrap_or("");
        if location.is_empty() {
            return Err(TensorProblem::MalformedExternal {
                key: "location",
                found: "empty".into(),
                expected: "the name of a file in the model's folder",
            });
        }
        Ok(Self { location, offset: number("offset")?.unwrap_or(0), length: number("length")? })
    }

    fn locate(self, length: u64, source: &mut Source) -> Result<DataLocation, TensorProblem> {
        let offset = self.offset;
        match source.locate(self.location)? {
            Located::Missing(path) => Ok(DataLocation::Missing { path, offset, length }),
            Located::File(path, file_length) => match offset.checked_add(length) {
                Some(end) if end <= file_length => Ok(DataLocation::File { path, offset, length }),
                _ => Err(TensorProblem::PastEnd { path, offset, length, file_length }),
            },
        }
    }
}

#[cfg(test)]
mod tests;
