//! Tests of passes through the crate's public list; one binary, since linking takes longer than
//! running. Never a test itself.

mod examples;
mod groups;
mod limits;
mod order;
mod random_graphs;
mod rewriting;
mod support;
