//! The memory of the CPU executor: the planned buffers, disjoint views of them, and the matrix
//! product over checked views. All that needs a pointer stands here; must never hand out two views
//! of which one can be written through while they overlap.

use membar_ir::schedule::{Buffer, BufferId};
use rayon::prelude::*;
use smallvec::SmallVec;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

/// Every buffer begins at a multiple of this many bytes: a cache line, and the widest vector.
pub const ALIGNMENT: usize = 64;

/// The buffers of a plan, zeroed lazily by the operating system.
pub struct Arena {
    blocks: BTreeMap<BufferId, Block>,
}

/// Some bytes of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The buffer.
    pub buffer: BufferId,
    /// The bytes.
    pub bytes: Range<usize>,
}

impl Span {
    fn overlaps(&self, other: &Span) -> bool {
        self.buffer == other.buffer
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

/// What a step reads.
#[derive(Clone, Debug)]
pub enum Read<'a> {
    /// Bytes of the arena that the step does not write.
    Span(Span),
    /// Bytes of the arena at the beginning of this output.
    InPlace(usize),
    /// Bytes outside the arena.
    Outside(&'a [u8]),
}

/// A view of what a step reads.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Bytes that nothing writes meanwhile.
    Shared(&'a [u8]),
    /// The bytes at the beginning of this output.
    InPlace(usize),
}

/// The views of one step, operands then outputs.
pub type Views<'a> = (SmallVec<[Source<'a>; 4]>, SmallVec<[&'a mut [u8]; 2]>);

/// Why memory cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// The system has none.
    #[error("buffer ${} of {bytes} bytes cannot be allocated", .buffer.0)]
    Allocation {
        /// The buffer.
        buffer: BufferId,
        /// Its size.
        bytes: u64,
    },
    /// A range beyond a buffer.
    #[error(
        "bytes {}..{} lie outside buffer ${}", .span.bytes.start, .span.bytes.end, .span.buffer.0
    )]
    OutOfBounds {
        /// The range.
        span: Span,
    },
    /// Two ranges that must be disjoint.
    #[error(
        "a step writes bytes {}..{} of buffer ${} while bytes {}..{} are in use by the same step",
        .written.bytes.start, .written.bytes.end, .written.buffer.0,
        .other.bytes.start, .other.bytes.end
    )]
    Overlap {
        /// What is written.
        written: Span,
        /// What else the step reads or writes.
        other: Span,
    },
}

impl Arena {
    /// Allocates the buffers; all bytes are 0.
    ///
    /// # Errors
    /// [`ArenaError::Allocation`] if one does not fit.
    pub fn new(buffers: &BTreeMap<BufferId, Buffer>) -> Result<Arena, ArenaError> {
        let mut blocks = BTreeMap::new();
        for (id, buffer) in buffers {
            let failed = || ArenaError::Allocation { buffer: *id, bytes: buffer.bytes };
            let bytes = usize::try_from(buffer.bytes).map_err(|_| failed())?;
            blocks.insert(*id, Block::new(bytes).ok_or_else(failed)?);
        }
        Ok(Arena { blocks })
    }

    /// Total size in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks.values().map(|block| block.bytes).sum()
    }

    /// Bytes of a buffer.
    ///
    /// # Errors
    /// [`ArenaError::OutOfBounds`].
    pub fn get(&self, span: &Span) -> Result<&[u8], ArenaError> {
        let pointer = self.pointer(span)?;
        // SAFETY: `pointer` checked that the range lies inside a live block, whose bytes are
        // initialised; the result borrows the arena, so nothing writes meanwhile.
        Ok(unsafe { slice::from_raw_parts(pointer.as_ptr(), span.bytes.len()) })
    }

    /// Bytes of a buffer, for writing.
    ///
    /// # Errors
    /// [`ArenaError::OutOfBounds`].
    pub fn get_mut(&mut self, span: &Span) -> Result<&mut [u8], ArenaError> {
        let pointer = self.pointer(span)?;
        // SAFETY: as in `get`; the result borrows the arena mutably, so it is the only view.
        Ok(unsafe { slice::from_raw_parts_mut(pointer.as_ptr(), span.bytes.len()) })
    }

    /// The views of a step: what it reads, and disjoint from that what it writes.
    ///
    /// # Errors
    /// A range lies outside its buffer, or a written range overlaps another of the step.
    pub fn views<'a>(
        &'a mut self,
        reads: impl IntoIterator<Item = Read<'a>>,
        writes: &[Span],
    ) -> Result<Views<'a>, ArenaError> {
        let mut sources = SmallVec::new();
        for read in reads {
            sources.push(match read {
                Read::Outside(bytes) => Source::Shared(bytes),
                Read::InPlace(output) => Source::InPlace(output),
                Read::Span(span) => {
                    if let Some(written) = writes.iter().find(|written| written.overlaps(&span)) {
                        return Err(ArenaError::Overlap { written: written.clone(), other: span });
                    }
                    let pointer = self.pointer(&span)?;
                    // SAFETY: the range lies inside a live, initialised block, and the check above
                    // keeps it apart from all that is written while the views live; they borrow
                    // the arena mutably, so there are no other views.
                    Source::Shared(unsafe {
                        slice::from_raw_parts(pointer.as_ptr(), span.bytes.len())
                    })
                }
            });
        }
        let mut outputs = SmallVec::new();
        for (index, span) in writes.iter().enumerate() {
            if let Some(other) = writes[..index].iter().find(|other| other.overlaps(span)) {
                return Err(ArenaError::Overlap { written: span.clone(), other: other.clone() });
            }
            let pointer = self.pointer(span)?;
            // SAFETY: as above; the check keeps the written ranges apart from each other, and the
            // one above keeps them apart from what is read.
            outputs.push(unsafe { slice::from_raw_parts_mut(pointer.as_ptr(), span.bytes.len()) });
        }
        Ok((sources, outputs))
    }

    /// The first byte of a range that was checked to lie inside its block.
    fn pointer(&self, span: &Span) -> Result<NonNull<u8>, ArenaError> {
        let out_of_bounds = || ArenaError::OutOfBounds { span: span.clone() };
        let block = self.blocks.get(&span.buffer).ok_or_else(out_of_bounds)?;
        if span.bytes.start > span.bytes.end || span.bytes.end > block.bytes {
            return Err(out_of_bounds());
        }
        // SAFETY: the offset was checked to be at most the size of the block.
        Ok(unsafe { block.start.add(span.bytes.start) })
    }
}

