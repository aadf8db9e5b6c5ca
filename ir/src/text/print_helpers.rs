//! Spelling of names, strings, floats and attribute lists; the one place that decides it.

use super::{Cursor, Position, SyntaxError};
use crate::attribute::Attribute;
use std::fmt::{self, Write};

/// Whether a name can stand without quotes: a letter or `_`, then letters, digits, `_` and single
/// inner dots.
pub fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
        && !name.ends_with('.')
        && !name.contains("..")
}

/// Writes a name: an identifier as it is, anything else in quotes.
pub fn write_name(f: &mut impl Write, name: &str) -> fmt::Result {
    if is_identifier(name) { f.write_str(name) } else { write_quoted(f, name) }
}

/// Units of sizes in bytes, the largest first.
pub(super) const UNITS: [(char, u64); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

/// Writes a size in bytes, in the largest unit that divides it.
pub fn write_size(f: &mut impl Write, bytes: u64) -> fmt::Result {
    match UNITS.iter().find(|(_, unit)| bytes != 0 && bytes.is_multiple_of(*unit)) {
        Some((letter, unit)) => write!(f, "{}{letter}", bytes / unit),
        None => write!(f, "{bytes}"),
    }
}

/// Writes the items of a list with `, ` between them.
pub(super) fn write_list<W: Write, T>(
    f: &mut W,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut W, T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    Ok(())
}

/// Writes a string in double quotes: printable UTF-8 as it is, `\"`, `\\`, and `\u{hex}` for
/// control characters.
pub fn write_quoted(f: &mut impl Write, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// Writes a float as the shortest decimal that reads back exactly, always with a point or an
/// exponent; infinities as `inf`, `-inf`; NaN with its bits, `nan(0x7ff8000000000000)`.
pub fn write_float(f: &mut impl Write, value: f64) -> fmt::Result {
    if value.is_nan() {
        write!(f, "nan({:#018x})", value.to_bits())
    } else if value.is_infinite() {
        f.write_str(if value > 0.0 { "inf" } else { "-inf" })
    } else {
        write!(f, "{value:?}")
    }
}

/// Writes ` {name = value, …}` field by field.
pub struct AttributePrinter<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    open: bool,
}

impl<'a, 'b> AttributePrinter<'a, 'b> {
    /// Starts a list; nothing is written until a field is.
    pub fn new(f: &'a mut fmt::Formatter<'b>) -> Self {
        AttributePrinter { f, open: false }
    }

    /// Writes one field, unless it is absent.
    pub fn field(&mut self, name: &str, value: &impl Attribute) -> fmt::Result {
        if value.is_absent() {
            return Ok(());
        }
        self.f.write_str(if self.open { ", " } else { " {" })?;
        self.open = true;
        write!(self.f, "{name} = ")?;
        value.print(self.f)
    }

    /// Closes the list.
    pub fn finish(self) -> fmt::Result {
        if self.open { self.f.write_str("}") } else { Ok(()) }
    }
}

/// Reads ` {name = value, …}` field by field, in order.
pub struct AttributeParser<'a, 'b> {
    cursor: &'a mut Cursor<'b>,
    open: bool,
    first: bool,
}

impl<'a, 'b> AttributeParser<'a, 'b> {
    /// Starts a list.
    pub fn new(cursor: &'a mut Cursor<'b>) -> Result<Self, SyntaxError> {
        let open = cursor.eat('{');
        Ok(AttributeParser { cursor, open, first: true })
    }

    /// Reads one field; a field that may be absent is absent if another name, or the end, stands
    /// in its place.
    pub fn field<T: Attribute>(&mut self, name: &str) -> Result<T, SyntaxError> {
        let start = self.cursor.save();
        let separated = self.open && (self.first || self.cursor.eat(','));
        if separated && self.cursor.eat_word(name) {
            self.first = false;
            self.cursor.expect('=')?;
            return T::parse(self.cursor);
        }
        self.cursor.restore(start);
        T::absent().ok_or_else(|| self.cursor.error(&format!("attribute `{name}`")))
    }

    /// The position of the next field.
    pub fn position(&self) -> Position {
        self.cursor.save()
    }

    /// Expects the end of the list.
    pub fn finish(self) -> Result<(), SyntaxError> {
        if self.open { self.cursor.expect('}') } else { Ok(()) }
    }
}
