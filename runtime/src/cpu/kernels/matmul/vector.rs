//! Products of a few rows with a matrix, which are limited by reading the matrix: each element is
//! read once, in order, in its own type. Must never be chosen for many rows.

use super::Products;
use bytemuck::Pod;
use half::{bf16, f16};
use rayon::prelude::*;

/// Rows for which reading the matrix costs more than computing.
const ROWS: usize = 4;

/// Columns that one task sums up.
const COLUMNS: usize = 256;

/// Elements that widen to f32 without loss.
pub(crate) trait Widen: Pod + Send + Sync {
    /// The same value.
    fn widen(self) -> f32;
}

impl Widen for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Widen for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
}

impl Widen for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// Whether these products are for [`product`]: few rows, and a matrix whose rows or columns are
/// contiguous.
pub(super) fn takes(products: &Products) -> bool {
    let strides = products.right;
    products.m <= ROWS && (strides.column == 1 || strides.row == 1)
}

/// `out = rows · right`; `rows` is `[m, k]` without gaps.
pub(super) fn product<T: Widen>(
    products: &Products,
    rows: &[f32],
    right: &[T],
    out: &mut [f32],
    parallel: bool,
) {
    let Products { m, n, .. } = *products;
    // Each task's sums lie together: `[m, columns]`, in a buffer of their own if there are rows to
    // interleave.
    let task = |(index, sums): (usize, &mut [f32])| {
        let first = index * COLUMNS;
        let columns = sums.len() / m;
        pulp::Arch::new().dispatch(Task { products, rows, right, first, columns, sums });
    };
    let run = |sums: &mut [f32]| {
        if parallel {
            sums.par_chunks_mut(m * COLUMNS).enumerate().for_each(task);
        } else {
            sums.chunks_mut(m * COLUMNS).enumerate().for_each(task);
        }
    };
    if m == 1 {
        run(out);
        return;
    }
    let mut sums = vec![0f32; m * n];
    run(&mut sums);
    for (index, sums) in sums.chunks(m * COLUMNS).enumerate() {
        let columns = sums.len() / m;
        for (row, sums) in sums.chunks(columns).enumerate() {
            let first = row * n + index * COLUMNS;
            out[first..first + columns].copy_from_slice(sums);
        }
    }
}

struct Task<'a, T> {
    products: &'a Products,
    rows: &'a [f32],
    right: &'a [T],
    first: usize,
    columns: usize,
    sums: &'a mut [f32],
}

impl<T: Widen> pulp::NullaryFnOnce for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Task { products, rows, right, first, columns, sums } = self;
        let Products { k, right: strides, .. } = *products;
        sums.fill(0.0);
        if strides.column == 1 {
            for (row, sums) in rows.chunks(k.max(1)).zip(sums.chunks_mut(columns)) {
                add_rows(row, right, strides.row, first, sums);
            }
        } else {
            for (row, sums) in rows.chunks(k.max(1)).zip(sums.chunks_mut(columns)) {
                for (column, sum) in sums.iter_mut().enumerate() {
                    let begin = (first + column) * strides.column;
                    *sum = dot(row, &right[begin..begin + k]);
                }
            }
        }
    }
}

/// Adds the multiples of rows of the matrix, four at a time.
#[inline(always)]
fn add_rows<T: Widen>(row: &[f32], right: &[T], stride: usize, first: usize, sums: &mut [f32]) {
    let columns = sums.len();
    let part = |i: usize| &right[i * stride + first..][..columns];
    let mut i = 0;
    while i + 4 <= row.len() {
        let [a, b, c, d] = [row[i], row[i + 1], row[i + 2], row[i + 3]];
        let parts = part(i).iter().zip(part(i + 1)).zip(part(i + 2)).zip(part(i + 3));
        for (sum, (((w, x), y), z)) in sums.iter_mut().zip(parts) {
            *sum += (a * w.widen() + b * x.widen()) + (c * y.widen() + d * z.widen());
        }
        i += 4;
    }
    for (i, factor) in row.iter().enumerate().skip(i) {
        for (sum, x) in sums.iter_mut().zip(part(i)) {
            *sum += factor * x.widen();
        }
    }
}

/// A dot product in 32 partial sums, so that it vectorises.
#[inline(always)]
fn dot<T: Widen>(a: &[f32], b: &[T]) -> f32 {
    const LANES: usize = 32;
    let mut lanes = [0f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 =
        a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y.widen()).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for ((lane, x), y) in lanes.iter_mut().zip(a).zip(b) {
            *lane += x * y.widen();
        }
    }
    lanes.iter().sum::<f32>() + rest
}
