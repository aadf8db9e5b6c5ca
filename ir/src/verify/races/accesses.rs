//! What steps read and write, and which two accesses meet at a byte with nothing between them; never
//! whether they are ordered.

use crate::graph::{Graph, NodeId};
use crate::schedule::{BufferId, HazardKind, Region};
use std::collections::{BTreeMap, BTreeSet};

/// A step reads or writes a region.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The step's number; steps are numbered in the order of the schedule.
    pub step: u32,
    pub region: Region,
    pub write: bool,
    /// Whether the asynchronous proxy reads it, without a fence before.
    pub proxy: bool,
}

/// Two steps, the earlier first, that conflict.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    pub pair: (u32, u32),
    pub kind: HazardKind,
    pub region: Region,
}

/// All accesses of steps, in the order of the steps.
pub(super) fn of(graph: &Graph, steps: &[NodeId]) -> Vec<Access> {
    let mut accesses = Vec::new();
    for (step, id) in (0..).zip(steps) {
        let node = graph.node(*id);
        for (operand, value) in (0..).zip(node.operands()) {
            // Weights have no region, and are what no step can write.
            let Some(region) = graph.value(*value).region.clone() else { continue };
            let proxy = node.step.as_ref().is_some_and(|promise| {
                !promise.async_fence && promise.async_operands.contains(&operand)
            });
            accesses.push(Access { step, region, write: false, proxy });
        }
        let outputs = node.outputs().iter().filter_map(|v| graph.value(*v).region.as_ref());
        for region in outputs.chain(&node.workspace) {
            accesses.push(Access { step, region: region.clone(), write: true, proxy: false });
        }
    }
    accesses.retain(|access| access.region.bytes() != Some(0));
    accesses
}

/// Which accesses each step has.
pub(super) fn by_step(accesses: &[Access], steps: usize) -> Vec<Vec<usize>> {
    let mut result = vec![Vec::new(); steps];
    for (index, access) in accesses.iter().enumerate() {
        result[access.step as usize].push(index);
    }
    result
}

/// Whether two steps conflict in that way; if asked, at a byte of that region.
pub(super) fn conflict(
    accesses: &[Access],
    earlier: &[usize],
    later: &[usize],
    kind: HazardKind,
    region: Option<&Region>,
) -> bool {
    let fits = |a: &Access, b: &Access| {
        let found = match (a.write, b.write) {
            (true, false) => HazardKind::ReadAfterWrite,
            (false, true) => HazardKind::WriteAfterRead,
            (true, true) => HazardKind::WriteAfterWrite,
            (false, false) => return false,
        };
        let touched = region.is_none_or(|r| r.overlaps(&a.region) && r.overlaps(&b.region));
        kind == found && touched && a.region.overlaps(&b.region)
    };
    earlier.iter().any(|a| later.iter().any(|b| fits(&accesses[*a], &accesses[*b])))
}

/// Accesses to one byte: by time, and by number among those of one step.
#[derive(Default)]
struct Here {
    reads: BTreeSet<(u32, usize)>,
    /// Writes, and whether each covers its whole hull.
    writes: BTreeMap<(u32, usize), bool>,
}

/// Where regions begin and end in a buffer.
#[derive(Default)]
struct Events {
    ends: Vec<usize>,
    begins: Vec<usize>,
}

/// Calls `meet` with two accesses, the earlier first, for every two that conflict at some byte with
/// no write to all bytes there between them in time. If all these are ordered, all conflicts are:
/// of two others, the one is before a write between them, and that before the other.
pub(super) fn conflicts(accesses: &[Access], meet: &mut dyn FnMut(usize, usize)) {
    let mut buffers: BTreeMap<BufferId, BTreeMap<u64, Events>> = BTreeMap::new();
    for (index, access) in accesses.iter().enumerate() {
        let events = buffers.entry(access.region.buffer).or_default();
        events.entry(access.region.offset).or_default().begins.push(index);
        let end = access.region.end().unwrap_or(u64::MAX);
        events.entry(end).or_default().ends.push(index);
    }
    for events in buffers.into_values() {
        let mut here = Here::default();
        for Events { ends, begins } in events.into_values() {
            for index in &ends {
                here.remove(accesses, *index);
            }
            for index in &begins {
                here.insert(accesses, *index);
            }
            let mut touching = |a: usize, b: usize| {
                let (x, y) = (&accesses[a].region, &accesses[b].region);
                let whole = x.extents.is_empty() && y.extents.is_empty();
                if whole || x.overlaps(y) {
                    meet(a, b);
                }
            };
            for index in &begins {
                let key = (accesses[*index].step, *index);
                let write = accesses[*index].write;
                here.earlier(key, write, &mut |other| touching(other, *index));
                here.later(key, write, &mut |other| touching(*index, other));
            }
            // Where a write has ended, those before it meet those after it.
            for index in ends.iter().filter(|index| accesses[**index].write) {
                let key = (accesses[*index].step, *index);
                let mut before = Vec::new();
                here.earlier(key, true, &mut |other| before.push(other));
                let mut after = Vec::new();
                here.later(key, true, &mut |other| after.push(other));
                let (writes, reads): (Vec<usize>, Vec<usize>) =
                    after.into_iter().partition(|other| accesses[*other].write);
                for a in before {
                    writes.iter().for_each(|b| touching(a, *b));
                    if accesses[a].write {
                        reads.iter().for_each(|b| touching(a, *b));
                    }
                }
            }
        }
    }
}

impl Here {
    fn insert(&mut self, accesses: &[Access], index: usize) {
        let access = &accesses[index];
        if access.write {
            self.writes.insert((access.step, index), access.region.extents.is_empty());
        } else {
            self.reads.insert((access.step, index));
        }
    }

    fn remove(&mut self, accesses: &[Access], index: usize) {
        let key = (accesses[index].step, index);
        self.writes.remove(&key);
        self.reads.remove(&key);
    }

    /// What comes before in time, back to a write to all bytes: writes, and for a write reads too.
    fn earlier(&self, key: (u32, usize), write: bool, visit: &mut dyn FnMut(usize)) {
        let mut from = (0, 0);
        for ((step, index), whole) in self.writes.range(..key).rev() {
            visit(*index);
            if *whole && *step < key.0 {
                from = (*step, 0);
                break;
            }
        }
        if write {
            self.reads.range(from..key).for_each(|(_, index)| visit(*index));
        }
    }

    /// What comes after in time, up to a write to all bytes.
    fn later(&self, key: (u32, usize), write: bool, visit: &mut dyn FnMut(usize)) {
        let mut to = (u32::MAX, usize::MAX);
        let after = (std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded);
        for ((step, index), whole) in self.writes.range(after) {
            visit(*index);
            if *whole && *step > key.0 {
                to = (*step, usize::MAX);
                break;
            }
        }
        if write {
            let after = (std::ops::Bound::Excluded(key), std::ops::Bound::Included(to));
            self.reads.range(after).for_each(|(_, index)| visit(*index));
        }
    }
}
