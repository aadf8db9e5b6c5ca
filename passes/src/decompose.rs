//! `decompose`: replaces operators without a kernel by what they are made of; never an operator
//! that has a kernel.

use crate::common_subexpressions;
use crate::dead_code::remove_replaced;
use membar_ir::graph::{Graph, NodeId};
use membar_ir::op::Meaning;
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::types::TensorType;

/// How deep definitions may nest: attention is made of softmax, which is made of reductions, so the
/// real depth is a few.
const DEPTH: u32 = 16;

/// Inlines the composite meaning of every operator for which the kernel library has no kernel, and
/// of the operators in it. With a library that has no `softmax`:
///
/// ```text
/// graph @g(%x: f32[2, 8]) {
///   %y = softmax %x {axis = 1} : f32[2, 8]
///   return %y
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%x: f32[2, 8]) {
///   %0 = reduce %x {kind = max, axes = [1], keep = true} : f32[2, 1]
///   %1 = sub %x, %0 : f32[2, 8]
///   %2 = exp %1 : f32[2, 8]
///   %3 = reduce %2 {kind = sum, axes = [1], keep = true} : f32[2, 1]
///   %y = div %2, %3 : f32[2, 8]
///   return %y
/// }
/// ```
///
/// Definitions share what is equal in them: what several attentions make of one mask, say.
///
/// # Errors
/// Operators that have no kernel and are not made of others, all of them, with their types.
pub fn decompose(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let mut open: Vec<(NodeId, u32)> = graph.order().into_iter().map(|id| (id, 0)).collect();
    // A stack; the first node comes off first, so that copies stand in the order of the originals.
    open.reverse();
    let mut replaced = Vec::new();
    let mut faults = Vec::new();
    while let Some((id, depth)) = open.pop() {
        let node = graph.node(id);
        let Some(op) = node.op() else { continue };
        let types = |values: &[membar_ir::ValueId]| -> Vec<TensorType> {
            values.iter().map(|value| graph.ty(*value).clone()).collect()
        };
        let (operands, outputs) = (types(node.operands()), types(node.outputs()));
        if cx.kernels.kernel(op, &operands, &outputs).is_some() {
            continue;
        }
        match op.meaning(&operands) {
            Meaning::Composite(definition) if depth < DEPTH => {
                let (old, origin) = (node.outputs().to_vec(), node.origin.clone());
                let arguments = node.operands().to_vec();
                let mut added = Vec::new();
                let new = graph.inline_nodes(&definition, &arguments, &origin, &mut |node| {
                    added.push(node);
                });
                for (old, new) in old.into_iter().zip(new) {
                    if graph.value(new).name.is_none() {
                        graph.value_mut(new).name = graph.value(old).name.clone();
                    }
                    graph.replace_uses(old, new);
                }
                replaced.push(id);
                for node in &added {
                    graph.stand_in(*node, id);
                }
                open.extend(added.into_iter().rev().map(|id| (id, depth + 1)));
            }
            Meaning::Composite(_) => faults.push(format!(
                "node `{}`: the definition of {} nests more than {DEPTH} levels",
                graph.label(id),
                op.mnemonic(),
            )),
            Meaning::Scalar(_) | Meaning::Primitive(_) => faults.push(format!(
                "node `{}`: no kernel for {op} on ({}) -> ({})",
                graph.label(id),
                list(&operands),
                list(&outputs),
            )),
        }
    }
    if !faults.is_empty() {
        return Err(PassError::Faults(faults));
    }
    let changed = !replaced.is_empty();
    remove_replaced(graph, replaced);
    if changed {
        common_subexpressions(graph, cx)?;
    }
    Ok(changed.into())
}

fn list(types: &[TensorType]) -> String {
    types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
}
