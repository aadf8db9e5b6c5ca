//! `cargo xtask test`: set-up on a fresh machine, then every check that a change must pass.
//! A check may never be skipped without failing the command.

use crate::steps::Steps;
use crate::{fetch, format, models, process, python, repository, tidy};
use anyhow::{Result, bail};

/// Runs the whole list; a failed check does not keep the later ones from running, a failed set-up
/// does.
///
/// # Errors
/// When an argument is unknown or a step failed.
pub fn run(arguments: &[String]) -> Result<()> {
    let trust_stamps = is_fast(arguments)?;
    let mut steps = Steps::default();
    if set_up_all(&mut steps, trust_stamps) {
        check_all(&mut steps);
    }
    steps.finish()
}

/// Does the set-up alone, for those who call `cargo test` themselves afterwards.
///
/// # Errors
/// As [`run`].
pub fn set_up(arguments: &[String]) -> Result<()> {
    let trust_stamps = is_fast(arguments)?;
    let mut steps = Steps::default();
    set_up_all(&mut steps, trust_stamps);
    steps.finish()
}

fn is_fast(arguments: &[String]) -> Result<bool> {
    match arguments.iter().find(|argument| *argument != "--fast") {
        Some(other) => bail!("`{other}` is no option of this task; expected `--fast`"),
        None => Ok(!arguments.is_empty()),
    }
}

fn set_up_all(steps: &mut Steps, trust_stamps: bool) -> bool {
    steps.run("set-up: Python environment", || python::set_up(trust_stamps))
        && steps.run("set-up: ONNX node tests", || python::generate_node_tests(trust_stamps))
        && steps.run("set-up: trained models", fetch_tested_models)
}

fn fetch_tested_models() -> Result<()> {
    for model in models::MODELS.iter().filter(|model| model.tested) {
        fetch::fetch(model)?;
    }
    Ok(())
}

fn check_all(steps: &mut Steps) {
    steps.run("formatting", format::check);
    steps.run("tidy", tidy::check);
    steps.run("clippy", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        process::run(process::cargo().args(arguments))
    });
    steps.run("generated sources", || {
        let generator = ["--features", "generate", "--bin", "generate-proto", "--", "--check"];
        process::run(process::cargo().args(["run", "--quiet", "-p", "membar-onnx"]).args(generator))
    });
    steps.run("documentation", || {
        let mut command = process::cargo();
        command.args(["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings");
        process::run(&mut command)
    });
    if process::succeeds(process::cargo().args(["nextest", "--version"])) {
        steps.run("tests", || {
            let arguments = ["nextest", "run", "--workspace", "--no-fail-fast"];
            process::run(process::cargo().args(arguments).env("MEMBAR_NVRTC", repository::nvrtc()?))
        });
        // nextest does not run the examples in the documentation.
        steps.run("documentation tests", || {
            process::run(process::cargo().args(["test", "--workspace", "--doc"]))
        });
    } else {
        steps.run("tests", || {
            let arguments = ["test", "--workspace", "--no-fail-fast"];
            process::run(process::cargo().args(arguments).env("MEMBAR_NVRTC", repository::nvrtc()?))
        });
    }
}
