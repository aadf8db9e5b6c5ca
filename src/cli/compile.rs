//! `membar compile`: a model becomes a bundle.

use super::arguments::Compile;
use super::report::{GraphReport, bytes};
use super::{Terminal, compile_graph, compile_options, import_options, read_tensors};
use std::time::Instant;

/// Runs the command.
pub fn run(command: &Compile, terminal: &Terminal) -> anyhow::Result<()> {
    let begin = Instant::now();
    let inputs = read_tensors(command.inputs.as_deref())?;
    let options = compile_options(&command.options)?;
    let graph = membar::load_model(&command.model, &import_options(&command.options, &inputs)?)?;
    let compiled = compile_graph(graph, &options, &command.options, terminal)?;
    let report = GraphReport::of(&compiled.graph, &compiled.passes);
    let Some(output) = &command.output else {
        return Ok(());
    };
    if compiled.graph.stage != membar::ir::Stage::Scheduled {
        let message = "the graph is not complete: --stop-after and -o exclude each other";
        return Err(super::UsageError(message.to_string()).into());
    }
    compiled.write_bundle(output)?;
    terminal.note(&format!(
        "compiled {} to {} in {:.2} s: {} steps, {} arena, {} weights",
        command.model.display(),
        output.display(),
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
