//! What `rewrite` finds in every fixture where a device has every kernel, and that the results stay the
//! same; never a rule by itself (the tests of passes have those).

use crate::fixture::{self, Fixture};
use crate::support;
use membar::ir::graph::Graph;
use membar::ir::interp::Interpreter;
use membar::ir::kernel::{KernelLibrary, KernelSpec};
use membar::ir::ops::Op;
use membar::ir::pass::{PassContext, PassOptions};
use membar::ir::topology::Topology;
use membar::ir::types::TensorType;
use membar::ir::verify::{Depth, verify};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// Kernels for everything.
struct Everything;

impl KernelLibrary for Everything {
    fn kernel(&self, _: &Op, _: &[TensorType], _: &[TensorType]) -> Option<KernelSpec> {
        Some(KernelSpec::default())
    }
}

/// The operators that rules find, and those that they find them in: what the snapshot counts.
const SHOWN: &[&str] = &[
    "attention",
    "erf",
    "gather_nd",
    "gelu",
    "iota",
    "is_nan",
    "layer_norm",
    "matmul",
    "reduce",
    "rms_norm",
    "rotary_embedding",
    "sigmoid",
    "softmax",
    "swish",
    "tanh",
];

/// A graph before `rewrite`, and after it.
fn rewritten(fixture: &Fixture) -> (Graph, Graph) {
    let topology = Arc::new(Topology::builtin("h200").expect("a built-in topology"));
    let options = PassOptions { dims: fixture.ranges(), ..PassOptions::default() };
    let mut cx = PassContext::new(options, topology, Arc::new(Everything));
    let mut graph = fixture.graph.clone();
    for pass in membar_passes::PASSES {
        let before = (pass.name == "rewrite").then(|| graph.clone());
        if let Err(error) = (pass.run)(&mut graph, &mut cx) {
            panic!("{}, {}: {error}", fixture.name, pass.name);
        }
        if let Some(before) = before {
            if let Err(errors) = verify(&graph, Depth::Full) {
                panic!("{}: {errors}", fixture.name);
            }
            return (before, graph);
        }
    }
    panic!("there is no pass `rewrite`");
}

/// One line a fixture, and the whole text twice: the same graph gives the same result.
#[test]
fn finds_the_same_in_every_fixture() {
    let mut text = String::new();
    for name in fixture::names() {
        let fixture = Fixture::load(&name);
        let (_, graph) = rewritten(&fixture);
        assert_eq!(graph.to_string(), rewritten(&fixture).1.to_string(), "{name}");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for id in graph.nodes() {
            if let Some(op) = graph.node(id).op().filter(|op| SHOWN.contains(&op.mnemonic())) {
                *counts.entry(op.mnemonic()).or_default() += 1;
            }
        }
        let counts: Vec<String> = counts.iter().map(|(op, n)| format!("{op} {n}")).collect();
        let _ = writeln!(text, "{name}: {}", counts.join(", "));
    }
    insta::assert_snapshot!("rewritten", text);
}

#[test]
fn changes_no_result_of_any_fixture() {
    fixture::each(&fixture::names(), |fixture| {
        let (before, after) = rewritten(fixture);
        if before.to_string() == after.to_string() {
            return Ok(());
        }
        for (inputs, sizes) in fixture.data_sets.iter().zip(fixture.sizes()) {
            let bound = sizes.into_iter().filter(|(s, _)| before.symbols.contains_key(s)).collect();
            let inputs =
                inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
            let run = |graph| {
                let results = Interpreter::default().run(graph, &inputs, &bound);
                results.map_err(|error| error.to_string())
            };
            let (expected, found) = (run(&before)?, run(&after)?);
            for (name, expected) in &expected {
                support::all_close(&found[name], expected, fixture.atol, fixture.rtol)
                    .map_err(|error| format!("`{name}`: {error}"))?;
            }
        }
        Ok(())
    });
}
