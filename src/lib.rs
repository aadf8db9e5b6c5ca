//! The Membar compiler as a library.

pub mod compile;
pub mod tensor_files;
