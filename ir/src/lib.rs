//! The hub: graph, types, operators; depends on no other Membar crate.

pub mod mapping;
