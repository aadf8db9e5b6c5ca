//! What a command compiles for, and the compilations one after another; never what a pass does.

use super::arguments::CompileArguments;
use super::{Terminal, compile_graph};
use membar::codegen::nvrtc::Nvrtc;
use membar::ir::Stage;
use membar::ir::topology::DeviceKind;
use membar::{CompileOptions, Compiled, DeviceChoice, Gpu, Graph, KernelOptions, Target, Worker};
use std::path::{Path, PathBuf};

/// The targets of a bundle, the one that the user cares for most first: what was asked for, GPUs
/// before the CPU, which is always there. A graph that was placed before has one target.
pub fn of_bundle(graph: &Graph, arguments: &CompileArguments, terminal: &Terminal) -> Vec<Target> {
    if graph.stage > Stage::Tensor {
        let placed = Target::of_placed(graph).unwrap_or_default();
        return vec![arguments.target.first().copied().unwrap_or(placed)];
    }
    let mut targets: Vec<Target> = Vec::new();
    let here = || usable_gpu(DeviceChoice::Auto, terminal).map(Gpu::target);
    let asked = arguments.target.iter().copied();
    let asked: Vec<Target> =
        if arguments.target.is_empty() { here().into_iter().collect() } else { asked.collect() };
    for target in asked.into_iter().filter(|target| *target != Target::Cpu) {
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets.push(Target::Cpu);
    targets
}

/// The target of a run on a device, and the device.
pub fn of_run(
    graph: &Graph,
    arguments: &CompileArguments,
    device: DeviceChoice,
    terminal: &Terminal,
) -> anyhow::Result<(Target, DeviceChoice)> {
    let placed = Target::of_placed(graph);
    let gpu = match (device, placed) {
        (DeviceChoice::Cpu, _) | (DeviceChoice::Auto, Some(Target::Cpu)) => None,
        (DeviceChoice::Auto, _) => usable_gpu(device, terminal),
        (DeviceChoice::Cuda(_), _) => Gpu::of_choice(device)?,
    };
    let Some(gpu) = gpu else {
        return Ok((placed.unwrap_or_default(), DeviceChoice::Cpu));
    };
    let asked = arguments.target.iter().copied().find(|target| *target != Target::Cpu);
    let number = DeviceChoice::Cuda(gpu.device.number.unsigned_abs());
    Ok((asked.or(placed).unwrap_or(gpu.target()), number))
}

/// The GPU of a choice, if there is one that code can be compiled for here.
fn usable_gpu(choice: DeviceChoice, terminal: &Terminal) -> Option<Gpu> {
    let gpu = Gpu::of_choice(choice).ok().flatten()?;
    match Nvrtc::load() {
        Ok(_) => Some(gpu),
        Err(error) => {
            let hint = error.hint().unwrap_or_default();
            terminal.note(&format!("GPU {} is left out: {error}; {hint}", gpu.device.number));
            None
        }
    }
}

/// Compiles for each target. Dumps of the first go to the folders that were named, those of the
/// others to folders below; only the first is printed and explained.
pub fn compile_each(
    graph: Graph,
    targets: &[Target],
    options: &CompileOptions,
    arguments: &CompileArguments,
    terminal: &Terminal,
) -> anyhow::Result<Vec<Compiled>> {
    let mut results = Vec::with_capacity(targets.len());
    for (index, target) in targets.iter().enumerate() {
        let mut options = CompileOptions { target: *target, ..options.clone() };
        let mut arguments = arguments.clone();
        if index > 0 {
            let below = |folder: PathBuf| folder.join(target.to_string());
            options.dump_ir = options.dump_ir.map(below);
            options.emit_cuda = options.emit_cuda.map(below);
            arguments.print_after.clear();
            arguments.explain = None;
            // A machine that was described for the GPU alone has no CPU.
            let has = |t: &mut std::sync::Arc<membar::ir::topology::Topology>| {
                t.first_of(DeviceKind::Cpu).is_some()
            };
            options.topology = options.topology.take_if(has);
        }
        if targets.len() > 1 {
            terminal.detail(&format!("target {target}"));
        }
        results.push(compile_graph(graph.clone(), &options, &arguments, terminal)?);
        if options.stop_after.is_some() {
            break;
        }
    }
    Ok(results)
}

/// How this program compiles kernels: by processes of itself, with a cache of the user's.
pub fn kernel_options(arguments: &CompileArguments) -> KernelOptions {
    let worker = std::env::current_exe()
        .ok()
        .map(|program| Worker { program, arguments: vec!["compile-kernels".into()] });
    let cache = arguments.cache.clone().or_else(default_cache);
    KernelOptions { jobs: arguments.jobs, cache, worker }
}

/// `membar` in the user's cache folder.
fn default_cache() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let caches = absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(Path::new(".cache"))));
    caches.map(|caches| caches.join("membar"))
}
