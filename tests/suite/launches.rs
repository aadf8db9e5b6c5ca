//! The launch plans of a few models for a GPU, as text: which kernels are launched, on how many
//! blocks, and what each waits for. Never a kernel's text, and never a run.
//!
//! `INSTA_UPDATE=always cargo test --test suite launches` writes what changed; look at the
//! difference before it is committed.

use crate::fixture::Fixture;
use membar::compile::EMIT;
use membar::ir::program::DeviceProgram;
use membar::{CompileOptions, Graph};
use membar_runtime::cuda::{Edge, EdgeKind, planned_edges};
use std::fmt::Write;

#[test]
fn of_an_encoder() {
    snapshot("bert_dynamo");
}

#[test]
fn of_a_decoder_with_a_cache() {
    snapshot("llama3_past_dynamo");
}

#[test]
fn of_a_convolution_net() {
    snapshot("mobilenet_v2_dynamo");
}

#[test]
fn of_a_quantised_encoder() {
    snapshot("bert_int8_dynamic");
}

fn snapshot(name: &str) {
    let fixture = Fixture::load(name);
    let target = "sm_90a".parse().unwrap_or_else(|error| panic!("{error}"));
    let stop_after = Some(EMIT.to_string());
    let options = CompileOptions { target, stop_after, ..fixture.options() };
    let compiled = membar::compile(fixture.graph.clone(), &options);
    let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
    let code = compiled.code.unwrap_or_else(|| panic!("{name} has no program"));
    insta::assert_snapshot!(name, plan(&compiled.graph, &code.program));
}

/// A line a launch: its number, the kernel's family and number, blocks × threads, shared memory,
/// the node, and the launches that it waits for: `<` behind a full edge, `~` behind a programmatic
/// one.
fn plan(graph: &Graph, program: &DeviceProgram) -> String {
    let edges = planned_edges(graph, program).unwrap_or_else(|error| panic!("{error}"));
    let before = |number: u32| {
        let edges = edges.iter().filter(move |edge| edge.after.0 == number);
        edges.map(wait).collect::<Vec<_>>().join(" ")
    };
    let launches = program.launch_count();
    let kinds = [EdgeKind::Programmatic, EdgeKind::Full]
        .map(|kind| edges.iter().filter(|edge| edge.kind == kind).count());
    let mut text = format!(
        "{launches} launches of {} kernels, {} programmatic and {} full edges\n",
        program.kernels.len(),
        kinds[0],
        kinds[1]
    );
    let mut number = 0;
    for step in &program.steps {
        let node = graph.schedule[step.position as usize];
        let operator = graph.node(node).op().map_or("", |op| op.mnemonic());
        for launch in &step.launches {
            let name = &program.kernels[launch.kernel.0 as usize].name;
            // Behind the last underscore stands a hash of the text.
            let family = name.rsplit_once('_').map_or(name.as_str(), |(family, _)| family);
            let [blocks, threads] = [launch.grid, launch.block].map(|n| n.iter().product::<u32>());
            let shared = match launch.shared_bytes {
                0 => String::new(),
                bytes => format!(" {bytes} B"),
            };
            let _ = writeln!(
                text,
                "{number}: {family}#{} {blocks} x {threads}{shared}, {operator} {} {}",
                launch.kernel.0,
                graph.label(node),
                before(number)
            );
            number += 1;
        }
    }
    text
}

fn wait(edge: &Edge) -> String {
    let sign = match edge.kind {
        EdgeKind::Full => '<',
        EdgeKind::Programmatic => '~',
    };
    format!("{sign}{}", edge.before.0)
}
