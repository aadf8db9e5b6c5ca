//! A file in which blocks of zeros take no space where the file system can leave holes; must never
//! change what a reader sees.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// Zeros are left out in blocks of so many bytes, a multiple of common pages and file system blocks.
const BLOCK: usize = 64 << 10;

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Writes a new file from its beginning to its end.
pub(super) struct SparseFile {
    file: File,
    /// Bytes appended.
    length: u64,
    /// Zeros at the end that are not in the file yet.
    hole: u64,
}

impl SparseFile {
    /// A file that is still empty.
    pub fn new(file: File) -> SparseFile {
        SparseFile { file, length: 0, hole: 0 }
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        for block in bytes.chunks(BLOCK) {
            self.length += block.len() as u64;
            if *block == ZEROS[..block.len()] {
                self.hole += block.len() as u64;
                continue;
            }
            if self.hole > 0 {
                self.file.seek(SeekFrom::Start(self.length - block.len() as u64))?;
                self.hole = 0;
            }
            self.file.write_all(block)?;
        }
        Ok(())
    }

    /// Brings the file to its full length, which it gives back in bytes.
    pub fn finish(self) -> io::Result<u64> {
        if self.hole > 0 {
            self.file.set_len(self.length)?;
        }
        Ok(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_read_as_zeros() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("membar-sparse-{}", std::process::id()));
        let mut expected = Vec::new();
        let mut file = SparseFile::new(File::create(&path)?);
        // Zeros at the beginning, between and at the end, with lengths that are no whole blocks.
        for (length, value) in [(3 * BLOCK + 5, 0), (77, 7), (BLOCK, 0), (BLOCK, 9), (2, 0)] {
            let bytes = vec![value; length];
            file.append(&bytes)?;
            expected.extend(bytes);
        }
        let length = file.finish()?;
        let found = std::fs::read(&path);
        std::fs::remove_file(&path)?;
        assert_eq!(length, expected.len() as u64);
        assert!(found? == expected);
        Ok(())
    }
}
