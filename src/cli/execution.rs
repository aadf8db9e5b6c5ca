//! What `run` and `bench` share: from a model or a bundle and its inputs to a session; never a run.

use super::arguments::Execution;
use super::summary::random_input;
use super::{Terminal, UsageError, compile_options, import_options, read_tensors, targets};
use anyhow::Context;
use membar::tensor_files::Tensors;
use membar::{Bundle, Graph, Range, Session};
use std::collections::BTreeMap;

/// A session, and all its inputs.
pub fn open(execution: &Execution, terminal: &Terminal) -> anyhow::Result<(Session, Tensors)> {
    let mut inputs = read_tensors(execution.inputs.as_deref())?;
    let session = if execution.model.is_dir() {
        let bundle = Bundle::open(&execution.model)?;
        let session = membar::open_session(&bundle, execution.device)?;
        complete(&mut inputs, session.graph(), execution)?;
        session
    } else {
        session_of_model(execution, &mut inputs, terminal)?
    };
    for note in session.notes() {
        terminal.note(note);
    }
    Ok((session, inputs))
}

/// Compiles for exactly the sizes that the inputs have, except for dimensions with a `--dim`.
fn session_of_model(
    execution: &Execution,
    inputs: &mut Tensors,
    terminal: &Terminal,
) -> anyhow::Result<Session> {
    let mut options = compile_options(&execution.options)?;
    let graph = membar::load_model(&execution.model, &import_options(&execution.options, inputs)?)?;
    inputs.retain(|name, _| !execution.options.bind.contains(name));
    complete(inputs, &graph, execution)?;
    if options.states == membar::StateOption::None && graph.stage == membar::ir::Stage::Tensor {
        let bindings = membar::bind(&graph, inputs).map_err(membar::Error::from)?;
        for (symbol, value) in bindings {
            options.dims.entry(symbol).or_insert(Range::new(value, value));
        }
    }
    let arguments = &execution.options;
    let (target, device) = targets::of_run(&graph, arguments, execution.device, terminal)?;
    let compiled = targets::compile_each(graph, &[target], &options, arguments, terminal)?;
    let compiled = compiled.into_iter().next().context("nothing was compiled")?;
    Ok(compiled.session_on(device)?)
}

/// Adds random inputs for those that are missing, if the command asks for it.
fn complete(inputs: &mut Tensors, graph: &Graph, execution: &Execution) -> anyhow::Result<()> {
    let Some(seed) = execution.random_inputs else {
        return Ok(());
    };
    let mut bindings = BTreeMap::new();
    for (name, range) in &execution.options.dim {
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
        let tensor = random_input(ty, seed, stream as u64)
            .with_context(|| format!("cannot draw input `{name}`"))?;
        inputs.insert(name, tensor);
    }
    Ok(())
}
