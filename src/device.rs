//! Where a session runs: the choice, the GPUs of this machine, and sessions of compiled graphs and
//! bundles on them; never a run.

use crate::compile::Compiled;
use crate::error::Error;
use crate::target::Target;
use membar_ir::architecture::Architecture;
use membar_ir::program::DeviceProgram;
use membar_ir::{Graph, Tensor, ValueId};
use membar_runtime::bundle::CPU;
use membar_runtime::cuda::Device;
use membar_runtime::weights::{Materialiser, WeightError};
use membar_runtime::{Bundle, Session, SessionError};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Where a session runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceChoice {
    /// The first GPU, where there is one that what is to run was compiled for; else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of that number, from 0.
    Cuda(u32),
}

/// A word is not a choice of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a device; expected auto, cpu, or cuda:N")]
pub struct DeviceChoiceError(pub String);

impl FromStr for DeviceChoice {
    type Err = DeviceChoiceError;

    fn from_str(text: &str) -> Result<DeviceChoice, DeviceChoiceError> {
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse());
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            _ => match text.strip_prefix("cuda:").and_then(number) {
                Some(Ok(number)) => Ok(DeviceChoice::Cuda(number)),
                Some(Err(_)) | None => Err(DeviceChoiceError(text.to_string())),
            },
        }
    }
}

/// A GPU of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The device.
    pub device: Device,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
}

impl Gpu {
    /// The GPU of that number.
    ///
    /// # Errors
    /// There is no driver, it is too old, or there is no such GPU.
    pub fn get(number: u32) -> Result<Gpu, Error> {
        let device = Device::get(i32::try_from(number).unwrap_or(i32::MAX))?;
        let (major, minor) = device.compute_capability()?;
        Ok(Gpu { device, capability: (major.unsigned_abs(), minor.unsigned_abs()) })
    }

    /// The GPU that a choice names; `None` for the CPU, and for `auto` where there is none.
    ///
    /// # Errors
    /// A GPU was named that cannot be used.
    pub fn of_choice(choice: DeviceChoice) -> Result<Option<Gpu>, Error> {
        match choice {
            DeviceChoice::Cpu => Ok(None),
            DeviceChoice::Auto => Ok(Gpu::get(0).ok()),
            DeviceChoice::Cuda(number) => Gpu::get(number).map(Some),
        }
    }

    /// The most specific target for it.
    pub fn target(self) -> Target {
        Target::Cuda(Architecture::of_device(self.capability.0, self.capability.1))
    }

    fn no_target(self, found: Vec<String>) -> Error {
        Error::NoTarget { device: self.device.number, capability: self.capability, found }
    }
}

/// A session of a bundle. No compiler is needed, whatever the device.
///
/// # Errors
/// A GPU was named that cannot be used, or the bundle has no target for the device; a weight cannot
/// be read, or the program does not fit the device's memory.
pub fn open_session(bundle: &Bundle, choice: DeviceChoice) -> Result<Session, Error> {
    let names = || bundle.targets().keys().cloned().collect::<Vec<String>>();
    let gpu = Gpu::of_choice(choice)?;
    let found = gpu.and_then(|gpu| Some((gpu, bundle.target_for(gpu.capability)?)));
    let Some((gpu, target)) = found else {
        return match gpu {
            Some(gpu) if choice != DeviceChoice::Auto => Err(gpu.no_target(names())),
            _ if !bundle.targets().contains_key(CPU) => Err(Error::NoCpuTarget(names())),
            _ => Ok(Session::new(bundle)?),
        };
    };
    let Some(code) = &target.code else { return Err(gpu.no_target(names())) };
    let weights = Materialiser::from_folder(bundle.folder()).weights(&target.graph);
    let weights = weights.map_err(SessionError::from)?;
    let cubins = code.cubins.iter().map(|cubin| cubin.to_vec()).collect();
    start(gpu, target.graph.clone(), code.program.clone(), cubins, weights)
}

impl Compiled {
    /// A session on the device that the graph was compiled for, the first GPU where that is one; its
    /// weights made from their recipes.
    ///
    /// # Errors
    /// As [`Compiled::session_on`].
    pub fn session(self) -> Result<Session, Error> {
        let choice = match self.target {
            Target::Cpu => DeviceChoice::Cpu,
            Target::Cuda(_) => DeviceChoice::Cuda(0),
        };
        self.session_on(choice)
    }

    /// As [`Compiled::session`], on a device of choice.
    ///
    /// # Errors
    /// The graph was not compiled for that device, or not completely; a weight cannot be made, or
    /// the program does not fit the device's memory.
    pub fn session_on(self, choice: DeviceChoice) -> Result<Session, Error> {
        let gpu = match self.target {
            Target::Cpu if matches!(choice, DeviceChoice::Cuda(_)) => Gpu::of_choice(choice)?,
            Target::Cpu => None,
            Target::Cuda(_) => Gpu::of_choice(choice)?,
        };
        let Some(gpu) = gpu else {
            return match self.target {
                Target::Cpu => Ok(Session::from_graph(self.graph)?),
                Target::Cuda(_) => Err(Error::NoCpuTarget(vec![self.target.to_string()])),
            };
        };
        let runs = |architecture: Architecture| architecture.runs_on(gpu.capability);
        let code = match (self.target, self.code) {
            (Target::Cuda(architecture), Some(code))
                if runs(architecture) && code.cubins.len() == code.program.kernels.len() =>
            {
                code
            }
            _ => return Err(gpu.no_target(vec![self.target.to_string()])),
        };
        let weights: Result<_, WeightError> = Materialiser::default().weights(&self.graph);
        let weights = weights.map_err(SessionError::from)?;
        let cubins = code.cubins.iter().map(|cubin| cubin.to_vec()).collect();
        start(gpu, self.graph, code.program, cubins, weights)
    }
}

fn start(
    gpu: Gpu,
    graph: Graph,
    program: DeviceProgram,
    cubins: Vec<Vec<u8>>,
    weights: BTreeMap<ValueId, Tensor>,
) -> Result<Session, Error> {
    Ok(Session::on_cuda(gpu.device, graph, program, cubins, weights)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_by_kind_and_number() {
        let named = |text: &str| text.parse::<DeviceChoice>().ok();
        assert_eq!(named("auto"), Some(DeviceChoice::Auto));
        assert_eq!(named("cpu"), Some(DeviceChoice::Cpu));
        assert_eq!(named("cuda"), Some(DeviceChoice::Cuda(0)));
        assert_eq!(named("cuda:3"), Some(DeviceChoice::Cuda(3)));
        for bad in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:99999999999"] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }
}
