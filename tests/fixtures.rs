//! Every model in `tests/fixtures`, with every data set, through `membar run` on the CPU. Each is a
//! test of its own; a model that cannot run fails, and a trained model that is not run yet is
//! reported by name with the reason.

mod support;

use anyhow::{Context, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use membar::tensor_files::{self, Tensors};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What a fixture's `meta.json` says that matters here.
#[derive(Deserialize)]
struct Meta {
    #[serde(default = "default_atol")]
    atol: f64,
    #[serde(default = "default_rtol")]
    rtol: f64,
}

fn default_atol() -> f64 {
    1e-4
}

fn default_rtol() -> f64 {
    1e-3
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = match collect() {
        Ok(trials) => trials,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn collect() -> anyhow::Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for folder in folders("tests/fixtures/models")? {
        let model = folder.join("model.onnx");
        add_data_sets(&mut trials, "models", &folder, &model)?;
    }
    for folder in folders("tests/fixtures/trained")? {
        let name = file_name(&folder);
        if let Some(reason) = support::not_run(&name) {
            eprintln!("skipped: trained::{name}: {reason}");
            continue;
        }
        add_data_sets(&mut trials, "trained", &folder, &support::trained_model(&name))?;
    }
    trials.push(Trial::test("caches_of_different_lengths_are_refused", || {
        caches_of_different_lengths_are_refused().map_err(|e| Failed::from(format!("{e:#}")))
    }));
    ensure!(trials.len() > 80, "only {} data sets found", trials.len());
    Ok(trials)
}

fn add_data_sets(
    trials: &mut Vec<Trial>,
    kind: &str,
    folder: &Path,
    model: &Path,
) -> anyhow::Result<()> {
    let meta = folder.join("meta.json");
    let text = std::fs::read_to_string(&meta).with_context(|| meta.display().to_string())?;
    let meta: Meta = serde_json::from_str(&text).with_context(|| meta.display().to_string())?;
    let (atol, rtol) = (meta.atol, meta.rtol);
    for number in 1.. {
        let suffix = if number == 1 { String::new() } else { format!("_{number}") };
        let inputs = folder.join(format!("inputs{suffix}.npz"));
        if !inputs.exists() {
            break;
        }
        let expected = folder.join(format!("outputs{suffix}.npz"));
        let model = model.to_path_buf();
        let name = format!("{kind}::{}::{number}", file_name(folder));
        trials.push(Trial::test(name, move || {
            run(&model, &inputs, &expected, atol, rtol).map_err(|e| Failed::from(format!("{e:#}")))
        }));
    }
    Ok(())
}

fn run(model: &Path, inputs: &Path, expected: &Path, atol: f64, rtol: f64) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let outputs = folder.path().join("outputs.safetensors");
    let result = Command::new(env!("CARGO_BIN_EXE_membar"))
        .arg("run")
        .arg(model)
        .args([Path::new("--inputs"), inputs, Path::new("--outputs"), &outputs])
        .args(["--device", "cpu"])
        .output()?;
    ensure!(model.exists(), "{} is missing: run `cargo xtask fetch`", model.display());
    let stderr = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.success(), "{}\n{stderr}", result.status);
    let found = tensor_files::read(&outputs)?;
    let expected: Tensors = tensor_files::read(expected)?;
    let names = |tensors: &BTreeMap<String, _>| tensors.keys().cloned().collect::<Vec<_>>();
    ensure!(
        names(&found) == names(&expected),
        "outputs {:?}, expected {:?}",
        names(&found),
        names(&expected)
    );
    let faults: Vec<String> = expected
        .iter()
        .filter_map(|(name, tensor)| {
            support::all_close(&found[name], tensor, atol, rtol)
                .err()
                .map(|e| format!("{name}: {e}"))
        })
        .collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// The new rows of a cache stand behind it, so sequences of one batch must be equally long; others
/// would give wrong numbers.
fn caches_of_different_lengths_are_refused() -> anyhow::Result<()> {
    let fixture = support::root().join("tests/fixtures/models/ms_gqa_packed_rotary");
    let mut inputs = tensor_files::read(&fixture.join("inputs_2.npz"))?;
    inputs.insert("sl".to_string(), membar::Tensor::from_elements(&[2], &[6i32, 4])?);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("inputs.npz");
    tensor_files::write(&path, &inputs)?;
    let result = Command::new(env!("CARGO_BIN_EXE_membar"))
        .arg("run")
        .arg(fixture.join("model.onnx"))
        .args([Path::new("--inputs"), &path])
        .output()?;
    let stderr = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.code() == Some(1), "{}\n{stderr}", result.status);
    ensure!(stderr.contains("GroupQueryAttention"), "{stderr}");
    Ok(())
}

fn folders(path: &str) -> anyhow::Result<Vec<PathBuf>> {
    let root = support::root().join(path);
    let entries = std::fs::read_dir(&root).with_context(|| root.display().to_string())?;
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
