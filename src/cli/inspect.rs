//! `membar inspect`: shows what is in a model, a bundle or an IR file.

use super::arguments::Inspect;
use super::dot::dot;
use super::report::GraphReport;
use super::{Terminal, compile_graph, compile_options, import_options, read_tensors};
use anyhow::Context;
use membar::ir::Stage;
use membar::{Bundle, Graph};

/// Runs the command.
///
/// A bundle or IR file is shown as it is. A model is compiled as far as it goes: to the end if
/// every dimension has an upper bound, else up to the passes that need none.
pub fn run(command: &Inspect, terminal: &Terminal) -> anyhow::Result<()> {
    if command.model.is_dir() {
        let bundle = Bundle::open(&command.model)?;
        return show(command, bundle.graph(), &[], terminal);
    }
    let inputs = read_tensors(command.inputs.as_deref())?;
    let mut options = compile_options(&command.options)?;
    let graph = membar::load_model(&command.model, &import_options(&command.options, &inputs)?)?;
    if membar::ModelFormat::of(&command.model)? == membar::ModelFormat::Ir {
        return show(command, &graph, &[], terminal);
    }
    let bounded = |(symbol, range): (&membar::Symbol, &membar::Range)| {
        options.dims.get(symbol).unwrap_or(range).hi.is_some()
    };
    if !graph.symbols.iter().all(bounded) && options.stop_after.is_none() {
        let tensor_passes = membar::compile::passes().filter(|pass| pass.after == Stage::Tensor);
        options.stop_after = tensor_passes.last().map(|pass| pass.name.to_string());
        terminal.note(
            "some dimensions have no upper bound, so nothing is placed; \
             give them one with --dim NAME=LO..HI",
        );
    }
    let compiled = compile_graph(graph, &options, &command.options, terminal)?;
    show(command, &compiled.graph, &compiled.passes, terminal)
}

fn show(
    command: &Inspect,
    graph: &Graph,
    passes: &[membar::compile::PassReport],
    terminal: &Terminal,
) -> anyhow::Result<()> {
    if let Some(path) = &command.dot {
        std::fs::write(path, dot(graph))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        terminal.note(&format!("wrote {}", path.display()));
    }
    let report = GraphReport::of(graph, passes);
    if terminal.json {
        return terminal.data(&serde_json::to_string_pretty(&report)?);
    }
    terminal.data(&report.text())
}
