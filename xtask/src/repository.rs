//! Where things stand in the repository. No other file may build such a path from pieces.

use std::path::PathBuf;

/// The folder that holds the workspace's `Cargo.toml`.
pub fn root() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map_or(package.clone(), PathBuf::from)
}

/// Downloads and generated files, always below the repository, wherever cargo builds to, so that
/// tests find them without being told.
fn generated() -> PathBuf {
    root().join("target")
}

/// The Python environment that tests use.
pub fn virtual_environment() -> PathBuf {
    generated().join("venv")
}

/// The ONNX node tests: `node/NAME/{model.onnx, data.json, test_data_set_N/}`.
pub fn node_tests() -> PathBuf {
    generated().join("node-tests")
}

/// Trained models: `NAME/model.onnx`.
pub fn trained_models() -> PathBuf {
    generated().join("models")
}

/// The folder that `gpu-stage` fills.
pub fn gpu_stage() -> PathBuf {
    generated().join("gpu")
}

/// The folder of NVRTC's libraries in the Python environment.
///
/// # Errors
/// When the environment has none.
pub fn nvrtc() -> anyhow::Result<PathBuf> {
    let libraries = virtual_environment().join("lib");
    let pythons = std::fs::read_dir(&libraries)?.filter_map(|entry| Some(entry.ok()?.path()));
    pythons
        .map(|python| python.join("site-packages/nvidia/cu13/lib"))
        .find(|folder| folder.is_dir())
        .ok_or_else(|| anyhow::anyhow!("there is no NVRTC below {}", libraries.display()))
}

/// The bundle that the demo compiles.
pub fn demo_bundle() -> PathBuf {
    generated().join("demo/sentence-encoder.bundle")
}

/// The vocabulary of BERT's tokenizer.
pub fn vocabulary() -> PathBuf {
    root().join("tests/fixtures/tokenizer/vocab.txt")
}

/// The pinned Python packages.
pub fn requirements() -> PathBuf {
    root().join("tests/requirements.txt")
}

/// The script that writes the ONNX node tests.
pub fn node_test_generator() -> PathBuf {
    root().join("tests/gen_node_tests.py")
}

/// The Python environment that has onnxruntime.
pub fn peer_environment() -> PathBuf {
    generated().join("venv-onnxruntime")
}

/// The pinned Python packages of that environment.
pub fn peer_requirements() -> PathBuf {
    root().join("benches/requirements.txt")
}

/// The script that runs onnxruntime.
pub fn peer_script() -> PathBuf {
    root().join("benches/onnxruntime_peer.py")
}

/// Inputs and outputs of a comparison with onnxruntime.
pub fn comparison() -> PathBuf {
    generated().join("compare-onnxruntime")
}
