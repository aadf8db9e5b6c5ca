//! The kernel contract: what passes must know of kernels, and the library that knows them; never
//! a kernel itself.

use crate::dim::Dim;
use crate::ops::Op;
use crate::types::TensorType;

/// What a kernel for one node needs and promises.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KernelSpec {
    /// The kernel's name, for people.
    pub name: String,
    /// Pairs of operand and output that may share one region: each element is read before it is
    /// written.
    pub in_place: Vec<InPlace>,
    /// The output is the operand's bytes under another type. Where the memory plan gives both the
    /// same region nothing runs; where it does not, the kernel copies.
    pub alias: Option<InPlace>,
    /// Scratch memory in bytes.
    pub workspace: Dim,
    /// Operands that may have gaps (a capacity layout), ascending; others must be contiguous, and
    /// `insert_copies` sees to it. The state of an `append` may always have gaps, and so may its
    /// result.
    pub strided_operands: Vec<u32>,
    /// Every block of the kernel, idle ones too, waits for the kernels before it
    /// (`griddepcontrol.wait`) before it first reads what another step writes and before its first
    /// write, so that it may have a programmatic edge in front of it.
    pub waits: bool,
    /// Operands that the asynchronous proxy (tensor memory accelerator, `wgmma`) reads in memory,
    /// ascending.
    pub async_operands: Vec<u32>,
}

/// An operand and an output that may share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InPlace {
    /// Operand position.
    pub operand: u32,
    /// Output position.
    pub output: u32,
}

/// The kernels of one kind of device.
pub trait KernelLibrary: Send + Sync {
    /// The kernel for an operator on these types, or `None`: then the operator is replaced by its
    /// composite meaning.
    fn kernel(
        &self,
        op: &Op,
        operands: &[TensorType],
        outputs: &[TensorType],
    ) -> Option<KernelSpec>;
}
