//! `insert_barriers`: an order for every conflict between two steps, and what each step promises;
//! never leaves an order out because others imply it (that is what `elide_barriers` does).

use membar_ir::graph::{Graph, NodeId};
use membar_ir::kernel::KernelSpec;
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::schedule::{BufferId, Hazard, HazardKind, Mechanism, Order, Reason, Region};
use membar_ir::topology::DeviceKind;
use membar_ir::types::TensorType;
use std::collections::BTreeMap;

/// Orders the steps of a GPU. A step reads its operands' regions, writes its outputs' regions and
/// owns its workspace while it runs. Two steps conflict where one writes bytes that the other reads
/// or writes, also where only the memory plan or a state makes them share these bytes. Here `%c`
/// takes over the bytes that `%b` reads:
///
/// ```text
/// ir 1 stage scheduled topology "h200"
/// graph @g(%x: f32[64] @gpu0.hbm in $1[0..256]) {
///   buffer $0 = 512 @gpu0.hbm
///   buffer $1 = 512 @gpu0.hbm
///   %a = exp %x : f32[64] @gpu0.hbm in $0[0..256]
///   %b = neg %a : f32[64] @gpu0.hbm in $0[256..512]
///   %c = exp %b : f32[64] @gpu0.hbm in $0[0..256]
///   %d = mul %c, %b : f32[64] @gpu0.hbm in $1[256..512]
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
///   %d = mul %c, %b : f32[64] @gpu0.hbm in $1[256..512] step waits
///   order %a -> %b raw $0[0..256] by edge
///   order %a -> %c waw $0[0..256] by edge
///   order %b -> %c raw $0[256..512], war $0[0..256] by edge
///   order %b -> %d raw $0[256..512] by edge
///   order %c -> %d raw $0[0..256] by edge
///   return %d
/// }
/// ```
///
/// Bytes are followed from one write to the next: the steps before the last write of a byte are
/// ordered before it already, and so before everything that comes after. Nodes that launch nothing
/// ([`KernelSpec::launches`]) are no steps; their results are found by where they lie. Inputs and
/// weights are there before a run.
///
/// Nothing changes on a device that is no GPU: the CPU executor, which also stands in for devices
/// of other kinds, runs the schedule on one queue, which is an order of all steps already.
///
/// # Errors
/// An operator without a kernel.
pub fn insert_barriers(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    if !on_gpu(graph) {
        return Ok(Changed::No);
    }
    let mut specs: BTreeMap<NodeId, KernelSpec> = BTreeMap::new();
    let mut faults = Vec::new();
    for id in &graph.schedule {
        match spec(graph, cx, *id) {
            Ok(Some(spec)) => drop(specs.insert(*id, spec)),
            Ok(None) => {}
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(PassError::Faults(faults));
    }
    let mut orders = Vec::new();
    let mut accesses = Accesses::default();
    for id in graph.schedule.iter().filter(|id| specs.contains_key(*id)) {
        accesses.step(graph, *id, &mut orders);
    }
    cx.notes.push(format!("{} orders of {} steps", orders.len(), specs.len()));
    let mut changed = orders != graph.orders;
    graph.orders = orders;
    for id in graph.schedule.clone() {
        let promise = specs.get(&id).map(KernelSpec::promise);
        let node = graph.node_mut(id);
        changed |= node.step != promise;
        node.step = promise;
    }
    Ok(changed.into())
}

/// Whether a GPU runs any node.
fn on_gpu(graph: &Graph) -> bool {
    let Some(topology) = &graph.topology else { return false };
    graph.nodes().any(|id| {
        let device = graph.node(id).device.and_then(|device| topology.device(device));
        device.is_some_and(|device| device.kind == DeviceKind::Gpu)
    })
}

/// The kernel of a node that launches something.
fn spec(graph: &Graph, cx: &PassContext, id: NodeId) -> Result<Option<KernelSpec>, String> {
    let node = graph.node(id);
    let Some(op) = node.op() else { return Ok(None) };
    let types = |values: &[membar_ir::ValueId]| -> Vec<TensorType> {
        values.iter().map(|value| graph.ty(*value).clone()).collect()
    };
    match cx.kernels.kernel(op, &types(node.operands()), &types(node.outputs())) {
        Some(spec) => Ok(Some(spec).filter(|spec| spec.launches(graph, id))),
        None => Err(format!("node `{}`: no kernel for {op}", graph.label(id))),
    }
}

/// What the steps so far did to every byte, as far as later steps can conflict with it.
#[derive(Default)]
struct Accesses {
    /// Pieces of each buffer by their first byte.
    buffers: BTreeMap<BufferId, BTreeMap<u64, Piece>>,
    /// Steps so far.
    steps: Vec<NodeId>,
    /// The regions that accesses name.
    regions: Vec<Region>,
}

/// Bytes that were last accessed alike.
#[derive(Clone)]
struct Piece {
    end: u64,
    /// The last write to all of the bytes, and everything after it.
    accesses: Vec<Access>,
}

#[derive(Clone, Copy, PartialEq)]
struct Access {
    step: usize,
    region: usize,
    write: bool,
}

/// What a step does that is looked at.
struct Current<'a> {
    step: usize,
    region: &'a Region,
    write: bool,
}

/// Conflicts of a step with earlier ones: by the earlier step and the kind, the bytes.
type Conflicts = BTreeMap<(usize, HazardKind), Vec<Region>>;

