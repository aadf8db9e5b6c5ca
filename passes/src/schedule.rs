//! `schedule`: chooses an execution order; never one that needs more memory than creation order.

use crate::insert_copies::gapped;
use crate::size::{NoSize, greatest, greatest_bytes};
use membar_ir::graph::{Graph, NodeId, NodeKind};
use membar_ir::kernel::{InPlace, KernelSpec};
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::types::TensorType;
use std::collections::BTreeSet;

/// Orders the nodes so that the memory of live values stays low: inputs first, weights before their
/// first reader. Here `%b` is made before `%d`, so that the 4,096 elements of `%a` can go:
///
/// ```text
/// ir 1 stage placed topology "cpu"
/// graph @g(%x: f32[4096] @cpu0.dram) {
///   %a = exp %x : f32[4096] @cpu0.dram
///   %c = neg %x : f32[4096] @cpu0.dram
///   %b = reduce %a {kind = sum, axes = [0], keep = false} : f32[] @cpu0.dram
///   %d = reduce %c {kind = sum, axes = [0], keep = false} : f32[] @cpu0.dram
///   return %b, %d
/// }
/// ```
/// becomes
/// ```text
/// ir 1 stage placed topology "cpu"
/// graph @g(%x: f32[4096] @cpu0.dram) {
///   %a = exp %x : f32[4096] @cpu0.dram
///   %b = reduce %a {kind = sum, axes = [0], keep = false} : f32[] @cpu0.dram
///   %c = neg %x : f32[4096] @cpu0.dram
///   %d = reduce %c {kind = sum, axes = [0], keep = false} : f32[] @cpu0.dram
///   return %b, %d
/// }
/// ```
///
/// Three orders compete on the peak of live bytes: creation order, depth first with the hungriest
/// operand first (after Sethi and Ullman, 1970), and greedily whatever frees most.
///
/// # Errors
/// None: sizes that have no upper end count as large here, and are refused by `plan_memory`.
pub fn schedule(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let costs = Costs::new(graph, cx);
    let created = operators(graph, &graph.order());
    let created_peak = costs.peak(graph, &created);
    let mut best = (created_peak, created);
    for order in [costs.depth_first(graph, &best.1), costs.greedy(graph, &best.1)] {
        let peak = costs.peak(graph, &order);
        if peak < best.0 {
            best = (peak, order);
        }
    }
    cx.notes.push(format!(
        "{} live at most; {created_peak} in creation order",
        crate::size::shown(best.0)
    ));
    let order = complete(graph, &best.1);
    let changed = order != graph.schedule;
    graph.schedule = order;
    Ok(changed.into())
}

fn operators(graph: &Graph, order: &[NodeId]) -> Vec<NodeId> {
    order.iter().copied().filter(|id| graph.node(*id).op().is_some()).collect()
}

/// The order of operators with inputs at the front and each weight before its first reader.
fn complete(graph: &Graph, operators: &[NodeId]) -> Vec<NodeId> {
    let mut done = vec![false; graph.node_bound()];
    let mut order: Vec<NodeId> = Vec::with_capacity(graph.node_count());
    let mut add = |id: NodeId, order: &mut Vec<NodeId>| {
        if !std::mem::replace(&mut done[id.index()], true) {
            order.push(id);
        }
    };
    for input in graph.inputs() {
        add(graph.value(*input).producer(), &mut order);
    }
    for id in operators {
        for operand in graph.node(*id).operands() {
            let producer = graph.value(*operand).producer();
            if let NodeKind::Weight(_) = graph.node(producer).kind {
                add(producer, &mut order);
            }
        }
        add(*id, &mut order);
    }
    for id in graph.order() {
        add(id, &mut order);
    }
    order
}

/// What each node takes from memory and gives back. A *root* is the value whose bytes an alias
/// shows again.
struct Costs {
    /// Bytes that a value takes in the arena, by value; 0 for aliases and what lies elsewhere.
    bytes: Vec<u64>,
    /// The root of a value, by value.
    root: Vec<usize>,
    /// The operators that read a root, each once, by root.
    readers: Vec<Vec<NodeId>>,
    /// Scratch bytes, by node.
    workspace: Vec<u64>,
    /// What may happen in place, by node.
    in_place: Vec<Vec<InPlace>>,
}

