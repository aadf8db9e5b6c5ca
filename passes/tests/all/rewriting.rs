//! The rules of `rewrite`, each on graphs of random sizes with both sides evaluated, and on graphs that
//! are nearly but not quite its left side; never a graph from a file.

use crate::support::{TestLibrary, context, graph, run};
use membar_ir::graph::Graph;
use membar_ir::interp::Interpreter;
use membar_ir::pass::{PassOptions, Rewriting};
use membar_ir::testing::{Tolerance, compare, random_inputs};
use std::collections::BTreeSet;

mod cases;

/// A left side: the rules that it is for, the operators that must be left (beside weights), and the
/// body of a graph. `T` stands for a float type, `ACC` for the one that sums have.
struct Case {
    rules: &'static [&'static str],
    left: &'static [&'static str],
    /// Inputs, then the lines of the graph.
    graph: &'static str,
    /// Float types to try.
    types: &'static [&'static str],
}

/// Not quite a left side: what must not be found in it, and the graph.
struct NearMiss {
    absent: &'static str,
    graph: &'static str,
}

const SEEDS: u64 = 6;

fn instantiate(text: &str, dtype: &str) -> Graph {
    let sums = if dtype == "f64" { "f64" } else { "f32" };
    graph(&text.replace("ACC", sums).replace('T', dtype))
}

fn rewritten(graph: &Graph) -> (Graph, Rewriting) {
    let mut found = graph.clone();
    let mut cx = context(PassOptions::default(), TestLibrary::default());
    if let Err(error) = run("rewrite", &mut found, &mut cx) {
        panic!("{error}\n{graph}");
    }
    (found, cx.rewriting.expect("a report"))
}

fn operators(graph: &Graph) -> Vec<&'static str> {
    graph.order().into_iter().filter_map(|id| Some(graph.node(id).op()?.mnemonic())).collect()
}

/// Both sides on random inputs of random sizes.
fn assert_equal(before: &Graph, after: &Graph) {
    for seed in 0..SEEDS {
        let (bindings, inputs) = random_inputs(seed, before);
        let mut results = [before, after].map(|graph| {
            match Interpreter::default().run(graph, &inputs, &bindings) {
                Ok(results) => results,
                Err(error) => panic!("{error}\n{graph}"),
            }
        });
        let [expected, found] = &mut results;
        for (name, expected) in expected {
            // The left sides round in between, so a few units in the last place of any step.
            let tolerance = Tolerance::of(expected.dtype(), 64);
            let tolerance =
                Tolerance { norm: 4.0 * tolerance.norm, element: 4.0 * tolerance.element };
            if let Err(difference) = compare(&found[name], expected, tolerance) {
                panic!("seed {seed}, `{name}`: {difference}\n{before}\nbecame\n{after}");
            }
        }
    }
}

#[test]
fn rules_find_their_left_sides_and_change_no_result() {
    for case in cases::CASES {
        for dtype in case.types {
            let before = instantiate(case.graph, dtype);
            let (after, report) = rewritten(&before);
            assert_eq!(operators(&after), case.left, "{dtype}\n{before}\nbecame\n{after}");
            let applied: BTreeSet<&str> =
                report.rules.iter().filter(|rule| rule.unions > 0).map(|rule| rule.name).collect();
            for rule in case.rules {
                assert!(applied.contains(rule), "{rule} was not applied to\n{before}");
            }
            assert_equal(&before, &after);
        }
    }
}

#[test]
fn near_misses_are_left_alone() {
    for case in cases::NEAR_MISSES {
        let before = instantiate(case.graph, "f32");
        let (after, _) = rewritten(&before);
        let found = operators(&after);
        assert!(!found.contains(&case.absent), "{} in\n{before}\nbecame\n{after}", case.absent);
        assert_equal(&before, &after);
    }
}

#[test]
fn attention_keeps_what_no_rule_may_take_from_it() {
    for (absent, kept, text) in cases::NEARLY {
        let before = instantiate(text, "f32");
        let (after, _) = rewritten(&before);
        let shown = after.to_string();
        assert!(operators(&after).contains(&"attention"), "{before}\nbecame\n{after}");
        assert!(!shown.contains(absent) && shown.contains(kept), "{before}\nbecame\n{after}");
        assert_equal(&before, &after);
    }
}

#[test]
fn every_rule_has_a_case() {
    let (_, report) = rewritten(&instantiate(cases::CASES[0].graph, "f32"));
    let covered: BTreeSet<&str> =
        cases::CASES.iter().flat_map(|case| case.rules).copied().collect();
    let rules: BTreeSet<&str> = report.rules.iter().map(|rule| rule.name).collect();
    assert_eq!(covered, rules);
}
