//! The text form: lexing, printing and parsing of graphs at every stage; never changes a graph.

mod cursor;
mod print_helpers;

pub use cursor::{Cursor, SyntaxError};
pub use print_helpers::{
    AttributeParser, AttributePrinter, is_identifier, write_float, write_quoted,
};
