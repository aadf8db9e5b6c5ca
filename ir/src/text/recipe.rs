//! Recipes of weights in text: each step with its type, the outermost type left to the line that
//! the recipe stands on; never the contents of a file.

use super::literal::{Elements, write_literal};
use super::print_helpers::{write_float, write_list, write_quoted, write_size};
use super::{Cursor, SyntaxError};
use crate::attribute::Float;
use crate::ops::Op;
use crate::recipe::{Distribution, Literal, Recipe, RecipeNode, Source};
use crate::types::TensorType;
use std::fmt::{self, Write};

/// Writes a recipe without its own type:
/// `transpose(file "up.weight" offset 128 : f16[4, 2]) {perm = [1, 0]}`.
pub(super) fn write_recipe(f: &mut impl Write, recipe: &Recipe) -> fmt::Result {
    match recipe.node() {
        RecipeNode::Source { source: Source::Literal(Literal(tensor)), .. } => {
            write_literal(f, tensor)
        }
        RecipeNode::Source { source: Source::File { path, offset }, .. } => {
            f.write_str("file ")?;
            write_quoted(f, path)?;
            if *offset != 0 {
                f.write_str(" offset ")?;
                write_size(f, *offset)?;
            }
            Ok(())
        }
        RecipeNode::Source { source: Source::Random { seed, stream, distribution }, .. } => {
            write!(f, "random seed {seed} stream {stream} ")?;
            let value = match distribution {
                Distribution::Normal(deviation) => {
                    f.write_str("normal(")?;
                    deviation
                }
                Distribution::Constant(value) => {
                    f.write_str("constant(")?;
                    value
                }
            };
            write_float(f, value.0)?;
            f.write_char(')')
        }
        RecipeNode::Apply { op, operands, .. } => {
            write!(f, "{}(", op.mnemonic())?;
            write_list(f, operands, |f, operand| {
                write_recipe(f, operand)?;
                write!(f, " : {}", operand.ty())
            })?;
            write!(f, "){}", op.attributes())
        }
    }
}

/// A recipe whose own type is still to come.
enum Untyped {
    Source(Source),
    Literal(Elements),
    Apply(Op, Vec<Recipe>),
}

/// Reads a recipe with its type.
pub(super) fn parse_recipe(cursor: &mut Cursor<'_>) -> Result<Recipe, SyntaxError> {
    let untyped = cursor.nested(parse_untyped)?;
    cursor.expect(':')?;
    let start = cursor.save();
    let ty = cursor.tensor_type()?;
    match untyped {
        Untyped::Source(source) => Ok(Recipe::source(ty, source)),
        Untyped::Apply(op, operands) => Ok(Recipe::apply(ty, op, operands)),
        Untyped::Literal(elements) => match elements.tensor(&ty) {
            Some(tensor) => Ok(Recipe::source(ty, Source::Literal(Literal(tensor)))),
            None => Err(cursor.error_at(start, &expected_elements(&ty))),
        },
    }
}

fn expected_elements(ty: &TensorType) -> String {
    format!(
        "a type that the elements before it have as many values of, each in range (`{ty}` is not)"
    )
}

fn parse_untyped(cursor: &mut Cursor<'_>) -> Result<Untyped, SyntaxError> {
    if Elements::follow(cursor) {
        return Elements::parse(cursor).map(Untyped::Literal);
    }
    if cursor.eat_word("file") {
        let path = cursor.quoted()?.into();
        let offset = if cursor.eat_word("offset") { cursor.size()? } else { 0 };
        return Ok(Untyped::Source(Source::File { path, offset }));
    }
    if cursor.eat_word("random") {
        cursor.expect_word("seed")?;
        let seed = cursor.unsigned()?;
        cursor.expect_word("stream")?;
        let stream = cursor.unsigned()?;
        let kind: fn(Float) -> Distribution = cursor.word_in(&[
            ("normal", Distribution::Normal as fn(Float) -> Distribution),
            ("constant", Distribution::Constant),
        ])?;
        cursor.expect('(')?;
        let distribution = kind(Float(cursor.float()?));
        cursor.expect(')')?;
        return Ok(Untyped::Source(Source::Random { seed, stream, distribution }));
    }
    let start = cursor.save();
    let expected = "`file`, `random`, a literal, or the name of an operator";
    let Ok(mnemonic) = cursor.word() else {
        return Err(cursor.error_at(start, expected));
    };
    let operands = cursor.list('(', ')', parse_recipe)?;
    let Some(op) = Op::parse(mnemonic, cursor) else {
        return Err(cursor.error_at(start, expected));
    };
    Ok(Untyped::Apply(op?, operands))
}
