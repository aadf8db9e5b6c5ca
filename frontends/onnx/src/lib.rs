//! The ONNX frontend; protobuf types never leave this crate.
//!
//! [`Model::load`] maps a file and gives plain structures: a [`GraphDef`] of [`NodeDef`]s in
//! topological order, constants as [`TensorDef`]s that say where their bytes are, model-local
//! functions already inlined. What holds of them is listed at [`Model`].
//!
//! ```no_run
//! use membar_onnx::{ImportError, Model};
//!
//! fn main() -> Result<(), ImportError> {
//!     let model = Model::load("model.onnx")?;
//!     for node in &model.graph.nodes {
//!         println!("{} = {} of opset {}", node.name, node.op_type, node.opset);
//!     }
//!     for tensor in &model.graph.initializers {
//!         let bytes = model.data(tensor)?;
//!         println!("{}: {} {:?}, {} bytes", tensor.name, tensor.element_type, tensor.shape, bytes.len());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Loading is one line: `source` maps the files, `convert` turns messages into structures,
//! `functions` inlines, `order` checks names and sorts. Sizes are checked before anything is
//! allocated for them, and nesting is limited, since files are not trusted.

mod attributes;
mod convert;
mod dims;
mod element;
mod error;
mod functions;
#[cfg(test)]
mod hostile;
mod import;
mod model;
mod names;
mod order;
mod proto;
mod source;
mod tensor_file;
mod tensors;
#[cfg(test)]
mod testing;

pub use attributes::{AttributeValue, FromAttribute};
pub use dims::{DimDef, DimExpr};
pub use element::ElementType;
pub use error::{AttributeProblem, ImportError, TensorProblem};
pub use import::{
    ImportOptions, RandomWeights, SupportedOperator, Unsupported, import, import_model,
    refused_operators, supported_operators,
};
pub use model::{GraphDef, Model, NodeDef, ValueInfo, ValueType};
pub use tensor_file::read_tensor;
pub use tensors::{DataLocation, TensorDef};
