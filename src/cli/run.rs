//! `membar run`: runs a model or a bundle once and summarises its outputs.

use super::arguments::Run;
use super::summary::Summary;
use super::{Terminal, execution};
use membar::{RunOptions, tensor_files};
use std::collections::BTreeMap;
use std::time::Instant;

/// Runs the command.
pub fn run(command: &Run, terminal: &Terminal) -> anyhow::Result<()> {
    let (mut session, inputs) = execution::open(&command.execution, terminal)?;
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
