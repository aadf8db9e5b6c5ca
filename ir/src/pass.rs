//! What a pass is and what it is given; never a list of passes (each crate exports its own).

use crate::dim::{Range, Symbol};
use crate::graph::{Graph, Stage};
use crate::kernel::KernelLibrary;
use crate::topology::{DeviceKind, Topology};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Whether a pass changed the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It did.
    Yes,
    /// It did not.
    No,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Changed {
        if changed { Changed::Yes } else { Changed::No }
    }
}

/// A graph-to-graph step of the pipeline.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Its name on the command line: the function's with dashes.
    pub name: &'static str,
    /// One sentence for `--help`.
    pub summary: &'static str,
    /// The stage it takes.
    pub before: Stage,
    /// The stage it leaves.
    pub after: Stage,
    /// The function.
    pub run: fn(&mut Graph, &mut PassContext) -> Result<Changed, PassError>,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pass({})", self.name)
    }
}

/// What passes read beside the graph.
pub struct PassContext {
    /// Settings of this compilation.
    pub options: PassOptions,
    /// The machine.
    pub topology: Arc<Topology>,
    /// The kernels of the devices.
    pub kernels: Arc<dyn KernelLibrary>,
    /// What passes found worth telling a curious user, in words; the driver takes them away after
    /// each pass.
    pub notes: Vec<String>,
    /// What `rewrite` did; the driver takes it away with the notes.
    pub rewriting: Option<Rewriting>,
}

impl PassContext {
    /// A context without notes.
    pub fn new(
        options: PassOptions,
        topology: Arc<Topology>,
        kernels: Arc<dyn KernelLibrary>,
    ) -> PassContext {
        PassContext { options, topology, kernels, notes: Vec::new(), rewriting: None }
    }
}

/// What `rewrite` did to a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rewriting {
    /// How many regions were looked at.
    pub regions: usize,
    /// How many of them were different, and so were rewritten one by one.
    pub distinct: usize,
    /// Every rule, in the order in which they are tried.
    pub rules: Vec<RuleStatistics>,
    /// Every operator that was put in the place of others, in execution order.
    pub places: Vec<Rewritten>,
}

/// What one rule did, over all different regions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleStatistics {
    /// The rule.
    pub name: &'static str,
    /// What it says.
    pub summary: &'static str,
    /// Up to what its sides are equal: `exact` or `reassociated`.
    pub rounding: &'static str,
    /// How often its left side was found; one that stays is found in every round.
    pub matches: u64,
    /// How often it made two values equal.
    pub unions: u64,
    /// How long it searched and built, in milliseconds.
    pub ms: f64,
}

/// An operator that was put in the place of others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rewritten {
    /// Its mnemonic.
    pub op: &'static str,
    /// The node in whose place it stands, as messages call it.
    pub node: String,
    /// The rules that led to it, in the order in which they were applied.
    pub rules: Vec<&'static str>,
    /// The nodes that it stands for, as messages call them.
    pub sources: Vec<String>,
    /// What these cost by the model of costs, in microseconds.
    pub before_us: f64,
    /// What it costs.
    pub after_us: f64,
}

/// Settings that passes read.
#[derive(Clone, Debug, PartialEq)]
pub struct PassOptions {
    /// `--dim`: symbols bound to a number (an equal lower and upper end) or given a range.
    pub dims: BTreeMap<Symbol, Range>,
    /// `--state`.
    pub states: StateOption,
    /// Constants of at most so many bytes are computed at compile time.
    pub fold_limit: u64,
    /// A run's memory, weights apart, may have at most so many bytes.
    pub arena_limit: u64,
    /// The kind of device that runs the graph.
    pub device: DeviceKind,
    /// `--precision`.
    pub precision: Precision,
}

/// In which element type floats are stored and go into matrix units. Accumulation, statistics of
/// norms, softmax and rotary angles stay `f32`; integers and `f64` stay what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// What the model says.
    #[default]
    Model,
    /// `f32`.
    F32,
    /// `f32` in memory; matrix units may round their inputs to TF32.
    Tf32,
    /// `bf16`.
    Bf16,
    /// `f16`.
    F16,
}

impl Precision {
    /// Every precision with its word on the command line.
    pub const WORDS: &'static [(&'static str, Precision)] = &[
        ("model", Precision::Model),
        ("f32", Precision::F32),
        ("tf32", Precision::Tf32),
        ("bf16", Precision::Bf16),
        ("f16", Precision::F16),
    ];
}

impl Default for PassOptions {
    fn default() -> PassOptions {
        PassOptions {
            dims: BTreeMap::new(),
            states: StateOption::None,
            fold_limit: 64 << 20,
            arena_limit: 64 << 30,
            device: DeviceKind::Cpu,
            precision: Precision::Model,
        }
    }
}

/// Which pairs of inputs and outputs are states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateOption {
    /// None.
    None,
    /// Those that exporters' naming shows: past and present keys and values.
    Auto,
    /// These, input then output.
    Pairs(Vec<(String, String)>),
}

/// Why a pass failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// Something about the model or the settings, one message a fault, all of them.
    #[error("{}", .0.join("\n"))]
    Faults(Vec<String>),
}

impl PassError {
    /// A single fault.
    pub fn fault(message: impl Into<String>) -> PassError {
        PassError::Faults(vec![message.into()])
    }
}
