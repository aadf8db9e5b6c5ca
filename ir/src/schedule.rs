//! Placement in memory and time: buffers, byte regions, layouts, hazards and orders between
//! steps; never a decision about them (that is what passes do).

use crate::dim::Dim;
use crate::graph::NodeId;
use crate::topology::MemoryId;

/// The number of a buffer, `$3` in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// A block of memory that exists before a run and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Size in bytes.
    pub bytes: u64,
    /// Where.
    pub memory: MemoryId,
}

/// Bytes of a buffer: `count[0] × count[1] × …` runs of `len` bytes, run `(i, j, …)` beginning
/// at `offset + i·stride[0] + j·stride[1] + …`. With no extents it is one run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Bytes in one run; sizes are for the upper end of every symbol's range.
    pub len: u64,
    /// Outer repetitions, outermost first.
    pub extents: Vec<Extent>,
}

/// One level of repetition of a [`Region`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// How many.
    pub count: u64,
    /// Bytes from one to the next.
    pub stride: u64,
}

impl Region {
    /// One run of bytes.
    pub fn contiguous(buffer: BufferId, offset: u64, len: u64) -> Region {
        Region { buffer, offset, len, extents: Vec::new() }
    }

    /// Whether both are one run and begin at the same byte.
    pub fn begins_with(&self, other: &Region) -> bool {
        let plain = self.extents.is_empty() && other.extents.is_empty();
        plain && self.buffer == other.buffer && self.offset == other.offset
    }

    /// The byte after the last; `None` on overflow.
    pub fn end(&self) -> Option<u64> {
        let mut end = self.offset.checked_add(self.len)?;
        for extent in &self.extents {
            let last = extent.count.saturating_sub(1);
            end = end.checked_add(last.checked_mul(extent.stride)?)?;
        }
        Some(end)
    }
}

/// How many runs of two regions are compared one by one; with more, regions overlap if their hulls
/// do.
const MAX_RUNS: u64 = 1 << 16;

impl Region {
    /// How many bytes it has, gaps not counted; `None` on overflow.
    pub fn bytes(&self) -> Option<u64> {
        self.runs()?.checked_mul(self.len)
    }

    fn runs(&self) -> Option<u64> {
        self.extents.iter().try_fold(1u64, |runs, extent| runs.checked_mul(extent.count))
    }

    /// Whether two regions have a byte in common. Where one has very many runs the gaps between
    /// them are taken as part of it.
    pub fn overlaps(&self, other: &Region) -> bool {
        let empty = |region: &Region| region.bytes() == Some(0);
        if self.buffer != other.buffer || empty(self) || empty(other) {
            return false;
        }
        let ends = |region: &Region| region.end().unwrap_or(u64::MAX);
        if self.offset >= ends(other) || other.offset >= ends(self) {
            return false;
        }
        let few = |region: &Region| region.runs().is_some_and(|runs| runs <= MAX_RUNS);
        if !few(self) || !few(other) || (self.extents.is_empty() && other.extents.is_empty()) {
            return true;
        }
        let (mine, theirs) = (self.starts(), other.starts());
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (mine.get(i), theirs.get(j)) {
            if a.saturating_add(self.len) <= *b {
                i += 1;
            } else if b.saturating_add(other.len) <= *a {
                j += 1;
            } else {
                return true;
            }
        }
        false
    }

    /// The first byte of each run, ascending.
    fn starts(&self) -> Vec<u64> {
        let mut starts = vec![self.offset];
        for extent in &self.extents {
            let steps = (0..extent.count).map(|i| i.saturating_mul(extent.stride));
            let steps: Vec<u64> = steps.collect();
            let each = |start: &u64| {
                let start = *start;
                steps.iter().map(move |step| start.saturating_add(*step)).collect::<Vec<_>>()
            };
            starts = starts.iter().flat_map(each).collect();
        }
        starts.sort_unstable();
        starts
    }
}

/// How a value's elements lie in its region.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// Row-major without gaps, at the run's actual extents.
    #[default]
    Contiguous,
    /// Row-major with the strides of a larger shape, the capacity; the value is its leading
    /// corner. The dimensions are known or upper ends of ranges.
    Capacity(Vec<Dim>),
}

impl Layout {
    /// Calls `visit` on each dimension.
    pub fn visit_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
        match self {
            Layout::Contiguous => {}
            Layout::Capacity(shape) => shape.iter_mut().for_each(visit),
        }
    }
}

/// How two steps conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HazardKind {
    /// The later step reads what the earlier writes.
    ReadAfterWrite,
    /// The later step overwrites what the earlier reads.
    WriteAfterRead,
    /// Both write.
    WriteAfterWrite,
}

impl HazardKind {
    /// Every kind with its word in IR text.
    pub const WORDS: &'static [(&'static str, HazardKind)] = &[
        ("raw", HazardKind::ReadAfterWrite),
        ("war", HazardKind::WriteAfterRead),
        ("waw", HazardKind::WriteAfterWrite),
    ];

    /// The word in IR text.
    pub fn word(self) -> &'static str {
        match self {
            HazardKind::ReadAfterWrite => "raw",
            HazardKind::WriteAfterRead => "war",
            HazardKind::WriteAfterWrite => "waw",
        }
    }
}

/// A conflict between two steps over some bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hazard {
    /// How they conflict.
    pub kind: HazardKind,
    /// Over which bytes.
    pub region: Region,
}

/// Why an order is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It covers these hazards.
    Hazards(Vec<Hazard>),
    /// It only makes the order linear, because a launch in that order is cheaper.
    Linearise,
}

/// What makes one step wait for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// The executor runs steps one after another on one queue, as the CPU executor does.
    Sequence,
    /// A full edge from kernel to kernel.
    Edge,
    /// A programmatic edge: the next kernel's prologue overlaps the tail of the last.
    Programmatic,
}

impl Mechanism {
    /// Every mechanism with its word in IR text.
    pub const WORDS: &'static [(&'static str, Mechanism)] = &[
        ("sequence", Mechanism::Sequence),
        ("edge", Mechanism::Edge),
        ("programmatic", Mechanism::Programmatic),
    ];

    /// The word in IR text.
    pub fn word(self) -> &'static str {
        match self {
            Mechanism::Sequence => "sequence",
            Mechanism::Edge => "edge",
            Mechanism::Programmatic => "programmatic",
        }
    }
}

/// One step waits for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The step that comes first. At this stage a step is a node.
    pub before: NodeId,
    /// The step that waits.
    pub after: NodeId,
    /// Why.
    pub reason: Reason,
    /// How.
    pub mechanism: Mechanism,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(offset: u64, len: u64) -> Region {
        let extents = vec![Extent { count: 4, stride: 64 }];
        Region { buffer: BufferId(0), offset, len, extents }
    }

    #[test]
    fn interleaved_columns_do_not_overlap() {
        assert!(!columns(0, 32).overlaps(&columns(32, 32)));
        assert!(columns(0, 33).overlaps(&columns(32, 32)));
        assert!(columns(32, 32).overlaps(&columns(0, 33)));
        assert!(columns(0, 32).overlaps(&Region::contiguous(BufferId(0), 0, 1)));
        assert!(!columns(0, 32).overlaps(&Region::contiguous(BufferId(0), 32, 32)));
        assert!(!columns(0, 32).overlaps(&Region::contiguous(BufferId(1), 0, 32)));
        assert!(!columns(0, 0).overlaps(&columns(0, 32)));
        assert_eq!(columns(0, 32).bytes(), Some(128));
        assert_eq!(columns(8, 32).end(), Some(8 + 3 * 64 + 32));
    }
}
