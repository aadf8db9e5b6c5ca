//! What each pass makes of a few small graphs, as text, and how many operators of each kind every
//! fixture comes out with; never whether that is right (other tests compare numbers).
//!
//! `INSTA_UPDATE=always cargo test --test suite snapshots` writes what changed; look at the
//! difference before it is committed.

use crate::fixture::{self, Fixture};
use crate::support;
use membar::compile::compile_with;
use membar::ir::graph::Stage;
use membar::ir::pass::StateOption;
use membar::{CompileOptions, Graph};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

#[test]
fn of_a_bert_layer() {
    passes("bert-layer", &CompileOptions::default());
}

#[test]
fn of_a_llama_layer_with_a_cache() {
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    let pairs = vec![pair("past_key", "present_key"), pair("past_value", "present_value")];
    let states = StateOption::Pairs(pairs);
    passes("llama-layer", &CompileOptions { states, ..CompileOptions::default() });
}

#[test]
fn of_a_convolution_net() {
    passes("convolution-net", &CompileOptions::default());
}

#[test]
fn of_a_quantised_layer() {
    passes("quantised-layer", &CompileOptions::default());
}

/// What each pass at stage tensor changes in the graph `NAME.ir`, and what comes out in the end.
fn passes(name: &str, options: &CompileOptions) {
    let path = support::root().join("tests/suite/graphs").join(format!("{name}.ir"));
    let graph = membar::load_model(&path, &Default::default());
    let graph = graph.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
    let source = std::fs::read_to_string(&path).expect("the file");
    let mut before = graph.to_string();
    assert_eq!(before.trim_end(), source.trim_end(), "{name}.ir is not canonical");
    let mut text = String::new();
    let result = compile_with(graph, options, &mut |report, graph| {
        if report.changed && graph.stage == Stage::Tensor {
            let after = graph.to_string();
            let _ = writeln!(text, "after {}:", report.name);
            difference(&before, &after, &mut text);
            before = after;
        }
    });
    let compiled = result.unwrap_or_else(|error| panic!("{error}")).graph;
    let _ = write!(text, "in the end:\n{compiled}");
    insta::assert_snapshot!(name, text);
}

/// The lines that went, then those that came.
fn difference(before: &str, after: &str, text: &mut String) {
    let lines = |text: &'_ str| text.lines().map(str::to_string).collect::<BTreeSet<_>>();
    let (old, new) = (lines(before), lines(after));
    for line in before.lines().filter(|line| !new.contains(*line)) {
        let _ = writeln!(text, "- {}", line.trim());
    }
    for line in after.lines().filter(|line| !old.contains(*line)) {
        let _ = writeln!(text, "+ {}", line.trim());
    }
    text.push('\n');
}

/// One line a fixture: what it compiles to at stage scheduled.
#[test]
fn of_operators_by_kind() {
    let mut text = String::new();
    for name in fixture::names() {
        let fixture = Fixture::load(&name);
        let compiled = membar::compile(fixture.graph.clone(), &fixture.options());
        let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
        let counts: Vec<String> = operators(&compiled.graph)
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        let _ = writeln!(text, "{name}: {}", counts.join(", "));
    }
    insta::assert_snapshot!("operators", text);
}

fn operators(graph: &Graph) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for id in graph.nodes() {
        if let Some(op) = graph.node(id).op() {
            *counts.entry(op.mnemonic()).or_default() += 1;
        }
    }
    counts
}
