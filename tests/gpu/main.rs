//! The GPU suite: what needs an NVIDIA GPU, as one executable that runs on any machine with the
//! driver. `cargo xtask gpu-stage` puts it in a folder with its cubins. Without a GPU its tests are
//! reported as ignored, by name; with `MEMBAR_REQUIRE_GPU=1` a missing GPU is a failure.

mod attention;
mod cost;
mod driver;
mod models;
mod session;
#[path = "../support/mod.rs"]
mod support;

use anyhow::Context as _;
use libtest_mimic::{Arguments as TestArguments, Failed, Trial};
use membar_codegen::nvrtc::Nvrtc;
use membar_runtime::cuda::{Context, Device, DeviceMemory, ExecutableGraph, Module, Stream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// The architectures that staged cubins are for.
const TARGETS: [&str; 2] = ["sm_80", "sm_90a"];

type Outcome = anyhow::Result<()>;

/// A test of the suite.
type Test = fn(&Gpu) -> Outcome;

/// The tests of each module.
const TESTS: &[&[(&str, Test)]] =
    &[driver::TESTS, session::TESTS, attention::TESTS, models::TESTS, cost::TESTS];

/// The suite's kernels, compiled for each target.
const SOURCES: &[(&str, &str)] =
    &[("order", include_str!("order.cu")), ("session", include_str!("session.cu"))];

fn main() -> ExitCode {
    let result = match std::env::var_os("MEMBAR_GPU_STAGE") {
        Some(folder) => stage(Path::new(&folder)),
        None if std::env::var_os(session::LOSE).is_some() => session::lose_the_device(),
        None => return run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> ExitCode {
    let arguments = TestArguments::from_args();
    let required = std::env::var_os("MEMBAR_REQUIRE_GPU").is_some();
    let absent = Device::count().err();
    if let Some(error) = &absent {
        eprintln!("no GPU: {error}");
    }
    let mut trials: Vec<Trial> = TESTS
        .iter()
        .flat_map(|module| *module)
        .map(|(name, test)| {
            let name = format!("gpu::{name}");
            Trial::test(name, move || {
                let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
                Gpu::new().and_then(|gpu| test(&gpu)).map_err(failed)
            })
            .with_ignored_flag(absent.is_some() && !required)
        })
        .collect();
    for (name, test) in session::ON_THE_CPU.iter().chain(models::ON_THE_CPU) {
        let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
        trials.push(Trial::test(format!("cpu::{name}"), move || test().map_err(failed)));
    }
    let no_compiler = Nvrtc::load().err();
    for target in TARGETS {
        for (name, source) in SOURCES {
            trials.push(
                Trial::test(format!("nvrtc::{name}_compiles_for_{target}"), move || {
                    let file = format!("{name}.cu");
                    let cubin = Nvrtc::load().and_then(|n| n.compile(&file, source, target));
                    match cubin {
                        Ok(cubin) if cubin.starts_with(b"\x7fELF") => Ok(()),
                        Ok(_) => Err(Failed::from("the cubin is no ELF file")),
                        Err(error) => Err(Failed::from(error.to_string())),
                    }
                })
                .with_ignored_flag(no_compiler.is_some()),
            );
        }
    }
    // Tests that measure must not run beside others.
    let arguments = TestArguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Compiles the kernels for every target into a folder.
fn stage(folder: &Path) -> anyhow::Result<()> {
    let nvrtc = Nvrtc::load()?;
    std::fs::create_dir_all(folder)?;
    for target in TARGETS {
        for (name, source) in SOURCES {
            let cubin = nvrtc.compile(&format!("{name}.cu"), source, target)?;
            std::fs::write(cubin_path(folder, name, target), cubin)?;
        }
    }
    Ok(())
}

fn cubin_path(folder: &Path, name: &str, target: &str) -> PathBuf {
    folder.join(format!("{name}.{target}.cubin"))
}

/// The cubin of one of the suite's sources, for a device: staged ones need no compiler there.
fn cubin(device: Device, name: &str) -> anyhow::Result<Vec<u8>> {
    let target = if device.compute_capability()?.0 >= 9 { "sm_90a" } else { "sm_80" };
    if let Some(folder) = std::env::var_os("MEMBAR_GPU_CUBINS") {
        let path = cubin_path(Path::new(&folder), name, target);
        return std::fs::read(&path).with_context(|| path.display().to_string());
    }
    let mut sources = SOURCES.iter().filter(|(other, _)| *other == name);
    let (_, source) = sources.next().with_context(|| format!("no source `{name}`"))?;
    Ok(Nvrtc::load()?.compile(&format!("{name}.cu"), source, target)?)
}

/// The first GPU with the suite's kernels.
struct Gpu {
    context: Arc<Context>,
    module: Arc<Module>,
    stream: Stream,
    /// The cubin of `session.cu`.
    session_cubin: OnceLock<Vec<u8>>,
    /// Blocks that fill the device.
    blocks: u32,
}

/// Threads of a block.
const THREADS: u32 = 256;

impl Gpu {
    fn new() -> anyhow::Result<Gpu> {
        let device = Device::get(0)?;
        let cubin = cubin(device, "order")?;
        let context = Context::new(device)?;
        let module = Module::load(&context, &cubin)?;
        let stream = Stream::new(&context)?;
        let (blocks, session_cubin) = (device.multiprocessors()?, OnceLock::new());
        Ok(Gpu { context, module, stream, session_cubin, blocks })
    }

    /// The cubin of `session.cu`, made or read once.
    fn session_cubin(&self) -> anyhow::Result<&Vec<u8>> {
        if let Some(cubin) = self.session_cubin.get() {
            return Ok(cubin);
        }
        let made = cubin(self.device(), "session")?;
        Ok(self.session_cubin.get_or_init(|| made))
    }

    /// The device.
    fn device(&self) -> Device {
        self.context.device()
    }

    fn memory<T: bytemuck::Pod>(&self, elements: &[T]) -> anyhow::Result<DeviceMemory> {
        let mut memory = DeviceMemory::new(&self.context, size_of_val(elements))?;
        memory.write(0, elements)?;
        Ok(memory)
    }

    fn run(&self, graph: &mut ExecutableGraph) -> Outcome {
        graph.launch(&self.stream)?;
        self.stream.synchronize()?;
        Ok(())
    }
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> anyhow::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).context("statm has no second field")?;
    Ok(pages.parse::<usize>()? * 4096)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
