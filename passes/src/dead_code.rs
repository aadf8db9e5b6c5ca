//! `dead_code`: removes what nobody needs; never an input, which is part of the interface.

use membar_ir::graph::{Graph, NodeId, NodeKind};
use membar_ir::pass::{Changed, PassContext, PassError};

/// Removes the operators and weights that no output depends on:
///
/// ```text
/// graph @g(%x: f32[4], %unused: f32[4]) {
///   %a = neg %x : f32[4]
///   %b = exp %x : f32[4]
///   return %a
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%x: f32[4], %unused: f32[4]) {
///   %a = neg %x : f32[4]
///   return %a
/// }
/// ```
///
/// # Errors
/// None.
pub fn dead_code(graph: &mut Graph, _cx: &mut PassContext) -> Result<Changed, PassError> {
    let mut needed = vec![false; graph.node_bound()];
    let mut open: Vec<NodeId> =
        graph.outputs().iter().map(|output| graph.value(output.value).producer()).collect();
    while let Some(id) = open.pop() {
        if !std::mem::replace(&mut needed[id.index()], true) {
            let operands = graph.node(id).operands().iter();
            open.extend(operands.map(|value| graph.value(*value).producer()));
        }
    }
    let dead: Vec<NodeId> = graph
        .order()
        .into_iter()
        .filter(|id| !needed[id.index()] && graph.node(*id).kind != NodeKind::Input)
        .collect();
    // Readers go before what they read.
    for id in dead.iter().rev() {
        graph.remove_node(*id);
    }
    Ok((!dead.is_empty()).into())
}

/// Removes nodes that a pass has put others in the place of, and what nobody reads any more then.
/// `replaced` is in topological order.
pub(crate) fn remove_replaced(graph: &mut Graph, replaced: Vec<NodeId>) {
    let mut open = replaced;
    while let Some(id) = open.pop() {
        // A node that two removed ones read comes twice.
        let Some(node) = graph.try_node(id) else { continue };
        if node.kind == NodeKind::Input {
            continue;
        }
        let operands = node.operands().to_vec();
        let producers: Vec<NodeId> =
            operands.iter().map(|value| graph.value(*value).producer()).collect();
        if graph.remove_node(id) {
            open.extend(producers);
        }
    }
}
