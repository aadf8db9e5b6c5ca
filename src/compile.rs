//! The pipeline: every crate's passes in one ordered list, and the driver that runs them; never a
//! pass itself.

use crate::device_code::{self, DeviceCode};
use crate::target::Target;
use membar_codegen::{CompileKernelsError, CudaLibrary, EmitError, KernelOptions};
use membar_ir::dim::{Range, Symbol};
use membar_ir::graph::{Graph, Stage};
use membar_ir::kernel::KernelLibrary;
use membar_ir::pass::{
    Changed, Pass, PassContext, PassError, PassOptions, Precision, Rewriting, StateOption,
};
use membar_ir::topology::{DeviceKind, Topology};
use membar_ir::verify::{Depth, VerifyErrors, verify};
use membar_runtime::bundle::{BundleError, PassEntry, TargetSource};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// All passes, in the order in which they run.
pub fn passes() -> impl Iterator<Item = &'static Pass> {
    membar_passes::PASSES.iter()
}

/// The name of the step that writes a GPU's kernels, as a pass's.
pub const EMIT: &str = "emit";

/// The name of the step that compiles them.
pub const NVRTC: &str = "nvrtc";

/// How to compile. The default compiles for the CPU, with the ranges that the model declares.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// What it is compiled for.
    pub target: Target,
    /// Symbolic dimensions that are bound to a number (a range of one) or narrowed to a range.
    pub dims: BTreeMap<Symbol, Range>,
    /// Pairs of inputs and outputs that continue from run to run.
    pub states: StateOption,
    /// The machine; without one, that of a graph that was placed before, else one CPU, or one GPU
    /// of the target's architecture.
    pub topology: Option<Arc<Topology>>,
    /// Constants of at most so many bytes are computed now; see `fold_constants`.
    pub fold_limit: u64,
    /// A run's memory, weights apart, may have at most so many bytes.
    pub arena_limit: u64,
    /// In which element type floats are stored and go into matrix units.
    pub precision: Precision,
    /// How the kernels of a GPU are compiled.
    pub kernels: KernelOptions,
    /// Where to write the kernels of a GPU, as `NAME.cu`.
    pub emit_cuda: Option<PathBuf>,
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
        let PassOptions { dims, states, fold_limit, arena_limit, device: _, precision } =
            PassOptions::default();
        CompileOptions {
            target: Target::Cpu,
            dims,
            states,
            topology: None,
            fold_limit,
            arena_limit,
            precision,
            kernels: KernelOptions::default(),
            emit_cuda: None,
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
    /// What it was compiled for.
    pub target: Target,
    /// The graph, at stage scheduled unless the options stopped earlier.
    pub graph: Graph,
    /// What a GPU runs; `None` for the CPU, and where the options stopped earlier.
    pub code: Option<DeviceCode>,
    /// What each pass did.
    pub passes: Vec<PassReport>,
}

impl Compiled {
    /// Writes the graph with its weights as a bundle of one target; see [`write_bundle`].
    ///
    /// # Errors
    /// As [`write_bundle`].
    pub fn write_bundle(&self, folder: &Path) -> Result<(), BundleError> {
        write_bundle(folder, &[self])
    }
}

