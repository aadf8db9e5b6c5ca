//! A thin safe layer over the CUDA driver: contexts, memory, modules, explicit graphs, streams and
//! events. All calls of the driver stand here; must never decide what to launch or in which order.
//!
//! Every object keeps its context alive, and every call makes that context current on the calling
//! thread first, so objects may move between threads.

mod context;
mod error;
mod graph;
mod memory;
mod module;
mod stream;

pub use context::{Context, Device, is_driver_present};
pub use error::CudaError;
pub use graph::{Edge, EdgeKind, ExecutableGraph, GraphBuilder, GraphNode};
pub use memory::DeviceMemory;
pub use module::{Arguments, Function, Launch, Module};
pub use stream::{Event, Stream};
