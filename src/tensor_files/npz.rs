//! NumPy's `.npz`: a ZIP archive of `.npy` arrays, stored or deflated. Nothing is unpacked to disk,
//! so member names are names and never paths.

use super::{ArrayFault, Format, TensorFileError, Tensors, atomic, npy};
use membar_ir::tensor::Tensor;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use zip::read::ZipFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

const MEMBER_ENDING: &str = ".npy";

/// No deflate stream expands more: 258 bytes from two bits (RFC 1951, section 3.2.5).
const MAX_DEFLATE_RATIO: u64 = 1032;

/// What the deflated members of one file may unpack to. Stored ones, and `.safetensors`, have no
/// limit, since the file is as large as its tensors.
const MAX_INFLATED_BYTES: u64 = 8 << 30;

/// Reads every array of the archive.
///
/// # Errors
/// [`TensorFileError`] for whatever is not an archive of supported arrays.
pub fn read(path: &Path) -> Result<Tensors, TensorFileError> {
    let file = File::open(path)
        .map_err(|source| TensorFileError::Read { path: path.to_owned(), source })?;
    parse(BufReader::new(file), path)
}

/// Reads every array of an archive that is called `path`.
///
/// # Errors
/// As for [`read`].
pub fn parse(reader: impl Read + Seek, path: &Path) -> Result<Tensors, TensorFileError> {
    let damaged = |reason: String| TensorFileError::Damaged {
        path: path.to_owned(),
        format: Format::Npz,
        reason,
    };
    let mut archive = ZipArchive::new(reader).map_err(|error| damaged(error.to_string()))?;
    if archive.has_duplicate_names() {
        return Err(damaged("two arrays have the same name".to_owned()));
    }
    // Members that share their bytes would make memory grow beyond the size of the file.
    if archive.has_overlapping_files().map_err(|error| damaged(error.to_string()))? {
        return Err(damaged("members overlap".to_owned()));
    }

    let mut tensors = Tensors::new();
    let mut inflatable = MAX_INFLATED_BYTES;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|error| damaged(error.to_string()))?;
        let member_name = member.name().map_err(|error| damaged(error.to_string()))?.into_owned();
        let array_name = member_name.strip_suffix(MEMBER_ENDING);
        let in_array = |fault| TensorFileError::Array {
            path: path.to_owned(),
            name: array_name.unwrap_or(&member_name).to_owned(),
            fault,
        };
        let Some(name) = array_name else {
            return Err(in_array(ArrayFault::NotAnArray));
        };
        let tensor = read_member(&mut member, &mut inflatable).map_err(in_array)?;
        tensors.insert(name.to_owned(), tensor);
    }
    Ok(tensors)
}

fn read_member<R: Read>(
    member: &mut ZipFile<'_, R>,
    inflatable: &mut u64,
) -> Result<Tensor, ArrayFault> {
    let claimed = member.size();
    let limit = match member.compression() {
        CompressionMethod::Stored => member.compressed_size(),
        CompressionMethod::Deflated => {
            let possible = member.compressed_size().saturating_mul(MAX_DEFLATE_RATIO);
            possible.min(*inflatable)
        }
        other => return Err(ArrayFault::Storage(format!("compressed with {other}"))),
    };
    if claimed > limit {
        return Err(ArrayFault::Inflation { claimed, limit });
    }
    if member.compression() == CompressionMethod::Deflated {
        *inflatable -= claimed;
    }
    let tensor = npy::read(member, claimed)?;
    // The checksum is compared when the end is reached.
    let mut rest = [0];
    if member.read(&mut rest)? != 0 {
        return Err(ArrayFault::Length { expected: claimed, found: claimed.saturating_add(1) });
    }
    Ok(tensor)
}

/// Writes every tensor as a stored member, in the order of the names.
///
/// # Errors
/// [`TensorFileError`], before anything is written where a tensor's type has no place in the format.
pub fn write(path: &Path, tensors: &Tensors) -> Result<(), TensorFileError> {
    for (name, tensor) in tensors {
        if !npy::holds(tensor.dtype()) {
            let fault = ArrayFault::NotInNpz(tensor.dtype());
            let (path, name) = (path.to_owned(), name.clone());
            return Err(TensorFileError::Array { path, name, fault });
        }
    }
    // A fixed time keeps the bytes the same from run to run.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    let result = atomic::write(path, |file| {
        let mut archive = ZipWriter::new(file);
        for (name, tensor) in tensors {
            let is_large = u32::try_from(tensor.bytes().len().saturating_add(1 << 16)).is_err();
            archive.start_file(format!("{name}{MEMBER_ENDING}"), options.large_file(is_large))?;
            npy::write(&mut archive, tensor).map_err(std::io::Error::other)?;
        }
        archive.finish()?;
        Ok(())
    });
    result.map_err(|source| TensorFileError::Write { path: path.to_owned(), source })
}
