//! Regions of a graph: what is rewritten together, described so that equal regions are equal; never
//! a rewritten one.

use super::language::Leaf;
use membar_ir::attribute::Float;
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::ops::{Op, Scalar};
use membar_ir::types::TensorType;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// Boundaries are chosen by what stands within so many nodes on either side, so that they fall on the
/// same places of repeated blocks.
const WINDOW: usize = 24;

/// The most nodes that a region is responsible for.
const CORE: usize = 8 * WINDOW;

/// The most nodes before its own that a region looks at: the largest pattern, a mask and an attention
/// spelled out, has some forty.
const CONTEXT: usize = 128;

/// How many operators back boundaries look.
const DEPTH: usize = 6;

/// The most elements of a constant that are looked at.
const CONSTANT: usize = 1 << 12;

/// A part of a graph: the nodes that it is responsible for (its core, a run in execution order), and
/// nodes before them (its context) that patterns may reach into. Rewriting replaces values of the core.
pub(super) struct Region {
    /// What it computes, without handles.
    pub shape: Shape,
    /// The context, then the core, each in execution order.
    pub nodes: Vec<NodeId>,
    /// Where the leaves come from.
    pub leaves: Vec<ValueId>,
}

/// A region without handles: equal shapes are rewritten once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub leaves: Vec<Leaf>,
    pub nodes: Vec<ShapeNode>,
    /// How many of the nodes, at the beginning, are context.
    pub context: usize,
}

/// An operator of a region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShapeNode {
    pub op: Arc<Op>,
    pub operands: Vec<Source>,
    pub outputs: Vec<TensorType>,
    /// Which outputs are read outside of the region, or are the graph's.
    pub kept: Vec<bool>,
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Source {
    /// A leaf of the region.
    Leaf(u32),
    /// An output of a node of the region.
    Output(Place),
}

/// An output of a node of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub node: u32,
    pub output: u32,
}

/// The regions of a graph, in execution order: every operator is in the core of one. Regions for which
/// `relevant` holds for no operator are left out.
pub(super) fn regions(graph: &Graph, relevant: &dyn Fn(&Op) -> bool) -> Vec<Region> {
    let order: Vec<NodeId> =
        graph.order().into_iter().filter(|id| graph.node(*id).op().is_some()).collect();
    let mut position = vec![usize::MAX; graph.node_bound()];
    for (index, id) in order.iter().enumerate() {
        position[id.index()] = index;
    }
    let mut regions = Vec::new();
    let is_relevant = |id: &NodeId| graph.node(*id).op().is_some_and(relevant);
    if !order.iter().any(is_relevant) {
        return regions;
    }
    let hashes = hashes(graph, &order, &position);
    let mut start = 0;
    for end in boundaries(&hashes) {
        let core = &order[start..end];
        let context = context(graph, core, &position, start);
        if core.iter().chain(&context).any(is_relevant) {
            regions.push(region(graph, context, core, &position, start..end));
        }
        start = end;
    }
    regions
}

/// A hash of what leads to each operator, some operators back.
fn hashes(graph: &Graph, order: &[NodeId], position: &[usize]) -> Vec<u64> {
    let hash = |write: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        write(&mut hasher);
        hasher.finish()
    };
    let first: Vec<u64> = order
        .iter()
        .map(|id| {
            let node = graph.node(*id);
            hash(&|hasher| {
                node.op().hash(hasher);
                node.operands().iter().for_each(|value| graph.ty(*value).hash(hasher));
            })
        })
        .collect();
    let mut hashes = first.clone();
    for _ in 0..DEPTH {
        let before = hashes;
        let combined = |(index, id): (usize, &NodeId)| {
            hash(&|hasher| {
                first[index].hash(hasher);
                for value in graph.node(*id).operands() {
                    let at = position[graph.value(*value).producer().index()];
                    before.get(at).hash(hasher);
                }
            })
        };
        hashes = order.iter().enumerate().map(combined).collect();
    }
    hashes
}

/// Where regions end: behind the least hash within a window, and where a region would become too
/// large.
fn boundaries(hashes: &[u64]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut start = 0;
    for (index, hash) in hashes.iter().enumerate() {
        let near = index.saturating_sub(WINDOW)..(index + WINDOW + 1).min(hashes.len());
        let least = hashes[near].iter().all(|other| hash <= other);
        let size = index + 1 - start;
        if size >= CORE || (least && size >= WINDOW) || index + 1 == hashes.len() {
            ends.push(index + 1);
            start = index + 1;
        }
    }
    ends
}

