//! Bytes of literals as base64 (RFC 4648, with padding); never anything but its own alphabet.

use std::fmt::{self, Write};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes bytes.
pub(super) fn encode(f: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                let index = (group >> (18 - 6 * digit)) & 63;
                f.write_char(char::from(ALPHABET[index as usize]))?;
            } else {
                f.write_char('=')?;
            }
        }
    }
    Ok(())
}

/// Reads what [`encode`] writes; `None` if it is anything else.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.len() / 4;
    for (index, chunk) in text.chunks(4).enumerate() {
        let padding = chunk.iter().rev().take_while(|c| **c == b'=').count();
        if padding > 2 || (padding > 0 && index + 1 != groups) {
            return None;
        }
        let mut group = 0u32;
        for c in &chunk[..4 - padding] {
            group = group << 6 | value(*c)?;
        }
        group <<= 6 * padding;
        let [_, a, b, c] = group.to_be_bytes();
        let group = [a, b, c];
        let (kept, dropped) = group.split_at(3 - padding);
        if dropped.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(kept);
    }
    Some(bytes)
}

fn value(c: u8) -> Option<u32> {
    let value = match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_back() {
        for length in 0..10u8 {
            let bytes: Vec<u8> = (0..length).map(|i| i.wrapping_mul(201) ^ 0xa5).collect();
            let mut text = String::new();
            assert!(encode(&mut text, &bytes).is_ok());
            assert_eq!(decode(&text), Some(bytes), "{text}");
        }
        for bad in ["A", "AA=A", "A===", "AB==", "AA==AAAA", "AAA!", "é=="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
