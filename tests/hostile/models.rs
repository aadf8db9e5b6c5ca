//! Damaged and hostile ONNX files: bytes, external data, functions, nesting, values that do not
//! exist. Sizes have a file of their own.

use crate::onnx::*;
use crate::place::{Place, listing, random};

/// `y = Relu(x w + b) + c`, for any number of rows.
pub fn small() -> Message {
    model(&graph(
        &[value("x", FLOAT, &[Named("rows"), Is(3)])],
        &[
            floats("w", &[3, 2], &[1.0, -2.0, 0.5, 3.0, -0.25, 1.5]),
            floats("b", &[2], &[0.5, -0.5]),
            floats("c", &[], &[0.125]),
        ],
        &[
            node("Gemm", &["x", "w", "b"], &["h"]),
            node("Relu", &["h"], &["r"]),
            node("Add", &["r", "c"], &["y"]),
        ],
        &[value("y", FLOAT, &[Named("rows"), Is(2)])],
    ))
}

const COMPILE: &[&str] = &["compile", "model.onnx", "-o", "out/bundle", "--dim", "rows=1..4", "-q"];

/// Compiles what may or may not be a model.
fn survives(place: &Place, bytes: &[u8], what: &str) -> bool {
    place.file("model.onnx", bytes);
    let outcome = place.membar(COMPILE);
    assert!(!outcome.stderr.contains("panicked"), "{what}: {outcome:?}");
    let left = listing(&place.path("out"));
    match outcome.code {
        Some(0) => {
            assert_eq!(left, ["bundle"], "{what}");
            std::fs::remove_dir_all(place.path("out/bundle")).unwrap();
            true
        }
        Some(1) => {
            assert!(outcome.stderr.starts_with("error: "), "{what}: {outcome:?}");
            assert_eq!(left, [""; 0], "{what}: {outcome:?}");
            false
        }
        _ => panic!("{what}: {outcome:?}"),
    }
}

#[test]
fn truncated_models_are_refused() {
    let place = Place::new();
    let bytes = small().as_ref().to_vec();
    assert!(survives(&place, &bytes, "whole"));
    let lengths = (0..bytes.len()).step_by(7);
    let tried = lengths.clone().count();
    let accepted =
        lengths.filter(|&length| survives(&place, &bytes[..length], &format!("cut at {length}")));
    // Cutting at the end of a field leaves a valid message.
    assert!(accepted.count() < tried / 8);
}

#[test]
fn models_with_flipped_bits_are_refused_or_other_models() {
    let place = Place::new();
    let bytes = small().as_ref().to_vec();
    let mut refused = 0;
    for seed in 0..64 {
        let mut random = random(seed);
        let mut damaged = bytes.clone();
        for _ in 0..1 + random(3) {
            let position = random(damaged.len());
            damaged[position] ^= 1 << random(8);
        }
        refused += usize::from(!survives(&place, &damaged, &format!("seed {seed}")));
    }
    assert!(refused > 16, "{refused}");
}

#[test]
fn files_that_are_no_models_are_refused() {
    let place = Place::new();
    place.refused(1, &["compile", "absent.onnx", "-o", "out/bundle"], &["absent.onnx"]);
    place.file("model.txt", small());
    place.refused(1, &["compile", "model.txt", "-o", "out/bundle"], &["model.txt", ".onnx"]);
    place.compile_refused(b"", &["no graph"]);
    place.compile_refused(b"version https://git-lfs.github.com/spec/v1\n", &["model.onnx"]);
    std::fs::create_dir(place.path("folder.onnx")).unwrap();
    place.refused(1, &["compile", "folder.onnx", "-o", "out/bundle"], &["not a regular file"]);
    place.file("garbage.ir", [0xff, 0xfe, 0, 1]);
    place.refused(1, &["compile", "garbage.ir", "-o", "out/bundle"], &["garbage.ir"]);
    place.file("garbage.ir", "ir 1 stage tensor\ngraph @g(%x: f32[B, 2]) {\n  %y = relu %x :");
    place.refused(1, &["compile", "garbage.ir", "-o", "out/bundle"], &["garbage.ir:3:"]);
    let deep = format!("ir 1 stage tensor\ngraph @g(%x: f32[{}1{}])", "(".repeat(1 << 20), ")");
    place.file("garbage.ir", deep);
    place.refused(1, &["compile", "garbage.ir", "-o", "out/bundle"], &["garbage.ir:2:"]);
}

/// A model with the weight `w: f32[4, 2]` in another file.
fn outside(entries: &[(&str, &str)]) -> Message {
    model(&graph(
        &[value("x", FLOAT, &[Is(3), Is(4)])],
        &[external("w", &[4, 2], entries)],
        &[node("MatMul", &["x", "w"], &["y"])],
        &[value("y", FLOAT, &[Is(3), Is(2)])],
    ))
}

