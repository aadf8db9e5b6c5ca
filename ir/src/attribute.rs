//! Attributes of operators: how a field prints, parses and carries dimensions; the macros that
//! define operator structs and attribute words. Never knows any operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::text::{Cursor, SyntaxError};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A type that may be a field of an operator.
pub trait Attribute: Sized {
    /// Writes the text form.
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Reads the text form; `parse(print(x)) == x`.
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, SyntaxError>;

    /// Calls `visit` on each dimension in the attribute, so that symbols can be replaced.
    fn visit_dims(&mut self, _visit: &mut dyn FnMut(&mut Dim)) {}

    /// Whether the text form leaves the field out; only `Option` does.
    fn is_absent(&self) -> bool {
        false
    }

    /// The value of a field that the text leaves out; `None` if it may not be left out.
    fn absent() -> Option<Self> {
        None
    }
}

/// All fields of an operator. [`operator!`](crate::operator) implements it.
pub trait Attributes: Sized {
    /// Writes ` {name = value, …}`, or nothing if no field is present.
    fn print_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Reads what [`Attributes::print_attributes`] writes.
    fn parse_attributes(cursor: &mut Cursor<'_>) -> Result<Self, SyntaxError>;

    /// Calls `visit` on each dimension in any field.
    fn visit_attribute_dims(&mut self, visit: &mut dyn FnMut(&mut Dim));
}

/// A floating-point attribute, equal and ordered by its bits, so that operators can be hashed.
#[derive(Clone, Copy, Debug)]
pub struct Float(pub f64);

impl Float {
    /// The value as `f32`.
    pub fn as_f32(self) -> f32 {
        self.0 as f32
    }

    fn key(self) -> u64 {
        // The usual total order: negative numbers reversed, then positive ones.
        let bits = self.0.to_bits();
        if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
    }
}

impl From<f32> for Float {
    fn from(value: f32) -> Float {
        Float(value as f64)
    }
}

impl PartialEq for Float {
    fn eq(&self, other: &Float) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Float {}

impl Hash for Float {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl PartialOrd for Float {
    fn partial_cmp(&self, other: &Float) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Float {
    fn cmp(&self, other: &Float) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Attribute for Float {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::text::write_float(f, self.0)
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Float, SyntaxError> {
        cursor.float().map(Float)
    }
}

impl Attribute for bool {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<bool, SyntaxError> {
        cursor.word_in(&[("false", false), ("true", true)])
    }
}

impl Attribute for i64 {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<i64, SyntaxError> {
        cursor.integer()
    }
}

impl Attribute for u32 {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<u32, SyntaxError> {
        let value = cursor.integer()?;
        u32::try_from(value).map_err(|_| cursor.error("a 32-bit unsigned integer"))
    }
}

impl Attribute for String {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::text::write_quoted(f, self)
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<String, SyntaxError> {
        cursor.quoted()
    }
}

impl Attribute for DType {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<DType, SyntaxError> {
        cursor.dtype()
    }
}

impl Attribute for Dim {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Dim, SyntaxError> {
        cursor.dim()
    }

    fn visit_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
        visit(self);
    }
}

/// A list prints as `[a, b]`.
impl<T: Attribute> Attribute for Vec<T> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, item) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            item.print(f)?;
        }
        f.write_str("]")
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Vec<T>, SyntaxError> {
        cursor.list('[', ']', T::parse)
    }

    fn visit_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
        for item in self {
            item.visit_dims(visit);
        }
    }
}

/// `None` is left out of the text.
impl<T: Attribute> Attribute for Option<T> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Some(value) => value.print(f),
            None => Ok(()),
        }
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Option<T>, SyntaxError> {
        T::parse(cursor).map(Some)
    }

    fn visit_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
        if let Some(value) = self {
            value.visit_dims(visit);
        }
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

/// Defines an operator's struct: its fields are its attributes, printed in the order written.
#[macro_export]
macro_rules! operator {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type),* }

        impl $crate::attribute::Attributes for $name {
            fn print_attributes(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                #[allow(unused_mut)]
                let mut list = $crate::text::AttributePrinter::new(f);
                $(list.field(stringify!($field), &self.$field)?;)*
                list.finish()
            }

            fn parse_attributes(
                cursor: &mut $crate::text::Cursor<'_>,
            ) -> Result<Self, $crate::text::SyntaxError> {
                #[allow(unused_mut)]
                let mut list = $crate::text::AttributeParser::new(cursor)?;
                $(let $field = list.field(stringify!($field))?;)*
                list.finish()?;
                Ok($name { $($field),* })
            }

            fn visit_attribute_dims(&mut self, _visit: &mut dyn FnMut(&mut $crate::dim::Dim)) {
                $($crate::attribute::Attribute::visit_dims(&mut self.$field, _visit);)*
            }
        }
    };
}

/// Defines an attribute whose values are words.
#[macro_export]
macro_rules! attribute_words {
    ($(#[$meta:meta])* $name:ident { $($(#[$item_meta:meta])* $item:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$item_meta])* $item),* }

        impl $name {
            /// Every value with its word in IR text.
            pub const WORDS: &'static [(&'static str, $name)] = &[$(($word, $name::$item)),*];

            /// The word in IR text.
            pub fn word(self) -> &'static str {
                match self { $($name::$item => $word),* }
            }
        }

        impl $crate::attribute::Attribute for $name {
            fn print(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }

            fn parse(
                cursor: &mut $crate::text::Cursor<'_>,
            ) -> Result<Self, $crate::text::SyntaxError> {
                cursor.word_in($name::WORDS)
            }
        }
    };
}
