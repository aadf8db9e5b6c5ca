//! A thin safe layer over the CUDA driver: contexts, memory, modules, explicit graphs, streams and
//! events; and the executor of scheduled graphs upon it. All calls of the driver stand here; must
//! never decide what to launch or in which order.
//!
//! Every object keeps its context alive, and every call makes that context current on the calling
//! thread first, so objects may move between threads.

mod channel;
mod context;
mod error;
mod executor;
mod graph;
mod memory;
mod module;
mod places;
mod plan;
mod record;
mod stream;
mod tensor_map;
mod weights;

pub use channel::{Channel, Rows};
pub use context::{Context, Device, is_driver_present};
pub use error::CudaError;
pub(crate) use executor::CudaExecutor;
pub use executor::CudaOptions;
pub use graph::{Edge, EdgeKind, ExecutableGraph, GraphBuilder, GraphNode};
pub use memory::DeviceMemory;
pub use module::{Arguments, Function, Launch, Module};
pub use plan::edges as planned_edges;
pub use record::HostRecord;
pub use stream::{Event, Stream};
pub use weights::Progress;
