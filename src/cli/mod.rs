//! The commands, one file each, and what they share: messages, and options that become the
//! library's.

pub mod arguments;
pub mod bench;
pub mod check;
pub mod compile;
mod dot;
mod execution;
mod explain;
pub mod inspect;
mod report;
pub mod run;
mod summary;
mod targets;
pub mod topology;

use anyhow::Context;
use arguments::{Cli, CompileArguments};
use membar::compile::PassReport;
use membar::ir::topology::Topology;
use membar::tensor_files::{self, Tensors};
use membar::{CompileOptions, Graph, ImportOptions, RandomWeights, StateOption, Symbol};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Where messages go, and how many.
pub struct Terminal {
    quiet: bool,
    verbose: u8,
    /// Whether data is printed as JSON.
    pub json: bool,
}

/// The command line asked for something that does not fit together: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl Terminal {
    /// As the global options say.
    pub fn new(arguments: &Cli) -> Terminal {
        let Cli { quiet, verbose, json, command: _ } = *arguments;
        Terminal { quiet, verbose, json }
    }

    /// Data, on standard output. A reader that went away is no failure.
    pub fn data(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        match write!(out, "{text}{newline}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(error).context("cannot write to standard output")
            }
            _ => Ok(()),
        }
    }

    /// A message about progress, on standard error.
    pub fn note(&self, message: &str) {
        if !self.quiet {
            self.say(message);
        }
    }

    /// A message for who wants to know more.
    pub fn detail(&self, message: &str) {
        if self.verbose > 0 && !self.quiet {
            self.say(message);
        }
    }

    /// Prints an error with its hint and gives the exit code.
    pub fn fail(&self, error: &anyhow::Error) -> ExitCode {
        let mut message = format!("error: {error}");
        for cause in error.chain().skip(1).map(ToString::to_string) {
            // Many errors of libraries show their cause themselves.
            if !message.contains(&cause) {
                message = format!("{message}: {cause}");
            }
        }
        self.say(&message);
        let hint = error.chain().find_map(|cause| cause.downcast_ref::<membar::Error>()?.hint());
        if let Some(hint) = hint {
            self.say(&format!("hint: {hint}"));
        }
        ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
    }

    /// Names from files may hold control characters; a terminal must not obey them.
    fn say(&self, message: &str) {
        let mut text = String::with_capacity(message.len() + 1);
        for c in message.chars() {
            if c.is_control() && c != '\n' && c != '\t' {
                // Writing to a string cannot fail.
                let _ = write!(text, "{}", c.escape_default());
            } else {
                text.push(c);
            }
        }
        text.push('\n');
        // Nothing can be said about a standard error that is gone.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

/// The importer's options. `inputs` holds the values of the bound ones.
pub fn import_options(
    arguments: &CompileArguments,
    inputs: &Tensors,
) -> anyhow::Result<ImportOptions> {
    let mut bound = BTreeMap::new();
    for name in &arguments.bind {
        let tensor = inputs.get(name).ok_or_else(|| {
            UsageError(format!("--bind {name} needs a value for `{name}` in --inputs"))
        })?;
        bound.insert(name.clone(), tensor.clone());
    }
    let random_weights = arguments.random_weights.map(|seed| RandomWeights { seed, all: false });
    Ok(ImportOptions { bound, random_weights })
}

/// The compiler's options.
pub fn compile_options(arguments: &CompileArguments) -> anyhow::Result<CompileOptions> {
    let mut options = CompileOptions::default();
    for (name, range) in &arguments.dim {
        if options.dims.insert(Symbol::new(name), *range).is_some() {
            return Err(UsageError(format!("--dim {name} is given twice")).into());
        }
    }
    options.states = states(&arguments.state)?;
    options.topology = arguments.topology.as_deref().map(named_topology).transpose()?.map(Arc::new);
    options.precision = arguments.precision;
    options.kernels = targets::kernel_options(arguments);
    options.emit_cuda = arguments.emit_cuda.clone();
    options.dump_ir = arguments.dump_ir.clone();
    options.stop_after = arguments.stop_after.clone();
    options.skip = arguments.skip.clone();
    options.verify = arguments.verify;
    for name in &arguments.print_after {
        membar::compile::find_pass(name).map_err(membar::Error::from)?;
    }
    Ok(options)
}

/// The hidden command: compiles the kernels that another process of this program asks for.
pub fn compile_kernels() -> anyhow::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    membar::codegen::compile::serve(&mut input, &mut output)
        .context("the process that asks for kernels went away")
}

fn states(given: &[StateOption]) -> anyhow::Result<StateOption> {
    let mut pairs = Vec::new();
    for option in given {
        match option {
            StateOption::Pairs(pair) => pairs.extend(pair.iter().cloned()),
            StateOption::None | StateOption::Auto if given.len() > 1 => {
                let message = "--state none and --state auto stand alone".to_string();
                return Err(UsageError(message).into());
            }
            StateOption::None | StateOption::Auto => return Ok(option.clone()),
        }
    }
    Ok(if pairs.is_empty() { StateOption::None } else { StateOption::Pairs(pairs) })
}

/// A topology by built-in name or file.
pub fn named_topology(name: &str) -> anyhow::Result<Topology> {
    if let Some(topology) = Topology::builtin(name) {
        return Ok(topology);
    }
    if !Path::new(name).exists() {
        anyhow::bail!(
            "there is no topology `{name}`: neither a file nor one of {}",
            Topology::BUILTIN.join(", ")
        );
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("cannot read `{name}`"))?;
    Topology::from_toml(&text).with_context(|| name.to_string())
}

/// Reads tensors, or none.
pub fn read_tensors(path: Option<&Path>) -> anyhow::Result<Tensors> {
    Ok(path.map(tensor_files::read).transpose()?.unwrap_or_default())
}

/// Compiles, telling on the terminal what the passes do.
pub fn compile_graph(
    graph: Graph,
    options: &CompileOptions,
    arguments: &CompileArguments,
    terminal: &Terminal,
) -> anyhow::Result<membar::Compiled> {
    let mut printed = Ok(());
    let mut observe = |report: &PassReport, graph: &Graph| {
        terminal.detail(&format!(
            "{:<24} {:>9.2} ms  {:>7} nodes{}",
            report.name,
            report.ms,
            report.nodes_after,
            if report.changed { "" } else { "  (no change)" }
        ));
        for note in &report.notes {
            terminal.detail(&format!("  {note}"));
        }
        if arguments.print_after.iter().any(|name| name == report.name) && printed.is_ok() {
            printed = terminal.data(&graph.to_string());
        }
        if let (Some(path), Some(rewriting)) = (&arguments.explain, &report.rewriting)
            && printed.is_ok()
        {
            printed = std::fs::write(path, explain::text(rewriting))
                .with_context(|| format!("cannot write `{}`", path.display()));
        }
    };
    let compiled =
        membar::compile::compile_with(graph, options, &mut observe).map_err(membar::Error::from)?;
    printed?;
    Ok(compiled)
}
