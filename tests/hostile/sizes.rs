//! Small models that ask for huge tensors, and dimensions without bounds.

use crate::onnx::*;
use crate::place::Place;

const HUGE: i64 = 1 << 40;

/// A model whose output `y` comes from one node of the constants.
fn made_by(op: Message, constants: &[Message]) -> Message {
    let inputs = [value("x", FLOAT, &[Is(1), Is(3)])];
    model(&graph(&inputs, constants, &[op], &[value("y", FLOAT, &[])]))
}

#[test]
fn huge_constants_are_refused() {
    let place = Place::new();
    let scalar = |name: &str, value: i64| tensor(name, INT64, &[], &value.to_le_bytes());
    let range = node("Range", &["from", "to", "step"], &["y"]);
    let ends = [scalar("from", 0), scalar("to", HUGE), scalar("step", 1)];
    place.compile_refused(made_by(range.clone(), &ends), &["y", "GiB"]);
    let ends = [scalar("from", i64::MIN), scalar("to", i64::MAX), scalar("step", 1)];
    place.compile_refused(made_by(range.clone(), &ends), &["y"]);
    let ends = [scalar("from", 0), scalar("to", 9), scalar("step", 0)];
    place.compile_refused(made_by(range, &ends), &["y", "0"]);
    let filled = node("ConstantOfShape", &["s"], &["y"]);
    place.compile_refused(made_by(filled.clone(), &[integers("s", &[HUGE])]), &["y", "GiB"]);
    place.compile_refused(made_by(filled, &[integers("s", &[HUGE, HUGE, HUGE])]), &["y"]);
    let one_hot = node("OneHot", &["i", "depth", "values"], &["y"]);
    let constants =
        [integers("i", &[1]), scalar("depth", HUGE), floats("values", &[2], &[0.0, 1.0])];
    place.compile_refused(made_by(one_hot, &constants), &["y"]);
    let eye = node("EyeLike", &["e"], &["y"]);
    let filled = node("ConstantOfShape", &["s"], &["e"]);
    let constants = [integers("s", &[1 << 30, 1 << 30])];
    let inputs = [value("x", FLOAT, &[Is(1)])];
    let outputs = [value("y", FLOAT, &[])];
    place.compile_refused(model(&graph(&inputs, &constants, &[filled, eye], &outputs)), &["y"]);
}

#[test]
fn huge_values_are_refused() {
    let place = Place::new();
    let expand = node("Expand", &["x", "s"], &["y"]);
    place.compile_refused(made_by(expand.clone(), &[integers("s", &[HUGE, 3])]), &["GiB"]);
    place.compile_refused(made_by(expand.clone(), &[integers("s", &[HUGE, HUGE, 3])]), &["y"]);
    place.compile_refused(made_by(expand, &[integers("s", &[i64::MAX, 3])]), &["y"]);
    let tile = node("Tile", &["x", "n"], &["y"]);
    place.compile_refused(made_by(tile.clone(), &[integers("n", &[HUGE, 1])]), &["GiB"]);
    place.compile_refused(made_by(tile.clone(), &[integers("n", &[HUGE, HUGE])]), &["y"]);
    place.compile_refused(made_by(tile, &[integers("n", &[-1, 1])]), &["y", "-1"]);
    let pad = node("Pad", &["x", "p"], &["y"]);
    place.compile_refused(made_by(pad.clone(), &[integers("p", &[0, 0, HUGE, 0])]), &["GiB"]);
    place.compile_refused(made_by(pad, &[integers("p", &[i64::MAX, 0, i64::MAX, 0])]), &["y"]);
    let resize = node("Resize", &["x", "", "", "s"], &["y"]);
    place.compile_refused(made_by(resize, &[integers("s", &[HUGE, 3])]), &["y"]);
}

/// The memory of a run, not of a single tensor, is what counts.
#[test]
fn many_large_values_are_refused_together() {
    let place = Place::new();
    const COUNT: usize = 64;
    let mut nodes = vec![node("Expand", &["x", "s"], &["v0"])];
    for index in 0..COUNT {
        let (from, to) = (format!("v{index}"), format!("v{}", index + 1));
        nodes.push(node("Cos", &[&from], &[&to]));
    }
    // From the last to the first, so that all of them live until the last is there.
    let mut sum = format!("v{COUNT}");
    for index in 0..COUNT {
        let (next, value) = (format!("s{index}"), format!("v{}", COUNT - 1 - index));
        nodes.push(node("Add", &[&sum, &value], &[&next]));
        sum = next;
    }
    let inputs = [value("x", FLOAT, &[Is(1), Is(3)])];
    let constants = [integers("s", &[1 << 28, 3])];
    let bytes = model(&graph(&inputs, &constants, &nodes, &[value(&sum, FLOAT, &[])]));
    place.compile_refused(bytes, &["GiB"]);
}

#[test]
fn declared_dimensions_that_are_impossible_are_refused() {
    let place = Place::new();
    let relu = |dims: &[Extent]| {
        let inputs = [value("x", FLOAT, dims)];
        let outputs = [value("y", FLOAT, dims)];
        model(&graph(&inputs, &[], &[node("Relu", &["x"], &["y"])], &outputs))
    };
    // Some exporters write -1 for what is not known, so a negative extent is an unknown one.
    place.compile_refused(relu(&[Is(-3)]), &["`x_0`", "--dim"]);
    place.compile_refused(relu(&[Is(HUGE), Is(HUGE)]), &["x"]);
    place.compile_refused(relu(&[Is(i64::MAX)]), &["x"]);
    place.compile_refused(relu(&[Is(HUGE)]), &["GiB"]);
    let many = vec![Is(1); 100_000];
    // Whether so high a rank is taken or not, it takes no time.
    place.file("model.onnx", relu(&many));
    let outcome = place.membar(&["compile", "model.onnx", "-o", "rank"]);
    assert!(matches!(outcome.code, Some(0 | 1)), "{outcome:?}");
}

#[test]
fn dimensions_without_bounds_are_refused_by_name() {
    let place = Place::new();
    place.compile_refused(crate::models::small(), &["`rows`", "--dim"]);
    let arguments = ["compile", "model.onnx", "-o", "out/bundle", "--dim"];
    let with =
        |dim: &str| [&arguments[..], &[dim]].concat().iter().map(|a| a.to_string()).collect();
    let refused = |code: i32, dim: &str, facts: &[&str]| {
        let arguments: Vec<String> = with(dim);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        place.refused(code, &arguments, facts);
    };
    refused(1, "columns=3", &["columns", "rows"]);
    refused(2, "rows=4..2", &["rows", "empty"]);
    refused(2, "rows=-1", &["negative"]);
    refused(2, "rows=99999999999999999999", &["99999999999999999999"]);
    refused(1, "rows=1..9223372036854775807", &["`x`", "address space"]);
    refused(1, &format!("rows=1..{HUGE}"), &["memory", "limit", "`x`"]);
}
