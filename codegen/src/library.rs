//! The kernels of CUDA devices, as passes see them. Must never write a kernel (see `emit`).

use crate::emit::Family;
use membar_ir::architecture::Architecture;
use membar_ir::kernel::{KernelLibrary, KernelSpec};
use membar_ir::ops::Op;
use membar_ir::topology::{DeviceId, Topology};
use membar_ir::types::TensorType;

/// The kernels that can be written for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaLibrary {
    target: String,
    units: u32,
    capability: u32,
}

impl CudaLibrary {
    /// The library of a device of a topology; `None` if it has no such device, or the device's
    /// architecture is no `sm_…` of 8.0 or newer.
    pub fn for_device(topology: &Topology, device: DeviceId) -> Option<CudaLibrary> {
        let device = topology.device(device)?;
        let architecture: Architecture = device.arch.parse().ok()?;
        let capability = architecture.major * 10 + architecture.minor;
        if capability < 80 {
            return None;
        }
        Some(CudaLibrary { target: device.arch.clone(), units: device.units.max(1), capability })
    }

    /// What kernels are compiled for: `sm_90a`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Streaming multiprocessors.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Compute capability times ten: 90.
    pub fn capability(&self) -> u32 {
        self.capability
    }
}

impl KernelLibrary for CudaLibrary {
    fn kernel(
        &self,
        op: &Op,
        operands: &[TensorType],
        outputs: &[TensorType],
    ) -> Option<KernelSpec> {
        let family = Family::of(op, operands, outputs)?;
        Some(family.spec(op, operands, outputs))
    }
}
