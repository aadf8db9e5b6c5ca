//! The hub: graph, types, operators; depends on no other Membar crate.

pub mod architecture;
pub mod attribute;
pub mod dim;
pub mod dtype;
pub mod element;
mod elementwise;
pub mod graph;
pub mod interp;
pub mod kernel;
pub mod mapping;
mod movement;
pub mod op;
pub mod ops;
pub mod pass;
pub mod program;
pub mod recipe;
pub mod scalar;
pub mod schedule;
pub mod tensor;
#[doc(hidden)]
pub mod testing;
pub mod text;
pub mod topology;
pub mod types;
pub mod verify;

pub use dim::{Bindings, Dim, Range, Symbol};
pub use dtype::DType;
pub use element::Number;
pub use graph::{Graph, NodeId, NodeKind, Stage, ValueId};
pub use op::{Meaning, OpDef};
pub use ops::Op;
pub use recipe::Recipe;
pub use tensor::Tensor;
pub use types::{Axis, ConcreteType, TensorType};
