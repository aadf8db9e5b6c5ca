//! `membar topology`: shows a machine.

use super::arguments::TopologyCommand;
use super::{Terminal, named_topology};
use anyhow::Context;

/// Runs the command.
pub fn run(command: &TopologyCommand, terminal: &Terminal) -> anyhow::Result<()> {
    let topology = match &command.topology {
        Some(name) => named_topology(name)?,
        None => membar::this_machine().context("the built-in topology `cpu` is damaged")?,
    };
    let text = topology.to_toml()?;
    if let Some(path) = &command.output {
        std::fs::write(path, &text)
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        terminal.note(&format!("wrote {}", path.display()));
        return Ok(());
    }
    if terminal.json {
        return terminal
            .data(&serde_json::to_string_pretty(&toml::from_str::<serde_json::Value>(&text)?)?);
    }
    terminal.data(&text)
}
