//! `elide_barriers`: keeps the orders that no others imply, each by its cheapest sound mechanism;
//! never drops one without a path of kept ones in its place.

use crate::size::greatest_bytes;
use membar_ir::architecture::Architecture;
use membar_ir::graph::{Graph, NodeId};
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::schedule::{Hazard, Mechanism, Order, Reason};
use membar_ir::topology::{Device, DeviceKind, Topology};
use std::collections::BTreeMap;

/// Steps run side by side in at most so many lanes; in one lane each step waits for the one before.
///
/// The figures (H200, kernels of 132 blocks unless said otherwise): a chain of programmatic edges
/// takes 0.60 to 0.76 µs a kernel, of full edges 0.98 to 1.13. One kernel, two beside each other,
/// and so on, takes 1.71 µs a pair of levels (0.57 a kernel) by programmatic edges and 2.57 (0.86 a
/// kernel) by full ones: a little better than a chain of the same edges, and on top of that what the
/// two kernels do overlaps. Wide fans pay no more on the device: eight kernels and a join by full
/// edges take 4.25 µs (one block each), as nine in a chain of programmatic ones (9 × 0.48 = 4.3),
/// but launching such a graph takes the host ten times as long (35 µs, 3 for a chain). So lanes are
/// few. They bound the edges of a step too: one from each lane.
const LANES: usize = 4;

/// A step that moves more bytes than memory can in so many microseconds runs alone. It fills the
/// device, so nothing overlaps, and what a lane saves at its edges (0.1 to 0.3 µs) is lost in it.
const LARGE: f64 = 10.0;

/// Removes every order that the others imply, and weakens the rest as far as is sound.
///
/// - An order is implied where a path of others leads from its first step to its second. Steps on
///   the path wait for all that is before them, also those with programmatic edges: every block of a
///   kernel with such an edge waits until the kernels before it have ended, so whoever waits for that
///   kernel waits for these too.
/// - Steps are put on a few lanes, and each waits for the one before it on its lane. Where no hazard
///   demands that, the order is marked `linearise`.
/// - An order is `programmatic` if the device knows that (sm_90 or newer), both steps run on it, the
///   later one promises to wait, and nothing that it reads by the asynchronous proxy lacks a fence;
///   else it is an `edge`. Costs are the topology's.
///
/// ```text
/// ir 1 stage scheduled topology "h200"
/// graph @g(%x: f32[64] @gpu0.hbm in $1[0..256]) {
///   buffer $0 = 512 @gpu0.hbm
///   buffer $1 = 512 @gpu0.hbm
///   %a = exp %x : f32[64] @gpu0.hbm in $0[0..256] step waits
///   %b = neg %a : f32[64] @gpu0.hbm in $0[256..512] step waits
///   %c = exp %b : f32[64] @gpu0.hbm in $0[0..256] step waits
///   %d = mul %c, %b : f32[64] @gpu0.hbm in $1[256..512] step
///   order %a -> %b raw $0[0..256] by edge
///   order %a -> %c waw $0[0..256] by edge
///   order %b -> %c raw $0[256..512], war $0[0..256] by edge
///   order %b -> %d raw $0[256..512] by edge
///   order %c -> %d raw $0[0..256] by edge
///   return %d
/// }
/// ```
/// becomes
/// ```text
/// ir 1 stage scheduled topology "h200"
/// graph @g(%x: f32[64] @gpu0.hbm in $1[0..256]) {
///   buffer $0 = 512 @gpu0.hbm
///   buffer $1 = 512 @gpu0.hbm
///   %a = exp %x : f32[64] @gpu0.hbm in $0[0..256] step waits
///   %b = neg %a : f32[64] @gpu0.hbm in $0[256..512] step waits
///   %c = exp %b : f32[64] @gpu0.hbm in $0[0..256] step waits
///   %d = mul %c, %b : f32[64] @gpu0.hbm in $1[256..512] step
///   order %a -> %b raw $0[0..256] by programmatic
///   order %b -> %c raw $0[256..512], war $0[0..256] by programmatic
///   order %c -> %d raw $0[0..256] by edge
///   return %d
/// }
/// ```
///
/// Like `insert_barriers` it changes nothing on a device that is no GPU.
///
/// # Errors
/// None.
pub fn elide_barriers(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let steps = Steps::new(graph);
    if steps.nodes.is_empty() {
        return Ok(Changed::No);
    }
    let before = graph.orders.len();
    let mut lanes = Lanes::default();
    let mut orders = Vec::new();
    for (step, wanted) in steps.incoming.iter().enumerate() {
        for earlier in lanes.place(&steps, step, wanted) {
            let reason = match earlier.hazards.is_empty() {
                true => Reason::Linearise,
                false => Reason::Hazards(earlier.hazards),
            };
            orders.push(Order {
                before: steps.nodes[earlier.step],
                after: steps.nodes[step],
                reason,
                mechanism: steps.mechanism(earlier.step, step),
            });
        }
    }
    cx.notes.push(note(&orders, before));
    let changed = orders != graph.orders;
    graph.orders = orders;
    Ok(changed.into())
}