/// One allocation. It owns its bytes.
struct Block {
    base: NonNull<u8>,
    layout: Layout,
    start: NonNull<u8>,
    bytes: usize,
}

impl Block {
    fn new(bytes: usize) -> Option<Block> {
        // A zeroed allocation of ordinary alignment comes untouched from the system, so that
        // pages which a run never reaches cost nothing; the start is aligned by hand.
        let layout = Layout::from_size_align(bytes.checked_add(ALIGNMENT)?, 16).ok()?;
        // SAFETY: the size is at least `ALIGNMENT`, not 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let shift = base.as_ptr().addr().next_multiple_of(ALIGNMENT) - base.as_ptr().addr();
        // SAFETY: `shift` is less than `ALIGNMENT`, which the allocation has beyond `bytes`.
        let start = unsafe { base.add(shift) };
        Some(Block { base, layout, start, bytes })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: a block owns plain bytes; the pointers are not shared with anything else.
unsafe impl Send for Block {}
// SAFETY: through a shared reference the bytes can only be read.
unsafe impl Sync for Block {}

/// A matrix over a slice: element `(i, j)` at `i * row_stride + j * column_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<T> {
    /// The elements.
    pub data: T,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Elements from one column to the next.
    pub column_stride: usize,
}

/// The element types of [`product`].
pub trait ProductElement: Copy + Send + Sync + 'static {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
}

impl ProductElement for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
}

impl ProductElement for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
}

/// The sizes of a product: `[m, k] · [k, n]`.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
}

