//! The graphs in the documentation of passes: the first becomes the second; never one that the
//! documentation does not show.

use crate::support::{TestLibrary, context, graph, run};
use membar_ir::dim::{Range, Symbol};
use membar_ir::pass::{PassOptions, Precision, StateOption};

/// Runs a pass on the first graph of its documentation and compares with the second.
fn check(name: &str, source: &str, options: PassOptions, library: TestLibrary) {
    let examples = examples(source);
    let [before, after] = examples.as_slice() else {
        panic!("{name}: {} graphs in its documentation, expected two", examples.len());
    };
    let (mut found, expected) = (graph(before), graph(after));
    if let Err(error) = run(name, &mut found, &mut context(options, library)) {
        panic!("{name}: {error}");
    }
    // The text of a placed or ordered graph may leave out what does not matter to the example.
    let (shown, wanted) = (comparable(&found.to_string()), comparable(&expected.to_string()));
    assert_eq!(shown, wanted, "{name}");
}

/// Text without its first line and the devices of nodes.
fn comparable(text: &str) -> String {
    let lines = text.lines().skip(1);
    let lines = lines.map(|line| line.replace(" on cpu0", "").replace(" on gpu0", "") + "\n");
    lines.collect()
}

/// The texts in ```` ```text ```` blocks of the documentation.
fn examples(source: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in source.lines().filter_map(|line| line.strip_prefix("///")) {
        let line = line.strip_prefix(' ').unwrap_or(line);
        open = match open {
            None => (line == "```text").then(String::new),
            Some(block) if line == "```" => {
                blocks.push(block);
                None
            }
            Some(block) => Some(block + line + "\n"),
        };
    }
    blocks
}

macro_rules! source {
    ($path:literal) => {
        include_str!(concat!("../../src/", $path, ".rs"))
    };
}

#[test]
fn specialise() {
    let dims = [("B", Range::new(2, 2)), ("S", Range::new(1, 64))];
    let dims = dims.map(|(name, range)| (Symbol::new(name), range)).into();
    let options = PassOptions { dims, ..PassOptions::default() };
    check("specialise", source!("specialise"), options, TestLibrary::default());
}

#[test]
fn fold_constants() {
    let source = source!("fold_constants");
    check("fold-constants", source, PassOptions::default(), TestLibrary::default());
}

#[test]
fn simplify() {
    check("simplify", source!("simplify"), PassOptions::default(), TestLibrary::default());
}

#[test]
fn common_subexpressions() {
    let source = source!("common_subexpressions");
    check("common-subexpressions", source, PassOptions::default(), TestLibrary::default());
}

#[test]
fn lower_states() {
    let states = StateOption::Pairs(vec![("past".into(), "present".into())]);
    let options = PassOptions { states, ..PassOptions::default() };
    check("lower-states", source!("lower_states"), options, TestLibrary::default());
}

#[test]
fn convert_precision() {
    let options = PassOptions { precision: Precision::Bf16, ..PassOptions::default() };
    let source = source!("convert_precision/mod");
    check("convert-precision", source, options, TestLibrary::default());
}

#[test]
fn rewrite() {
    check("rewrite", source!("rewrite/mod"), PassOptions::default(), TestLibrary::default());
}

#[test]
fn decompose() {
    let library = TestLibrary { missing: &["softmax"], ..TestLibrary::default() };
    check("decompose", source!("decompose"), PassOptions::default(), library);
}

#[test]
fn dead_code() {
    check("dead-code", source!("dead_code"), PassOptions::default(), TestLibrary::default());
}

#[test]
fn place() {
    check("place", source!("place"), PassOptions::default(), TestLibrary::default());
}

#[test]
fn fuse() {
    check("fuse", source!("fuse"), PassOptions::default(), TestLibrary::default());
}

#[test]
fn insert_copies() {
    let library = TestLibrary { contiguous: &["matmul"], ..TestLibrary::default() };
    check("insert-copies", source!("insert_copies"), PassOptions::default(), library);
}

#[test]
fn schedule() {
    check("schedule", source!("schedule"), PassOptions::default(), TestLibrary::default());
}

#[test]
fn plan_memory() {
    let source = source!("plan_memory/mod");
    check("plan-memory", source, PassOptions::default(), TestLibrary::default());
}

#[test]
fn insert_barriers() {
    let source = source!("insert_barriers");
    check("insert-barriers", source, PassOptions::default(), TestLibrary::default());
}

#[test]
fn elide_barriers() {
    let source = source!("elide_barriers");
    check("elide-barriers", source, PassOptions::default(), TestLibrary::default());
}
