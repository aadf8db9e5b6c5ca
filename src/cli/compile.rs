//! `membar compile`: a model becomes a bundle.

use super::arguments::Compile;
use super::report::{GraphReport, bytes};
use super::{Terminal, compile_options, import_options, read_tensors, targets};
use std::time::Instant;

/// Runs the command.
pub fn run(command: &Compile, terminal: &Terminal) -> anyhow::Result<()> {
    let begin = Instant::now();
    let inputs = read_tensors(command.inputs.as_deref())?;
    let arguments = &command.options;
    let options = compile_options(arguments)?;
    if options.stop_after.is_some() && command.output.is_some() {
        let message = "the graph is not complete: --stop-after and -o exclude each other";
        return Err(super::UsageError(message.to_string()).into());
    }
    let graph = membar::load_model(&command.model, &import_options(arguments, &inputs)?)?;
    let targets = targets::of_bundle(&graph, arguments, terminal);
    let compiled = targets::compile_each(graph, &targets, &options, arguments, terminal)?;
    let (Some(first), Some(output)) = (compiled.first(), &command.output) else {
        return Ok(());
    };
    let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
    let program = first.code.as_ref().map(|code| &code.program);
    let report = GraphReport::of(&first.graph, &first.passes, names.clone(), program);
    membar::write_bundle(output, &compiled.iter().collect::<Vec<_>>())?;
    terminal.note(&format!(
        "compiled {} to {} for {} in {:.2} s: {} launches, {} arena, {} weights",
        command.model.display(),
        output.display(),
        names.join(", "),
        begin.elapsed().as_secs_f64(),
        report.launches,
        bytes(report.arena_bytes),
        bytes(report.weight_bytes),
    ));
    if terminal.json {
        terminal.data(&serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}
