//! `cargo xtask compare-onnxruntime`: the time of a model under Membar and under onnxruntime, on the
//! same threads, alternating in one session. It must never time results that were not compared.

use crate::{fetch, models, process, python, repository};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is compared without an argument.
const DEFAULT: &str = "minilm-l3";
const THREADS: &str = "2";
const WARMUP: &str = "20";
const REPS: &str = "200";
const ROUNDS: usize = 5;
/// The most that Membar's median may be of onnxruntime's.
const LIMIT: f64 = 2.0;

/// Prints both medians and their ratio.
///
/// # Errors
/// When something cannot be built or fetched, the outputs differ, or Membar takes more than twice
/// onnxruntime's time.
pub fn run(arguments: &[String]) -> Result<()> {
    let model = match arguments {
        [] => model_path(DEFAULT)?,
        [model] => model_path(model)?,
        _ => bail!("expected at most one model"),
    };
    let membar = build()?;
    let python = python::peer_environment()?;
    let folder = repository::comparison();
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let (inputs, outputs) = (folder.join("inputs.npz"), folder.join("outputs.npz"));
    let peer = |command: &str| {
        let mut peer = Command::new(&python);
        peer.arg(repository::peer_script()).arg(command).arg(&model).arg(&inputs);
        peer
    };
    process::run(&mut peer("inputs"))?;
    let own = |command: &str| {
        let mut own = Command::new(&membar);
        own.arg(command).arg(&model).arg("--inputs").arg(&inputs).arg("--quiet");
        own.env("RAYON_NUM_THREADS", THREADS);
        own
    };
    process::output(own("run").arg("--outputs").arg(&outputs))?;
    process::run(peer("check").arg(&outputs))?;

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let text = process::output(peer("time").args([THREADS, WARMUP, REPS]))?;
        let other: f64 = text.trim().parse().context("onnxruntime's time")?;
        let mut bench = own("bench");
        bench.args(["--json", "--warmup", WARMUP, "--reps", REPS]);
        let text = process::output(&mut bench)?;
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let own = report["median_ms"].as_f64().context("`membar bench` reports no median_ms")?;
        println!("round {round}: membar {own:.3} ms, onnxruntime {other:.3} ms");
        ours.push(own);
        theirs.push(other);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = ours / theirs;
    println!("median: membar {ours:.3} ms, onnxruntime {theirs:.3} ms, ratio {ratio:.2}");
    if ratio > LIMIT {
        bail!("Membar takes {ratio:.2} times onnxruntime's time; at most {LIMIT} is allowed");
    }
    Ok(())
}

/// A trained model's name, or a file.
fn model_path(model: &str) -> Result<PathBuf> {
    match models::find(model) {
        Some(known) => Ok(fetch::fetch(known)?.join("model.onnx")),
        None if Path::new(model).is_file() => Ok(PathBuf::from(model)),
        None => bail!("`{model}` is neither a file nor a model that `cargo xtask fetch` lists"),
    }
}

/// Builds the release binary and gives its path.
fn build() -> Result<PathBuf> {
    let mut command = process::cargo();
    command
        .args(["build", "--release", "-p", "membar", "--bin", "membar"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(repository::root());
    let text = process::output(&mut command)?;
    let mut executables = text.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executables.next_back().context("cargo reports no executable")
}

/// The middle of an odd number of times.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 4.0]), 4.0);
        assert_eq!(ROUNDS % 2, 1, "an even number of rounds has no middle");
    }
}
