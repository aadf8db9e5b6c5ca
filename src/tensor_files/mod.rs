//! Named tensors in files, `.npz` and `.safetensors`: what the command line reads inputs from and
//! writes outputs to. A file is untrusted: whatever it holds, reading gives tensors or an error,
//! never a panic, and never takes memory out of proportion to the file's size without a limit.

mod atomic;
mod npy;
mod npz;
mod safetensors;

use bytes::Bytes;
use membar_ir::dtype::DType;
use membar_ir::tensor::{Tensor, TensorError};
use membar_ir::types::ShapeError;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Reads all tensors of a file; its ending says in which format.
///
/// `.npz` files come from NumPy: row-major and column-major, stored and deflated. Tensors of
/// `.safetensors` files share a memory map where they are aligned in it, so the file must not
/// change while they live.
///
/// # Errors
/// [`TensorFileError`], with the file and the array.
pub fn read(path: &Path) -> Result<Tensors, TensorFileError> {
    match Format::of(path)? {
        Format::Npz => npz::read(path),
        Format::Safetensors => safetensors::read(path),
    }
}

/// Reads all tensors of a file that is in memory; errors call it `path`.
///
/// # Errors
/// As for [`read`].
pub fn parse(bytes: Bytes, format: Format, path: &Path) -> Result<Tensors, TensorFileError> {
    match format {
        Format::Npz => npz::parse(Cursor::new(bytes), path),
        Format::Safetensors => safetensors::parse(&bytes, path),
    }
}

/// Writes tensors to a file; its ending says in which format. The same tensors give the same bytes.
///
/// The file appears complete or not at all, and replaces one that is there.
///
/// # Errors
/// [`TensorFileError`]: an `.npz` file cannot hold every element type.
pub fn write(path: &Path, tensors: &Tensors) -> Result<(), TensorFileError> {
    match Format::of(path)? {
        Format::Npz => npz::write(path, tensors),
        Format::Safetensors => safetensors::write(path, tensors),
    }
}

/// Why a tensor file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TensorFileError {
    /// The ending is none that is known.
    #[error("`{}` has no ending that says its format; expected `.npz` or `.safetensors`", .0.display())]
    Ending(PathBuf),
    /// The file cannot be read.
    #[error("cannot read `{}`: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write `{}`: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file as a whole is not what its ending says.
    #[error("`{}` is not a valid `{format}` file: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What its ending says.
        format: Format,
        /// What is wrong.
        reason: String,
    },
    /// One array is at fault.
    #[error("array `{name}` of `{}`: {fault}", .path.display())]
    Array {
        /// The file.
        path: PathBuf,
        /// The array.
        name: String,
        /// What is wrong with it.
        fault: ArrayFault,
    },
}

/// What is wrong with one array of a file.
#[derive(Debug, thiserror::Error)]
pub enum ArrayFault {
    /// A member of the archive that is no array.
    #[error("it is no array; expected only `.npy` members")]
    NotAnArray,
    /// The archive holds the member in a way that is not read.
    #[error("it is {0}; expected a stored or deflated member")]
    Storage(String),
    /// The header breaks the format.
    #[error("its header is invalid: {0}")]
    Header(String),
    /// Bytes in another order.
    #[error(
        "its elements (`{0}`) are big-endian; convert it with `array.astype(array.dtype.newbyteorder('<'))`"
    )]
    BigEndian(String),
    /// Pickled Python objects.
    #[error("it holds Python objects, which are never loaded; save it with a numeric dtype")]
    Objects,
    /// An element type without a counterpart.
    #[error("its element type `{0}` is not supported")]
    ElementType(String),
    /// An element type that the format cannot hold.
    #[error("`.npz` cannot hold {0}; write a `.safetensors` file instead")]
    NotInNpz(DType),
    /// Another number of bytes than the shape asks for.
    #[error("it has {found} bytes; its header asks for {expected}")]
    Length {
        /// What the header asks for.
        expected: u64,
        /// What the file has.
        found: u64,
    },
    /// Impossible sizes, or sizes beyond the limit.
    #[error("it claims to unpack to {claimed} bytes; at most {limit} are possible here")]
    Inflation {
        /// What the file says.
        claimed: u64,
        /// What it may be.
        limit: u64,
    },
    /// A truth value that is neither 0 nor 1.
    #[error("it has a truth value stored as {0}; expected 0 or 1")]
    Bool(u8),
    /// The contents cannot be read.
    #[error("its contents cannot be read: {0}")]
    Contents(#[from] io::Error),
    /// A shape that is impossible.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Bytes that do not make a tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// A format of tensor files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// NumPy's archive of arrays.
    Npz,
    /// A JSON header and raw bytes.
    Safetensors,
}

impl Format {
    /// The format that the path's ending says.
    ///
    /// # Errors
    /// [`TensorFileError::Ending`] when it says none.
    pub fn of(path: &Path) -> Result<Format, TensorFileError> {
        [Format::Npz, Format::Safetensors]
            .into_iter()
            .find(|format| path.extension().is_some_and(|ending| ending == format.ending()))
            .ok_or_else(|| TensorFileError::Ending(path.to_owned()))
    }

    fn ending(self) -> &'static str {
        match self {
            Format::Npz => "npz",
            Format::Safetensors => "safetensors",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.ending())
    }
}

/// Refuses bytes that are no truth values: kernels rely on 0 and 1.
fn check_truth_values(tensor: &Tensor) -> Result<(), ArrayFault> {
    let wrong = tensor.bytes().iter().find(|byte| **byte > 1);
    match (tensor.dtype(), wrong) {
        (DType::Bool, Some(byte)) => Err(ArrayFault::Bool(*byte)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
