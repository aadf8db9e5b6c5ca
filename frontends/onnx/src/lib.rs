//! The ONNX frontend; protobuf types never leave this crate.
//!
//! [`Model::load`] maps a file and gives plain structures: a [`GraphDef`] of [`NodeDef`]s in
//! topological order, constants as [`TensorDef`]s that say where their bytes are, model-local
//! functions already inlined. What holds of them is listed at [`Model`].

mod attributes;
mod convert;
mod dims;
mod element;
mod error;
mod functions;
#[cfg(test)]
mod hostile;
mod model;
mod names;
mod order;
mod proto;
mod source;
mod tensors;
#[cfg(test)]
mod testing;

pub use attributes::{AttributeValue, FromAttribute};
pub use dims::{DimDef, DimExpr};
pub use element::ElementType;
pub use error::{AttributeProblem, ImportError, TensorProblem};
pub use model::{GraphDef, Model, NodeDef, ValueInfo, ValueType};
pub use tensors::{DataLocation, TensorDef};