fn note(orders: &[Order], before: usize) -> String {
    let count = |mechanism| orders.iter().filter(|order| order.mechanism == mechanism).count();
    let linear = orders.iter().filter(|order| order.reason == Reason::Linearise).count();
    format!(
        "{} of {before} orders: {} programmatic, {} edges; {linear} only linearise",
        orders.len(),
        count(Mechanism::Programmatic),
        count(Mechanism::Edge),
    )
}

/// An earlier step that a step must wait for, and why.
#[derive(Clone)]
struct Earlier {
    step: usize,
    hazards: Vec<Hazard>,
}

/// The steps in the order of the schedule, by number.
struct Steps {
    nodes: Vec<NodeId>,
    /// What each waits for, the latest first, each once.
    incoming: Vec<Vec<Earlier>>,
    /// Whether each can have a programmatic edge in front of it.
    waits: Vec<bool>,
    /// Whether each runs on a device where any step can.
    could_wait: Vec<bool>,
    /// Whether each runs alone.
    large: Vec<bool>,
    /// The device of each.
    devices: Vec<Option<membar_ir::topology::DeviceId>>,
}

impl Steps {
    fn new(graph: &Graph) -> Steps {
        let is_step = |id: &&NodeId| graph.node(**id).step.is_some();
        let nodes: Vec<NodeId> = graph.schedule.iter().filter(is_step).copied().collect();
        let number: BTreeMap<NodeId, usize> =
            nodes.iter().enumerate().map(|(step, id)| (*id, step)).collect();
        let mut incoming: Vec<BTreeMap<usize, Vec<Hazard>>> = vec![BTreeMap::new(); nodes.len()];
        for order in &graph.orders {
            let ends = (number.get(&order.before), number.get(&order.after));
            let (Some(before), Some(after)) = ends else { continue };
            let hazards = incoming[*after].entry(*before).or_default();
            if let Reason::Hazards(more) = &order.reason {
                hazards.extend(more.iter().cloned());
            }
        }
        let topology = graph.topology.as_deref();
        let device = |id: &NodeId| {
            let device = graph.node(*id).device?;
            topology?.device(device)
        };
        let cheaper = topology.is_some_and(programmatic_is_cheaper);
        let could_wait: Vec<bool> =
            nodes.iter().map(|id| cheaper && device(id).is_some_and(has_programmatic)).collect();
        let promises = |id: &NodeId| {
            let promise = graph.node(*id).step.as_ref();
            promise.is_some_and(|promise| {
                promise.waits && (promise.async_operands.is_empty() || promise.async_fence)
            })
        };
        Steps {
            waits: nodes
                .iter()
                .zip(&could_wait)
                .map(|(id, could)| *could && promises(id))
                .collect(),
            could_wait,
            large: nodes.iter().map(|id| is_large(graph, *id)).collect(),
            devices: nodes.iter().map(|id| graph.node(*id).device).collect(),
            incoming: incoming
                .into_iter()
                .map(|earlier| {
                    let each = earlier.into_iter().rev();
                    each.map(|(step, hazards)| Earlier { step, hazards }).collect()
                })
                .collect(),
            nodes,
        }
    }

    fn mechanism(&self, before: usize, after: usize) -> Mechanism {
        let same = self.devices[before] == self.devices[after];
        if self.waits[after] && same { Mechanism::Programmatic } else { Mechanism::Edge }
    }

    /// Whether a step gains by running beside others: it is no large one, and its edges are as cheap
    /// as those of a chain. (One full edge among programmatic ones costs as much as if all were.)
    fn parallel(&self, step: usize) -> bool {
        !self.large[step] && self.waits[step] == self.could_wait[step]
    }
}

