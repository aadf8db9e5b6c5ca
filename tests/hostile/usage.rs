//! Wrong usage of the command line, and bad descriptions of machines.

use crate::models::small;
use crate::place::Place;

#[test]
fn wrong_usage_exits_with_2() {
    let place = Place::new();
    place.file("model.onnx", small());
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["compile"],
        &["compile", "model.onnx"],
        &["run", "model.onnx"],
        &["compile", "model.onnx", "-o", "out/b", "--dim", "rows"],
        &["compile", "model.onnx", "-o", "out/b", "--dim", "rows=1", "--dim", "rows=2"],
        &["compile", "model.onnx", "-o", "out/b", "--state", "x"],
        &["compile", "model.onnx", "-o", "out/b", "--state", "auto", "--state", "none"],
        &["compile", "model.onnx", "-o", "out/b", "--target", "toaster"],
        &["compile", "model.onnx", "-o", "out/b", "--random-weights", "many"],
        &["run", "model.onnx", "--random-inputs", "1", "--device", "cuda:x"],
        &["compile", "model.onnx", "--dim", "rows=2", "-o", "out/b", "--stop-after", "place"],
    ] {
        let outcome = place.membar(arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
        assert!(!outcome.stderr.is_empty() && outcome.stdout.is_empty(), "{outcome:?}");
        assert_eq!(crate::place::listing(&place.path("out")), [""; 0]);
    }
}

#[test]
fn random_inputs_need_sizes() {
    let place = Place::new();
    place.file("model.onnx", small());
    place.refused(2, &["run", "model.onnx", "--random-inputs", "1"], &["`x`", "rows", "--dim"]);
    let huge = ["run", "model.onnx", "--random-inputs", "1", "--dim", "rows=1099511627776"];
    place.refused(1, &huge, &["bytes"]);
}

#[test]
fn unknown_passes_and_states_are_refused() {
    let place = Place::new();
    place.file("model.onnx", small());
    let compile = ["compile", "model.onnx", "-o", "out/b", "--dim", "rows=2"];
    place.refused(
        1,
        &["compile", "model.onnx", "--dim", "rows=2", "--stop-after", "melt"],
        &["`melt`", "`schedule`"],
    );
    for option in ["--skip", "--print-after"] {
        place.refused(1, &[&compile[..], &[option, "melt"]].concat(), &["`melt`", "`schedule`"]);
    }
    place.refused(1, &[&compile[..], &["--state", "a=b"]].concat(), &["`a`"]);
    place.refused(1, &[&compile[..], &["--state", "x=b"]].concat(), &["`b`"]);
    // A pass that may not be left out is missed by the next stage, not by a panic.
    for pass in ["decompose", "place", "insert-copies", "schedule", "plan-memory"] {
        let outcome = place.membar(&[&compile[..], &["--skip", pass]].concat());
        assert!(!outcome.stderr.contains("panicked"), "{pass}: {outcome:?}");
        assert!(matches!(outcome.code, Some(0..=2)), "{pass}: {outcome:?}");
    }
}

#[test]
fn bad_topologies_are_refused() {
    let place = Place::new();
    place.file("model.onnx", small());
    let compile = ["compile", "model.onnx", "-o", "out/b", "--dim", "rows=2", "--topology"];
    let refused = |name: &str, facts: &[&str]| {
        place.refused(1, &[&compile[..], &[name]].concat(), facts);
        place.refused(1, &["topology", "--topology", name, "-o", "out/t.toml"], facts);
    };
    refused("h9000", &["`h9000`", "h200"]);
    place.file("bad.toml", [0xff, 0xfe]);
    refused("bad.toml", &["bad.toml"]);
    place.file("bad.toml", "name = [");
    refused("bad.toml", &["bad.toml"]);
    place.file("bad.toml", "");
    refused("bad.toml", &["bad.toml"]);
    place.file("bad.toml", format!("name = {}1{}", "[".repeat(1 << 17), "]".repeat(1 << 17)));
    refused("bad.toml", &["bad.toml"]);
    std::fs::create_dir(place.path("folder.toml")).unwrap();
    refused("folder.toml", &["folder.toml"]);
}

#[test]
fn explanations_say_what_was_found_and_by_which_rule() {
    let place = Place::new();
    let graph = "ir 1 stage tensor
graph @g(
  %x: f32[8]
) {
  %a = sigmoid %x : f32[8] from \"gate\"
  %y = mul %a, %x : f32[8] from \"silu\"
  return %y
}
";
    place.file("g.ir", graph);
    let compile = ["compile", "g.ir", "--stop-after", "rewrite", "--explain"];
    let outcome = place.membar(&[&compile[..], &["out/why.txt"]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = std::fs::read_to_string(place.path("out/why.txt")).unwrap();
    for expected in ["swish in the place of `silu`", "by swish", "from `gate`, `silu`"] {
        assert!(text.contains(expected), "{text}");
    }
    std::fs::remove_file(place.path("out/why.txt")).unwrap();
    place.refused(1, &[&compile[..], &["absent/why.txt"]].concat(), &["absent/why.txt"]);
}
