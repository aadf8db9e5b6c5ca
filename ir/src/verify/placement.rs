//! Placement: devices, memories, schedule, buffers, regions, orders; never the order of accesses.

use super::Report;
use crate::dim::{Dim, Ranges};
use crate::graph::{Node, NodeId, NodeKind, Stage, Value, ValueId};
use crate::schedule::{Layout, Reason, Region};
use crate::text::Entity;
use crate::topology::{DeviceId, MemoryId, Topology};
use crate::types::TensorType;
use std::collections::BTreeMap;

pub(super) fn check(report: &mut Report<'_>) {
    let graph = report.graph;
    nothing_early(report);
    schedule(report);
    if graph.stage < Stage::Placed {
        return;
    }
    let Some(topology) = graph.topology.as_deref() else {
        report.fault(Entity::Graph, "the graph is placed, but names no topology");
        return;
    };
    for id in graph.nodes() {
        node(report, topology, id);
    }
    buffers(report, topology);
    if graph.stage == Stage::Scheduled {
        for id in graph.nodes() {
            let is_weight = matches!(graph.node(id).kind, NodeKind::Weight(_));
            for value in graph.node(id).outputs() {
                place(report, *value, is_weight);
            }
            workspace(report, topology, id);
        }
        orders(report);
    }
}

/// What belongs to a later stage must not be there yet.
fn nothing_early(report: &mut Report<'_>) {
    let graph = report.graph;
    let planned = !graph.buffers.is_empty() || !graph.orders.is_empty();
    if graph.stage < Stage::Scheduled && planned {
        let stage = graph.stage.word();
        report.fault(Entity::Graph, format!("stage {stage} has no buffers and orders yet"));
    }
    for id in graph.nodes() {
        let node = graph.node(id);
        let values = || node.outputs().iter().map(|value| graph.value(*value));
        let placed = node.device.is_some() || values().any(|value| value.memory.is_some());
        let planned = node.workspace.is_some()
            || node.step.is_some()
            || values().any(|value| value.region.is_some() || value.layout != Layout::Contiguous);
        if graph.stage < Stage::Placed && placed {
            report.fault(Entity::Node(id), "stage tensor has no devices and memories yet");
        }
        if graph.stage < Stage::Scheduled && planned {
            let stage = graph.stage.word();
            let message =
                format!("stage {stage} has no regions, workspaces, capacities and steps yet");
            report.fault(Entity::Node(id), message);
        }
        if node.step.is_some() && node.op().is_none() {
            report.fault(Entity::Node(id), "inputs and weights are no steps");
        }
    }
}

fn schedule(report: &mut Report<'_>) {
    let graph = report.graph;
    if graph.schedule.is_empty() {
        if graph.stage == Stage::Scheduled && graph.node_count() > 0 {
            report.fault(Entity::Graph, "the graph is scheduled, but has no schedule");
        }
        return;
    }
    let mut position: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (index, id) in graph.schedule.iter().enumerate() {
        if graph.try_node(*id).is_none() {
            report.fault(Entity::Graph, "a node of the schedule was removed");
        } else if position.insert(*id, index).is_some() {
            report.fault(Entity::Node(*id), "the schedule has the node twice");
        }
    }
    for (index, input) in graph.inputs().iter().enumerate() {
        if position.get(&graph.value(*input).producer()) != Some(&index) {
            let message = "the schedule does not begin with the inputs as they are listed";
            report.fault(Entity::Value(*input), message);
        }
    }
    for id in graph.nodes() {
        let Some(own) = position.get(&id) else {
            report.fault(Entity::Node(id), "the schedule does not have the node");
            continue;
        };
        for operand in graph.node(id).operands() {
            let producer = graph.value(*operand).producer();
            if position.get(&producer).is_some_and(|position| position >= own) {
                let message = "the node is scheduled before one whose output it reads";
                report.fault(Entity::Node(id), message);
            }
        }
    }
}

fn node(report: &mut Report<'_>, topology: &Topology, id: NodeId) {
    let graph = report.graph;
    let node = graph.node(id);
    let device = match node.device {
        None => {
            report.fault(Entity::Node(id), "the node has no device");
            None
        }
        Some(device) if topology.device(device).is_none() => {
            let name = &topology.name;
            report.fault(Entity::Node(id), format!("topology `{name}` does not have the device"));
            None
        }
        Some(device) => Some(device),
    };
    for value in node.outputs() {
        match graph.value(*value).memory {
            None => report.fault(Entity::Value(*value), "the value has no memory"),
            Some(memory) if topology.memory(memory).is_none() => {
                let name = &topology.name;
                let message = format!("topology `{name}` does not have the memory");
                report.fault(Entity::Value(*value), message);
            }
            Some(memory) => reach(report, topology, id, device, memory, "writes"),
        }
    }
    for operand in node.operands() {
        if let Some(memory) = graph.value(*operand).memory {
            reach(report, topology, id, device, memory, "reads");
        }
    }
}

fn reach(
    report: &mut Report<'_>,
    topology: &Topology,
    node: NodeId,
    device: Option<DeviceId>,
    memory: MemoryId,
    what: &str,
) {
    let Some(device) = device else { return };
    if topology.memory(memory).is_some() && !topology.reaches(device, memory) {
        let device = topology.device(device).map_or("", |device| device.name.as_str());
        let memory = topology.memory(memory).map_or("", |memory| memory.name.as_str());
        let message = format!("the node {what} `{memory}`, which `{device}` does not reach");
        report.fault(Entity::Node(node), message);
    }
}

