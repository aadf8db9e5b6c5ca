//! `cargo xtask gpu-stage`: what a machine with a GPU needs to run the GPU suite, in one folder;
//! the machine needs nothing but the driver. Nothing is run on a GPU here.

use crate::{process, python, repository};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Starts the suite where it lies; a machine without a GPU is a failure there.
const SCRIPT: &str = "#!/usr/bin/env bash
# Runs the GPU suite of this folder, or what the arguments (of a Rust test executable) choose.
set -euo pipefail
cd \"$(dirname \"$0\")\"
export MEMBAR_REQUIRE_GPU=1 MEMBAR_GPU_CUBINS=cubins
exec ./gpu-suite --nocapture \"${@:-gpu::}\"
";

/// Builds the suite, strips it, and compiles its kernels into `target/gpu`.
///
/// # Errors
/// When the suite does not build or its kernels do not compile.
pub fn stage(_: &[String]) -> Result<()> {
    python::set_up(true)?;
    let folder = repository::gpu_stage();
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    let suite = folder.join("gpu-suite");
    fs::copy(build()?, &suite)?;
    process::run(Command::new("strip").arg(&suite))?;
    process::run(
        Command::new(&suite)
            .env("MEMBAR_GPU_STAGE", folder.join("cubins"))
            .env("MEMBAR_NVRTC", repository::nvrtc()?),
    )?;
    let script = folder.join("run.sh");
    fs::write(&script, SCRIPT)?;
    process::run(Command::new("chmod").arg("+x").arg(&script))?;
    println!("staged {}; start run.sh there on a machine with a GPU", folder.display());
    Ok(())
}

/// The suite's executable.
fn build() -> Result<PathBuf> {
    let arguments =
        ["test", "--package", "membar", "--test", "gpu", "--no-run", "--message-format", "json"];
    let messages = process::output(process::cargo().args(arguments))?;
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_suite = message["target"]["name"] == "gpu";
        is_suite.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executables.next_back().context("cargo named no executable of the GPU suite")
}