fn programmatic_is_cheaper(topology: &Topology) -> bool {
    let cost = |mechanism| topology.order_costs.get(&mechanism);
    match (cost(Mechanism::Programmatic), cost(Mechanism::Edge)) {
        (Some(programmatic), Some(edge)) => programmatic < edge,
        // Costs that nobody has measured: the overlap cannot hurt.
        _ => true,
    }
}

/// Whether a device's kernels can have programmatic edges: NVIDIA GPUs from compute capability 9.0
/// on (PTX ISA, `griddepcontrol`).
fn has_programmatic(device: &Device) -> bool {
    let architecture: Result<Architecture, _> = device.arch.parse();
    device.kind == DeviceKind::Gpu && architecture.is_ok_and(|found| found.major >= 9)
}

/// Whether the bytes that a step reads and writes take memory longer than [`LARGE`].
fn is_large(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let values = node.operands().iter().chain(node.outputs());
    let bytes = values.map(|value| greatest_bytes(graph.ty(*value), &graph.symbols).unwrap_or(0));
    let bytes: u64 = bytes.fold(0, u64::saturating_add);
    let memory = node.outputs().first().and_then(|value| graph.value(*value).memory);
    let topology = graph.topology.as_ref();
    let memory = memory.and_then(|memory| topology?.memory(memory));
    // 10⁹ bytes a second are 10³ a microsecond.
    memory.is_some_and(|memory| bytes as f64 > LARGE * memory.bandwidth * 1e3)
}

/// The lanes, and for each step what it comes after.
#[derive(Default)]
struct Lanes {
    /// The last step of each.
    tails: Vec<usize>,
    /// The lane of each step so far.
    lane: Vec<usize>,
    /// For each step so far and each lane, one more than the last step there that is before it or is
    /// it; 0 if there is none.
    clocks: Vec<[usize; LANES]>,
}

impl Lanes {
    /// Puts the next step on a lane. Returns what it has to wait for.
    fn place(&mut self, steps: &Steps, step: usize, wanted: &[Earlier]) -> Vec<Earlier> {
        let (mut kept, mut clock) = self.reduce(wanted);
        let behind = |lane: usize, clock: &[usize; LANES]| clock[lane] == self.tails[lane] + 1;
        let (free, beside): (Vec<usize>, Vec<usize>) =
            (0..self.tails.len()).partition(|lane| behind(*lane, &clock));
        let latest = |lanes: &[usize]| lanes.iter().copied().max_by_key(|lane| self.tails[*lane]);
        let oldest = |lanes: &[usize]| lanes.iter().copied().min_by_key(|lane| self.tails[*lane]);
        let mut linear: Vec<usize> = Vec::new();
        let lane = if beside.is_empty() {
            latest(&free)
        } else if !steps.parallel(step) {
            linear.clone_from(&beside);
            latest(&beside).into_iter().chain(latest(&free)).max_by_key(|lane| self.tails[*lane])
        } else if free.is_empty() && self.tails.len() == LANES {
            linear.extend(oldest(&beside));
            oldest(&beside)
        } else {
            latest(&free)
        };
        if !linear.is_empty() {
            let tails = linear.iter().map(|lane| self.tails[*lane]);
            let tails = tails.map(|step| Earlier { step, hazards: Vec::new() });
            let mut more: Vec<Earlier> = wanted.iter().cloned().chain(tails).collect();
            more.sort_by_key(|earlier| std::cmp::Reverse(earlier.step));
            (kept, clock) = self.reduce(&more);
        }
        let lane = lane.unwrap_or(self.tails.len());
        if lane == self.tails.len() {
            self.tails.push(step);
        }
        self.tails[lane] = step;
        clock[lane] = step + 1;
        self.lane.push(lane);
        self.clocks.push(clock);
        kept
    }

    /// Of earlier steps, the latest first, those that no other of them comes after; and all that is
    /// before them. A later one cannot be before an earlier one, so one look at each suffices.
    fn reduce(&self, wanted: &[Earlier]) -> (Vec<Earlier>, [usize; LANES]) {
        let mut clock = [0; LANES];
        let mut kept = Vec::new();
        for earlier in wanted {
            if clock[self.lane[earlier.step]] > earlier.step {
                continue;
            }
            for (own, other) in clock.iter_mut().zip(&self.clocks[earlier.step]) {
                *own = (*own).max(*other);
            }
            kept.push(earlier.clone());
        }
        kept.sort_by_key(|earlier| earlier.step);
        (kept, clock)
    }
}
