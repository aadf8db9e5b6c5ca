//! `common_subexpressions`: computes what is equal once; never merges inputs.

use crate::dead_code::remove_replaced;
use membar_ir::graph::{Graph, NodeId, NodeKind};
use membar_ir::pass::{Changed, PassContext, PassError};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Merges operators of the same kind, attributes and operands, and weights of the same recipe, into
/// the first of them:
///
/// ```text
/// graph @g(%x: f32[4]) {
///   %a = neg %x : f32[4]
///   %b = neg %x : f32[4]
///   %c = add %a, %b : f32[4]
///   return %c
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%x: f32[4]) {
///   %a = neg %x : f32[4]
///   %c = add %a, %a : f32[4]
///   return %c
/// }
/// ```
///
/// # Errors
/// None.
pub fn common_subexpressions(
    graph: &mut Graph,
    _cx: &mut PassContext,
) -> Result<Changed, PassError> {
    // The map is looked up, never iterated, so its order reaches nothing.
    let mut seen: HashMap<u64, Vec<NodeId>> = HashMap::new();
    let mut merged = Vec::new();
    for id in graph.order() {
        let Some(hash) = hash(graph, id) else { continue };
        let candidates = seen.entry(hash).or_default();
        match candidates.iter().find(|first| equal(graph, **first, id)) {
            None => candidates.push(id),
            Some(first) => {
                let (old, new) = (graph.node(id).outputs().to_vec(), *first);
                let new = graph.node(new).outputs().to_vec();
                for (old, new) in old.into_iter().zip(new) {
                    if graph.value(new).name.is_none() {
                        graph.value_mut(new).name = graph.value(old).name.clone();
                    }
                    graph.replace_uses(old, new);
                }
                merged.push(id);
            }
        }
    }
    let changed = !merged.is_empty();
    remove_replaced(graph, merged);
    Ok(changed.into())
}

/// A hash of what a node computes; `None` for an input.
fn hash(graph: &Graph, id: NodeId) -> Option<u64> {
    let node = graph.node(id);
    let mut hasher = DefaultHasher::new();
    match &node.kind {
        NodeKind::Input => return None,
        NodeKind::Weight(recipe) => recipe.hash(&mut hasher),
        NodeKind::Op(op) => op.hash(&mut hasher),
    }
    node.operands().hash(&mut hasher);
    Some(hasher.finish())
}

fn equal(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let (a, b) = (graph.node(a), graph.node(b));
    a.operands() == b.operands()
        && a.outputs().len() == b.outputs().len()
        && a.outputs().iter().zip(b.outputs()).all(|(a, b)| graph.ty(*a) == graph.ty(*b))
        && a.kind == b.kind
}