/// Writes what one model was compiled to, each time for another target, as a bundle. The folder
/// appears whole or not at all, and replaces nothing but a bundle.
///
/// # Errors
/// A weight cannot be made, the folder holds something else, or it cannot be written.
pub fn write_bundle(folder: &Path, targets: &[&Compiled]) -> Result<(), BundleError> {
    let entry = |report: &PassReport| PassEntry {
        name: report.name.to_string(),
        changed: report.changed,
        nodes_before: report.nodes_before,
        nodes_after: report.nodes_after,
    };
    let passes: Vec<PassEntry> =
        targets.first().iter().flat_map(|first| &first.passes).map(entry).collect();
    let names: Vec<String> = targets.iter().map(|compiled| compiled.target.to_string()).collect();
    let source = |(compiled, name)| -> TargetSource<'_> {
        let (compiled, name): (&&Compiled, &String) = (compiled, name);
        let code = compiled.code.as_ref().map(|code| (&code.program, code.cubins.as_slice()));
        TargetSource { name, graph: &compiled.graph, code }
    };
    let sources: Vec<TargetSource<'_>> = targets.iter().zip(&names).map(source).collect();
    membar_runtime::bundle::write_targets(folder, &sources, &passes)
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
    /// What `rewrite` found, rule by rule and place by place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewriting: Option<Rewriting>,
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
    /// An operator has no kernel for the device.
    #[error("emit: {0}")]
    Emit(#[from] EmitError),
    /// What was emitted does not fit the graph: a defect of code generation.
    #[error("after emit: {}", .0.join("\n"))]
    Program(Vec<String>),
    /// Kernels cannot be compiled.
    #[error(transparent)]
    Kernels(#[from] CompileKernelsError),
    /// The topology has no device for the target.
    #[error("topology `{topology}` has no device that {target} could be compiled for")]
    NoDevice {
        /// The topology.
        topology: String,
        /// The target.
        target: Target,
    },
    /// The graph was placed on a device of another kind.
    #[error("the graph was placed for {found}, so it cannot be compiled for {target}")]
    Placed {
        /// What it was placed for.
        found: Target,
        /// What was asked for.
        target: Target,
    },
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

impl CompileError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            CompileError::Kernels(error) => error.hint(),
            _ => None,
        }
    }
}

/// Runs the passes that are ahead of the graph's stage, up to stage scheduled; for a GPU it emits
/// and compiles the kernels then.
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
        if !is_after_passes(Some(name)) {
            find_pass(name)?;
        }
    }
    check_lateness(&graph, options)?;
    let (mut cx, library) = context(&graph, options)?;
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
    let code = match library {
        Some(library)
            if graph.stage == Stage::Scheduled
                && (options.stop_after.is_none()
                    || is_after_passes(options.stop_after.as_deref())) =>
        {
            Some(device_code::generate(&graph, &library, options, &mut |report| {
                observe(&report, &graph);
                reports.push(report);
            })?)
        }
        Some(_) | None => None,
    };
    Ok(Compiled { target: options.target, graph, code, passes: reports })
}

/// Whether a name is that of a step behind the passes.
fn is_after_passes(name: Option<&str>) -> bool {
    matches!(name, Some(EMIT | NVRTC))
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
        ("--precision", options.precision != Precision::Model),
        ("--topology", options.topology.is_some() && options.topology != graph.topology),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) if graph.stage > Stage::Tensor => {
            Err(CompileError::TooLate { option, stage: graph.stage })
        }
        _ => Ok(()),
    }
}

/// What passes are given; for a GPU, its library too.
fn context(
    graph: &Graph,
    options: &CompileOptions,
) -> Result<(PassContext, Option<Arc<CudaLibrary>>), CompileError> {
    let target = options.target;
    if let Some(found) = Target::of_placed(graph)
        && found.device_kind() != target.device_kind()
    {
        return Err(CompileError::Placed { found, target });
    }
    let given = options.topology.clone().or_else(|| graph.topology.clone());
    let topology = target.machine(given).ok_or(CompileError::NoTopology)?;
    let library = match target {
        Target::Cpu => None,
        Target::Cuda(_) => {
            let library = topology
                .first_of(DeviceKind::Gpu)
                .and_then(|device| CudaLibrary::for_device(&topology, device));
            let missing = || CompileError::NoDevice { topology: topology.name.clone(), target };
            Some(Arc::new(library.ok_or_else(missing)?))
        }
    };
    let pass_options = PassOptions {
        dims: options.dims.clone(),
        states: options.states.clone(),
        fold_limit: options.fold_limit,
        arena_limit: options.arena_limit,
        device: target.device_kind(),
        precision: options.precision,
    };
    let kernels: Arc<dyn KernelLibrary> = match &library {
        Some(library) => library.clone(),
        None => Arc::new(membar_runtime::CpuLibrary),
    };
    Ok((PassContext::new(pass_options, topology, kernels), library))
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
        rewriting: cx.rewriting.take(),
    })
}

fn dump(folder: &Path, number: usize, name: &str, graph: &Graph) -> Result<(), CompileError> {
    let path = folder.join(format!("{number:02}-{name}.ir"));
    std::fs::write(&path, graph.to_string()).map_err(|error| CompileError::Dump { path, error })
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
