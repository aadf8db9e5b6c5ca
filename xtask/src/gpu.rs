//! `cargo xtask gpu-stage`: what a machine with a GPU needs to run the GPU suites, in one folder; the
//! machine needs the driver, and NVRTC for the suites that compile models there. Nothing is run on a
//! GPU here.

use crate::{process, python, repository};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the suites where they lie; a machine without a GPU is a failure there.
const SCRIPT: &str = include_str!("gpu_run.sh");

/// Executables by the name that cargo gives them, and their names in the folder.
const EXECUTABLES: [(&str, &str); 4] = [
    ("gpu", "gpu-suite"),
    ("fixtures", "fixtures"),
    ("conformance", "conformance"),
    ("membar", "membar"),
];

/// The folder may have so many bytes.
const LIMIT: u64 = 60_000_000;

/// Builds the suites, strips them, compiles the kernels of the GPU suite, and packs the data of the
/// others, into `target/gpu`.
///
/// # Errors
/// When a suite does not build, its kernels do not compile, or the folder becomes too large.
pub fn stage(_: &[String]) -> Result<()> {
    python::set_up(true)?;
    python::generate_node_tests(true)?;
    let folder = repository::gpu_stage();
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    let built = build()?;
    for (target, name) in EXECUTABLES {
        let executable = built
            .get(target)
            .with_context(|| format!("cargo named no executable of `{target}`"))?;
        let staged = folder.join(name);
        fs::copy(executable, &staged)?;
        process::run(Command::new("strip").arg(&staged))?;
    }
    process::run(
        Command::new(folder.join("gpu-suite"))
            .env("MEMBAR_GPU_STAGE", folder.join("cubins"))
            .env("MEMBAR_NVRTC", repository::nvrtc()?),
    )?;
    pack_data(&folder)?;
    let script = folder.join("run.sh");
    fs::write(&script, SCRIPT)?;
    process::run(Command::new("chmod").arg("+x").arg(&script))?;
    let bytes = size(&folder)?;
    ensure!(bytes <= LIMIT, "{} has {bytes} bytes, more than {LIMIT}", folder.display());
    println!(
        "staged {} ({:.1} MB); start run.sh there on a machine with a GPU",
        folder.display(),
        bytes as f64 / 1e6
    );
    Ok(())
}

/// The executables by their targets' names.
fn build() -> Result<BTreeMap<String, PathBuf>> {
    let mut command = process::cargo();
    command.args(["test", "--package", "membar", "--no-run", "--message-format", "json"]);
    for (target, _) in EXECUTABLES.iter().filter(|(target, _)| *target != "membar") {
        command.args(["--test", target]);
    }
    let messages = process::output(&mut command)?;
    let executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = message["executable"].as_str()?;
        Some((message["target"]["name"].as_str()?.to_string(), PathBuf::from(path)))
    });
    Ok(executables.collect())
}

/// What the tests read, under the paths that it has in the repository.
fn pack_data(folder: &Path) -> Result<()> {
    let root = repository::root();
    let inside = |path: PathBuf| -> Result<PathBuf> {
        Ok(path.strip_prefix(&root).context("it lies outside the repository")?.to_path_buf())
    };
    let fixtures = PathBuf::from("tests/fixtures");
    process::run(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "-cJf"])
            .arg(folder.join("data.tar.xz"))
            .arg("-C")
            .arg(&root)
            .args(
                ["models", "trained", "graphs/minilm-l6-op20.onnx"].map(|part| fixtures.join(part)),
            )
            .arg(inside(repository::node_tests())?),
    )
}

/// Bytes of all files of a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { size(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
