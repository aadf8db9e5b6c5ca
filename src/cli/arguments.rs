//! The command line's grammar: every command, option and its help; never what they do.

use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand};
use membar::{DeviceChoice, Precision, Range, StateOption, Target};
use std::path::PathBuf;

/// A graph-native AI compiler: a model becomes a graph bundle, and the bundle runs.
#[derive(Debug, Parser)]
#[command(name = "membar", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Say nothing but errors.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more; twice, say everything.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print machine-readable JSON on standard output.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compile a model into a graph bundle.
    #[command(after_help = "Example:\n  membar compile bert.onnx -o bert.bundle \
                            --dim batch=1..8 --dim sequence=1..512")]
    Compile(Compile),
    /// Run a model or a bundle once and summarise its outputs.
    #[command(after_help = "Example:\n  membar run bert.bundle --inputs in.npz --outputs out.npz")]
    Run(Run),
    /// Run a model or a bundle many times and tell how fast it is, and how fast it could be.
    #[command(after_help = "Example:\n  membar bench bert.onnx --dim batch=1 --dim sequence=128")]
    Bench(Bench),
    /// Show what is in a model, a bundle or an IR file.
    #[command(after_help = "Example:\n  membar inspect bert.bundle --json")]
    Inspect(Inspect),
    /// Prove that the steps of a compiled program are ordered, and name every fault.
    #[command(after_help = "Example:\n  membar check bert.bundle\n\nClasses of faults:\n  \
        undeclared  two steps conflict and no order covers it (an error)\n  \
        too-narrow  an order does not reach the step that waits (an error)\n  \
        too-wide    an order waits for work that there is no hazard with\n  \
        redundant   other orders imply it")]
    Check(Check),
    /// Show the machine, or a described one, as the property graph that compiling uses.
    #[command(after_help = "Example:\n  membar topology --topology h200x8 -o node.toml")]
    Topology(TopologyCommand),
    /// Compile kernels that arrive on standard input; the compiler starts this by itself.
    #[command(hide = true)]
    CompileKernels,
}

/// `membar compile`.
#[derive(Debug, Args)]
pub struct Compile {
    /// The model: .onnx, or .ir to go on from a dump.
    pub model: PathBuf,
    /// The folder of the bundle; created, or replaced if it is a bundle.
    #[arg(short, long, value_name = "BUNDLE", required_unless_present_any = ["stop_after", "print_after"])]
    pub output: Option<PathBuf>,
    /// Tensors for `--bind` (.npz or .safetensors).
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub options: CompileArguments,
}

/// What every command that compiles takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Compilation")]
pub struct CompileArguments {
    /// What it is compiled for: a GPU's architecture such as sm_90a, or cpu, which is always in a
    /// bundle. May repeat. Default: the GPU of this machine too, if there is one.
    #[arg(long, value_name = "TARGET")]
    pub target: Vec<Target>,
    /// In which type floats are stored and go into matrix units.
    #[arg(long, value_name = "model|f32|tf32|bf16|f16", default_value = "model", value_parser = parse_precision)]
    pub precision: Precision,
    /// The machine: a built-in name such as h200, or a .toml file.
    #[arg(long, value_name = "NAME|FILE")]
    pub topology: Option<String>,
    /// Bind a symbolic dimension to a number, or give its range. May repeat.
    #[arg(long, value_name = "NAME=N|LO..HI", value_parser = parse_dim)]
    pub dim: Vec<(String, Range)>,
    /// Input/output pairs that continue from run to run: none, auto, or IN=OUT. May repeat.
    #[arg(long, value_name = "none|auto|IN=OUT", value_parser = parse_state)]
    pub state: Vec<StateOption>,
    /// Fix an input that determines shapes (axes, pads, k) to the value in `--inputs`. May repeat.
    #[arg(long, value_name = "INPUT")]
    pub bind: Vec<String>,
    /// Draw weights whose data file is absent at random from this seed.
    #[arg(long, value_name = "SEED")]
    pub random_weights: Option<u64>,
    /// Write the graph after each pass that changed it into this folder.
    #[arg(long, value_name = "DIR")]
    pub dump_ir: Option<PathBuf>,
    /// Write the kernels of GPUs into this folder, as CUDA C++.
    #[arg(long, value_name = "DIR")]
    pub emit_cuda: Option<PathBuf>,
    /// How many processes compile kernels; default: one a processor.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub jobs: usize,
    /// Where compiled kernels are kept; default: membar in the user's cache folder.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Write what was found in its parts, place by place, by which rules and why it is cheaper.
    #[arg(long, value_name = "FILE")]
    pub explain: Option<PathBuf>,
    /// Print the graph after this pass. May repeat.
    #[arg(long, value_name = "PASS")]
    pub print_after: Vec<String>,
    /// Stop after this pass.
    #[arg(long, value_name = "PASS")]
    pub stop_after: Option<String>,
    /// Leave this pass out. May repeat.
    #[arg(long, value_name = "PASS")]
    pub skip: Vec<String>,
    /// Run every check of the graph after each pass.
    #[arg(long)]
    pub verify: bool,
}

