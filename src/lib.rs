//! The Membar compiler as a library.

pub mod tensor_files;
