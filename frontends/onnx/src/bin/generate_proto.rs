//! Writes `src/proto/generated.rs` from `src/proto/onnx.proto`, or with `--check` compares them.
//! Not part of the product: it is built with the feature `generate` alone.

use std::path::Path;
use std::process::ExitCode;

const HEADER: &str = "//! The messages of `onnx.proto`, written by the binary `generate-proto`; \
                      never edited by hand.\n\n";

fn main() -> ExitCode {
    let check = std::env::args().nth(1).is_some_and(|argument| argument == "--check");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proto");
    match run(&folder, check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(folder: &Path, check: bool) -> Result<(), String> {
    let target = folder.join("generated.rs");
    let generated = generate(folder)?;
    if !check {
        return std::fs::write(&target, generated)
            .map_err(|error| format!("cannot write {}: {error}", target.display()));
    }
    let committed = std::fs::read_to_string(&target)
        .map_err(|error| format!("cannot read {}: {error}", target.display()))?;
    if committed == generated {
        return Ok(());
    }
    Err(format!("{} is not what onnx.proto gives; run this without --check", target.display()))
}

fn generate(folder: &Path) -> Result<String, String> {
    let descriptors = protox::compile(["onnx.proto"], [folder])
        .map_err(|error| format!("onnx.proto does not compile: {error}"))?;
    let module = prost_build::Module::from_protobuf_package_name("onnx");
    let requests: Vec<_> =
        descriptors.file.into_iter().map(|file| (module.clone(), file)).collect();
    let mut modules = prost_build::Config::new()
        .bytes(["."])
        .disable_comments(["."])
        .generate(requests)
        .map_err(|error| format!("no code for onnx.proto: {error}"))?;
    let code = modules.remove(&module).ok_or("onnx.proto is not of the package onnx")?;
    Ok(format!("{HEADER}{code}"))
}