#[test]
fn missing_and_short_data_files_are_refused() {
    let place = Place::new();
    let bytes = outside(&[("location", "w.bin")]);
    place.compile_refused(&bytes, &["`w`", "w.bin does not exist"]);
    place.file("w.bin", [1; 31]);
    place.compile_refused(&bytes, &["`w`", "w.bin, which has 31"]);
    place.file("w.bin", [1; 32]);
    place.done(&["compile", "model.onnx", "-o", "fits"]);
    let offset = [("location", "w.bin"), ("offset", "8")];
    place.compile_refused(outside(&offset), &["from byte 8 on go past the end of", "w.bin"]);
    let huge = [("location", "w.bin"), ("offset", "18446744073709551600"), ("length", "32")];
    place.compile_refused(outside(&huge), &["`w`", "w.bin"]);
    let short = [("location", "w.bin"), ("length", "16")];
    place.compile_refused(outside(&short), &["`w`", "16", "32"]);
    let bad = [("location", "w.bin"), ("offset", "-1")];
    place.compile_refused(outside(&bad), &["`w`", "offset is", "-1"]);
    std::fs::remove_file(place.path("w.bin")).unwrap();
    std::fs::create_dir(place.path("w.bin")).unwrap();
    place.compile_refused(&bytes, &["`w`", "w.bin"]);
}

#[test]
fn external_data_may_not_leave_the_folder() {
    let place = Place::new();
    place.file("secret.bin", [1; 32]);
    let model = |location: &str| {
        place.file("models/model.onnx", outside(&[("location", location)]));
        ["compile", "models/model.onnx", "-o", "out/bundle"]
    };
    let absolute = place.path("secret.bin").to_str().unwrap().to_string();
    for location in ["../secret.bin", "a/../../secret.bin", "..", &absolute] {
        place.refused(1, &model(location), &["`w`", "outside the model's folder"]);
    }
    for location in [".", "", "nul\0.bin"] {
        place.refused(1, &model(location), &["`w`"]);
    }
    std::os::unix::fs::symlink("../secret.bin", place.path("models/link.bin")).unwrap();
    place.refused(1, &model("link.bin"), &["`w`", "outside the model's folder"]);
    std::os::unix::fs::symlink("..", place.path("models/up")).unwrap();
    place.refused(1, &model("up/secret.bin"), &["`w`", "outside the model's folder"]);
    place.file("models/inner.bin", [1; 32]);
    std::os::unix::fs::symlink("inner.bin", place.path("models/inside.bin")).unwrap();
    let arguments = model("inside.bin");
    place.done(&[arguments[0], arguments[1], "-o", "fits"]);
}

#[test]
fn cyclic_functions_are_refused() {
    let place = Place::new();
    let call = |name: &str, input: &str, output: &str| node(name, &[input], &[output]);
    let main = graph(
        &[value("x", FLOAT, &[Is(2)])],
        &[],
        &[call("A", "x", "y").domain("local")],
        &[value("y", FLOAT, &[Is(2)])],
    );
    let a = function("A", &["p"], &[call("B", "p", "q").domain("local")], &["q"]);
    let b = function("B", &["p"], &[call("A", "p", "q").domain("local")], &["q"]);
    place.compile_refused(model_with(&main, &[a, b]), &["cycle", "A", "B"]);
    let own = function("A", &["p"], &[call("A", "p", "q").domain("local")], &["q"]);
    place.compile_refused(model_with(&main, &[own]), &["cycle", "A"]);
}

#[test]
fn functions_that_grow_without_end_are_refused() {
    let place = Place::new();
    // Each function calls the next twice: 2^40 nodes from 2 KiB.
    let names: Vec<String> = (0..=40).map(|level| format!("F{level}")).collect();
    let functions: Vec<Message> = (0..=40)
        .map(|level| {
            let call = |input: &str, output: &str| match names.get(level + 1) {
                Some(next) => node(next, &[input], &[output]).domain("local"),
                None => node("Relu", &[input], &[output]),
            };
            function(&names[level], &["p"], &[call("p", "q"), call("q", "r")], &["r"])
        })
        .collect();
    let main = graph(
        &[value("x", FLOAT, &[Is(2)])],
        &[],
        &[node("F0", &["x"], &["y"]).domain("local")],
        &[value("y", FLOAT, &[Is(2)])],
    );
    place.compile_refused(model_with(&main, &functions), &["functions"]);
}

#[test]
fn deep_nesting_is_refused() {
    let place = Place::new();
    let nested = |depth: usize| {
        let flat = graph(&[], &[], &[node("Abs", &["x"], &["a"])], &[untyped("a")]);
        let mut inner = node("Relu", &["x"], &["v0"]);
        for level in 0..depth {
            let result = format!("v{level}");
            let branch = graph(&[], &[], &[inner], &[value(&result, FLOAT, &[Is(2)])]);
            let outer = format!("v{}", level + 1);
            inner = node("If", &["flag"], &[&outer])
                .subgraph("then_branch", &branch)
                .subgraph("else_branch", &flat);
        }
        let output = format!("v{depth}");
        let inputs = [value("x", FLOAT, &[Is(2)])];
        let flag = tensor("flag", 9, &[], &[1]);
        model(&graph(&inputs, &[flag], &[inner], &[value(&output, FLOAT, &[Is(2)])]))
    };
    place.file("model.onnx", nested(8));
    place.done(&["compile", "model.onnx", "-o", "fits"]);
    place.compile_refused(nested(40), &["recursion limit"]);
    place.compile_refused(nested(2000), &["recursion limit"]);
}

