//! Scalar functions: the expression language and its reference evaluation. One expression serves
//! evaluation, fusion, cost and code generation. Never a tensor.

mod block;
mod evaluate;
mod expr;

pub use block::{Block, evaluate_block};
pub use evaluate::{evaluate, limit, round_result};
pub use expr::{Binary, Expr, Unary};
