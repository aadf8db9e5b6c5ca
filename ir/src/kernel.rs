//! The kernel contract: what passes must know of kernels, and the library that knows them; never
//! a kernel itself.

use crate::dim::Dim;
use crate::graph::{Graph, NodeId, ValueId};
use crate::ops::Op;
use crate::schedule::{Layout, Region};
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
    /// Between its wait and the first read of an `async_operands`, whoever issues that read executes
    /// `fence.proxy.async`, so that it sees what kernels before it wrote by ordinary stores. Without
    /// it, such an operand takes a full edge.
    pub async_fence: bool,
}

/// What a step's kernels promise about order: the part of their [`KernelSpec`] that the orders into
/// the step rely on. Graphs record it, so that their text alone says whether the orders suffice.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Promise {
    /// As [`KernelSpec::waits`].
    pub waits: bool,
    /// As [`KernelSpec::async_operands`].
    pub async_operands: Vec<u32>,
    /// As [`KernelSpec::async_fence`].
    pub async_fence: bool,
}

impl KernelSpec {
    /// What it promises about order.
    pub fn promise(&self) -> Promise {
        Promise {
            waits: self.waits,
            async_operands: self.async_operands.clone(),
            async_fence: self.async_fence,
        }
    }

    /// Whether a node with this kernel launches anything. It does not where its output is an
    /// operand's bytes and the memory plan has put both in one place, without gaps; inputs and
    /// weights never do. Executors and passes must ask this and nothing else.
    pub fn launches(&self, graph: &Graph, node: NodeId) -> bool {
        let node = graph.node(node);
        let Some(pair) = self.alias.filter(|_| node.op().is_some()) else {
            return node.op().is_some();
        };
        let place = |values: &[ValueId], index: u32| -> Option<Region> {
            let value = graph.value(*values.get(index as usize)?);
            value.region.clone().filter(|_| value.layout == Layout::Contiguous)
        };
        let operand = place(node.operands(), pair.operand);
        let output = place(node.outputs(), pair.output);
        !operand.zip(output).is_some_and(|(operand, output)| operand.begins_with(&output))
    }
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

    /// Whether it has kernels for groups of operators (`fused`) at all.
    fn has_groups(&self) -> bool {
        true
    }
}
