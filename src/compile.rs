//! The pipeline: every crate's passes in one ordered list, and the driver that runs them; never a
//! pass itself.

use membar_ir::dim::{Range, Symbol};
use membar_ir::graph::{Graph, Stage};
use membar_ir::pass::{Changed, Pass, PassContext, PassError, PassOptions, StateOption};
use membar_ir::topology::Topology;
use membar_ir::verify::{Depth, VerifyErrors, verify};
use membar_runtime::bundle::{BundleError, PassEntry};
use membar_runtime::{Session, SessionError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// All passes, in the order in which they run.
pub fn passes() -> impl Iterator<Item = &'static Pass> {
    membar_passes::PASSES.iter()
}

/// How to compile. The default compiles for the CPU, with the ranges that the model declares.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Symbolic dimensions that are bound to a number (a range of one) or narrowed to a range.
    pub dims: BTreeMap<Symbol, Range>,
    /// Pairs of inputs and outputs that continue from run to run.
    pub states: StateOption,
    /// The machine; without one, that of a graph that was placed before, else one CPU.
    pub topology: Option<Arc<Topology>>,
    /// Constants of at most so many bytes are computed now; see `fold_constants`.
    pub fold_limit: u64,
    /// A run's memory, weights apart, may have at most so many bytes.
    pub arena_limit: u64,
    /// Where to write the graph after each pass that changed it, as `NN-pass.ir`.
    pub dump_ir: Option<PathBuf>,
    /// The last pass to run.
    pub stop_after: Option<String>,
    /// Passes to leave out.
    pub skip: Vec<String>,
    /// Whether every check runs after each pass, not the cheap ones alone.
    pub verify: bool,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        let PassOptions { dims, states, fold_limit, arena_limit, device: _ } =
            PassOptions::default();
        CompileOptions {
            dims,
            states,
            topology: None,
            fold_limit,
            arena_limit,
            dump_ir: None,
            stop_after: None,
            skip: Vec::new(),
            verify: false,
        }
    }
}

/// A compiled graph.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The graph, at stage scheduled unless the options stopped earlier.
    pub graph: Graph,
    /// What each pass did.
    pub passes: Vec<PassReport>,
}

impl Compiled {
    /// A session that runs the graph on this machine, its weights made from their recipes.
    ///
    /// # Errors
    /// A weight cannot be made, or the machine's memory does not suffice.
    pub fn session(self) -> Result<Session, SessionError> {
        Session::from_graph(self.graph)
    }

    /// Writes the graph with its weights as a bundle. The folder appears whole or not at all, and
    /// replaces nothing but a bundle.
    ///
    /// # Errors
    /// A weight cannot be made, the folder holds something else, or it cannot be written.
    pub fn write_bundle(&self, folder: &Path) -> Result<(), BundleError> {
        let entry = |report: &PassReport| PassEntry {
            name: report.name.to_string(),
            changed: report.changed,
            nodes_before: report.nodes_before,
            nodes_after: report.nodes_after,
        };
        let passes: Vec<PassEntry> = self.passes.iter().map(entry).collect();
        membar_runtime::bundle::write(folder, &self.graph, &passes)
    }
}

/// What one pass did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassReport {
    /// The pass.
    pub name: &'static str,
    /// Whether it changed the graph.
    pub changed: bool,
    /// How long it took, in milliseconds, its verification left out.
    pub ms: f64,
    /// Number of nodes before it.
    pub nodes_before: usize,
    /// Number of nodes after it.
    pub nodes_after: usize,
    /// What it found worth telling.
    pub notes: Vec<String>,
}

/// Why a graph does not compile.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// An option names a pass that there is not.
    #[error("there is no pass `{name}`; the passes are {}", list(.passes))]
    UnknownPass {
        /// The name.
        name: String,
        /// The passes.
        passes: Vec<&'static str>,
    },
    /// A pass refused the graph.
    #[error("{pass}: {error}")]
    Pass {
        /// The pass.
        pass: &'static str,
        /// What is wrong.
        error: PassError,
    },
    /// A pass made a graph in which something does not hold: a defect of the pass.
    #[error("after {pass}: {errors}")]
    Verify {
        /// The pass.
        pass: &'static str,
        /// What does not hold.
        errors: VerifyErrors,
    },
    /// What was given to compile is wrong before any pass.
    #[error(transparent)]
    Graph(VerifyErrors),
    /// A pass was left out that a later one needs.
    #[error(
        "{pass}: it takes a graph at stage {}, but this one is at stage {}: \
         a pass that was skipped would have brought it there",
        .expected.word(),
        .found.word()
    )]
    Stage {
        /// The pass that cannot run.
        pass: &'static str,
        /// What it takes.
        expected: Stage,
        /// What there is.
        found: Stage,
    },
    /// An option that only passes read which the graph is past already.
    #[error(
        "{option} has no effect on a graph at stage {}: it applies at stage {}",
        .stage.word(),
        Stage::Tensor.word()
    )]
    TooLate {
        /// The option, as the command line spells it.
        option: &'static str,
        /// The graph's stage.
        stage: Stage,
    },
    /// Neither the options nor the graph name a machine, and the built-in one is damaged.
    #[error("no topology was given, and the built-in topology `cpu` cannot be read")]
    NoTopology,
    /// A dump could not be written.
    #[error("cannot write `{}`: {error}", .path.display())]
    Dump {
        /// The file or folder.
        path: PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
}

