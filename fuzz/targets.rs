//! What the fuzzers run on arbitrary bytes, and `tests/fuzz_corpus.rs` on the corpus. A target must
//! take any bytes without a panic; it may use nothing but public interfaces.

use bytes::Bytes;
use membar::tensor_files::{self, Format};
use std::path::Path;

/// What a target does with foreign bytes.
pub type Target = fn(&[u8]);

/// A name, which is also that of its program and of its folder in `corpus/`, and what it runs.
#[allow(dead_code, reason = "each fuzzer runs one target and has no use for the list")]
pub const TARGETS: &[(&str, Target)] = &[
    ("load_onnx", load_onnx),
    ("import_onnx", import_onnx),
    ("parse_ir", parse_ir),
    ("parse_topology", parse_topology),
    ("read_npz", read_npz),
    ("read_safetensors", read_safetensors),
    ("open_bundle", open_bundle),
];

/// What a graph of a fuzzer may take: enough for any operator, little for many executions.
const BYTES: u64 = 1 << 16;

/// Loads an ONNX model and looks at every node.
#[allow(dead_code, reason = "each fuzzer runs one target")]
pub fn load_onnx(data: &[u8]) {
    if let Ok(model) = membar_onnx::Model::from_bytes(Bytes::copy_from_slice(data), None) {
        std::hint::black_box(format!("{model:?}"));
    }
}

/// Imports an ONNX model and compiles it with small limits; whatever comes out obeys the laws of
/// the text form.
#[allow(dead_code, reason = "each fuzzer runs one target")]
pub fn import_onnx(data: &[u8]) {
    let Ok(model) = membar_onnx::Model::from_bytes(Bytes::copy_from_slice(data), None) else {
        return;
    };
    let Ok(graph) = membar_onnx::import_model(&model, &Default::default()) else { return };
    let mut options = membar::CompileOptions {
        fold_limit: BYTES,
        arena_limit: BYTES,
        verify: true,
        ..Default::default()
    };
    for (symbol, range) in &graph.symbols {
        if range.hi.is_none() {
            options.dims.insert(symbol.clone(), membar::Range::new(range.lo, range.lo + 2));
        }
    }
    match membar::compile(graph, &options) {
        Ok(compiled) => {
            if let Err(error) = membar_ir::text::check_laws(&compiled.graph) {
                panic!("{error}");
            }
        }
        // A pass that breaks an invariant is our fault, whatever the model.
        Err(error @ membar::compile::CompileError::Verify { .. }) => panic!("{error}"),
        Err(error) => assert!(!error.to_string().is_empty()),
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

/// Opens a bundle whose manifest, program, topology and weights are the parts of `data`, between
/// lines of `%%`. Hashes are made to fit, or nothing would come through; what opens and is small
/// runs.
#[allow(dead_code, reason = "each fuzzer runs one target")]
pub fn open_bundle(data: &[u8]) {
    const FILES: [&str; 3] =
        ["targets/cpu/program.ir", "targets/cpu/topology.toml", membar::Bundle::WEIGHTS];
    let mut parts = split(data, b"\n%%\n").into_iter();
    let manifest = parts.next().unwrap_or_default();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("a file in a temporary folder");
    };
    std::fs::create_dir_all(folder.path().join("targets/cpu")).expect("a temporary folder");
    let parsed = serde_json::from_slice::<membar_runtime::bundle::Manifest>(manifest);
    let mut parsed = parsed.ok();
    for (name, bytes) in FILES.into_iter().zip(parts) {
        write(name, bytes);
        if let Some(manifest) = &mut parsed {
            let entry = membar_runtime::bundle::FileEntry::of(bytes);
            manifest.files.insert(name.to_string(), entry);
        }
    }
    match parsed.and_then(|manifest| manifest.sealed().ok()) {
        Some(text) => write("manifest.json", text.as_bytes()),
        None => write("manifest.json", manifest),
    }
    if let Ok(bundle) = membar::Bundle::open_unchecked_weights(folder.path()) {
        run_small(&bundle);
    }
}

/// Runs a program of small values on inputs of zeros; it may fail, but must touch nothing that it
/// does not own.
fn run_small(bundle: &membar::Bundle) {
    let graph = bundle.graph();
    let bindings = graph.symbols.iter().map(|(symbol, range)| (symbol.clone(), range.lo)).collect();
    let mut left = BYTES as usize;
    for value in graph.values() {
        let Ok(ty) = graph.ty(value).concrete(&bindings) else { return };
        let Some(rest) = left.checked_sub(ty.byte_len()) else { return };
        left = rest;
    }
    let Ok(mut session) = membar::Session::new(bundle) else { return };
    let mut inputs = std::collections::BTreeMap::new();
    for input in graph.inputs() {
        let Ok(ty) = graph.ty(*input).concrete(&bindings) else { return };
        let name = graph.value(*input).name.as_deref().unwrap_or_default();
        inputs.insert(name.to_string(), membar::Tensor::zeros(ty));
    }
    if let Ok(outputs) = session.run(&inputs) {
        std::hint::black_box(outputs);
    }
}

/// The parts between separators.
fn split<'a>(mut data: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    while let Some(at) = data.windows(separator.len()).position(|window| window == separator) {
        parts.push(&data[..at]);
        data = &data[at + separator.len()..];
    }
    parts.push(data);
    parts
}
