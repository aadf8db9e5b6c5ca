//! The `.safetensors` form: a JSON header with types, shapes and offsets, then raw bytes. 4-bit
//! integers, which the format lacks, are stored as bytes with their type and shape in the header's
//! metadata. Nothing of an untrusted header may be used before the format's own library checked it.

use super::{ArrayFault, Format, TensorFileError, Tensors, atomic, check_truth_values};
use ::safetensors::tensor::{Metadata, TensorInfo};
use ::safetensors::{Dtype, SafeTensors};
use bytes::Bytes;
use membar_ir::dtype::DType;
use membar_ir::mapping::map_file;
use membar_ir::tensor::Tensor;
use membar_ir::types::ConcreteType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;

/// The key of the metadata that holds a JSON object: name of a tensor → [`Packed`].
const PACKED_KEY: &str = "membar.packed";

/// Element types that both sides have.
const ELEMENT_TYPES: &[(DType, Dtype)] = &[
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::Bf16, Dtype::BF16),
    (DType::F8E4m3fn, Dtype::F8_E4M3),
    (DType::F8E5m2, Dtype::F8_E5M2),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
    (DType::Bool, Dtype::BOOL),
];

/// What a tensor is that is stored as a vector of bytes.
#[derive(Serialize, Deserialize)]
struct Packed {
    dtype: DType,
    shape: Vec<usize>,
}

/// Reads every tensor; those that are aligned in the file share its memory map.
///
/// # Errors
/// [`TensorFileError`] for whatever is not a valid file of supported tensors.
pub fn read(path: &Path) -> Result<Tensors, TensorFileError> {
    let bytes =
        map_file(path).map_err(|source| TensorFileError::Read { path: path.to_owned(), source })?;
    parse(&bytes, path)
}

/// Reads every tensor of a file that is called `path`; those that are aligned share its bytes.
///
/// # Errors
/// As for [`read`].
pub fn parse(bytes: &Bytes, path: &Path) -> Result<Tensors, TensorFileError> {
    let damaged = |reason: String| TensorFileError::Damaged {
        path: path.to_owned(),
        format: Format::Safetensors,
        reason,
    };
    let file = SafeTensors::deserialize(bytes).map_err(|error| damaged(error.to_string()))?;
    let mut packed = read_packed(bytes).map_err(damaged)?;

    let mut tensors = Tensors::new();
    for (name, view) in file.iter() {
        let tensor = tensor_type(view.dtype(), view.shape(), packed.remove(name))
            .and_then(|ty| Ok(Tensor::from_shared(ty, bytes.slice_ref(view.data()))?))
            .and_then(|tensor| check_truth_values(&tensor).map(|()| tensor))
            .map_err(|fault| {
                let (path, name) = (path.to_owned(), name.to_owned());
                TensorFileError::Array { path, name, fault }
            })?;
        tensors.insert(name.to_owned(), tensor);
    }
    match packed.keys().next() {
        None => Ok(tensors),
        Some(name) => Err(damaged(format!("`{PACKED_KEY}` names `{name}`, which is not there"))),
    }
}

fn read_packed(bytes: &[u8]) -> Result<BTreeMap<String, Packed>, String> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    match metadata.metadata().as_ref().and_then(|metadata| metadata.get(PACKED_KEY)) {
        None => Ok(BTreeMap::new()),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| format!("`{PACKED_KEY}` in its metadata: {error}")),
    }
}

fn tensor_type(
    stored: Dtype,
    shape: &[usize],
    packed: Option<Packed>,
) -> Result<ConcreteType, ArrayFault> {
    let known = ELEMENT_TYPES.iter().find(|(_, known)| *known == stored);
    let Some((dtype, _)) = known else {
        return Err(ArrayFault::ElementType(stored.to_string()));
    };
    match packed {
        None => Ok(ConcreteType::new(*dtype, shape.to_vec())?),
        Some(packed) if *dtype == DType::U8 && stored_type(packed.dtype).is_none() => {
            Ok(ConcreteType::new(packed.dtype, packed.shape)?)
        }
        Some(packed) => {
            Err(ArrayFault::ElementType(format!("{} stored as {stored}", packed.dtype)))
        }
    }
}

fn stored_type(dtype: DType) -> Option<Dtype> {
    ELEMENT_TYPES.iter().find(|(known, _)| *known == dtype).map(|(_, stored)| *stored)
}

/// Writes every tensor, the widest elements first, so that each is aligned.
///
/// # Errors
/// [`TensorFileError::Write`].
pub fn write(path: &Path, tensors: &Tensors) -> Result<(), TensorFileError> {
    let mut ordered: Vec<(&String, &Tensor)> = tensors.iter().collect();
    // The sort is stable: names stay in order among equal widths.
    ordered.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().bits()));
    let result = header(&ordered).and_then(|header| {
        atomic::write(path, |file| {
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(&header)?;
            ordered.iter().try_for_each(|(_, tensor)| file.write_all(tensor.bytes()))
        })
    });
    result.map_err(|source| TensorFileError::Write { path: path.to_owned(), source })
}

/// The header for tensors in that order, padded to keep what follows aligned to 8 bytes.
fn header(ordered: &[(&String, &Tensor)]) -> io::Result<Vec<u8>> {
    let mut packed = BTreeMap::new();
    let mut entries = Vec::with_capacity(ordered.len());
    let mut start = 0;
    for (name, tensor) in ordered {
        let end = start + tensor.bytes().len();
        let (dtype, shape) = match stored_type(tensor.dtype()) {
            Some(dtype) => (dtype, tensor.shape().to_vec()),
            None => {
                let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
                packed.insert(*name, Packed { dtype, shape });
                (Dtype::U8, vec![tensor.bytes().len()])
            }
        };
        let data_offsets = (start, end);
        entries.push(((*name).clone(), TensorInfo { dtype, shape, data_offsets }));
        start = end;
    }
    // One key alone: the library's own map has no order.
    let metadata = match packed.is_empty() {
        true => None,
        false => Some(HashMap::from([(PACKED_KEY.to_owned(), serde_json::to_string(&packed)?)])),
    };
    let metadata = Metadata::new(metadata, entries).map_err(io::Error::other)?;
    let mut header = serde_json::to_vec(&metadata)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}
