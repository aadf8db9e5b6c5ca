//! What holds of every graph that the compiler makes of a real model, after every pass; never
//! numbers (other tests compare those).

use crate::{fixture, support};
use membar::compile::compile_with;
use membar::ir::graph::{NodeKind, Stage};
use membar::ir::pass::StateOption;
use membar::ir::schedule::{BufferId, Region};
use membar::ir::text::check_laws;
use membar::ir::verify::{Depth, verify};
use membar::{CompileOptions, Graph, ImportOptions, RandomWeights, Range};
use std::collections::BTreeMap;

/// An arena may have at most so many times the bytes that live at once.
const ARENA_FACTOR: f64 = 1.15;

/// The same for the fixtures, whose few small blocks leave the planner less to choose from.
const SMALL_ARENA_FACTOR: f64 = 1.25;

#[test]
fn hold_of_every_fixture_after_every_pass() {
    fixture::each(&fixture::names(), |fixture| {
        for states in [StateOption::None, StateOption::Auto] {
            let options = CompileOptions { states, ..fixture.options() };
            hold(&fixture.graph, &options, SMALL_ARENA_FACTOR)?;
        }
        Ok(())
    });
}

/// Real sizes; their weights are absent.
#[test]
fn hold_of_full_size_graphs() {
    let folder = support::root().join("tests/fixtures/graphs");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 5);
    let random_weights = Some(RandomWeights { seed: 1, all: false });
    for path in paths {
        let options = ImportOptions { random_weights, ..ImportOptions::default() };
        let graph = membar::load_model(&path, &options).unwrap_or_else(|error| panic!("{error}"));
        let dims = graph.symbols.keys().map(|symbol| (symbol.clone(), Range::new(1, 64)));
        let options = CompileOptions { dims: dims.collect(), ..CompileOptions::default() };
        if let Err(error) = hold(&graph, &options, ARENA_FACTOR) {
            panic!("{}: {error}", path.display());
        }
    }
}

fn hold(graph: &Graph, options: &CompileOptions, arena_factor: f64) -> Result<(), String> {
    let shown = |graph: &Graph, after: &str| {
        verify(graph, Depth::Full).map_err(|error| format!("after {after}: {error}"))?;
        check_laws(graph).map_err(|error| format!("after {after}: {error}"))
    };
    shown(graph, "import")?;
    let mut result = Ok(());
    let compiled = compile_with(graph.clone(), options, &mut |report, graph| {
        if result.is_ok() && report.changed {
            result = shown(graph, report.name);
        }
    });
    let compiled = compiled.map_err(|error| error.to_string())?.graph;
    result?;
    let again = membar::compile(graph.clone(), options).map_err(|error| error.to_string())?;
    if again.graph.to_string() != compiled.to_string() {
        return Err("compiled twice, the texts differ".into());
    }
    arena(&compiled, arena_factor)
}

/// Compares each buffer in which bytes are reused with what lives in it at once.
fn arena(graph: &Graph, factor: f64) -> Result<(), String> {
    assert_eq!(graph.stage, Stage::Scheduled);
    for (id, buffer) in &graph.buffers {
        let (most, reused) = most_live(graph, *id);
        if reused && buffer.bytes as f64 > factor * most as f64 {
            return Err(format!("buffer {} has {} bytes for {most} that live", id.0, buffer.bytes));
        }
    }
    Ok(())
}

/// The most bytes of a buffer that are in use at one step, and whether any bytes serve twice.
fn most_live(graph: &Graph, buffer: BufferId) -> (u64, bool) {
    let steps = graph.schedule.iter().enumerate();
    let position: BTreeMap<_, usize> = steps.map(|(step, id)| (*id, step)).collect();
    let end = graph.schedule.len();
    let mut spans: Vec<(usize, usize, &Region)> = Vec::new();
    for (step, id) in graph.schedule.iter().enumerate() {
        let node = graph.node(*id);
        spans.extend(node.workspace.iter().map(|region| (step, step, region)));
        for value in node.outputs() {
            let Some(region) = &graph.value(*value).region else { continue };
            let (users, is_input) = (graph.users(*value), node.kind == NodeKind::Input);
            let read = users.into_iter().map(|user| position[&user.node]).max();
            // Inputs keep their contents for the whole run, outputs from then on.
            let kept = is_input || graph.is_output(*value);
            let last = if kept { end } else { read.unwrap_or(step) };
            let first = if is_input { 0 } else { step };
            spans.push((first, last.max(step), region));
        }
    }
    spans.retain(|(.., region)| region.buffer == buffer);
    let mut most = 0;
    for step in 0..=end {
        let live = spans.iter().filter(|(first, last, _)| (*first..=*last).contains(&step));
        let mut ranges: Vec<(u64, u64)> =
            live.map(|(.., r)| (r.offset, (r.offset + r.len).next_multiple_of(256))).collect();
        ranges.sort_unstable();
        let (mut covered, mut bytes) = (0, 0);
        for (begin, end) in ranges {
            bytes += end.saturating_sub(begin.max(covered));
            covered = covered.max(end);
        }
        most = most.max(bytes);
    }
    let separate: u64 = spans.iter().map(|(.., region)| region.len).sum();
    (most, separate > most)
}
