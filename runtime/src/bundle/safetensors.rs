//! The file of the weights: the header of the safetensors format, computed before any tensor is
//! made; must never hold a tensor.

use membar_ir::dtype::DType;
use membar_ir::types::ConcreteType;
use serde::Serialize;
use std::collections::BTreeMap;

/// The key under which the metadata names the true types of tensors stored as bytes.
const PACKED: &str = "membar.packed";

/// The data begins at a multiple of this.
const ALIGNMENT: usize = 64;

/// A tensor's name, type and place in the file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub name: String,
    pub ty: ConcreteType,
    /// First byte, counted from the beginning of the file.
    pub offset: u64,
}

/// The header of a file and the places of its tensors.
pub(super) struct Header {
    pub bytes: Vec<u8>,
    pub entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Info {
    dtype: &'static str,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

#[derive(Serialize)]
struct Packed {
    dtype: DType,
    shape: Vec<usize>,
}

/// Lays tensors out: those of the widest elements first, so that each is aligned for its own
/// without gaps, which the format forbids; the order is kept otherwise.
pub(super) fn layout(tensors: &[(String, ConcreteType)]) -> Result<Header, serde_json::Error> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(tensors[*index].1.dtype.bits()));
    let mut header: BTreeMap<&str, serde_json::Value> = BTreeMap::new();
    let mut packed: BTreeMap<&str, Packed> = BTreeMap::new();
    let mut entries = Vec::with_capacity(tensors.len());
    let mut end = 0u64;
    for index in order {
        let (name, ty) = &tensors[index];
        let bytes = ty.byte_len() as u64;
        let (dtype, shape) = match dtype_name(ty.dtype) {
            Some(dtype) => (dtype, ty.shape.clone()),
            None => {
                packed.insert(name, Packed { dtype: ty.dtype, shape: ty.shape.clone() });
                ("U8", vec![ty.byte_len()])
            }
        };
        let info = Info { dtype, shape, data_offsets: [end, end + bytes] };
        header.insert(name, serde_json::to_value(info)?);
        entries.push(Entry { name: name.clone(), ty: ty.clone(), offset: end });
        end += bytes;
    }
    if !packed.is_empty() {
        let text = serde_json::to_string(&packed)?;
        header.insert("__metadata__", serde_json::json!({ PACKED: text }));
    }
    let mut text = serde_json::to_vec(&header)?;
    // Spaces may follow the header, so that the data is aligned.
    let length = (8 + text.len()).next_multiple_of(ALIGNMENT);
    text.resize(length - 8, b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    for entry in &mut entries {
        entry.offset += bytes.len() as u64;
    }
    Ok(Header { bytes, entries })
}

/// The format's name of an element type, for those that it has.
fn dtype_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::Bf16 => "BF16",
        DType::F8E4m3fn => "F8_E4M3",
        DType::F8E5m2 => "F8_E5M2",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U64 => "U64",
        DType::U32 => "U32",
        DType::U16 => "U16",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
        DType::I4 | DType::U4 => return None,
    })
}
