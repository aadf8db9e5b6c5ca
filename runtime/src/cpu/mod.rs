//! The CPU executor: an arena, a library of kernels and the loop that runs a schedule; must never
//! decide where a value lies or when a step runs (the plan says so).

pub mod arena;
pub mod executor;
pub(crate) mod kernels;
pub mod library;
pub(crate) mod program;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod view;

pub use executor::Executor;
