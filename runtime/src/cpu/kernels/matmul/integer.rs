//! Products of 8-bit and 32-bit integers in i32, wrapping; must never round.

use super::{Products, Run, elements};
use crate::cpu::program::Call;
use bytemuck::Pod;
use membar_ir::dtype::DType;
use rayon::prelude::*;

/// Rows that are computed together, so that each row of the right is read once for all of them.
const ROWS: usize = 8;

/// The products of two integer types; `None` if one is neither i8, u8 nor i32.
pub(super) fn select(left: DType, right: DType) -> Option<fn(Products) -> Run> {
    Some(match (left, right) {
        (DType::I8, DType::I8) => run::<i8, i8>,
        (DType::I8, DType::U8) => run::<i8, u8>,
        (DType::I8, DType::I32) => run::<i8, i32>,
        (DType::U8, DType::I8) => run::<u8, i8>,
        (DType::U8, DType::U8) => run::<u8, u8>,
        (DType::U8, DType::I32) => run::<u8, i32>,
        (DType::I32, DType::I8) => run::<i32, i8>,
        (DType::I32, DType::U8) => run::<i32, u8>,
        (DType::I32, DType::I32) => run::<i32, i32>,
        _ => return None,
    })
}

fn run<A, B>(products: Products) -> Run
where
    A: Pod + Into<i32> + Send + Sync,
    B: Pod + Into<i32> + Send + Sync,
{
    Box::new(move |call: &mut Call<'_, '_>| {
        if products.is_empty() {
            return Ok(());
        }
        let (left, right) = (elements::<A>(call, 0)?, elements::<B>(call, 1)?);
        let Products { m, n, k, left: a, right: b, .. } = products;
        products.each(call.output::<i32>(0)?, |(x, y), out, parallel| {
            let left = &left[a.range(x, m, k)];
            let right = &right[b.range(y, k, n)];
            // Rows of the right are read as slices; a transposed matrix is turned first.
            let mut turned = Vec::new();
            let (rows, stride) = if b.column == 1 {
                (right, b.row)
            } else {
                turned.reserve(k * n);
                for i in 0..k {
                    turned.extend((0..n).map(|j| right[i * b.row + j * b.column]));
                }
                (turned.as_slice(), n)
            };
            let block = |(index, out): (usize, &mut [i32])| {
                let first = index * ROWS;
                let left = &left[(first * a.row).min(left.len())..];
                pulp::Arch::new().dispatch(Block { products: &products, left, rows, stride, out });
            };
            if parallel {
                out.par_chunks_mut(ROWS * n).enumerate().for_each(block);
            } else {
                out.chunks_mut(ROWS * n).enumerate().for_each(block);
            }
        });
        Ok(())
    })
}

struct Block<'a, A, B> {
    products: &'a Products,
    left: &'a [A],
    rows: &'a [B],
    stride: usize,
    out: &'a mut [i32],
}

impl<A: Pod + Into<i32>, B: Pod + Into<i32>> pulp::NullaryFnOnce for Block<'_, A, B> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Block { products, left, rows, stride, out } = self;
        let Products { n, k, left: a, .. } = *products;
        out.fill(0);
        for i in 0..k {
            let right = &rows[i * stride..i * stride + n];
            for (row, out) in out.chunks_mut(n).enumerate() {
                let x: i32 = left[row * a.row + i * a.column].into();
                for (sum, y) in out.iter_mut().zip(right) {
                    *sum = sum.wrapping_add(x.wrapping_mul((*y).into()));
                }
            }
        }
    }
}
