//! The protobuf messages of ONNX. They must never appear in this crate's public interface.
//!
//! `onnx.proto` is the file of the `onnx` wheel 1.23.2 (Apache-2.0, see `LICENSE` and `NOTICE`
//! beside it). `generated.rs` is committed because the generator takes longer to build than the
//! rest of this crate; this writes it again, and with `-- --check` compares:
//! `cargo run -p membar-onnx --features generate --bin generate-proto`.
//!
//! Fields of type `bytes` are `Bytes`, so that decoding from a memory map copies no weights.

// The generator's layout, the names of `onnx.proto`, and messages that no code here reads.
#[rustfmt::skip]
#[allow(clippy::enum_variant_names, dead_code)]
mod generated;

pub(crate) use generated::*;