#[test]
fn branches_that_are_not_constant_are_refused_by_name() {
    let place = Place::new();
    let branch = graph(&[], &[], &[node("Relu", &["x"], &["b"])], &[value("b", FLOAT, &[Is(2)])]);
    let choice = node("If", &["flag"], &["choice"])
        .subgraph("then_branch", &branch)
        .subgraph("else_branch", &branch);
    let inputs = [value("x", FLOAT, &[Is(2)]), value("flag", 9, &[])];
    let outputs = [value("choice", FLOAT, &[Is(2)])];
    place.compile_refused(
        model(&graph(&inputs, &[], &[choice], &outputs)),
        &["`choice`", "If", "condition"],
    );
}

#[test]
fn all_unsupported_nodes_are_reported_at_once() {
    let place = Place::new();
    let main = graph(
        &[value("x", FLOAT, &[Is(2), Is(3)])],
        &[],
        &[
            node("NonZero", &["x"], &["first"]),
            node("Whatever", &["x"], &["second"]).domain("local"),
            node("Relu", &["x"], &["third"]),
            node("Unheard", &["third"], &["fourth"]),
        ],
        &["first", "second", "fourth"].map(untyped),
    );
    let facts = ["`first`", "NonZero", "`second`", "Whatever", "local", "`fourth`", "Unheard"];
    place.compile_refused(model(&main), &facts);
}

#[test]
fn names_that_do_not_exist_are_refused() {
    let place = Place::new();
    let input = [value("x", FLOAT, &[Is(2)])];
    let output = [value("y", FLOAT, &[Is(2)])];
    let of = |nodes: &[Message]| model(&graph(&input, &[], nodes, &output));
    place.compile_refused(of(&[node("Add", &["x", "ghost"], &["y"])]), &["`y`", "`ghost`"]);
    place.compile_refused(of(&[node("Relu", &["x"], &["z"])]), &["`y`"]);
    place.compile_refused(
        of(&[node("Add", &["x", "b"], &["y"]), node("Relu", &["y"], &["b"])]),
        &["cycle", "`y`", "`b`"],
    );
    place.compile_refused(
        of(&[node("Relu", &["x"], &["y"]), node("Abs", &["x"], &["y"])]),
        &["`y` is defined twice"],
    );
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let place = Place::new();
    let output = [value("y", FLOAT, &[])];
    let bad = |constants: &[Message], nodes: &[Message], facts: &[&str]| {
        let inputs = [value("x", FLOAT, &[Is(2), Is(3)])];
        place.compile_refused(model(&graph(&inputs, constants, nodes, &output)), facts);
    };
    bad(&[floats("w", &[2, 2], &[0.5; 4])], &[node("MatMul", &["x", "w"], &["y"])], &["`y`", "3"]);
    bad(&[], &[node("Transpose", &["x"], &["y"]).attributes("perm", &[0, 0])], &["`y`", "twice"]);
    bad(&[], &[node("Softmax", &["x"], &["y"]).attribute("axis", 7)], &["`y`", "7"]);
    bad(&[], &[node("Softmax", &["x"], &["y"]).attribute("axis", i64::MIN)], &["`y`"]);
    bad(&[integers("s", &[5, 5])], &[node("Reshape", &["x", "s"], &["y"])], &["`y`", "5"]);
    bad(&[integers("s", &[-1, -1])], &[node("Reshape", &["x", "s"], &["y"])], &["`y`", "-1"]);
    bad(&[floats("w", &[1 << 40, 1 << 40], &[])], &[node("MatMul", &["x", "w"], &["y"])], &["`w`"]);
    bad(&[floats("w", &[-2], &[])], &[node("Add", &["x", "w"], &["y"])], &["`w`", "negative"]);
    bad(&[tensor("w", 99, &[1], &[0; 4])], &[node("Add", &["x", "w"], &["y"])], &["`w`", "99"]);
    bad(&[tensor("w", FLOAT, &[2], &[0; 7])], &[node("Add", &["x", "w"], &["y"])], &["`w`", "7"]);
}

/// What a run alone can see is refused there.
#[test]
fn an_index_out_of_range_is_refused() {
    let place = Place::new();
    let inputs = [value("x", FLOAT, &[Is(2), Is(3)])];
    for (op, index) in [("Gather", 2), ("Gather", -3), ("Gather", i64::MIN), ("Gather", i64::MAX)] {
        let nodes = [node(op, &["x", "i"], &["y"])];
        place.file(
            "model.onnx",
            model(&graph(&inputs, &[integers("i", &[index])], &nodes, &[untyped("y")])),
        );
        let run = ["run", "model.onnx", "--random-inputs", "3", "--outputs", "out/out.npz"];
        place.refused(1, &run, &["`y`", &format!("index {index}"), "2"]);
    }
}
