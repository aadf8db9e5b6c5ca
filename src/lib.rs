//! The Membar compiler as a library: a model becomes a graph, a graph a bundle or a session, and a
//! session runs. Nothing here decides how; the crates below do.
//!
//! ```no_run
//! use membar::{CompileOptions, Range, Symbol, Tensor};
//! use std::collections::BTreeMap;
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let graph = membar::load_model(Path::new("encoder.onnx"), &Default::default())?;
//!
//! // One program for every batch up to 8 and every length up to 512.
//! let mut options = CompileOptions::default();
//! options.dims.insert(Symbol::new("batch"), Range::new(1, 8));
//! options.dims.insert(Symbol::new("sequence"), Range::new(1, 512));
//! let compiled = membar::compile(graph, &options)?;
//!
//! let mut session = compiled.session()?;
//! let ids = Tensor::from_elements(&[1, 4], &[101i64, 7592, 2088, 102])?;
//! let outputs = session.run(&BTreeMap::from([("input_ids".to_string(), ids)]))?;
//! println!("{:?}", outputs["last_hidden_state"]);
//! # Ok(())
//! # }
//! ```

pub mod compile;
pub mod tensor_files;

mod device;
mod device_code;
mod error;
mod machine;
mod model;
mod target;

pub use compile::{CompileOptions, Compiled, compile, write_bundle};
pub use device::{DeviceChoice, Gpu, open_session};
pub use device_code::DeviceCode;
pub use error::Error;
pub use machine::this_machine;
pub use membar_codegen as codegen;
pub use membar_codegen::{KernelOptions, Worker};
pub use membar_ir as ir;
pub use membar_ir::architecture::Architecture;
pub use membar_ir::pass::{Precision, StateOption};
pub use membar_ir::{DType, Graph, Number, Range, Symbol, Tensor};
pub use membar_onnx as onnx;
pub use membar_onnx::{ImportOptions, RandomWeights};
pub use membar_runtime::{
    Bundle, BundleError, CpuLibrary, RunOptions, Session, SessionError, bind,
};
pub use model::{ModelFormat, load_model};
pub use target::Target;

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
