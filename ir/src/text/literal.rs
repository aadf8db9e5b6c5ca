//! Literal tensors in text: a number, a short list of numbers, or base64; exact to the bit, and
//! never an allocation that a number in the text decides.

use super::base64;
use super::print_helpers::{write_float, write_list};
use super::{Cursor, SyntaxError};
use crate::dtype::{DType, DTypeClass};
use crate::element::Number;
use crate::tensor::Tensor;
use crate::types::{ConcreteType, TensorType};
use std::fmt::{self, Write};

/// Tensors of more elements are printed in base64.
const MAX_NUMBERS: usize = 32;

/// Writes the elements, without the type: `2.0` for a scalar, `[1, 2]`, or `base64 "…"` where
/// there are many, or where numbers would lose bits (the payload of a NaN).
pub(super) fn write_literal(f: &mut impl Write, tensor: &Tensor) -> fmt::Result {
    let numbers: Option<Vec<String>> = (tensor.elements() <= MAX_NUMBERS)
        .then(|| tensor.numbers().map(|number| spell(number, tensor.dtype())).collect());
    let exact = |texts: &Vec<String>| {
        let read = texts.iter().map(|text| Cursor::new(text).number()).collect::<Result<_, _>>();
        read.is_ok_and(|numbers| from_numbers(tensor.ty(), numbers).as_ref() == Some(tensor))
    };
    match numbers.filter(exact) {
        Some(numbers) if tensor.shape().is_empty() => f.write_str(&numbers.concat()),
        Some(numbers) => {
            f.write_char('[')?;
            write_list(f, numbers, |f, number| f.write_str(&number))?;
            f.write_char(']')
        }
        None => {
            f.write_str("base64 \"")?;
            base64::encode(f, tensor.bytes())?;
            f.write_char('"')
        }
    }
}

fn spell(number: Number, dtype: DType) -> String {
    match number {
        Number::Bool(value) => value.to_string(),
        Number::Signed(value) => value.to_string(),
        Number::Unsigned(value) => value.to_string(),
        Number::Float(value) => {
            // The shortest decimal of an f32 almost always reads back exactly by way of f64; the
            // rest, and NaNs, take the digits of the f64.
            let short = format!("{:?}", value as f32);
            let read = short.parse::<f64>().map(|read| Number::Float(read).round_to(dtype, false));
            match read {
                Ok(read) if dtype != DType::F64 && read == Number::Float(value) => short,
                _ => {
                    let mut text = String::new();
                    // Writing to a string does not fail.
                    let _ = write_float(&mut text, value);
                    text
                }
            }
        }
    }
}

/// The elements as they stand in the text, before their type is known.
pub(super) enum Elements {
    Scalar(Number),
    List(Vec<Number>),
    Bytes(Vec<u8>),
}

impl Elements {
    /// Whether a literal comes next.
    pub fn follow(cursor: &mut Cursor<'_>) -> bool {
        let word = cursor.peek_word();
        let rest = cursor.rest();
        matches!(word, Some("true" | "false" | "base64" | "inf" | "nan"))
            || rest.starts_with(|c: char| c == '[' || c == '-' || c.is_ascii_digit())
    }

    /// Reads what [`write_literal`] writes.
    pub fn parse(cursor: &mut Cursor<'_>) -> Result<Elements, SyntaxError> {
        if cursor.eat_word("base64") {
            let start = cursor.save();
            let text = cursor.quoted()?;
            let bytes = base64::decode(&text);
            return bytes
                .map(Elements::Bytes)
                .ok_or_else(|| cursor.error_at(start, "bytes in base64"));
        }
        if cursor.peek('[') {
            return cursor.list('[', ']', Cursor::number).map(Elements::List);
        }
        cursor.number().map(Elements::Scalar)
    }

    /// The tensor of that type; `None` if these are not its elements.
    pub fn tensor(self, ty: &TensorType) -> Option<Tensor> {
        let ty = ConcreteType::new(ty.dtype, ty.static_shape()?).ok()?;
        match self {
            Elements::Bytes(bytes) => Tensor::from_bytes(ty, &bytes).ok(),
            Elements::Scalar(number) if ty.shape.is_empty() => from_numbers(&ty, vec![number]),
            Elements::Scalar(_) => None,
            Elements::List(numbers) if !ty.shape.is_empty() => from_numbers(&ty, numbers),
            Elements::List(_) => None,
        }
    }
}

/// A tensor of exactly these numbers; `None` if their count or one of them does not fit the type.
fn from_numbers(ty: &ConcreteType, numbers: Vec<Number>) -> Option<Tensor> {
    let fits = |number: &Number| match (ty.dtype.class(), number) {
        (DTypeClass::Bool, Number::Bool(_)) => true,
        (DTypeClass::Bool, _) | (_, Number::Bool(_)) => false,
        (DTypeClass::Float, _) => true,
        (_, Number::Float(_)) => false,
        (DTypeClass::Signed | DTypeClass::Unsigned, number) => {
            number.round_to(ty.dtype, false).to_integer() == number.to_integer()
        }
    };
    // The count is compared first: a tensor is never larger than the text that gives it.
    (numbers.len() == ty.elements() && numbers.iter().all(fits))
        .then(|| Tensor::from_numbers(ty.clone(), numbers).ok())
        .flatten()
}
