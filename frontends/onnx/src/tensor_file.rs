//! Single tensors in files of their own (`.pb`), as ONNX's test data comes; never models.

use crate::error::ImportError;
use crate::import::read_constant;
use crate::proto::TensorProto;
use crate::source::Source;
use crate::tensors::describe;
use membar_ir::Tensor;
use prost::Message;
use std::path::Path;

/// Reads a file that holds one `TensorProto`.
///
/// # Errors
/// The file cannot be read or decoded, its data does not fit its shape, or its element type is not
/// supported.
pub fn read_tensor(path: impl AsRef<Path>) -> Result<Tensor, ImportError> {
    let path = path.as_ref();
    let mut source = Source::open(path)?;
    read(&mut source)
        .map_err(|cause| ImportError::InFile { path: path.to_owned(), cause: Box::new(cause) })
}

fn read(source: &mut Source) -> Result<Tensor, ImportError> {
    let proto = TensorProto::decode(source.bytes().clone())
        .map_err(|error| ImportError::Decode { reason: error.to_string() })?;
    let tensor = describe(proto, || "tensor".to_owned(), source)?;
    read_constant(source, &tensor)
}