fn buffers(report: &mut Report<'_>, topology: &Topology) {
    let mut totals: BTreeMap<MemoryId, u128> = BTreeMap::new();
    for (id, buffer) in &report.graph.buffers {
        let Some(memory) = topology.memory(buffer.memory) else {
            let message = format!("topology `{}` does not have the memory", topology.name);
            report.fault(Entity::Buffer(*id), message);
            continue;
        };
        let total = totals.entry(buffer.memory).or_insert(0);
        *total += u128::from(buffer.bytes);
        if *total > u128::from(memory.capacity) {
            let (name, capacity) = (&memory.name, memory.capacity);
            let message =
                format!("the buffers of `{name}` so far take {total} bytes, but it has {capacity}");
            report.fault(Entity::Buffer(*id), message);
        }
    }
}

/// A value's region and layout.
fn place(report: &mut Report<'_>, id: ValueId, is_weight: bool) {
    let graph = report.graph;
    let value = graph.value(id);
    let entity = Entity::Value(id);
    let region = match (&value.region, is_weight) {
        (None, true) => return,
        (None, false) => return report.fault(entity, "the value has no region"),
        (Some(_), true) => {
            return report.fault(entity, "a weight has no region: the runtime places it");
        }
        (Some(region), false) => region,
    };
    let memory = inside(report, &entity, region);
    if memory.is_some() && value.memory.is_some() && memory != value.memory {
        report.fault(entity.clone(), "the region's buffer lies in another memory than the value");
    }
    match needed(value, &graph.symbols) {
        Err(message) => report.fault(entity, message),
        Ok(needed) => {
            let bytes = region.bytes();
            if bytes.is_some_and(|bytes| bytes < needed) {
                let bytes = bytes.unwrap_or_default();
                let message =
                    format!("the region has {bytes} bytes, but {} takes up to {needed}", value.ty);
                report.fault(entity, message);
            }
        }
    }
}

/// Checks that a region lies inside its buffer, and returns the buffer's memory.
fn inside(report: &mut Report<'_>, entity: &Entity, region: &Region) -> Option<MemoryId> {
    let Some(buffer) = report.graph.buffers.get(&region.buffer) else {
        report.fault(entity.clone(), format!("buffer ${} is not declared", region.buffer.0));
        return None;
    };
    if region.end().is_none_or(|end| end > buffer.bytes) {
        let message = format!("{region} ends beyond its buffer, which has {} bytes", buffer.bytes);
        report.fault(entity.clone(), message);
    }
    let mut inner = region.len;
    for extent in region.extents.iter().rev() {
        if extent.count > 1 && extent.stride < inner {
            report.fault(entity.clone(), format!("the runs of {region} overlap each other"));
            break;
        }
        let reach = extent.count.saturating_sub(1).saturating_mul(extent.stride);
        inner = inner.saturating_add(reach);
    }
    Some(buffer.memory)
}

/// Bytes that a value takes at the upper ends of all ranges, gaps included.
fn needed(value: &Value, ranges: &Ranges) -> Result<u64, String> {
    match &value.layout {
        Layout::Contiguous => greatest_bytes(&value.ty, ranges),
        Layout::Capacity(capacity) => {
            let shape = &value.ty.shape;
            let covered = capacity.len() == shape.len()
                && shape.iter().zip(capacity).all(|(dim, room)| covers(room, dim, ranges));
            if !covered {
                let ty = TensorType::new(value.ty.dtype, capacity.clone());
                return Err(format!("the capacity {ty} does not cover {}", value.ty));
            }
            greatest_bytes(&TensorType::new(value.ty.dtype, capacity.clone()), ranges)
        }
    }
}

fn covers(room: &Dim, dim: &Dim, ranges: &Ranges) -> bool {
    let spare = (room.clone() - dim.clone()).bounds(ranges).lo;
    let (least, most) = (room.bounds(ranges).lo, dim.bounds(ranges).hi);
    spare.is_some_and(|spare| spare >= 0) || least.zip(most).is_some_and(|(a, b)| a >= b)
}

fn greatest_bytes(ty: &TensorType, ranges: &Ranges) -> Result<u64, String> {
    let overflow = || format!("the greatest size of {ty} does not fit 64 bits");
    let mut elements = 1u64;
    for dim in &ty.shape {
        let Some(most) = dim.bounds(ranges).hi else {
            return Err(format!("dimension `{dim}` of {ty} has no upper bound"));
        };
        let most = u64::try_from(most.max(0)).map_err(|_| overflow())?;
        elements = elements.checked_mul(most).ok_or_else(overflow)?;
    }
    let elements = usize::try_from(elements).map_err(|_| overflow())?;
    let bytes = ty.dtype.byte_len(elements).ok_or_else(overflow)?;
    u64::try_from(bytes).map_err(|_| overflow())
}

fn workspace(report: &mut Report<'_>, topology: &Topology, id: NodeId) {
    let node: &Node = report.graph.node(id);
    let Some(region) = &node.workspace else { return };
    if let Some(memory) = inside(report, &Entity::Node(id), region) {
        reach(report, topology, id, node.device, memory, "has its workspace in");
    }
}

fn orders(report: &mut Report<'_>) {
    let graph = report.graph;
    let schedule = graph.schedule.iter().enumerate();
    let position: BTreeMap<NodeId, usize> = schedule.map(|(index, id)| (*id, index)).collect();
    for (index, order) in graph.orders.iter().enumerate() {
        let entity = Entity::Order(index as u32);
        match (position.get(&order.before), position.get(&order.after)) {
            (Some(before), Some(after)) if before < after => {}
            (Some(_), Some(_)) => {
                report.fault(entity.clone(), "the order contradicts the schedule");
            }
            _ => report.fault(entity.clone(), "a step of the order is not in the schedule"),
        }
        if let Reason::Hazards(hazards) = &order.reason {
            for hazard in hazards {
                inside(report, &entity, &hazard.region);
            }
        }
    }
}
