//! From a program's kernel sources to cubins: each distinct source once, from a cache where it was
//! compiled before, over several processes where there is a command for them. Must never change a
//! source.

mod cache;
mod frame;
#[cfg(test)]
mod tests;
mod worker;

pub use cache::{Cache, CacheError};
pub use worker::{Worker, serve};

use crate::nvrtc::{self, Nvrtc, NvrtcError};
use membar_ir::program::{DeviceProgram, Kernel};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// How kernels are compiled. The default compiles in this process and keeps nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelOptions {
    /// How many processes at most; 0: one a processor.
    pub jobs: usize,
    /// The folder of compiled kernels.
    pub cache: Option<PathBuf>,
    /// The command that runs [`serve`]. NVRTC compiles one kernel at a time in a process, so
    /// without a command there is no parallelism.
    pub worker: Option<Worker>,
}

/// A compiled kernel: the bytes of an ELF file for one architecture.
pub type Cubin = Arc<[u8]>;

/// Why kernels could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileKernelsError {
    /// NVRTC cannot be used.
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
    /// Kernels that the compiler refused: a defect of code generation.
    #[error("{}", list(.0))]
    Kernels(Vec<KernelFault>),
    /// The cache's folder cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl CompileKernelsError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            CompileKernelsError::Nvrtc(error) => error.hint(),
            CompileKernelsError::Kernels(_) => None,
            CompileKernelsError::Cache(error) => error.hint(),
        }
    }
}

/// A kernel that does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` does not compile for {target}{}\n{log}", source_place(.source_file))]
pub struct KernelFault {
    /// The kernel.
    pub kernel: String,
    /// The architecture.
    pub target: String,
    /// What the compiler says.
    pub log: String,
    /// Where its source was written, if it could be.
    pub source_file: Option<PathBuf>,
}

/// The cubins of a program, one a kernel in the program's order. Equal sources are compiled once.
///
/// # Errors
/// NVRTC is missing, the cache's folder is not private, or kernels do not compile: all of them,
/// each with the compiler's log.
pub fn compile_kernels(
    program: &DeviceProgram,
    options: &KernelOptions,
) -> Result<Vec<Cubin>, CompileKernelsError> {
    if program.kernels.is_empty() {
        return Ok(Vec::new());
    }
    let compiler = Nvrtc::load()?;
    let cache = options.cache.as_deref().map(Cache::open).transpose()?;
    let key = |kernel: &Kernel| cache::key(&kernel.source, &program.target, compiler.version);
    let keys: Vec<_> = program.kernels.iter().map(key).collect();
    let mut cubins: BTreeMap<cache::Key, Cubin> = BTreeMap::new();
    let mut jobs: BTreeMap<cache::Key, &Kernel> = BTreeMap::new();
    for (kernel, key) in program.kernels.iter().zip(&keys) {
        match cache.as_ref().and_then(|cache| cache.get(key)) {
            _ if cubins.contains_key(key) || jobs.contains_key(key) => {}
            Some(cubin) => drop(cubins.insert(*key, cubin)),
            None => drop(jobs.insert(*key, kernel)),
        }
    }
    // In the program's order, so that the faults are too.
    let mut order: Vec<(cache::Key, &Kernel)> = Vec::with_capacity(jobs.len());
    for key in &keys {
        order.extend(jobs.remove(key).map(|kernel| (*key, kernel)));
    }
    let sources: Vec<&Kernel> = order.iter().map(|(_, kernel)| *kernel).collect();
    let store = |index: usize, cubin: &[u8]| {
        if let (Some(cache), Some((key, _))) = (&cache, order.get(index)) {
            cache.put(key, cubin);
        }
    };
    let results = compile_all(compiler, &sources, &program.target, options, &store);
    let mut faults = Vec::new();
    for ((key, kernel), result) in order.iter().zip(results) {
        match result {
            Ok(cubin) => drop(cubins.insert(*key, cubin.into())),
            Err(log) => faults.push(KernelFault {
                kernel: kernel.name.clone(),
                target: program.target.clone(),
                log,
                source_file: write_source(kernel),
            }),
        }
    }
    let found: Vec<Cubin> = keys.iter().filter_map(|key| cubins.get(key).cloned()).collect();
    if faults.is_empty() { Ok(found) } else { Err(CompileKernelsError::Kernels(faults)) }
}

/// One result a kernel: the cubin, or the compiler's log. `store` is called with each cubin as soon
/// as it is there.
fn compile_all(
    compiler: Nvrtc,
    kernels: &[&Kernel],
    target: &str,
    options: &KernelOptions,
    store: &(dyn Fn(usize, &[u8]) + Sync),
) -> Vec<Result<Vec<u8>, String>> {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if options.jobs == 0 { processors() } else { options.jobs }.min(kernels.len());
    match &options.worker {
        Some(worker) if jobs > 1 => worker::compile(worker, kernels, target, jobs, store),
        Some(_) | None => {
            let one = |(index, kernel): (usize, &&Kernel)| {
                let cubin = compile_one(compiler, &kernel.name, &kernel.source, target)?;
                store(index, &cubin);
                Ok(cubin)
            };
            kernels.iter().enumerate().map(one).collect()
        }
    }
}

/// The cubin, or the compiler's log.
fn compile_one(compiler: Nvrtc, name: &str, source: &str, target: &str) -> Result<Vec<u8>, String> {
    compiler.compile(&format!("{name}.cu"), source, target).map_err(|error| match error {
        NvrtcError::Compile { log, .. } => log,
        error
        @ (NvrtcError::Missing { .. } | NvrtcError::ZeroByte(_) | NvrtcError::Call { .. }) => {
            error.to_string()
        }
    })
}

/// Writes a source where its author can look at it.
fn write_source(kernel: &Kernel) -> Option<PathBuf> {
    let folder = std::env::temp_dir().join(format!("membar-failed-{}", std::process::id()));
    private_folder(&folder).ok()?;
    let path = folder.join(format!("{}.cu", nvrtc::file_name(&kernel.name)));
    fs::write(&path, &kernel.source).ok()?;
    Some(path)
}

/// Creates a folder that only this user can enter; one that is there already is taken if it is
/// such.
fn private_folder(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path)?;
            // Whoever owns this process owns its folder there.
            let owner = fs::metadata("/proc/self").map_or(found.uid(), |own| own.uid());
            if found.is_dir() && found.mode() & 0o077 == 0 && found.uid() == owner {
                return Ok(());
            }
            Err(std::io::Error::other("others than its owner may use it"))
        }
        result => result,
    }
}

fn source_place(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or(String::new(), |path| format!("; its source is in {}", path.display()))
}

fn list(faults: &[KernelFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
