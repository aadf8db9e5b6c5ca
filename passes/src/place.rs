//! `place`: gives every node a device and every value a memory; never moves data between them.

use membar_ir::graph::Graph;
use membar_ir::graph::Stage;
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::topology::DeviceKind;

/// Places everything on one device of the wanted kind, the first, and in that device's first memory:
///
/// ```text
/// ir 1 stage tensor
/// graph @g(%x: f32[4]) {
///   %y = neg %x : f32[4]
///   return %y
/// }
/// ```
/// becomes
/// ```text
/// ir 1 stage placed topology "cpu"
/// graph @g(%x: f32[4] @cpu0.dram) {
///   %y = neg %x : f32[4] @cpu0.dram
///   return %y
/// }
/// ```
///
/// # Errors
/// The topology has no such device, or the device no memory.
pub fn place(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let (topology, kind) = (cx.topology.clone(), cx.options.device);
    let Some(device) = topology.first_of(kind) else {
        let kind = DeviceKind::WORDS.iter().find(|(_, known)| *known == kind);
        return Err(PassError::fault(format!(
            "topology `{}` has no device of kind {}",
            topology.name,
            kind.map_or("", |(word, _)| word),
        )));
    };
    let Some(memory) = topology.memories_of(device).next() else {
        let name = topology.device(device).map_or("", |device| device.name.as_str());
        return Err(PassError::fault(format!(
            "device `{name}` of topology `{}` has no memory",
            topology.name,
        )));
    };
    let nodes: Vec<_> = graph.nodes().collect();
    for id in nodes {
        graph.node_mut(id).device = Some(device);
    }
    let values: Vec<_> = graph.values().collect();
    for id in values {
        graph.value_mut(id).memory = Some(memory);
    }
    graph.topology = Some(topology);
    graph.stage = Stage::Placed;
    Ok(Changed::Yes)
}
