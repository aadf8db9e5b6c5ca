//! Scalar functions: the expression language and its reference evaluation. One expression serves
//! evaluation, fusion, cost and code generation. Never a tensor.

mod evaluate;
mod expr;

pub use evaluate::{evaluate, limit};
pub use expr::{Binary, Expr, Unary};
