//! Offsets in an arena for blocks that live for a while; never knows what a block is for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Bytes that are needed from one step to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub bytes: u64,
    pub first: usize,
    pub last: usize,
}

/// Where blocks lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    /// The first byte of each block.
    pub offsets: Vec<u64>,
    /// Size of the arena.
    pub bytes: u64,
}

/// How many pairs of blocks that live at the same time the better method may look at. Beyond that,
/// which takes a million long-lived blocks, the quick one's answer stands.
const PAIRS: usize = 1 << 25;

/// Offsets such that blocks that live at the same time do not overlap. Sizes are multiples of the
/// alignment already. The same blocks always give the same offsets.
pub(crate) fn place(blocks: &[Block]) -> Offsets {
    let mut best = by_time(blocks);
    for weight in [size, area] {
        match by_weight(blocks, weight) {
            Some(careful) if careful.bytes <= best.bytes => best = careful,
            Some(_) => {}
            None => break,
        }
    }
    best
}

fn size(block: &Block) -> u128 {
    u128::from(block.bytes)
}

fn area(block: &Block) -> u128 {
    u128::from(block.bytes) * (block.last - block.first + 1) as u128
}

/// The most bytes that live at once, which no placement can do better than, and a step at which
/// they do.
pub(crate) fn most_live(blocks: &[Block]) -> (u128, usize) {
    let mut changes: BTreeMap<usize, (u128, u128)> = BTreeMap::new();
    for block in blocks {
        changes.entry(block.first).or_default().0 += u128::from(block.bytes);
        changes.entry(block.last + 1).or_default().1 += u128::from(block.bytes);
    }
    let (mut live, mut most) = (0u128, (0u128, 0usize));
    for (step, (begun, ended)) in changes {
        live = live + begun - ended;
        if live > most.0 {
            most = (live, step);
        }
    }
    most
}

/// The heaviest block first, each into the smallest gap that it fits into, between the blocks placed
/// so far that live at the same time. `None` if there are too many of them.
fn by_weight(blocks: &[Block], weight: fn(&Block) -> u128) -> Option<Offsets> {
    let mut queue: Vec<usize> = (0..blocks.len()).collect();
    queue.sort_by_key(|&i| {
        let block = &blocks[i];
        (Reverse(weight(block)), Reverse(block.last - block.first), block.first, i)
    });
    let mut placed = Placed::new(blocks.iter().map(|block| block.last + 1).max().unwrap_or(0));
    let mut result = Offsets { offsets: vec![0; blocks.len()], bytes: 0 };
    let mut pairs = 0;
    let mut neighbours: Vec<(u64, u64)> = Vec::new();
    for index in queue {
        let block = blocks[index];
        if block.bytes == 0 {
            continue;
        }
        neighbours.clear();
        placed.overlapping(&block, &mut |other| {
            let offset = result.offsets[other];
            neighbours.push((offset, offset.saturating_add(blocks[other].bytes)));
        });
        pairs += neighbours.len();
        if pairs > PAIRS {
            return None;
        }
        neighbours.sort_unstable();
        let offset = best_gap(&neighbours, block.bytes);
        result.offsets[index] = offset;
        result.bytes = result.bytes.max(offset.saturating_add(block.bytes));
        placed.insert(index, &block);
    }
    Some(result)
}

/// The offset of the smallest gap of at least `bytes` between sorted extents, or the end.
fn best_gap(extents: &[(u64, u64)], bytes: u64) -> u64 {
    let mut best: Option<(u64, u64)> = None;
    let mut end = 0;
    for &(start, stop) in extents {
        let gap = start.saturating_sub(end);
        if gap >= bytes && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, end));
        }
        end = end.max(stop);
    }
    best.map_or(end, |(_, offset)| offset)
}

/// The blocks placed so far, by time: those that live at a step are on the way from the step's leaf
/// to the root of a segment tree, those that begin in a span are in a sorted set.
struct Placed {
    leaves: usize,
    tree: Vec<Vec<usize>>,
    begun: BTreeSet<(usize, usize)>,
}

impl Placed {
    fn new(steps: usize) -> Placed {
        let leaves = steps.next_power_of_two().max(1);
        Placed { leaves, tree: vec![Vec::new(); 2 * leaves], begun: BTreeSet::new() }
    }

    fn insert(&mut self, index: usize, block: &Block) {
        let (mut low, mut high) = (self.leaves + block.first, self.leaves + block.last + 1);
        while low < high {
            if low % 2 == 1 {
                self.tree[low].push(index);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.tree[high].push(index);
            }
            low /= 2;
            high /= 2;
        }
        self.begun.insert((block.first, index));
    }

    fn overlapping(&self, block: &Block, visit: &mut dyn FnMut(usize)) {
        let mut node = self.leaves + block.first;
        while node > 0 {
            self.tree[node].iter().for_each(|index| visit(*index));
            node /= 2;
        }
        if block.last > block.first {
            let later = self.begun.range((block.first + 1, 0)..=(block.last, usize::MAX));
            later.for_each(|(_, index)| visit(*index));
        }
    }
}

