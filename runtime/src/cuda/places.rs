//! Addresses: buffers, weights and records of a session on a device, and the arguments of launches
//! made of them; must never give an address beyond what was allocated.

use super::context::Context;
use super::error::CudaError;
use super::memory::DeviceMemory;
use super::module::Arguments;
use super::tensor_map;
use super::weights::DeviceWeights;
use crate::executor::ExecutorError;
use crate::placement::{node_name, plan_error};
use membar_ir::graph::{Graph, Node, NodeId, ValueId};
use membar_ir::program::{Argument, TensorMap};
use membar_ir::schedule::{BufferId, Region};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The memory of a session.
pub(super) struct Places {
    pub buffers: BTreeMap<BufferId, DeviceMemory>,
    pub weights: DeviceWeights,
    /// The dimension block.
    pub dims: DeviceMemory,
    /// The address of the fault record.
    pub faults: u64,
}

/// Allocates the buffers of a graph; all bytes are 0.
pub(super) fn allocate(
    context: &Arc<Context>,
    graph: &Graph,
) -> Result<BTreeMap<BufferId, DeviceMemory>, ExecutorError> {
    let mut buffers = BTreeMap::new();
    for (id, buffer) in &graph.buffers {
        let bytes = usize::try_from(buffer.bytes).unwrap_or(usize::MAX);
        let allocated = DeviceMemory::new(context, bytes);
        let mut memory = allocated.map_err(|error| ExecutorError::DeviceMemory {
            what: format!("buffer ${}", id.0),
            bytes: buffer.bytes,
            error,
        })?;
        memory.fill(0)?;
        buffers.insert(*id, memory);
    }
    Ok(buffers)
}

impl Places {
    /// The arguments of a launch of a node.
    pub fn arguments(
        &self,
        graph: &Graph,
        id: NodeId,
        list: &[Argument],
    ) -> Result<Arguments, ExecutorError> {
        let node = graph.node(id);
        let mut arguments = Arguments::new();
        for argument in list {
            arguments = match argument {
                Argument::U32(number) => arguments.value(*number),
                Argument::I64(number) => arguments.value(*number),
                Argument::TensorMap(map) => {
                    let base = self.address(graph, id, node, &map.base)?;
                    arguments.value(encode(graph, id, map, base)?)
                }
                pointer => arguments.value(self.address(graph, id, node, pointer)?),
            };
        }
        Ok(arguments)
    }

    fn address(
        &self,
        graph: &Graph,
        id: NodeId,
        node: &Node,
        argument: &Argument,
    ) -> Result<u64, ExecutorError> {
        let missing = |what: &str, index: u32| {
            let message = format!("node `{}` has no {what} {index}", node_name(graph, id));
            super::plan::error(graph, message)
        };
        match argument {
            Argument::Dims => Ok(self.dims.address()),
            Argument::Faults => Ok(self.faults),
            Argument::Operand(index) => {
                let value = node.operands().get(*index as usize);
                self.value(graph, *value.ok_or_else(|| missing("operand", *index))?)
            }
            Argument::Output(index) => {
                let value = node.outputs().get(*index as usize);
                self.value(graph, *value.ok_or_else(|| missing("output", *index))?)
            }
            Argument::Workspace(offset) => {
                let region = node.workspace.as_ref().filter(|region| *offset <= region.len);
                let start = region.and_then(|region| self.region(region));
                start.map(|start| start + offset).ok_or_else(|| {
                    let node = node_name(graph, id);
                    let message = format!("node `{node}` has no workspace of {offset} bytes");
                    super::plan::error(graph, message)
                })
            }
            Argument::U32(_) | Argument::I64(_) | Argument::TensorMap(_) => {
                let message =
                    format!("node `{}`: {argument:?} is no address", node_name(graph, id));
                Err(super::plan::error(graph, message))
            }
        }
    }

    /// Where a value begins.
    pub fn value(&self, graph: &Graph, value: ValueId) -> Result<u64, ExecutorError> {
        if let Some(address) = self.weights.address(value) {
            return Ok(address);
        }
        let region = graph.value(value).region.as_ref();
        region
            .and_then(|region| self.region(region))
            .ok_or_else(|| plan_error(graph, value, "it has no bytes on the device"))
    }

    fn region(&self, region: &Region) -> Option<u64> {
        let buffer = self.buffers.get(&region.buffer)?;
        let end = usize::try_from(region.end()?).ok()?;
        (end <= buffer.len()).then(|| buffer.address() + region.offset)
    }
}

fn encode(
    graph: &Graph,
    id: NodeId,
    map: &TensorMap,
    base: u64,
) -> Result<tensor_map::Encoded, ExecutorError> {
    let failed = |error: CudaError| ExecutorError::Launch { node: node_name(graph, id), error };
    tensor_map::encode(map, base).map_err(failed)
}
