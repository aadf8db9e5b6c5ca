//! What the integration tests share: where things are, and how tensors are compared.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use membar::ir::element::Number;
use membar::{DType, Tensor};
use std::path::PathBuf;

pub mod device;
pub mod shards;

/// Where the tests' data lies on a machine that has no repository: a folder with the same paths.
const DATA: &str = "MEMBAR_TEST_DATA";

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    std::env::var_os(DATA).map_or_else(here, PathBuf::from)
}

/// Whether this machine has the repository, or only what was brought to it.
pub fn is_staged() -> bool {
    std::env::var_os(DATA).is_some()
}

/// The folder of build results, where `cargo xtask` puts what it downloads and generates.
pub fn target() -> PathBuf {
    // The test executable lies in `target/PROFILE/deps`, wherever `target` is.
    root().join("target")
}

/// Whether each element is within `atol + rtol * |expected|`, as NumPy's `allclose` asks; NaN
/// equals NaN, and integers and truth values within the same bounds.
pub fn all_close(found: &Tensor, expected: &Tensor, atol: f64, rtol: f64) -> Result<(), String> {
    if found.ty() != expected.ty() {
        return Err(format!("{} instead of {}", found.ty(), expected.ty()));
    }
    let mut worst: Option<(f64, usize, f64, f64)> = None;
    let mut count = 0;
    let pairs = found.numbers().map(Number::to_float).zip(expected.numbers().map(Number::to_float));
    for (index, (out, reference)) in pairs.enumerate() {
        let same = out == reference || (out.is_nan() && reference.is_nan());
        let error = (out - reference).abs();
        if same || error <= atol + rtol * reference.abs() {
            continue;
        }
        count += 1;
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if worst.is_none_or(|(largest, ..)| error > largest) {
            worst = Some((error, index, out, reference));
        }
    }
    match worst {
        None => Ok(()),
        Some((_, index, out, reference)) => Err(format!(
            "{count} of {} elements differ, most at {index}: {out} instead of {reference}",
            found.elements()
        )),
    }
}

/// The relative distance of neighbouring values of a narrow float; 0 for other types.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::Bf16 => 2f64.powi(-7),
        DType::F8E4m3fn => 2f64.powi(-3),
        DType::F8E5m2 => 2f64.powi(-2),
        _ => 0.0,
    }
}

/// Where `cargo xtask fetch` puts a trained model of that fixture.
pub fn trained_model(fixture: &str) -> PathBuf {
    target().join("models").join(fixture).join("model.onnx")
}

/// Why a trained model is not run; `None` for those that are.
pub fn not_run(fixture: &str) -> Option<&'static str> {
    match fixture {
        "silero-vad" => Some("its LSTM is not supported yet"),
        "smollm2" => Some("GGUF files are not supported yet"),
        _ => None,
    }
}