/// As an allocator would at run time: in order of time, each into the smallest free gap.
fn by_time(blocks: &[Block]) -> Offsets {
    let mut queue: Vec<usize> = (0..blocks.len()).filter(|&i| blocks[i].bytes > 0).collect();
    queue.sort_by_key(|&i| (blocks[i].first, Reverse(blocks[i].bytes), i));
    let mut result = Offsets { offsets: vec![0; blocks.len()], bytes: 0 };
    let mut free = Free::default();
    let mut live: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
    for index in queue {
        let block = blocks[index];
        while let Some(Reverse((last, ended))) = live.peek().copied() {
            if last >= block.first {
                break;
            }
            live.pop();
            free.give(result.offsets[ended], blocks[ended].bytes);
        }
        let offset = free.take(block.bytes).unwrap_or_else(|| {
            // The gap that touches the end, if any, is extended.
            let start = free.take_last(result.bytes).unwrap_or(result.bytes);
            result.bytes = start.saturating_add(block.bytes);
            start
        });
        result.offsets[index] = offset;
        live.push(Reverse((block.last, index)));
    }
    result
}

/// Free gaps by place and by size.
#[derive(Default)]
struct Free {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Free {
    fn add(&mut self, offset: u64, bytes: u64) {
        if bytes > 0 {
            self.by_offset.insert(offset, bytes);
            self.by_size.insert((bytes, offset));
        }
    }

    fn remove(&mut self, offset: u64, bytes: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(bytes, offset));
    }

    /// Gives a gap back and joins it with its neighbours.
    fn give(&mut self, mut offset: u64, mut bytes: u64) {
        let before = self.by_offset.range(..offset).next_back().map(|(o, b)| (*o, *b));
        if let Some((start, length)) = before.filter(|(o, b)| o + b == offset) {
            self.remove(start, length);
            offset = start;
            bytes += length;
        }
        if let Some(length) = self.by_offset.get(&(offset + bytes)).copied() {
            self.remove(offset + bytes, length);
            bytes += length;
        }
        self.add(offset, bytes);
    }

    /// Takes `bytes` from the smallest gap that has them.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (length, offset) = self.by_size.range((bytes, 0)..).next().copied()?;
        self.remove(offset, length);
        self.add(offset + bytes, length - bytes);
        Some(offset)
    }

    /// Takes the gap that ends at `end`, if there is one, and says where it began.
    fn take_last(&mut self, end: u64) -> Option<u64> {
        let (offset, length) = self.by_offset.iter().next_back().map(|(o, b)| (*o, *b))?;
        if offset + length != end {
            return None;
        }
        self.remove(offset, length);
        Some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small linear congruential generator: tests need variety, not quality.
    fn random_blocks(seed: u64, count: usize, steps: usize, most_steps: usize) -> Vec<Block> {
        let mut state = seed;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        (0..count)
            .map(|_| {
                let first = next(steps);
                let last = (first + next(most_steps)).min(steps - 1);
                Block { bytes: 256 * (1 + next(64)) as u64, first, last }
            })
            .collect()
    }

    fn check(blocks: &[Block], result: &Offsets) {
        for (i, a) in blocks.iter().enumerate() {
            assert!(result.offsets[i] + a.bytes <= result.bytes);
            for (j, b) in blocks.iter().enumerate().skip(i + 1) {
                let together = a.first <= b.last && b.first <= a.last;
                let (x, y) = (result.offsets[i], result.offsets[j]);
                let apart = x + a.bytes <= y || y + b.bytes <= x;
                assert!(!together || apart || a.bytes == 0 || b.bytes == 0, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn blocks_that_live_together_lie_apart() {
        for seed in 0..20 {
            let blocks = random_blocks(seed, 300, 200, 17);
            let (least, _) = most_live(&blocks);
            let careful = by_weight(&blocks, size);
            for result in careful.iter().chain([&by_time(&blocks), &place(&blocks)]) {
                check(&blocks, result);
                assert!(u128::from(result.bytes) >= least);
            }
            let ratio = place(&blocks).bytes as f64 / least as f64;
            // Random sizes are the hardest; those of models fit better.
            assert!(ratio <= 1.2, "seed {seed}: {ratio}");
        }
    }

    #[test]
    fn equal_blocks_in_a_chain_need_two() {
        let chain: Vec<Block> =
            (0..100).map(|i| Block { bytes: 512, first: i, last: i + 1 }).collect();
        assert_eq!(place(&chain).bytes, 1024);
        assert_eq!(most_live(&chain).0, 1024);
    }

    #[test]
    fn many_blocks_take_little_time() {
        // A quadratic method would take minutes here.
        let blocks = random_blocks(1, 200_000, 200_000, 8);
        let (least, _) = most_live(&blocks);
        assert!(u128::from(place(&blocks).bytes) <= least * 2);
        let long: Vec<Block> =
            (0..50_000).map(|i| Block { bytes: 256, first: i, last: 60_000 }).collect();
        assert_eq!(u128::from(place(&long).bytes), most_live(&long).0);
    }
}
