//! What a device with compiled kernels runs: kernels as source text, and the launches of every step
//! of a scheduled graph. Never an order (the graph has those) and never an address.

use crate::dim::Symbol;
use crate::dtype::DType;
use serde::{Deserialize, Serialize};

/// The kernels and launches of a scheduled graph for one device. Which launch waits for which is
/// the graph's `orders`; where values lie is the graph's regions.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceProgram {
    /// What the kernels are compiled for: `sm_90a`.
    pub target: String,
    /// The symbols whose values the dimension block holds: 64-bit signed integers in this order.
    pub symbols: Vec<Symbol>,
    /// The kernels, each once.
    pub kernels: Vec<Kernel>,
    /// The steps that launch something, in the order of the schedule.
    pub steps: Vec<Step>,
}

/// A kernel's number in its [`DeviceProgram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KernelId(pub u32);

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The entry point: an `extern "C"` name that is also a file name.
    pub name: String,
    /// The complete translation unit, CUDA C++ without includes.
    pub source: String,
}

/// A step: one node, and its launches one after another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The node's position in the graph's schedule.
    pub position: u32,
    /// Each launch waits for the one before; orders of the graph end at the first and begin at the
    /// last.
    pub launches: Vec<Launch>,
}

/// A launch of a kernel. Grids do not depend on a run's extents: they fill the device, and blocks
/// loop over the work that there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The kernel.
    pub kernel: KernelId,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x; 1: no clusters.
    pub cluster: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// The arguments, in the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Argument {
    /// Address of the dimension block.
    Dims,
    /// Address of the fault record ([`FaultRecord`]).
    Faults,
    /// Address of the node's operand of that position.
    Operand(u32),
    /// Address of the node's output of that position.
    Output(u32),
    /// Address in the node's workspace, that many bytes behind its beginning.
    Workspace(u64),
    /// A 32-bit unsigned number.
    U32(u32),
    /// A 64-bit signed number.
    I64(i64),
    /// A tensor map for the tensor memory accelerator, 128 bytes, passed by value.
    TensorMap(TensorMap),
}

/// What the tensor memory accelerator is told of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorMap {
    /// The tensor: [`Argument::Operand`], [`Argument::Output`] or [`Argument::Workspace`].
    pub base: Box<Argument>,
    /// Element type.
    pub dtype: DType,
    /// Extents, the innermost first; at the upper ends of ranges.
    pub extents: Vec<u64>,
    /// Bytes from one element to the next in each dimension but the innermost.
    pub strides: Vec<u64>,
    /// Extents of a box, the innermost first.
    pub box_extents: Vec<u32>,
    /// Bytes of the swizzled row: 0 (none), 32, 64 or 128.
    pub swizzle: u32,
}

/// The fault record that kernels write and a session reads after a run, 32 bytes of memory that
/// both can reach. The first fault wins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct FaultRecord {
    /// 0: no fault; 1: `index` is out of range for a dimension of `extent`.
    pub kind: u32,
    /// The schedule position of the step.
    pub step: u32,
    /// The index, as given.
    pub index: i64,
    /// The dimension.
    pub extent: i64,
    /// Not used yet.
    pub reserved: i64,
}

impl DeviceProgram {
    /// How many launches there are.
    pub fn launch_count(&self) -> usize {
        self.steps.iter().map(|step| step.launches.len()).sum()
    }

    /// The step at a position of the schedule; `None`: it launches nothing.
    pub fn step_at(&self, position: u32) -> Option<&Step> {
        let index = self.steps.binary_search_by_key(&position, |step| step.position).ok()?;
        self.steps.get(index)
    }
}
