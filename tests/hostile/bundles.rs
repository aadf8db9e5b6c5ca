//! Corrupt and foreign bundles, and places where no bundle can be written.

use crate::models::small;
use crate::place::{Place, listing, random};
use std::path::{Path, PathBuf};

/// A place with the bundle `bundle`, whose weights have a file of their own.
fn compiled() -> Place {
    let place = Place::new();
    place.file("model.onnx", with_weights());
    place.done(&["compile", "model.onnx", "-o", "bundle"]);
    place
}

fn with_weights() -> crate::onnx::Message {
    use crate::onnx::*;
    let weights: Vec<f32> = (0..8 * 16).map(|index| index as f32 * 0.25 - 9.0).collect();
    model(&graph(
        &[value("x", FLOAT, &[Is(2), Is(8)])],
        &[floats("w", &[8, 16], &weights)],
        &[node("MatMul", &["x", "w"], &["y"])],
        &[value("y", FLOAT, &[Is(2), Is(16)])],
    ))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in listing(folder) {
        let path = folder.join(name);
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

const RUN: &[&str] = &["run", "bundle", "--random-inputs", "7", "--outputs", "out/out.npz"];

#[test]
fn every_damaged_file_is_refused() {
    let place = compiled();
    place.done(&["run", "bundle", "--random-inputs", "7"]);
    let files = files(&place.path("bundle"));
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_string();
        let good = std::fs::read(&file).unwrap();
        for seed in 0..6 {
            let mut random = random(seed);
            let mut damaged = good.clone();
            let position = random(damaged.len());
            damaged[position] ^= 1 << random(8);
            std::fs::write(&file, &damaged).unwrap();
            place.refused(1, RUN, &["bundle"]);
        }
        for length in [0, 1, good.len() / 2, good.len() - 1] {
            std::fs::write(&file, &good[..length]).unwrap();
            place.refused(1, RUN, &[&name]);
            place.refused(1, &["inspect", "bundle"], &[&name]);
        }
        std::fs::remove_file(&file).unwrap();
        place.refused(1, RUN, &[&name]);
        std::fs::create_dir(&file).unwrap();
        place.refused(1, RUN, &[&name]);
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, &good).unwrap();
    }
    place.done(&["run", "bundle", "--random-inputs", "7"]);
}

#[test]
fn foreign_and_newer_folders_are_refused() {
    let place = compiled();
    let manifest = std::fs::read_to_string(place.path("bundle/manifest.json")).unwrap();
    let with = |text: &str, facts: &[&str]| {
        place.file("bundle/manifest.json", text);
        place.refused(1, RUN, facts);
    };
    assert!(manifest.contains("\"format\": 2"));
    with(&manifest.replace("\"format\": 2", "\"format\": 3"), &["format 3", "up to 2"]);
    with(&manifest.replace("\"format\": 2", "\"format\": 0"), &["manifest.json"]);
    with(&manifest.replace("targets/cpu/program.ir", "../../model.onnx"), &["manifest.json"]);
    with(&manifest.replace("weights.safetensors", "/etc/passwd"), &["manifest.json"]);
    with("{}", &["manifest.json"]);
    with("[]", &["manifest.json"]);
    with(&"[".repeat(1 << 20), &["manifest.json", "not JSON"]);
    with("", &["manifest.json"]);
    place.refused(
        1,
        &["run", "out", "--random-inputs", "7"],
        &["is not a bundle", "manifest.json"],
    );
    place.refused(1, &["run", "absent", "--random-inputs", "7"], &["absent"]);
    place.refused(1, &["inspect", "out"], &["is not a bundle"]);
}

#[test]
fn only_bundles_are_replaced() {
    let place = compiled();
    let first = std::fs::read(place.path("bundle/targets/cpu/program.ir")).unwrap();
    let compile = |output: &str| place.membar(&["compile", "model.onnx", "-o", output]);
    place.file("folder/precious.txt", "mine");
    place.file("file", "mine");
    for output in ["folder", "file", ".", "..", "/", "file/bundle", "absent/bundle"] {
        let outcome = compile(output);
        assert_eq!(outcome.code, Some(1), "{output}: {outcome:?}");
        assert!(outcome.stderr.starts_with("error: "), "{output}: {outcome:?}");
    }
    assert_eq!(std::fs::read(place.path("folder/precious.txt")).unwrap(), b"mine");
    assert_eq!(std::fs::read(place.path("file")).unwrap(), b"mine");
    // A compile that fails leaves the bundle that was there.
    place.file("bad.onnx", small());
    place.refused(1, &["compile", "bad.onnx", "-o", "bundle"], &["`rows`"]);
    assert_eq!(std::fs::read(place.path("bundle/targets/cpu/program.ir")).unwrap(), first);
    place.done(&["compile", "bad.onnx", "-o", "bundle", "--dim", "rows=2"]);
    assert_ne!(std::fs::read(place.path("bundle/targets/cpu/program.ir")).unwrap(), first);
    let left = listing(&place.path("."));
    let expected =
        [".stderr", ".stdout", "bad.onnx", "bundle", "file", "folder", "model.onnx", "out"];
    assert_eq!(left, expected);
}

#[test]
fn read_only_outputs_are_refused() {
    let place = compiled();
    // Nobody may create a folder there, the tests' user neither, whoever that is.
    for output in ["/proc/bundle", "/sys/bundle"] {
        place.refused(1, &["compile", "model.onnx", "-o", output], &["cannot write", output]);
    }
    place.refused(
        1,
        &["compile", "model.onnx", "--dump-ir", "/proc/dump", "-o", "out/b"],
        &["dump"],
    );
    place.refused(1, &["inspect", "model.onnx", "--dot", "/proc/graph.dot"], &["/proc/graph.dot"]);
    place.refused(1, &["topology", "-o", "/proc/t.toml"], &["/proc/t.toml"]);
}
