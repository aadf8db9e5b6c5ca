//! The Membar compiler as a library.
