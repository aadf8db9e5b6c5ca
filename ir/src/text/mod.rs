//! The text form: lexing, printing and parsing of graphs at every stage; never judges a graph.
//!
//! One node a line, the same grammar for every operator:
//!
//! ```text
//! ir 1 stage scheduled topology "h200"
//! graph @mlp(%x: f16[B, 512] @gpu0.hbm in $0[0..64K] on gpu0) where B in 1..=64 {
//!   buffer $0 = 448K @gpu0.hbm
//!   %w = weight transpose(file "up.weight" : f16[2048, 512]) {perm = [1, 0]} : f16[512, 2048] @gpu0.hbm on gpu0
//!   %h = matmul %x, %w {acc = f32} : f16[B, 2048] @gpu0.hbm in $0[64K..320K] on gpu0
//!   %a = gelu %h {form = tanh} : f16[B, 2048] @gpu0.hbm in $0[64K..320K] on gpu0 from "ffn/gelu"
//!   order %h -> %a raw $0[64K..320K] by programmatic
//!   return %a
//! }
//! ```
//!
//! Two laws hold, and [`check_laws`] checks them: the text of a graph parses to an equal graph
//! ([`Graph::equivalent`](crate::Graph::equivalent)), and canonical text prints as itself.
//!
//! | part | canonical form |
//! |---|---|
//! | value | `%name`, `%"any name"`; values of one name after the first `%name#1`, `%name#2`; without a name `%0`, `%1` |
//! | several results | `%v, %i = top_k %x {…} : f32[4], i64[4]` |
//! | weight | `file "path" offset 4K`, `random seed 7 stream 0 normal(0.02)`, `2.0`, `[1, 2]`, `base64 "…"`, or an operator over weights in parentheses, each with its type |
//! | place of a value | after its type: `@memory`, `in $buffer[first..end]`, `capacity [dims]` |
//! | strided region | `$0[0..64; 8 by 1K, 2 by 128]`: runs of 64 bytes, 8 × 2 of them, outermost first |
//! | place of a node | at the end: `on device`, `workspace $0[0..64]`, `step waits async [1] fenced`, `from "node of the model", …` |
//! | state | `state %past -> present {axis = 2, length = P, capacity = 2048}` |
//! | order | `order %a -> %b raw $0[0..64], war $1[0..64] by edge`, `order %a -> %b linearise by sequence`; a step is called by its first result |
//! | output | `name = %value`, or `%value` alone where that is the name too |
//! | schedule | the order of the lines at stage scheduled, and before it after `stage placed ordered` |
//! | size | bytes, in the largest of G, M and K that divides it |
//! | comment | `//` to the end of the line; never printed |

mod base64;
mod compare;
mod cursor;
mod labels;
mod laws;
mod literal;
mod parse;
mod print;
mod print_helpers;
mod recipe;

pub use cursor::{Cursor, Position, SyntaxError};
pub use laws::{LawError, check_laws};
pub use parse::{parse, parse_with_topology};
pub use print::{Entity, Printed, print};
pub use print_helpers::{
    AttributeParser, AttributePrinter, is_identifier, write_float, write_name, write_quoted,
    write_size,
};

#[cfg(test)]
mod tests;
