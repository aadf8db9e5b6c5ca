//! Code generation for CUDA devices: a scheduled graph becomes kernels in CUDA C++, and these become
//! cubins through NVRTC. Must never need a GPU, a driver or a CUDA header.

pub mod compile;
pub mod emit;
mod library;
pub mod nvrtc;
mod select;

pub use compile::{CompileKernelsError, Cubin, KernelOptions, Worker, compile_kernels};
pub use emit::{EmitError, emit};
pub use library::CudaLibrary;
