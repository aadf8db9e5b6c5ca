//! The messages between a compiling process and its workers: lists of byte strings, each with its
//! length in front. Must never allocate by a length alone.

use std::io::{self, Read, Write};

/// A longer string is not one of ours.
const LIMIT: u32 = 1 << 30;

/// Writes a message.
pub(super) fn write(out: &mut impl Write, parts: &[&[u8]]) -> io::Result<()> {
    let length = |length: usize| {
        u32::try_from(length).map_err(|_| io::Error::other("a message is too long"))
    };
    out.write_all(&length(parts.len())?.to_le_bytes())?;
    for part in parts {
        out.write_all(&length(part.len())?.to_le_bytes())?;
        out.write_all(part)?;
    }
    out.flush()
}

/// Reads a message of `N` parts; `None` at the end of the stream.
pub(super) fn read<const N: usize>(input: &mut impl Read) -> io::Result<Option<[Vec<u8>; N]>> {
    let mut count = [0; 4];
    match input.read(&mut count[..1])? {
        0 => return Ok(None),
        _ => input.read_exact(&mut count[1..])?,
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is not a message");
    if u32::from_le_bytes(count) as usize != N {
        return Err(damaged());
    }
    let mut parts = std::array::from_fn(|_| Vec::new());
    for part in &mut parts {
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > LIMIT {
            return Err(damaged());
        }
        if input.by_ref().take(length.into()).read_to_end(part)? != length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes, &[b"one", b""])?;
        write(&mut bytes, &[b"two", b"three"])?;
        let mut input = bytes.as_slice();
        assert_eq!(read::<2>(&mut input)?, Some([b"one".to_vec(), Vec::new()]));
        assert_eq!(read::<2>(&mut input)?, Some([b"two".to_vec(), b"three".to_vec()]));
        assert_eq!(read::<2>(&mut input)?, None);
        for length in 1..15 {
            assert!(read::<2>(&mut &bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(read::<1>(&mut bytes.as_slice()).is_err());
        assert!(read::<1>(&mut [1, 0, 0, 0, 255, 255, 255, 255].as_slice()).is_err());
        Ok(())
    }
}
