//! `cargo xtask format`: rustfmt over every Rust file. `cargo fmt` follows `mod` lines, so it never
//! sees a file that a macro declares, as the list of operators does.

use crate::{process, repository, tidy};
use anyhow::{Result, bail};
use std::process::Command;

/// Files that a generator writes in a form of its own.
const GENERATED: &[&str] = &["frontends/onnx/src/proto/generated.rs"];

/// Formats all files, or with `--check` compares.
///
/// # Errors
/// When an argument is unknown, rustfmt cannot run, or a file is not formatted.
pub fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => rustfmt(&[]),
        [argument] if argument == "--check" => check(),
        _ => bail!("`cargo xtask format` takes `--check` or nothing"),
    }
}

/// Whether every file is formatted.
///
/// # Errors
/// As [`run`].
pub fn check() -> Result<()> {
    rustfmt(&["--check"])
}

fn rustfmt(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("rustfmt");
    command.args(["--edition", "2024"]).args(arguments);
    let files = tidy::rust_files()?.into_iter().filter(|file| !GENERATED.contains(&file.as_str()));
    command.args(files).current_dir(repository::root());
    // The command line with every file in it would hide the message.
    match process::run(&mut command) {
        Err(_) if !arguments.is_empty() => {
            bail!("files are not formatted; `cargo xtask format` formats them")
        }
        result => result,
    }
}
