//! Code generation for CUDA devices: source text becomes cubins through NVRTC. Must never need a
//! GPU, a driver or a CUDA header.

pub mod nvrtc;
