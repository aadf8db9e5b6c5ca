//! The Python environment that tests need and the ONNX node tests that it generates.
//! Nothing outside `target/` is written, and the machine's own Python packages stay untouched.

use crate::{process, repository};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const STAMP: &str = "membar-stamp";

/// A Python interpreter with pip, as the machine has it.
pub fn system_python() -> Command {
    Command::new(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()))
}

/// Creates the virtual environment and installs the pinned packages.
///
/// With `trust_stamp`, an environment that was finished with the same pins is left alone.
///
/// # Errors
/// When Python or pip is missing, or a package cannot be had.
pub fn set_up(trust_stamp: bool) -> Result<()> {
    install(&repository::virtual_environment(), &repository::requirements(), trust_stamp)
}

/// The interpreter of the environment that has onnxruntime; creates it where it is missing.
///
/// # Errors
/// As [`set_up`].
pub fn peer_environment() -> Result<PathBuf> {
    let folder = repository::peer_environment();
    install(&folder, &repository::peer_requirements(), true)?;
    Ok(interpreter(&folder))
}

fn install(folder: &Path, requirements: &Path, trust_stamp: bool) -> Result<()> {
    let pins = read(requirements)?;
    if trust_stamp && has_stamp(folder, &pins) {
        return Ok(());
    }
    let interpreter = interpreter(folder);
    if !interpreter.exists() {
        // Debian's venv module lacks ensurepip unless python3-venv is installed; the machine's pip
        // can install into an environment without one.
        process::run(system_python().args(["-m", "venv", "--without-pip"]).arg(folder))
            .context("cannot create a virtual environment; Python 3.11 or newer is needed")?;
    }
    let mut install = system_python();
    install
        .args(["-m", "pip", "--python"])
        .arg(interpreter)
        .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(requirements);
    process::run(&mut install)?;
    write_stamp(folder, &pins)
}

/// Writes the node tests of the pinned `onnx` package.
///
/// With `trust_stamp`, tests that the same pins and the same script wrote are left alone.
///
/// # Errors
/// When the environment is missing or the script fails.
pub fn generate_node_tests(trust_stamp: bool) -> Result<()> {
    let folder = repository::node_tests();
    let script = repository::node_test_generator();
    let origin = read(&repository::requirements())? + &read(&script)?;
    if trust_stamp && has_stamp(&folder, &origin) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    process::run(
        Command::new(interpreter(&repository::virtual_environment())).arg(&script).arg(&folder),
    )?;
    write_stamp(&folder, &origin)
}

fn interpreter(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The stamp holds what the folder was made from, as text, so that any change of it is seen.
fn has_stamp(folder: &Path, origin: &str) -> bool {
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|text| text == origin)
}

fn write_stamp(folder: &Path, origin: &str) -> Result<()> {
    let path = folder.join(STAMP);
    fs::write(&path, origin).with_context(|| format!("cannot write {}", path.display()))
}
