//! The device that a suite runs on: the CPU, or the one that `MEMBAR_TEST_DEVICE` names.

use anyhow::Context;
use membar::{CompileOptions, DeviceChoice, Gpu, Graph, KernelOptions, Session, Target};

/// Names the device: `cpu`, or `cuda:N`.
const DEVICE: &str = "MEMBAR_TEST_DEVICE";

/// The folder of compiled kernels, shared by all processes.
const CACHE: &str = "MEMBAR_TEST_CACHE";

/// The device that was asked for.
pub fn choice() -> anyhow::Result<DeviceChoice> {
    match std::env::var(DEVICE) {
        Ok(name) => Ok(name.parse()?),
        Err(_) => Ok(DeviceChoice::Cpu),
    }
}

/// Compiles a graph for the device and starts a session there.
pub fn session(graph: Graph, options: &CompileOptions) -> anyhow::Result<Session> {
    let choice = choice()?;
    let mut options = options.clone();
    if let Some(gpu) = Gpu::of_choice(choice)? {
        options.target = gpu.target();
        options.kernels = kernels();
    }
    Ok(membar::compile(graph, &options)?.session_on(choice)?)
}

/// Kernels are compiled in this process, and kept where the environment says.
pub fn kernels() -> KernelOptions {
    KernelOptions { cache: std::env::var_os(CACHE).map(Into::into), ..KernelOptions::default() }
}

/// Whether the suite runs on a GPU.
pub fn is_gpu() -> anyhow::Result<bool> {
    Ok(Gpu::of_choice(choice()?).context("MEMBAR_TEST_DEVICE")?.is_some())
}

/// The target of the device.
pub fn target() -> anyhow::Result<Target> {
    Ok(Gpu::of_choice(choice()?)?.map_or(Target::Cpu, Gpu::target))
}