/// Describes a region whose core stands at those positions.
fn region(
    graph: &Graph,
    mut context: Vec<NodeId>,
    core: &[NodeId],
    position: &[usize],
    at: Range<usize>,
) -> Region {
    context.sort_unstable_by_key(|id| position[id.index()]);
    let nodes: Vec<NodeId> = context.iter().chain(core).copied().collect();
    let places: HashMap<NodeId, u32> = nodes.iter().copied().zip(0..).collect();
    let mut leaves: Vec<ValueId> = Vec::new();
    let mut leaf_numbers: HashMap<ValueId, u32> = HashMap::new();
    let mut described = Vec::new();
    let shape_nodes = nodes
        .iter()
        .map(|id| {
            let node = graph.node(*id);
            let source = |value: &ValueId| {
                let producer = graph.value(*value).producer();
                if let Some(node) = places.get(&producer) {
                    let output = graph.value(*value).output_index() as u32;
                    return Source::Output(Place { node: *node, output });
                }
                Source::Leaf(*leaf_numbers.entry(*value).or_insert_with(|| {
                    leaves.push(*value);
                    described.push(leaf(graph, *value));
                    leaves.len() as u32 - 1
                }))
            };
            let operands = node.operands().iter().map(source).collect();
            // A value with many readers has one outside; it is not worth looking for.
            let kept = |value: &ValueId| {
                graph.is_output(*value)
                    || graph.uses(*value).any(|user| {
                        let reader = position[user.node.index()];
                        reader >= at.end || (reader < at.start && !places.contains_key(&user.node))
                    })
            };
            ShapeNode {
                op: Arc::new(node.op().cloned().unwrap_or_else(|| unreachable!("operators alone"))),
                operands,
                outputs: node.outputs().iter().map(|value| graph.ty(*value).clone()).collect(),
                kept: node.outputs().iter().map(kept).collect(),
            }
        })
        .collect();
    let shape = Shape { leaves: described, nodes: shape_nodes, context: context.len() };
    Region { shape, nodes, leaves }
}

/// The operators before a core that patterns may reach into: nearest first, up to a number, and not
/// through those that no pattern looks through.
fn context(graph: &Graph, core: &[NodeId], position: &[usize], start: usize) -> Vec<NodeId> {
    let mut found: Vec<NodeId> = Vec::new();
    let mut seen: HashSet<NodeId> = HashSet::new();
    let mut layer: Vec<NodeId> = core.to_vec();
    while !layer.is_empty() && found.len() < CONTEXT {
        let mut next = Vec::new();
        for id in &layer {
            for value in graph.node(*id).operands() {
                let producer = graph.value(*value).producer();
                let before = graph.node(producer).op().is_some()
                    && position[producer.index()] < start
                    && !is_boundary(graph, producer);
                if before && seen.insert(producer) {
                    next.push(producer);
                }
            }
        }
        next.truncate(CONTEXT - found.len());
        found.extend(&next);
        layer = next;
    }
    found
}

/// Whether no pattern looks through an operator: a product with a weight, and a sum with one, be it with
/// a bias or with what goes around a block. Without the latter, every block would see all before it.
fn is_boundary(graph: &Graph, id: NodeId) -> bool {
    let operands = || graph.node(id).operands().iter();
    match graph.node(id).op() {
        Some(Op::Scalar(Scalar::Add)) => {
            operands().any(|value| is_product(graph, graph.value(*value).producer()))
        }
        _ => is_product(graph, id),
    }
}

/// Whether an operator multiplies by a weight, or looks something up in one.
fn is_product(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let product = matches!(
        node.op(),
        Some(Op::Matmul(_) | Op::Conv(_) | Op::ConvTranspose(_) | Op::Gather(_))
    );
    product && node.operands().iter().any(|value| is_weight(graph, *value))
}

fn is_weight(graph: &Graph, value: ValueId) -> bool {
    matches!(graph.node(graph.value(value).producer()).kind, NodeKind::Weight(_))
}

fn leaf(graph: &Graph, value: ValueId) -> Leaf {
    let ty = graph.ty(value).clone();
    let node = graph.node(graph.value(value).producer());
    let NodeKind::Weight(recipe) = &node.kind else {
        return Leaf { ty, uniform: None, weight: false };
    };
    let small = recipe.as_literal().filter(|t| (1..=CONSTANT).contains(&t.elements()));
    let uniform = small.and_then(|tensor| {
        let first = Float(tensor.get(0).to_float());
        tensor.numbers().all(|number| Float(number.to_float()) == first).then_some(first)
    });
    Leaf { ty, uniform, weight: true }
}