impl Costs {
    fn new(graph: &Graph, cx: &PassContext) -> Costs {
        let mut costs = Costs {
            bytes: vec![0; graph.value_bound()],
            root: (0..graph.value_bound()).collect(),
            readers: vec![Vec::new(); graph.value_bound()],
            workspace: vec![0; graph.node_bound()],
            in_place: vec![Vec::new(); graph.node_bound()],
        };
        let gapped = gapped(graph);
        for id in graph.order() {
            let node = graph.node(id);
            let Some(op) = node.op() else { continue };
            let types = |values: &[membar_ir::ValueId]| -> Vec<TensorType> {
                values.iter().map(|value| graph.ty(*value).clone()).collect()
            };
            let (operands, outputs) = (types(node.operands()), types(node.outputs()));
            let spec = cx.kernels.kernel(op, &operands, &outputs).unwrap_or_default();
            for root in costs.roots(graph, id) {
                costs.readers[root].push(id);
            }
            for (index, (value, ty)) in node.outputs().iter().zip(&outputs).enumerate() {
                let aliased = aliased_operand(&spec, index).map(|operand| node.operands()[operand]);
                match aliased.filter(|operand| !gapped.contains(operand)) {
                    Some(operand) => costs.root[value.index()] = costs.root[operand.index()],
                    None if graph.is_output(*value) => {}
                    None => costs.bytes[value.index()] = assumed_bytes(graph, ty),
                }
            }
            costs.workspace[id.index()] = match greatest(&spec.workspace, &graph.symbols) {
                Ok(bytes) => bytes,
                Err(NoSize::Unbounded(_) | NoSize::Overflow) => LARGE,
            };
            costs.in_place[id.index()] = spec.in_place;
        }
        costs
    }

