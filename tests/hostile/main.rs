//! Bad input through the real binary: damaged models, hostile sizes, wrong inputs, corrupt bundles,
//! wrong usage. Each must give a message and exit code 1 or 2, in bounded time and memory, and
//! leave nothing behind; a case must never pass because another thing was wrong with its input.

mod bundles;
mod inputs;
mod models;
#[path = "../support/onnx.rs"]
mod onnx;
mod place;
mod sizes;
mod usage;
