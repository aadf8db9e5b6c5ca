//! `membar run`: runs a model or a bundle once and summarises its outputs.

use super::arguments::Run;
use super::summary::{Summary, random_input};
use super::{Terminal, UsageError, compile_graph, compile_options, import_options, read_tensors};
use membar::tensor_files::{self, Tensors};
use membar::{Bundle, Graph, Range, RunOptions, Session};
use std::collections::BTreeMap;
use std::time::Instant;

/// Runs the command.
pub fn run(command: &Run, terminal: &Terminal) -> anyhow::Result<()> {
    let mut inputs = read_tensors(command.inputs.as_deref())?;
    let mut session = if command.model.is_dir() {
        let session = Session::new(&Bundle::open(&command.model)?)?;
        complete(&mut inputs, session.graph(), command)?;
        session
    } else {
        session_of_model(command, &mut inputs, terminal)?
    };
    let begin = Instant::now();
    let outputs = session
        .run_with(&inputs, &RunOptions { states: command.state_outputs })
        .map_err(membar::Error::from)?;
    terminal.note(&format!("ran in {:.2} ms", begin.elapsed().as_secs_f64() * 1e3));
    if let Some(path) = &command.outputs {
        tensor_files::write(path, &outputs)?;
    }
    if terminal.json {
        let summary: BTreeMap<_, _> =
            outputs.iter().map(|(name, tensor)| (name, Summary::of(tensor).json(tensor))).collect();
        return terminal.data(&serde_json::to_string_pretty(&summary)?);
    }
    for (name, tensor) in &outputs {
        terminal.data(&Summary::of(tensor).line(name, tensor))?;
    }
    Ok(())
}

/// Compiles for exactly the sizes that the inputs have, except for dimensions with a `--dim`.
fn session_of_model(
    command: &Run,
    inputs: &mut Tensors,
    terminal: &Terminal,
) -> anyhow::Result<Session> {
    let mut options = compile_options(&command.options)?;
    let graph = membar::load_model(&command.model, &import_options(&command.options, inputs)?)?;
    inputs.retain(|name, _| !command.options.bind.contains(name));
    complete(inputs, &graph, command)?;
    if options.states == membar::StateOption::None && graph.stage == membar::ir::Stage::Tensor {
        let bindings = membar::bind(&graph, inputs).map_err(membar::Error::from)?;
        for (symbol, value) in bindings {
            options.dims.entry(symbol).or_insert(Range::new(value, value));
        }
    }
    let compiled = compile_graph(graph, &options, &command.options, terminal)?;
    Ok(compiled.session().map_err(membar::Error::from)?)
}

/// Adds random inputs for those that are missing, if the command asks for it.
fn complete(inputs: &mut Tensors, graph: &Graph, command: &Run) -> anyhow::Result<()> {
    let Some(seed) = command.random_inputs else {
        return Ok(());
    };
    let mut bindings = BTreeMap::new();
    for (name, range) in &command.options.dim {
        if Some(range.lo) == range.hi {
            bindings.insert(membar::Symbol::new(name), range.lo);
        }
    }
    for (stream, input) in graph.inputs().iter().enumerate() {
        let value = graph.value(*input);
        let name = value.name.as_deref().unwrap_or_default().to_string();
        if inputs.contains_key(&name) {
            continue;
        }
        let ty = value.ty.concrete(&bindings).map_err(|error| {
            UsageError(format!("input `{name}`: {error}; give it with --dim NAME=N"))
        })?;
        inputs.insert(name, random_input(ty, seed, stream as u64));
    }
    Ok(())
}
