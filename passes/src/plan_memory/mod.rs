//! `plan_memory`: gives every value its bytes; never more than one run needs at the upper ends of
//! all ranges.

mod arena;
mod storage;

use crate::size::{described, shown, unbounded_faults};
use arena::{Block, Offsets, most_live, place};
use membar_ir::graph::{Graph, Stage, ValueId};
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::schedule::{Buffer, BufferId, Layout, Region};
use membar_ir::topology::MemoryId;
use storage::{Home, Storages, storages};

/// Every region begins at a multiple of so many bytes: what CUDA's allocator guarantees for its own
/// blocks (CUDA C programming guide, "device memory accesses"), enough for every vector load and
/// tensor map, and four cache lines of a CPU, so that threads never share one.
const ALIGNMENT: u64 = 256;

/// Plans the memory of one device:
///
/// - The *arena* holds what only one run needs. Values that do not live at the same time share
///   bytes; an output takes over its operand's bytes where the kernel allows it.
/// - Inputs and outputs have a buffer of their own, in which nothing is reused: an input keeps its
///   contents during a run, an output until the next.
/// - Each state has a buffer of its own, which outlives runs. A state that grows lies there at its
///   capacity, and its output in the same place.
/// - Weights have no region: the runtime keeps them where it likes, mapped from a file, say.
///
/// ```text
/// ir 1 stage placed topology "cpu"
/// graph @g(%x: f32[B, 64] @cpu0.dram) where B in 1..=4 {
///   %a = exp %x : f32[B, 64] @cpu0.dram
///   %b = neg %a : f32[B, 64] @cpu0.dram
///   %c = reduce %b {kind = sum, axes = [1], keep = false} : f32[B] @cpu0.dram
///   return %c
/// }
/// ```
/// becomes
/// ```text
/// ir 1 stage scheduled topology "cpu"
/// graph @g(%x: f32[B, 64] @cpu0.dram in $1[0..1K]) where B in 1..=4 {
///   buffer $0 = 1K @cpu0.dram
///   buffer $1 = 1280 @cpu0.dram
///   %a = exp %x : f32[B, 64] @cpu0.dram in $0[0..1K]
///   %b = neg %a : f32[B, 64] @cpu0.dram in $0[0..1K]
///   %c = reduce %b {kind = sum, axes = [1], keep = false} : f32[B] @cpu0.dram in $1[1K..1040]
///   return %c
/// }
/// ```
///
/// # Errors
/// A dimension without an upper bound, sizes that overflow, more bytes than `options.arena_limit`,
/// a node without a kernel, or values in more than one memory.
pub fn plan_memory(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let mut storages = storages(graph, cx);
    let mut faults = unbounded_faults(&storages.unbounded);
    faults.append(&mut storages.faults);
    let memory = memory(graph, &mut faults);
    let (Some(memory), true) = (memory, faults.is_empty()) else {
        return Err(PassError::Faults(faults));
    };
    let mut plan = Plan::new(graph, &storages, cx.options.arena_limit)?;
    cx.notes.push(format!(
        "arena {} for {} live at most",
        shown(plan.arena.bytes),
        shown(u64::try_from(plan.least).unwrap_or(u64::MAX)),
    ));
    if graph.schedule.is_empty() {
        graph.schedule = graph.order();
    }
    plan.apply(graph, &storages, memory);
    graph.stage = Stage::Scheduled;
    Ok(Changed::Yes)
}

/// The one memory of all values.
fn memory(graph: &Graph, faults: &mut Vec<String>) -> Option<MemoryId> {
    let mut found = None;
    for value in graph.values() {
        match (graph.value(value).memory, found) {
            (None, _) => faults.push(format!("{} has no memory", described(graph, value))),
            (Some(memory), None) => found = Some(memory),
            (Some(memory), Some(first)) if memory != first => faults.push(format!(
                "{} lies in another memory than the first value; transfers are not planned yet",
                described(graph, value),
            )),
            (Some(_), Some(_)) => {}
        }
    }
    // An empty graph needs no memory, but every buffer names one.
    Some(found.unwrap_or(MemoryId(0)))
}

/// Where everything lies.
struct Plan {
    /// Offsets of arena storages, then of workspaces, in the order of `members`.
    arena: Offsets,
    /// What the arena holds.
    members: Vec<Member>,
    /// The most bytes that live at once.
    least: u128,
    /// Offsets of inputs and outputs in their buffer.
    io: Vec<(usize, u64)>,
    io_bytes: u64,
    /// Storages of each state, its input's first, with their offsets; and the buffer's size.
    states: Vec<(Vec<(usize, u64)>, u64)>,
}

#[derive(Clone, Copy)]
enum Member {
    Storage(usize),
    Workspace(usize),
}

