//! A position in IR text with the small readers that every grammar rule is made of; it never
//! recurses deeper than [`Cursor::MAX_DEPTH`].

use super::is_identifier;
use super::print_helpers::UNITS;
use crate::dim::{Dim, Monomial, Symbol};
use crate::dtype::DType;
use crate::element::Number;
use crate::types::TensorType;
use std::fmt;

/// What was wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was expected there.
    pub expected: String,
    /// What was found there.
    pub found: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SyntaxError { line, column, expected, found } = self;
        write!(f, "{line}:{column}: expected {expected}, found {found}")
    }
}

/// A saved position of a [`Cursor`].
#[derive(Clone, Copy, Debug)]
pub struct Position(usize);

/// A position in a text. White space and comments (`//` to the end of the line) are skipped
/// before each token.
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Cursor<'a> {
    /// How deep nested brackets, dimensions and recipes may go.
    pub const MAX_DEPTH: u32 = 64;

    /// How many terms a dimension, and how many factors a term may have.
    const MAX_TERMS: usize = 256;

    /// The start of a text.
    pub fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0, depth: 0 }
    }

    /// The position, to come back to.
    pub fn save(&self) -> Position {
        Position(self.at)
    }

    /// Goes back to a saved position.
    pub fn restore(&mut self, position: Position) {
        self.at = position.0;
    }

    /// The rest of the text, after white space and comments.
    pub fn rest(&mut self) -> &'a str {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return trimmed;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// Whether nothing is left.
    pub fn at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// The line of the next token, from 1.
    pub fn line(&mut self) -> u32 {
        self.rest();
        self.location().0
    }

    fn location(&self) -> (u32, u32) {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() as u32 + 1;
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        (line, before[start..].chars().count() as u32 + 1)
    }

    /// An error at the next token that says what was expected there.
    pub fn error(&mut self, expected: &str) -> SyntaxError {
        let rest = self.rest();
        let found = match rest.chars().next() {
            None => "the end of the text".to_string(),
            Some(_) => {
                let token: String = rest
                    .chars()
                    .enumerate()
                    .take_while(|(i, c)| *i == 0 || (*i < 32 && c.is_alphanumeric()))
                    .map(|(_, c)| c)
                    .collect();
                let visible = |c: char| {
                    if c.is_control() { c.escape_default().to_string() } else { c.to_string() }
                };
                format!("`{}`", token.chars().map(visible).collect::<String>())
            }
        };
        let (line, column) = self.location();
        SyntaxError { line, column, expected: expected.to_string(), found }
    }

    /// An error at a saved position.
    pub fn error_at(&mut self, position: Position, expected: &str) -> SyntaxError {
        self.restore(position);
        self.error(expected)
    }

    /// Runs `parse` one level deeper, or fails if that is too deep.
    pub fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth >= Self::MAX_DEPTH {
            let limit = format!("nesting of at most {} levels", Self::MAX_DEPTH);
            return Err(self.error(&limit));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Whether the next token begins with `c`.
    pub fn peek(&mut self, c: char) -> bool {
        self.rest().starts_with(c)
    }

    /// Consumes `c` if it comes next.
    pub fn eat(&mut self, c: char) -> bool {
        let found = self.peek(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    /// Consumes a symbol of several characters, such as `->`, if it comes next.
    pub fn eat_symbol(&mut self, symbol: &str) -> bool {
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len();
        }
        found
    }

    /// Consumes `c` or fails.
    pub fn expect(&mut self, c: char) -> Result<(), SyntaxError> {
        if self.eat(c) { Ok(()) } else { Err(self.error(&format!("`{c}`"))) }
    }

    /// Consumes a symbol or fails.
    pub fn expect_symbol(&mut self, symbol: &str) -> Result<(), SyntaxError> {
        if self.eat_symbol(symbol) { Ok(()) } else { Err(self.error(&format!("`{symbol}`"))) }
    }

    /// The identifier that comes next, without consuming it.
    pub fn peek_word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(rest.len());
        // A range such as `1..4` or `B in lo..hi` ends the word before its dots.
        let end = rest[..end].find("..").unwrap_or(end);
        let word = &rest[..end];
        is_identifier(word).then_some(word)
    }

    /// Consumes that identifier if it comes next.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == Some(word);
        if found {
            self.at += word.len();
        }
        found
    }

    /// Consumes that identifier or fails.
    pub fn expect_word(&mut self, word: &str) -> Result<(), SyntaxError> {
        if self.eat_word(word) { Ok(()) } else { Err(self.error(&format!("`{word}`"))) }
    }

    /// Reads an identifier.
    pub fn word(&mut self) -> Result<&'a str, SyntaxError> {
        let word = self.peek_word().ok_or_else(|| self.error("a word"))?;
        self.at += word.len();
        Ok(word)
    }

    /// Reads one of the given words and returns its value.
    pub fn word_in<T: Copy>(&mut self, words: &[(&str, T)]) -> Result<T, SyntaxError> {
        let found = self.peek_word();
        match words.iter().find(|(word, _)| found == Some(*word)) {
            Some((word, value)) => {
                self.at += word.len();
                Ok(*value)
            }
            None => {
                let list: Vec<String> = words.iter().map(|(w, _)| format!("`{w}`")).collect();
                Err(self.error(&list.join(" or ")))
            }
        }
    }

    /// Reads an element type.
    pub fn dtype(&mut self) -> Result<DType, SyntaxError> {
        match self.peek_word().and_then(|word| Some((word, word.parse().ok()?))) {
            Some((word, dtype)) => {
                self.at += word.len();
                Ok(dtype)
            }
            None => Err(self.error("an element type such as `f32`")),
        }
    }

    /// Reads a tensor type such as `f32[B, 4]`.
    pub fn tensor_type(&mut self) -> Result<TensorType, SyntaxError> {
        let dtype = self.dtype()?;
        let shape = self.list('[', ']', Cursor::dim)?;
        Ok(TensorType { dtype, shape })
    }

    /// Reads an identifier or a quoted string.
    pub fn name(&mut self) -> Result<String, SyntaxError> {
        if self.peek('"') { self.quoted() } else { self.word().map(str::to_string) }
    }

    /// Reads a string in double quotes.
    pub fn quoted(&mut self) -> Result<String, SyntaxError> {
        self.expect('"')?;
        let mut out = String::new();
        let mut chars = self.text[self.at..].char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\\'))) => out.push(c),
                    Some((j, 'u')) => {
                        let rest = &self.text[self.at + j + 1..];
                        let code = rest.strip_prefix('{').and_then(|r| r.split_once('}'));
                        let decoded = code.and_then(|(hex, _)| {
                            let value = u32::from_str_radix(hex, 16).ok()?;
                            Some((hex.len(), char::from_u32(value)?))
                        });
                        let Some((length, c)) = decoded else {
                            self.at += j;
                            return Err(self.error("a character code such as `u{1b}`"));
                        };
                        out.push(c);
                        for _ in 0..length + 2 {
                            chars.next();
                        }
                    }
                    _ => {
                        self.at += i;
                        return Err(self.error("`\\\"`, `\\\\` or `\\u{…}`"));
                    }
                },
                c => out.push(c),
            }
        }
        self.at = self.text.len();
        Err(self.error("`\"`"))
    }

    /// Reads a decimal integer.
    pub fn integer(&mut self) -> Result<i64, SyntaxError> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        match rest[..sign + digits].parse() {
            Ok(value) => {
                self.at += sign + digits;
                Ok(value)
            }
            Err(_) => Err(self.error("a 64-bit integer")),
        }
    }

    /// Reads a decimal integer that is not negative.
    pub fn unsigned(&mut self) -> Result<u64, SyntaxError> {
        let rest = self.rest();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        match rest[..digits].parse() {
            Ok(value) => {
                self.at += digits;
                Ok(value)
            }
            Err(_) => Err(self.error("an unsigned 64-bit integer")),
        }
    }

    /// Reads an unsigned integer of 32 bits.
    pub fn unsigned_32(&mut self) -> Result<u32, SyntaxError> {
        let start = self.save();
        let value = self.unsigned()?;
        u32::try_from(value).map_err(|_| self.error_at(start, "an unsigned 32-bit integer"))
    }

    /// Reads a size in bytes, with a unit or without: `320K`, `17`.
    pub fn size(&mut self) -> Result<u64, SyntaxError> {
        let start = self.save();
        let value = self.unsigned()?;
        let rest = &self.text[self.at..];
        let unit = UNITS.iter().find(|(letter, _)| rest.starts_with(*letter));
        let Some((letter, unit)) = unit else {
            return Ok(value);
        };
        self.at += letter.len_utf8();
        value.checked_mul(*unit).ok_or_else(|| self.error_at(start, "a size of at most 64 bits"))
    }

    /// Reads a float as [`write_float`](super::write_float) writes it; integers are taken too.
    pub fn float(&mut self) -> Result<f64, SyntaxError> {
        if let Some(value) = self.special_float()? {
            return Ok(value);
        }
        let token = self.numeral();
        match token.parse() {
            Ok(value) => {
                self.at += token.len();
                Ok(value)
            }
            Err(_) => Err(self.error("a number")),
        }
    }

    /// Reads an element of a tensor: a float, an integer of 64 bits, `true` or `false`.
    pub fn number(&mut self) -> Result<Number, SyntaxError> {
        for (word, value) in [("true", true), ("false", false)] {
            if self.eat_word(word) {
                return Ok(Number::Bool(value));
            }
        }
        if let Some(value) = self.special_float()? {
            return Ok(Number::Float(value));
        }
        let token = self.numeral();
        let value = if token.contains(['.', 'e', 'E']) {
            token.parse().ok().map(Number::Float)
        } else {
            let signed = token.parse().map(Number::Signed);
            signed.or_else(|_| token.parse().map(Number::Unsigned)).ok()
        };
        match value {
            Some(value) => {
                self.at += token.len();
                Ok(value)
            }
            None => Err(self.error("a number of 64 bits, `true` or `false`")),
        }
    }

    fn special_float(&mut self) -> Result<Option<f64>, SyntaxError> {
        let rest = self.rest();
        if let Some(bits) = rest.strip_prefix("nan(0x") {
            let digits = bits.bytes().take_while(u8::is_ascii_hexdigit).count();
            let closed = bits[digits..].starts_with(')');
            return match u64::from_str_radix(&bits[..digits], 16).map(f64::from_bits) {
                Ok(value) if value.is_nan() && closed => {
                    self.at += "nan(0x)".len() + digits;
                    Ok(Some(value))
                }
                _ => Err(self.error("the bits of a NaN")),
            };
        }
        for (word, value) in [("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY)] {
            if self.eat_symbol(word) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The characters of a decimal number that comes next, without consuming them.
    fn numeral(&mut self) -> &'a str {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let mut end = 0;
        while let Some(&byte) = bytes.get(end) {
            let exponent_sign = end > 0 && matches!(bytes[end - 1], b'e' | b'E');
            let continues = match byte {
                b'0'..=b'9' | b'e' | b'E' => true,
                b'.' => bytes.get(end + 1) != Some(&b'.'),
                b'+' | b'-' => end == 0 || exponent_sign,
                _ => false,
            };
            if !continues {
                break;
            }
            end += 1;
        }
        &rest[..end]
    }

    /// Reads `open item, item close`.
    pub fn list<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.eat(close) {
            if !items.is_empty() {
                self.expect(',')?;
            }
            items.push(self.nested(&mut item)?);
        }
        Ok(items)
    }

    /// Reads a dimension: sums, differences and products of integers, symbols and
    /// `floordiv(a, b)`, `mod(a, b)`, `min(a, b)`, `max(a, b)`.
    pub fn dim(&mut self) -> Result<Dim, SyntaxError> {
        self.nested(|cursor| {
            let negative = cursor.eat('-');
            let mut sum = cursor.product(negative)?;
            loop {
                if cursor.eat('+') {
                    sum = sum + cursor.product(false)?;
                } else if !cursor.rest().starts_with("->") && cursor.eat('-') {
                    sum = sum + cursor.product(true)?;
                } else {
                    return Ok(sum);
                }
                cursor.small(sum.terms().len())?;
            }
        })
    }

    fn product(&mut self, negative: bool) -> Result<Dim, SyntaxError> {
        let mut product = if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            // The least integer has no positive counterpart, so the sign is part of the number.
            let start = self.save();
            let magnitude = i128::from(self.unsigned()?);
            let value = i64::try_from(if negative { -magnitude } else { magnitude });
            Dim::from(value.map_err(|_| self.error_at(start, "a 64-bit integer"))?)
        } else {
            let factor = self.factor()?;
            if negative { -factor } else { factor }
        };
        while self.eat('*') {
            let factor = self.factor()?;
            // A quotient may come out as a sum, so that products of a few can be huge.
            self.small(product.terms().len().saturating_mul(factor.terms().len()))?;
            product = product * factor;
            let degree = |(monomial, _): &(Monomial, i64)| -> usize {
                monomial.iter().map(|(_, power)| *power as usize).sum()
            };
            let degree = product.terms().iter().map(degree).max();
            self.small(degree.unwrap_or(0))?;
        }
        Ok(product)
    }

    fn small(&mut self, terms: usize) -> Result<(), SyntaxError> {
        if terms <= Self::MAX_TERMS {
            return Ok(());
        }
        let limit = format!("a dimension of at most {} terms and factors", Self::MAX_TERMS);
        Err(self.error(&limit))
    }

    fn factor(&mut self) -> Result<Dim, SyntaxError> {
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return self.integer().map(Dim::from);
        }
        if self.peek('"') {
            return Ok(Dim::from(Symbol::new(&self.quoted()?)));
        }
        let start = self.save();
        let word = self.word().map_err(|_| self.error("a dimension"))?;
        if !matches!(word, "floordiv" | "mod" | "min" | "max") {
            return Ok(Dim::symbol(word));
        }
        let pair = self.list('(', ')', |cursor| cursor.dim())?;
        let result = match (word, pair.as_slice()) {
            ("floordiv", [a, b]) => a.floor_div(b),
            ("mod", [a, b]) => a.modulo(b),
            ("min", [a, b]) => Some(a.minimum(b)),
            ("max", [a, b]) => Some(a.maximum(b)),
            _ => None,
        };
        result.ok_or_else(|| {
            self.restore(start);
            self.error(&format!("`{word}` of two dimensions, the second not 0"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_print_and_parse() {
        for text in ["2*B*S + P - 1", "floordiv(S, 4)", "min(S, \"odd name\")", "-B", "0"] {
            let dim = Cursor::new(text).dim().map(|d| d.to_string());
            assert_eq!(dim.as_deref(), Ok(text));
        }
        assert!(Cursor::new("mod(S, 0)").dim().is_err());
        assert!(Cursor::new(&"min(1, ".repeat(100_000)).dim().is_err());
    }

    #[test]
    fn the_least_integer_is_a_dimension() {
        for text in ["-9223372036854775808", "B - 9223372036854775808", "-9223372036854775808*B"] {
            let dim = Cursor::new(text).dim().map(|d| d.to_string());
            assert_eq!(dim.as_deref(), Ok(text));
        }
        assert!(Cursor::new("9223372036854775808").dim().is_err());
        assert!(Cursor::new(&"B*".repeat(100_000)).dim().is_err());
        let sum: String = (0..100_000).map(|i| format!("B{i} + ")).collect();
        assert!(Cursor::new(&sum).dim().is_err());
        let quotients: Vec<_> = (0..40).map(|i| format!("floordiv(2*A{i} + 2*B{i}, 2)")).collect();
        assert!(Cursor::new(&quotients.join("*")).dim().is_err());
    }

    #[test]
    fn sizes_have_one_spelling() {
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1024, "1K"), (1536 << 10, "1536K"), (3 << 30, "3G")]
        {
            let mut printed = String::new();
            assert!(super::super::write_size(&mut printed, bytes).is_ok());
            assert_eq!(printed, text);
            assert_eq!(Cursor::new(text).size(), Ok(bytes));
        }
        assert!(Cursor::new("99999999999999999G").size().is_err());
    }

    #[test]
    fn floats_read_back_exactly() {
        let bits =
            [0.1f64.to_bits(), 1e300f64.to_bits(), (-0.0f64).to_bits(), 0x7ff8_0000_0000_0001];
        for bits in bits.into_iter().chain([f64::INFINITY.to_bits(), 1u64]) {
            let mut text = String::new();
            assert!(super::super::write_float(&mut text, f64::from_bits(bits)).is_ok());
            assert_eq!(Cursor::new(&text).float().map(f64::to_bits), Ok(bits), "{text}");
        }
    }

    #[test]
    fn strings_escape() {
        for text in ["plain", "quote\" back\\ \u{1b} é 漢"] {
            let mut quoted = String::new();
            assert!(super::super::write_quoted(&mut quoted, text).is_ok());
            assert_eq!(Cursor::new(&quoted).quoted().as_deref(), Ok(text));
        }
        for bad in ["\"", "\"\\x\"", "\"\\u{110000}\"", "\"\\u\""] {
            assert!(Cursor::new(bad).quoted().is_err(), "{bad}");
        }
    }
}
