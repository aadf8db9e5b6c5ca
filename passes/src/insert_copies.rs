//! `insert_copies`: copies values that cannot be read where they will lie; never plans where that
//! is.

use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::ops::{Op, Reshape};
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::types::TensorType;
use std::collections::BTreeSet;

/// A state that grows lies at its capacity, so its rows have gaps between them; a kernel that wants
/// its operand without gaps reads a copy, which a `reshape` to the same shape makes. With a library
/// whose `matmul` takes no gaps:
///
/// ```text
/// ir 1 stage placed topology "cpu"
/// graph @g(%past: f32[2, P, 8] @cpu0.dram, %new: f32[2, 1, 8] @cpu0.dram, %q: f32[2, 8, 1] @cpu0.dram) where P in 0..=63 {
///   state %past -> present {axis = 1, length = P, capacity = 64}
///   %present = append %past, %new {axis = 1} : f32[2, P + 1, 8] @cpu0.dram
///   %y = matmul %present, %q {acc = f32, result = f32} : f32[2, P + 1, 1] @cpu0.dram
///   return %present, %y
/// }
/// ```
/// becomes
/// ```text
/// ir 1 stage placed topology "cpu"
/// graph @g(%past: f32[2, P, 8] @cpu0.dram, %new: f32[2, 1, 8] @cpu0.dram, %q: f32[2, 8, 1] @cpu0.dram) where P in 0..=63 {
///   state %past -> present {axis = 1, length = P, capacity = 64}
///   %present = append %past, %new {axis = 1} : f32[2, P + 1, 8] @cpu0.dram
///   %0 = reshape %present {shape = [2, P + 1, 8]} : f32[2, P + 1, 8] @cpu0.dram
///   %y = matmul %0, %q {acc = f32, result = f32} : f32[2, P + 1, 1] @cpu0.dram
///   return %present, %y
/// }
/// ```
///
/// A state that is replaced as a whole needs an output of its own: one that is another input or a
/// weight is copied too, so that two states may exchange their contents.
///
/// # Errors
/// No kernel for an operator, or none that can make the copy.
pub fn insert_copies(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let mut faults = Vec::new();
    let mut changed = false;
    for value in gapped(graph) {
        let mut readers = Vec::new();
        for user in graph.users(value) {
            let node = graph.node(user.node);
            let Some(op) = node.op() else { continue };
            let grows = matches!(op, Op::Append(_)) && user.operand == 0;
            let (operands, outputs) = (types(graph, node.operands()), types(graph, node.outputs()));
            match cx.kernels.kernel(op, &operands, &outputs) {
                None => {
                    faults.push(format!("node `{}`: no kernel for {op}", graph.label(user.node)))
                }
                Some(spec) if grows || spec.strided_operands.contains(&user.operand) => {}
                Some(_) => readers.push(user),
            }
        }
        let Some(first) = readers.first() else { continue };
        if let Some(copy) = copy(graph, value, first.node, cx, &mut faults) {
            for user in &readers {
                graph.set_operand(user.node, user.operand as usize, copy);
            }
            changed = true;
        }
    }
    for index in 0..graph.states.len() {
        let state = graph.states[index].clone();
        let mut outputs: Vec<(_, ValueId)> =
            graph.outputs().iter().map(|output| (output.name.clone(), output.value)).collect();
        let Some((_, value)) = outputs.iter_mut().find(|(name, _)| *name == state.output) else {
            continue;
        };
        let producer = graph.value(*value).producer();
        let foreign =
            *value != state.input && !matches!(graph.node(producer).kind, NodeKind::Op(_));
        if foreign && let Some(copy) = copy(graph, *value, producer, cx, &mut faults) {
            *value = copy;
            graph.set_outputs(outputs);
            changed = true;
        }
    }
    if faults.is_empty() { Ok(changed.into()) } else { Err(PassError::Faults(faults)) }
}

/// The values that lie at a capacity: both ends of each state that grows.
pub(crate) fn gapped(graph: &Graph) -> BTreeSet<ValueId> {
    let growing = graph.states.iter().filter(|state| state.growth.is_some());
    let names: BTreeSet<&str> = growing.clone().map(|state| state.output.as_ref()).collect();
    let outputs = graph.outputs().iter().filter(|output| names.contains(output.name.as_ref()));
    growing.map(|state| state.input).chain(outputs.map(|output| output.value)).collect()
}

fn types(graph: &Graph, values: &[ValueId]) -> Vec<TensorType> {
    values.iter().map(|value| graph.ty(*value).clone()).collect()
}

/// A copy of a value, placed where the value is; it stands before `reader`.
fn copy(
    graph: &mut Graph,
    value: ValueId,
    reader: NodeId,
    cx: &PassContext,
    faults: &mut Vec<String>,
) -> Option<ValueId> {
    let ty = graph.ty(value).clone();
    let op = Op::from(Reshape { shape: ty.shape.clone() });
    let able = cx
        .kernels
        .kernel(&op, std::slice::from_ref(&ty), std::slice::from_ref(&ty))
        .is_some_and(|spec| spec.strided_operands.contains(&0));
    if !able {
        let label = graph.label(reader);
        faults.push(format!("node `{label}`: it reads a {ty} with gaps, and no kernel copies it"));
        return None;
    }
    let memory = graph.value(value).memory;
    let device = graph.node(reader).device;
    let node = graph.add_node(NodeKind::Op(op), &[value], vec![ty]);
    graph.stand_in(node, reader);
    graph.node_mut(node).device = device;
    let copy = graph.node(node).outputs()[0];
    graph.value_mut(copy).memory = memory;
    // A schedule that was chosen before does not know the copy.
    graph.schedule.clear();
    Some(copy)
}