impl Plan {
    fn new(graph: &Graph, storages: &Storages, limit: u64) -> Result<Plan, PassError> {
        let mut members = Vec::new();
        let mut blocks = Vec::new();
        let mut io = Stack::default();
        let mut states: Vec<Stack> = Vec::new();
        states.resize_with(graph.states.len(), Stack::default);
        for (index, storage) in storages.list.iter().enumerate() {
            match storage.home {
                Home::Arena => {
                    members.push(Member::Storage(index));
                    blocks.push(aligned(storage.block));
                }
                Home::Input | Home::Output => io.push(index, storage.block),
                Home::StateInput(state) | Home::StateOutput(state) => {
                    states[state].push(index, storage.block);
                }
            }
        }
        for (index, (_, block)) in storages.workspaces.iter().enumerate() {
            members.push(Member::Workspace(index));
            blocks.push(aligned(*block));
        }
        let (least, step) = most_live(&blocks);
        let others: u128 = states.iter().chain([&io]).map(|stack| u128::from(stack.bytes)).sum();
        let total = |arena: u128| others + arena;
        if total(least) > u128::from(limit) {
            return Err(too_large(graph, storages, total(least), limit, step));
        }
        let arena = place(&blocks);
        if total(u128::from(arena.bytes)) > u128::from(limit) {
            return Err(too_large(graph, storages, total(arena.bytes.into()), limit, step));
        }
        let states = states.into_iter().map(|stack| (stack.offsets, stack.bytes)).collect();
        Ok(Plan { arena, members, least, io: io.offsets, io_bytes: io.bytes, states })
    }

    /// Writes buffers, regions, layouts and workspaces into the graph.
    fn apply(&mut self, graph: &mut Graph, storages: &Storages, memory: MemoryId) {
        let mut starts: Vec<Option<(BufferId, u64)>> = vec![None; storages.list.len()];
        let mut workspaces = Vec::new();
        graph.buffers.clear();
        let mut next = 0;
        let mut buffer = |graph: &mut Graph, bytes: u64| {
            let id = BufferId(next);
            next += 1;
            graph.buffers.insert(id, Buffer { bytes, memory });
            id
        };
        if !self.members.is_empty() {
            let id = buffer(graph, self.arena.bytes);
            for (member, offset) in self.members.iter().zip(&self.arena.offsets) {
                match *member {
                    Member::Storage(index) => starts[index] = Some((id, *offset)),
                    Member::Workspace(index) => workspaces.push((index, id, *offset)),
                }
            }
        }
        if !self.io.is_empty() {
            let id = buffer(graph, self.io_bytes);
            self.io.iter().for_each(|(index, offset)| starts[*index] = Some((id, *offset)));
        }
        for (members, bytes) in &self.states {
            let id = buffer(graph, *bytes);
            members.iter().for_each(|(index, offset)| starts[*index] = Some((id, *offset)));
        }
        let values: Vec<ValueId> = graph.values().collect();
        for value in values {
            let Some(index) = storages.of[value.index()] else { continue };
            let Some((id, offset)) = starts[index] else { continue };
            let len = match storages.capacities.contains_key(&value) {
                true => storages.list[index].block.bytes,
                false => crate::size::greatest_bytes(graph.ty(value), &graph.symbols).unwrap_or(0),
            };
            let capacity = storages.capacities.get(&value).cloned();
            let value = graph.value_mut(value);
            value.region = Some(Region::contiguous(id, offset, len));
            value.layout = capacity.map_or(Layout::Contiguous, Layout::Capacity);
        }
        for (index, id, offset) in workspaces {
            let (node, block) = storages.workspaces[index];
            graph.node_mut(node).workspace = Some(Region::contiguous(id, offset, block.bytes));
        }
    }
}

/// Storages one after another.
#[derive(Default)]
struct Stack {
    offsets: Vec<(usize, u64)>,
    bytes: u64,
}

impl Stack {
    fn push(&mut self, index: usize, block: Block) {
        self.offsets.push((index, self.bytes));
        self.bytes = self.bytes.saturating_add(aligned(block).bytes);
    }
}

fn aligned(block: Block) -> Block {
    // Saturated sizes stay above every limit.
    let bytes = block.bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
    Block { bytes, ..block }
}

/// The message about a plan that is over the limit: what is largest when most is live.
fn too_large(
    graph: &Graph,
    storages: &Storages,
    total: u128,
    limit: u64,
    step: usize,
) -> PassError {
    const SHOWN: usize = 5;
    let mut largest: Vec<&storage::Storage> = storages
        .list
        .iter()
        .filter(|storage| match storage.home {
            Home::Arena => (storage.block.first..=storage.block.last).contains(&step),
            Home::Input | Home::Output | Home::StateInput(_) | Home::StateOutput(_) => true,
        })
        .collect();
    largest.sort_by_key(|storage| (std::cmp::Reverse(storage.block.bytes), storage.value));
    let listed: Vec<String> = largest
        .iter()
        .take(SHOWN)
        .map(|storage| {
            format!("{} ({})", described(graph, storage.value), shown(storage.block.bytes))
        })
        .collect();
    PassError::fault(format!(
        "a run needs {} of memory, more than the limit of {}; the largest values are {}; \
         narrower ranges (`--dim NAME=LO..HI`) make them smaller",
        shown(u64::try_from(total).unwrap_or(u64::MAX)),
        shown(limit),
        listed.join(", "),
    ))
}
