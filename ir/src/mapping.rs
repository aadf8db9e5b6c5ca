//! Read-only memory maps of files as `Bytes`; the only place that maps memory for reading.

use bytes::Bytes;
use std::fs::File;
use std::io;
use std::path::Path;

/// Maps a file read-only. The bytes share one map and unmap it when the last clone is dropped.
///
/// Empty files give empty bytes. The caller must treat the contents as untrusted.
///
/// # Errors
/// Whatever opening or mapping the file reports; a directory or a special file is `InvalidInput`.
pub fn map_file(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is private to this process and read-only. Another process that truncates
    // the file while it is mapped can raise SIGBUS, as with every mapped reader; the
    // documentation of the command line says that model files must not change during a run.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}
