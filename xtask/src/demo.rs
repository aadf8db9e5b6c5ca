//! `cargo xtask demo`: a trained sentence encoder, fetched, compiled and run. Never a computation
//! of its own: what it shows is the example's.

use crate::{fetch, models, process, repository};
use anyhow::{Context, Result, bail};
use std::fs;

/// The sentence encoder, and the example that runs it.
const MODEL: &str = "minilm-l6-int8";
const EXAMPLE: &str = "sentence_similarity";

/// Fetches the model, builds the example in release and runs it.
///
/// # Errors
/// When an argument is given, or the download, the build or the example fails.
pub fn run(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        bail!("`cargo xtask demo` takes no argument, found `{argument}`");
    }
    let model = models::find(MODEL).with_context(|| format!("no model is called `{MODEL}`"))?;
    let folder = fetch::fetch(model)?;
    let bundle = repository::demo_bundle();
    if let Some(parent) = bundle.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    eprintln!("building the example in release mode; the first time takes some minutes");
    let mut example = process::cargo();
    example
        .current_dir(repository::root())
        .args(["run", "--quiet", "--release", "--example", EXAMPLE, "--"])
        .arg(folder.join("model.onnx"))
        .arg(repository::vocabulary())
        .arg(bundle);
    process::run(&mut example)
}
