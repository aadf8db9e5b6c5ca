//! What the fuzzers run on arbitrary bytes, and `tests/fuzz_corpus.rs` on the corpus. A target must
//! take any bytes without a panic; it may use nothing but public interfaces.

use bytes::Bytes;
use membar::tensor_files::{self, Format};
use std::path::Path;

/// A name, which is also that of its program and of its folder in `corpus/`, and what it runs.
#[allow(dead_code, reason = "each fuzzer runs one target and has no use for the list")]
pub const TARGETS: &[(&str, fn(&[u8]))] =
    &[("load_onnx", load_onnx), ("read_npz", read_npz), ("read_safetensors", read_safetensors)];

/// Loads an ONNX model and looks at every node.
#[allow(dead_code, reason = "each fuzzer runs one target")]
pub fn load_onnx(data: &[u8]) {
    if let Ok(model) = membar_onnx::Model::from_bytes(Bytes::copy_from_slice(data), None) {
        std::hint::black_box(format!("{model:?}"));
    }
}

/// Parses IR text; whatever parses obeys the laws of the text form.
#[allow(dead_code, reason = "each fuzzer runs one target")]
pub fn parse_ir(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(graph) = membar_ir::text::parse(text)
        && let Err(error) = membar_ir::text::check_laws(&graph)
    {
        panic!("{error}");
    }
}

/// Parses a description of a machine.
#[allow(dead_code, reason = "each fuzzer runs one target")]
pub fn parse_topology(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(topology) = membar_ir::topology::Topology::from_toml(text) {
        std::hint::black_box(topology);
    }
}

/// Reads an archive of NumPy arrays.
#[allow(dead_code, reason = "each fuzzer runs one target")]
pub fn read_npz(data: &[u8]) {
    read_tensors(data, Format::Npz);
}

/// Reads a file of tensors.
#[allow(dead_code, reason = "each fuzzer runs one target")]
pub fn read_safetensors(data: &[u8]) {
    read_tensors(data, Format::Safetensors);
}

fn read_tensors(data: &[u8], format: Format) {
    let tensors = tensor_files::parse(Bytes::copy_from_slice(data), format, Path::new("fuzz"));
    match tensors {
        Ok(tensors) => {
            for tensor in tensors.values() {
                assert_eq!(tensor.bytes().len(), tensor.ty().byte_len());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