impl Accesses {
    /// Adds a step, and the orders that it needs.
    fn step(&mut self, graph: &Graph, id: NodeId, orders: &mut Vec<Order>) {
        let node = graph.node(id);
        let step = self.steps.len();
        self.steps.push(id);
        let mut conflicts = Conflicts::new();
        let region = |value: &membar_ir::ValueId| graph.value(*value).region.as_ref();
        for region in node.operands().iter().filter_map(region) {
            self.access(&Current { step, region, write: false }, &mut conflicts);
        }
        for region in node.outputs().iter().filter_map(region).chain(&node.workspace) {
            self.access(&Current { step, region, write: true }, &mut conflicts);
        }
        let mut found: BTreeMap<usize, Vec<Hazard>> = BTreeMap::new();
        for ((before, kind), regions) in conflicts {
            let regions = joined(regions).into_iter();
            found.entry(before).or_default().extend(regions.map(|region| Hazard { kind, region }));
        }
        orders.extend(found.into_iter().map(|(before, hazards)| Order {
            before: self.steps[before],
            after: id,
            reason: Reason::Hazards(hazards),
            mechanism: Mechanism::Edge,
        }));
    }

    fn access(&mut self, current: &Current<'_>, conflicts: &mut Conflicts) {
        let region = current.region;
        let (begin, end) = (region.offset, region.end().unwrap_or(u64::MAX));
        if region.bytes() == Some(0) || begin >= end {
            return;
        }
        let index = self.regions.len();
        self.regions.push(region.clone());
        let access = Access { step: current.step, region: index, write: current.write };
        let pieces = self.buffers.entry(region.buffer).or_default();
        split(pieces, begin);
        split(pieces, end);
        fill(pieces, begin, end);
        for (first, piece) in pieces.range_mut(begin..end) {
            let bytes = Region::contiguous(region.buffer, *first, piece.end - first);
            for earlier in &piece.accesses {
                let kind = match (earlier.write, access.write) {
                    (true, false) => HazardKind::ReadAfterWrite,
                    (false, true) => HazardKind::WriteAfterRead,
                    (true, true) => HazardKind::WriteAfterWrite,
                    (false, false) => continue,
                };
                let other = &self.regions[earlier.region];
                if earlier.step != access.step && other.overlaps(region) {
                    let bytes = common(other, region, &bytes);
                    conflicts.entry((earlier.step, kind)).or_default().push(bytes);
                }
            }
            // Nothing can conflict with what lies before a write of the same bytes but through it.
            let regions = &self.regions;
            let whole =
                |earlier: &Access| region.extents.is_empty() || regions[earlier.region] == *region;
            if access.write {
                piece.accesses.retain(|earlier| !whole(earlier));
            }
            if !piece.accesses.contains(&access) {
                piece.accesses.push(access);
            }
        }
        // Two neighbours that were only read or only written by this step alone are one again.
        if access.write && region.extents.is_empty() {
            let inner: Vec<u64> =
                pieces.range(begin..end).skip(1).map(|(first, _)| *first).collect();
            inner.iter().for_each(|first| drop(pieces.remove(first)));
            if let Some(piece) = pieces.get_mut(&begin) {
                piece.end = end;
            }
        }
    }
}

/// Makes a piece begin at a byte if one goes over it.
fn split(pieces: &mut BTreeMap<u64, Piece>, at: u64) {
    let Some((_, piece)) = pieces.range_mut(..at).next_back() else { return };
    if piece.end > at {
        let right = piece.clone();
        piece.end = at;
        pieces.insert(at, right);
    }
}

/// Makes pieces of the bytes that nothing has accessed yet.
fn fill(pieces: &mut BTreeMap<u64, Piece>, begin: u64, end: u64) {
    let mut gaps = Vec::new();
    let mut next = begin;
    for (first, piece) in pieces.range(begin..end) {
        if *first > next {
            gaps.push((next, *first));
        }
        next = piece.end;
    }
    if next < end {
        gaps.push((next, end));
    }
    for (first, end) in gaps {
        pieces.insert(first, Piece { end, accesses: Vec::new() });
    }
}

/// The bytes of a piece that two overlapping regions have in common, or a few more.
fn common(earlier: &Region, later: &Region, piece: &Region) -> Region {
    let within = |inner: &Region, outer: &Region| {
        outer.extents.is_empty()
            && inner.offset >= outer.offset
            && inner.end().is_some_and(|end| outer.end().is_some_and(|outer| end <= outer))
    };
    match (earlier.extents.is_empty(), later.extents.is_empty()) {
        (true, true) => piece.clone(),
        (false, true) if within(earlier, later) => earlier.clone(),
        (true, false) if within(later, earlier) => later.clone(),
        (false, false) if earlier == later => later.clone(),
        _ => piece.clone(),
    }
}

/// Regions in order, each once, neighbours joined.
fn joined(mut regions: Vec<Region>) -> Vec<Region> {
    regions.sort();
    let mut result: Vec<Region> = Vec::new();
    for region in regions {
        match result.last_mut() {
            Some(last) if *last == region => {}
            Some(last)
                if last.buffer == region.buffer
                    && last.extents.is_empty()
                    && region.extents.is_empty()
                    && last.offset + last.len >= region.offset =>
            {
                let end = (last.offset + last.len).max(region.offset + region.len);
                last.len = end - last.offset;
            }
            _ => result.push(region),
        }
    }
    result
}
