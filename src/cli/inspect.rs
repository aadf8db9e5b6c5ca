//! `membar inspect`: shows what is in a model, a bundle or an IR file.

use super::arguments::Inspect;
use super::dot::dot;
use super::report::GraphReport;
use super::{Terminal, compile_graph, compile_options, import_options, read_tensors};
use anyhow::Context;
use membar::compile::EMIT;
use membar::ir::Stage;
use membar::ir::program::DeviceProgram;
use membar::{Bundle, Graph, Target};

/// Runs the command.
///
/// A bundle or IR file is shown as it is. A model is compiled as far as it goes: to the end if
/// every dimension has an upper bound, else up to the passes that need none.
pub fn run(command: &Inspect, terminal: &Terminal) -> anyhow::Result<()> {
    if command.model.is_dir() {
        return inspect_bundle(command, &Bundle::open(&command.model)?, terminal);
    }
    let inputs = read_tensors(command.inputs.as_deref())?;
    let mut options = compile_options(&command.options)?;
    let graph = membar::load_model(&command.model, &import_options(&command.options, &inputs)?)?;
    if membar::ModelFormat::of(&command.model)? == membar::ModelFormat::Ir {
        return show(command, &graph, &[], None, Vec::new(), terminal);
    }
    options.target = command.options.target.first().copied().unwrap_or_default();
    if options.target != Target::Cpu && options.stop_after.is_none() {
        // The kernels' code is not shown.
        options.stop_after = Some(EMIT.to_string());
    }
    let bounded = |(symbol, range): (&membar::Symbol, &membar::Range)| {
        options.dims.get(symbol).unwrap_or(range).hi.is_some()
    };
    if !graph.symbols.iter().all(bounded) && command.options.stop_after.is_none() {
        let tensor_passes = membar::compile::passes().filter(|pass| pass.after == Stage::Tensor);
        options.stop_after = tensor_passes.last().map(|pass| pass.name.to_string());
        terminal.note(
            "some dimensions have no upper bound, so nothing is placed; \
             give them one with --dim NAME=LO..HI",
        );
    }
    let target = options.target.to_string();
    let compiled = compile_graph(graph, &options, &command.options, terminal)?;
    let targets = if compiled.graph.stage == Stage::Scheduled { vec![target] } else { Vec::new() };
    let program = compiled.code.as_ref().map(|code| &code.program);
    show(command, &compiled.graph, &compiled.passes, program, targets, terminal)
}

/// Shows the target that was asked for, else the first for a GPU, else the CPU's.
fn inspect_bundle(command: &Inspect, bundle: &Bundle, terminal: &Terminal) -> anyhow::Result<()> {
    let names: Vec<String> = bundle.targets().keys().cloned().collect();
    let asked = command.options.target.first().map(ToString::to_string);
    let with_code = |name: &&String| bundle.targets()[*name].code.is_some();
    let shown = asked.as_ref().or_else(|| names.iter().find(with_code)).or(names.first());
    let target = shown.and_then(|name| bundle.targets().get(name)).with_context(|| {
        let asked = shown.cloned().unwrap_or_default();
        format!("the bundle has no target `{asked}`; it has {}", names.join(", "))
    })?;
    let program = target.code.as_ref().map(|code| &code.program);
    show(command, &target.graph, &[], program, names.clone(), terminal)
}

fn show(
    command: &Inspect,
    graph: &Graph,
    passes: &[membar::compile::PassReport],
    program: Option<&DeviceProgram>,
    targets: Vec<String>,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    if let Some(path) = &command.dot {
        std::fs::write(path, dot(graph))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        terminal.note(&format!("wrote {}", path.display()));
    }
    let report = GraphReport::of(graph, passes, targets, program);
    if terminal.json {
        return terminal.data(&serde_json::to_string_pretty(&report)?);
    }
    terminal.data(&report.text())
}