/// `out = left · right`, or `out += left · right` if `accumulate`.
///
/// # Panics
/// If a matrix reaches beyond its slice: callers compute strides from shapes that fit.
pub fn product<T: ProductElement>(
    sizes: Sizes,
    out: Matrix<&mut [T]>,
    left: Matrix<&[T]>,
    right: Matrix<&[T]>,
    accumulate: bool,
    parallel: bool,
) {
    let Sizes { m, n, k } = sizes;
    if m == 0 || n == 0 {
        return;
    }
    let reach = |rows: usize, columns: usize, row: usize, column: usize| {
        (rows - 1).checked_mul(row)?.checked_add((columns - 1).checked_mul(column)?)
    };
    let inside = |rows: usize, columns: usize, row: usize, column: usize, length: usize| {
        reach(rows, columns, row, column).is_some_and(|last| last < length)
    };
    assert!(inside(m, n, out.row_stride, out.column_stride, out.data.len()), "result");
    assert!(
        out.row_stride >= n && out.column_stride == 1,
        "the rows of a result are contiguous and apart"
    );
    if k == 0 {
        if !accumulate {
            for row in out.data.chunks_mut(out.row_stride).take(m) {
                row[..n].fill(T::ZERO);
            }
        }
        return;
    }
    assert!(inside(m, k, left.row_stride, left.column_stride, left.data.len()), "left");
    assert!(inside(k, n, right.row_stride, right.column_stride, right.data.len()), "right");
    let (rows, columns) = if parallel { part(m, n) } else { (m, n) };
    let (out, out_row) = (Pointer(out.data.as_mut_ptr()), out.row_stride);
    let parts = n.div_ceil(columns);
    let task = |index: usize| {
        // The whole wrapper is captured, not the pointer in it.
        let out = &out;
        let (row, column) = (index / parts * rows, index % parts * columns);
        let left_data = &left.data[row * left.row_stride..];
        let right_data = &right.data[column * right.column_stride..];
        // SAFETY: the assertions prove every element that the strides reach inside its slice, for
        // the result each element once; tasks have elements of their own, `row` is less than `m`
        // and `column` less than `n`, and slices borrow their memory, so what is written overlaps
        // nothing. All strides fit `isize`, since they are below lengths of slices or multiply 0.
        unsafe {
            gemm::gemm(
                rows.min(m - row),
                columns.min(n - column),
                k,
                out.0.add(row * out_row + column),
                1,
                out_row as isize,
                accumulate,
                left_data.as_ptr(),
                left.column_stride as isize,
                left.row_stride as isize,
                right_data.as_ptr(),
                right.column_stride as isize,
                right.row_stride as isize,
                T::ONE,
                T::ONE,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    };
    let tasks = m.div_ceil(rows) * parts;
    if tasks == 1 {
        task(0);
    } else {
        (0..tasks).into_par_iter().with_max_len(1).for_each(task);
    }
}

/// Rows and columns of a result that one task computes: every thread gets a task, and every task
/// whole tiles. Columns are split where there are enough, since then each part of the right matrix,
/// the larger one where it is a weight, is packed by one thread; the crate's own split has every
/// thread pack all of it.
fn part(m: usize, n: usize) -> (usize, usize) {
    /// Columns of a tile with the widest vectors.
    const TILE: usize = 64;
    let threads = rayon::current_num_threads();
    if n >= threads * TILE || n >= m {
        (m, n.div_ceil(threads).next_multiple_of(TILE))
    } else {
        (m.div_ceil(threads), n)
    }
}

/// The first element of a result, of which tasks write disjoint columns.
struct Pointer<T>(*mut T);

// SAFETY: tasks write through it to elements that no other task touches.
unsafe impl<T: Send> Sync for Pointer<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use membar_ir::topology::MemoryId;

    fn arena(bytes: u64) -> Arena {
        let buffer = Buffer { bytes, memory: MemoryId(0) };
        match Arena::new(&[(BufferId(0), buffer)].into()) {
            Ok(arena) => arena,
            Err(error) => unreachable!("{error}"),
        }
    }

    fn span(bytes: Range<usize>) -> Span {
        Span { buffer: BufferId(0), bytes }
    }

    #[test]
    fn buffers_are_zeroed_and_aligned() {
        let arena = arena(100);
        let Ok(bytes) = arena.get(&span(0..100)) else { unreachable!() };
        assert_eq!(bytes.as_ptr().addr() % ALIGNMENT, 0);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn views_beyond_a_buffer_are_refused() {
        let mut arena = arena(100);
        assert!(arena.get(&span(90..101)).is_err());
        assert!(arena.views([], &[span(90..101)]).is_err());
        assert!(arena.views([Read::Span(span(90..101))], &[]).is_err());
        let other = Span { buffer: BufferId(1), bytes: 0..1 };
        assert!(arena.get_mut(&other).is_err());
    }

    #[test]
    fn a_step_cannot_write_what_it_reads_or_writes_elsewhere() {
        let mut arena = arena(100);
        assert!(arena.views([Read::Span(span(0..8))], &[span(7..9)]).is_err());
        assert!(arena.views([], &[span(0..8), span(4..6)]).is_err());
        let reads = [Read::Span(span(0..8)), Read::Span(span(4..12)), Read::InPlace(0)];
        let Ok((sources, mut outputs)) = arena.views(reads, &[span(12..20), span(20..30)]) else {
            unreachable!()
        };
        outputs[0].fill(1);
        assert_eq!((sources.len(), outputs[1].len()), (3, 10));
    }

    #[test]
    fn a_product_reads_by_strides() {
        // [1 2; 3 4; 5 6] · [1 0 2; 0 1 3], the left stored column by column.
        let left = [1f32, 3.0, 5.0, 2.0, 4.0, 6.0];
        let right = [1f32, 0.0, 2.0, 0.0, 1.0, 3.0];
        let mut out = [1f32; 9];
        let sizes = Sizes { m: 3, n: 3, k: 2 };
        product(
            sizes,
            Matrix { data: &mut out[..], row_stride: 3, column_stride: 1 },
            Matrix { data: &left[..], row_stride: 1, column_stride: 3 },
            Matrix { data: &right[..], row_stride: 3, column_stride: 1 },
            true,
            false,
        );
        assert_eq!(out, [2.0, 3.0, 9.0, 4.0, 5.0, 19.0, 6.0, 7.0, 29.0]);
    }
}