/// Runs the passes that are ahead of the graph's stage, up to stage scheduled.
///
/// A graph of any stage will do: one that was read from a dump goes on from there.
///
/// # Errors
/// An unknown pass name, an option that comes too late for the graph's stage, whatever a pass
/// refuses, with the pass's name, or a dump that cannot be written.
pub fn compile(graph: Graph, options: &CompileOptions) -> Result<Compiled, CompileError> {
    compile_with(graph, options, &mut |_, _| {})
}

/// As [`compile`]; calls `observe` after each pass with what it did and the graph.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(
    mut graph: Graph,
    options: &CompileOptions,
    observe: &mut dyn FnMut(&PassReport, &Graph),
) -> Result<Compiled, CompileError> {
    for name in options.skip.iter().chain(&options.stop_after) {
        find_pass(name)?;
    }
    check_lateness(&graph, options)?;
    let mut cx = context(&graph, options)?;
    if let Some(folder) = &options.dump_ir {
        let failed = |error| CompileError::Dump { path: folder.clone(), error };
        std::fs::create_dir_all(folder).map_err(failed)?;
        dump(folder, 0, "input", &graph)?;
    }
    let depth = if options.verify { Depth::Full } else { Depth::Cheap };
    verify(&graph, depth).map_err(CompileError::Graph)?;
    let start = graph.stage;
    let mut reports = Vec::new();
    for (index, pass) in passes().enumerate() {
        // What lies behind the graph's first stage has happened to it already.
        let skipped = pass.before < start || options.skip.iter().any(|name| name == pass.name);
        if !skipped {
            let report = run(pass, &mut graph, &mut cx)?;
            if report.changed {
                if let Some(folder) = &options.dump_ir {
                    dump(folder, index + 1, pass.name, &graph)?;
                }
                verify(&graph, depth)
                    .map_err(|errors| CompileError::Verify { pass: pass.name, errors })?;
            }
            observe(&report, &graph);
            reports.push(report);
        }
        if options.stop_after.as_deref() == Some(pass.name) {
            break;
        }
    }
    Ok(Compiled { graph, passes: reports })
}

/// The pass of that name.
///
/// # Errors
/// [`CompileError::UnknownPass`] lists the names that there are.
pub fn find_pass(name: &str) -> Result<&'static Pass, CompileError> {
    passes().find(|pass| pass.name == name).ok_or_else(|| CompileError::UnknownPass {
        name: name.to_string(),
        passes: passes().map(|pass| pass.name).collect(),
    })
}

fn check_lateness(graph: &Graph, options: &CompileOptions) -> Result<(), CompileError> {
    let given = [
        ("--dim", !options.dims.is_empty()),
        ("--state", options.states != StateOption::None),
        ("--topology", options.topology.is_some() && options.topology != graph.topology),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) if graph.stage > Stage::Tensor => {
            Err(CompileError::TooLate { option, stage: graph.stage })
        }
        _ => Ok(()),
    }
}

fn context(graph: &Graph, options: &CompileOptions) -> Result<PassContext, CompileError> {
    let given = options.topology.clone().or_else(|| graph.topology.clone());
    let topology = given.or_else(|| Topology::builtin("cpu").map(Arc::new));
    let topology = topology.ok_or(CompileError::NoTopology)?;
    let pass_options = PassOptions {
        dims: options.dims.clone(),
        states: options.states.clone(),
        fold_limit: options.fold_limit,
        arena_limit: options.arena_limit,
        ..PassOptions::default()
    };
    Ok(PassContext::new(pass_options, topology, Arc::new(membar_runtime::CpuLibrary)))
}

fn run(
    pass: &'static Pass,
    graph: &mut Graph,
    cx: &mut PassContext,
) -> Result<PassReport, CompileError> {
    if graph.stage != pass.before {
        let (expected, found) = (pass.before, graph.stage);
        return Err(CompileError::Stage { pass: pass.name, expected, found });
    }
    let nodes_before = graph.node_count();
    let begin = Instant::now();
    let changed =
        (pass.run)(graph, cx).map_err(|error| CompileError::Pass { pass: pass.name, error })?;
    Ok(PassReport {
        name: pass.name,
        changed: changed == Changed::Yes,
        ms: begin.elapsed().as_secs_f64() * 1e3,
        nodes_before,
        nodes_after: graph.node_count(),
        notes: std::mem::take(&mut cx.notes),
    })
}

fn dump(folder: &Path, number: usize, name: &str, graph: &Graph) -> Result<(), CompileError> {
    let path = folder.join(format!("{number:02}-{name}.ir"));
    std::fs::write(&path, graph.to_string()).map_err(|error| CompileError::Dump { path, error })
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
