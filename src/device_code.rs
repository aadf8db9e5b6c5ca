//! From a scheduled graph to what a GPU runs: emission, the check of what was emitted, and NVRTC;
//! never a kernel.

use crate::compile::{CompileError, CompileOptions, EMIT, NVRTC, PassReport};
use membar_codegen::{Cubin, CudaLibrary, compile_kernels, emit};
use membar_ir::graph::Graph;
use membar_ir::program::DeviceProgram;
use membar_ir::verify::verify_program;
use std::path::Path;
use std::time::Instant;

/// A program and a cubin for each of its kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceCode {
    /// Kernels and launches.
    pub program: DeviceProgram,
    /// One a kernel, in the program's order; none if compilation stopped after emission.
    pub cubins: Vec<Cubin>,
}

/// Emits and compiles the kernels of a graph; calls `observe` after each of the two.
pub(crate) fn generate(
    graph: &Graph,
    library: &CudaLibrary,
    options: &CompileOptions,
    observe: &mut dyn FnMut(PassReport),
) -> Result<DeviceCode, CompileError> {
    let report = |name: &'static str, begin: Instant, note: String| PassReport {
        name,
        changed: true,
        ms: begin.elapsed().as_secs_f64() * 1e3,
        nodes_before: graph.node_count(),
        nodes_after: graph.node_count(),
        notes: vec![note],
        rewriting: None,
    };
    let begin = Instant::now();
    let program = emit(graph, library)?;
    let (kernels, launches) = (program.kernels.len(), program.launch_count());
    observe(report(EMIT, begin, format!("{kernels} kernels, {launches} launches")));
    if let Some(folder) = &options.emit_cuda {
        write_sources(folder, &program)?;
    }
    verify_program(graph, &program).map_err(CompileError::Program)?;
    if options.stop_after.as_deref() == Some(EMIT) {
        return Ok(DeviceCode { program, cubins: Vec::new() });
    }
    let begin = Instant::now();
    let cubins = compile_kernels(&program, &options.kernels)?;
    let bytes: usize = cubins.iter().map(|cubin| cubin.len()).sum();
    observe(report(NVRTC, begin, format!("{} KiB for {}", bytes >> 10, program.target)));
    Ok(DeviceCode { program, cubins })
}

/// One file a kernel.
fn write_sources(folder: &Path, program: &DeviceProgram) -> Result<(), CompileError> {
    let failed = |error| CompileError::Dump { path: folder.to_path_buf(), error };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for kernel in &program.kernels {
        let path = folder.join(format!("{}.cu", kernel.name));
        let written = std::fs::write(&path, &kernel.source);
        written.map_err(|error| CompileError::Dump { path, error })?;
    }
    Ok(())
}