/// What runs, where, and on what.
#[derive(Clone, Debug, Args)]
pub struct Execution {
    /// The model (.onnx, .ir) or bundle.
    pub model: PathBuf,
    /// Input tensors by name (.npz or .safetensors).
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
    /// Where it runs.
    #[arg(long, value_name = "auto|cpu|cuda:N", default_value = "auto")]
    pub device: DeviceChoice,
    /// Draw the inputs that are not given at random from this seed; sizes come from `--dim`.
    #[arg(long, value_name = "SEED")]
    pub random_inputs: Option<u64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub options: CompileArguments,
}

/// `membar run`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").args(["inputs", "random_inputs"]).required(true).multiple(true))]
pub struct Run {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub execution: Execution,
    /// Where the output tensors go (.npz or .safetensors).
    #[arg(long, value_name = "FILE")]
    pub outputs: Option<PathBuf>,
    /// Give back the new values of states too.
    #[arg(long)]
    pub state_outputs: bool,
}

/// `membar bench`.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub execution: Execution,
    /// Runs before the timed ones.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub warmup: u32,
    /// Timed runs.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub reps: u32,
}

/// `membar inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The model (.onnx), bundle or IR file (.ir).
    pub model: PathBuf,
    /// Write the graph in Graphviz's language.
    #[arg(long, value_name = "FILE")]
    pub dot: Option<PathBuf>,
    /// Tensors for `--bind` (.npz or .safetensors).
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub options: CompileArguments,
}

/// `membar check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The bundle, or an IR file (.ir) at stage scheduled.
    #[arg(value_name = "BUNDLE|FILE.ir")]
    pub program: PathBuf,
}

/// `membar topology`.
#[derive(Debug, Args)]
pub struct TopologyCommand {
    /// A built-in name such as h200, or a .toml file; default: this machine.
    #[arg(long, value_name = "NAME|FILE")]
    pub topology: Option<String>,
    /// Write it as a topology file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn parse_precision(text: &str) -> Result<Precision, String> {
    let known = Precision::WORDS.iter().find(|(word, _)| *word == text);
    let words = || Precision::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>();
    known
        .map(|(_, precision)| *precision)
        .ok_or_else(|| format!("expected one of {}", words().join(", ")))
}

fn parse_dim(text: &str) -> Result<(String, Range), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=N or NAME=LO..HI")?;
    let number = |text: &str| -> Result<i64, String> {
        let value: i64 = text.trim().parse().map_err(|_| format!("`{text}` is not a number"))?;
        if value < 0 { Err(format!("{value} is negative")) } else { Ok(value) }
    };
    let range = match value.split_once("..") {
        None => {
            let value = number(value)?;
            Range::new(value, value)
        }
        Some((lo, hi)) => {
            let (lo, hi) = (number(lo)?, number(hi.trim_start_matches('='))?);
            if lo > hi {
                return Err(format!("the range {lo}..{hi} is empty"));
            }
            Range::new(lo, hi)
        }
    };
    if name.is_empty() {
        return Err("the dimension has no name".to_string());
    }
    Ok((name.to_string(), range))
}

fn parse_state(text: &str) -> Result<StateOption, String> {
    match text {
        "none" => Ok(StateOption::None),
        "auto" => Ok(StateOption::Auto),
        pair => match pair.split_once('=') {
            Some((input, output)) if !input.is_empty() && !output.is_empty() => {
                Ok(StateOption::Pairs(vec![(input.to_string(), output.to_string())]))
            }
            _ => Err("expected none, auto or IN=OUT".to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("membar {}", command.get_name());
            assert!(help.contains(&example), "{}", command.get_name());
        }
    }

    #[test]
    fn dimensions_are_numbers_or_ranges() {
        assert_eq!(parse_dim("B=4"), Ok(("B".to_string(), Range::new(4, 4))));
        assert_eq!(parse_dim("S=1..512"), Ok(("S".to_string(), Range::new(1, 512))));
        assert_eq!(parse_dim("S=1..=512"), Ok(("S".to_string(), Range::new(1, 512))));
        for bad in ["S", "=3", "S=x", "S=9..3", "S=-1", "S=1.."] {
            assert!(parse_dim(bad).is_err(), "{bad}");
        }
    }
}