    /// The roots that an operator reads, each once.
    fn roots(&self, graph: &Graph, id: NodeId) -> Vec<usize> {
        let operands = graph.node(id).operands().iter();
        let mut roots: Vec<usize> = operands.map(|value| self.root[value.index()]).collect();
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    /// Bytes that an operator's outputs take.
    fn made(&self, graph: &Graph, id: NodeId) -> u64 {
        let outputs = graph.node(id).outputs().iter().map(|value| self.bytes[value.index()]);
        outputs.fold(0, u64::saturating_add)
    }

    /// How many operators have yet to read each root.
    fn unread(&self) -> Vec<usize> {
        self.readers.iter().map(Vec::len).collect()
    }

    /// The most bytes that are live at once in that order.
    fn peak(&self, graph: &Graph, order: &[NodeId]) -> u64 {
        let mut unread = self.unread();
        let (mut live, mut peak) = (0u64, 0u64);
        for id in order {
            let node = graph.node(*id);
            let mut freed = 0u64;
            for root in self.roots(graph, *id) {
                unread[root] -= 1;
                if unread[root] == 0 {
                    freed = freed.saturating_add(self.bytes[root]);
                }
            }
            let mut reused = 0u64;
            for pair in &self.in_place[id.index()] {
                let operand = node.operands()[pair.operand as usize];
                let output = node.outputs()[pair.output as usize];
                let bytes = self.bytes[self.root[operand.index()]];
                if unread[self.root[operand.index()]] == 0 && bytes == self.bytes[output.index()] {
                    reused = reused.max(bytes);
                }
            }
            let made = self.made(graph, *id);
            let during = live.saturating_add(made).saturating_add(self.workspace[id.index()]);
            peak = peak.max(during.saturating_sub(reused));
            live = live.saturating_add(made).saturating_sub(freed);
            for value in node.outputs() {
                if self.readers[value.index()].is_empty() {
                    live = live.saturating_sub(self.bytes[value.index()]);
                }
            }
        }
        peak
    }

    /// Each output's operators before the next output's; of a node's operands the one whose making
    /// needs most memory first.
    fn depth_first(&self, graph: &Graph, created: &[NodeId]) -> Vec<NodeId> {
        let need = self.needs(graph, created);
        let mut state = vec![Visit::New; graph.node_bound()];
        let mut order = Vec::with_capacity(created.len());
        let outputs = graph.outputs().iter().map(|output| graph.value(output.value).producer());
        for start in outputs.chain(created.iter().copied()) {
            let mut open = vec![start];
            while let Some(id) = open.pop() {
                match state[id.index()] {
                    Visit::New => {
                        state[id.index()] = Visit::Open;
                        open.push(id);
                        let mut before = self.producers(graph, id);
                        before.retain(|producer| state[producer.index()] == Visit::New);
                        // The last comes off the stack first.
                        before.sort_by_key(|producer| need[producer.index()]);
                        open.extend(before);
                    }
                    Visit::Open => {
                        state[id.index()] = Visit::Done;
                        if graph.node(id).op().is_some() {
                            order.push(id);
                        }
                    }
                    Visit::Done => {}
                }
            }
        }
        order
    }

    /// Bytes that it takes to make each node's outputs when nothing else is live, as if no value
    /// had two readers.
    fn needs(&self, graph: &Graph, created: &[NodeId]) -> Vec<u64> {
        let mut need = vec![0u64; graph.node_bound()];
        for id in created {
            let mut before: Vec<(u64, u64)> = self
                .producers(graph, *id)
                .into_iter()
                .map(|producer| (need[producer.index()], self.made(graph, producer)))
                .collect();
            before.sort_unstable_by(|a, b| b.cmp(a));
            let (mut held, mut most) = (0u64, 0u64);
            for (need, made) in before {
                most = most.max(held.saturating_add(need));
                held = held.saturating_add(made);
            }
            let own = self.made(graph, *id).saturating_add(self.workspace[id.index()]);
            need[id.index()] = most.max(held.saturating_add(own));
        }
        need
    }

    /// The operators whose values a node reads, each once.
    fn producers(&self, graph: &Graph, id: NodeId) -> Vec<NodeId> {
        let operands = graph.node(id).operands().iter();
        let mut producers: Vec<NodeId> = operands
            .map(|value| graph.value(*value).producer())
            .filter(|producer| graph.node(*producer).op().is_some())
            .collect();
        producers.sort_unstable();
        producers.dedup();
        producers
    }

    /// Always the ready operator after which the least is live; the first created among equals.
    fn greedy(&self, graph: &Graph, created: &[NodeId]) -> Vec<NodeId> {
        let mut rank = vec![0usize; graph.node_bound()];
        let mut waiting = vec![0usize; graph.node_bound()];
        let mut followers: Vec<Vec<NodeId>> = vec![Vec::new(); graph.node_bound()];
        for (position, id) in created.iter().enumerate() {
            rank[id.index()] = position;
            let before = self.producers(graph, *id);
            waiting[id.index()] = before.len();
            for producer in before {
                followers[producer.index()].push(*id);
            }
        }
        let mut unread = self.unread();
        let score = |id: NodeId, unread: &[usize]| -> i128 {
            let freed = self.roots(graph, id).into_iter().filter(|root| unread[*root] == 1);
            let freed: i128 = freed.map(|root| i128::from(self.bytes[root])).sum();
            i128::from(self.made(graph, id)) - freed
        };
        let mut scores = vec![0i128; graph.node_bound()];
        let mut ready = BTreeSet::new();
        for id in created.iter().filter(|id| waiting[id.index()] == 0) {
            scores[id.index()] = score(*id, &unread);
            ready.insert((scores[id.index()], rank[id.index()], *id));
        }
        let mut done = vec![false; graph.node_bound()];
        let mut order = Vec::with_capacity(created.len());
        while let Some((_, _, id)) = ready.pop_first() {
            order.push(id);
            done[id.index()] = true;
            for root in self.roots(graph, id) {
                unread[root] -= 1;
                if unread[root] != 1 {
                    continue;
                }
                // One reader is left: it has become more attractive.
                let last = self.readers[root].iter().find(|reader| !done[reader.index()]);
                if let Some(last) = last {
                    let key = (scores[last.index()], rank[last.index()], *last);
                    if ready.remove(&key) {
                        scores[last.index()] = score(*last, &unread);
                        ready.insert((scores[last.index()], rank[last.index()], *last));
                    }
                }
            }
            for follower in std::mem::take(&mut followers[id.index()]) {
                waiting[follower.index()] -= 1;
                if waiting[follower.index()] == 0 {
                    scores[follower.index()] = score(follower, &unread);
                    ready.insert((scores[follower.index()], rank[follower.index()], follower));
                }
            }
        }
        order
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Visit {
    New,
    Open,
    Done,
}

/// What a size without an upper end counts as.
const LARGE: u64 = 1 << 40;

fn assumed_bytes(graph: &Graph, ty: &TensorType) -> u64 {
    greatest_bytes(ty, &graph.symbols).unwrap_or(LARGE)
}

/// The operand whose bytes an output shows, if the kernel says so.
pub(crate) fn aliased_operand(spec: &KernelSpec, output: usize) -> Option<usize> {
    let pair = spec.alias.filter(|pair| pair.output as usize == output)?;
    Some(pair.operand as usize)
}
