//! Products of floats: f32 and f64 as they lie, f16 and bf16 widened to f32 a panel at a time; must
//! never widen a whole weight.

use super::vector::{self, Widen};
use super::{Products, Run, Strides, elements};
use crate::cpu::arena::{Matrix, Sizes, product};
use crate::cpu::program::Call;
use half::{bf16, f16};
use membar_ir::dtype::DType;
use membar_ir::op::EvalError;
use rayon::prelude::*;

/// Elements of a widened panel: 4 MiB, a share of the second-level cache and above.
const PANEL: usize = 1 << 20;

/// Products of f32.
pub(super) fn f32_run(products: Products) -> Run {
    Box::new(move |call: &mut Call<'_, '_>| {
        let (left, right) = (elements::<f32>(call, 0)?, elements::<f32>(call, 1)?);
        let Products { m, n, k, left: a, right: b, .. } = products;
        with_result(&products, call, |(x, y), out, parallel| {
            let left = &left[a.range(x, m, k)];
            let right = &right[b.range(y, k, n)];
            if vector::takes(&products) {
                let rows = widened(left, a, m, k);
                vector::product(&products, &rows, right, out, parallel);
                return;
            }
            product(
                Sizes { m, n, k },
                Matrix { data: out, row_stride: n, column_stride: 1 },
                Matrix { data: left, row_stride: a.row, column_stride: a.column },
                Matrix { data: right, row_stride: b.row, column_stride: b.column },
                false,
                parallel,
            );
        })
    })
}

/// Products of f64.
pub(super) fn f64_run(products: Products) -> Run {
    Box::new(move |call: &mut Call<'_, '_>| {
        let (left, right) = (elements::<f64>(call, 0)?, elements::<f64>(call, 1)?);
        let Products { m, n, k, left: a, right: b, .. } = products;
        if products.is_empty() {
            return Ok(());
        }
        let out = call.output::<f64>(0)?;
        products.each(out, |(x, y), out, parallel| {
            product(
                Sizes { m, n, k },
                Matrix { data: out, row_stride: n, column_stride: 1 },
                Matrix {
                    data: &left[a.range(x, m, k)],
                    row_stride: a.row,
                    column_stride: a.column,
                },
                Matrix {
                    data: &right[b.range(y, k, n)],
                    row_stride: b.row,
                    column_stride: b.column,
                },
                false,
                parallel,
            );
        });
        Ok(())
    })
}

/// Products of f16.
pub(super) fn f16_run(products: Products) -> Run {
    narrow_run::<f16>(products)
}

/// Products of bf16.
pub(super) fn bf16_run(products: Products) -> Run {
    narrow_run::<bf16>(products)
}

fn narrow_run<T: Widen>(products: Products) -> Run {
    Box::new(move |call: &mut Call<'_, '_>| {
        let (left, right) = (elements::<T>(call, 0)?, elements::<T>(call, 1)?);
        let Products { m, n, k, left: a, right: b, .. } = products;
        with_result(&products, call, |(x, y), out, parallel| {
            let rows = widened(&left[a.range(x, m, k)], a, m, k);
            let right = &right[b.range(y, k, n)];
            if vector::takes(&products) {
                vector::product(&products, &rows, right, out, parallel);
                return;
            }
            let width = (PANEL / k.max(1)).max(16).next_multiple_of(16);
            let mut panel = vec![0f32; k * width.min(n)];
            for first in (0..n).step_by(width) {
                let width = width.min(n - first);
                let right = &right[(first * b.column).min(right.len())..];
                widen_panel(right, b, width, &mut panel[..k * width], parallel);
                product(
                    Sizes { m, n: width, k },
                    Matrix { data: &mut out[first..], row_stride: n, column_stride: 1 },
                    Matrix { data: &rows, row_stride: k, column_stride: 1 },
                    Matrix { data: &panel[..k * width], row_stride: width, column_stride: 1 },
                    false,
                    parallel,
                );
            }
        })
    })
}

/// The first `width` columns of a matrix as f32, row by row.
fn widen_panel<T: Widen>(
    right: &[T],
    strides: Strides,
    width: usize,
    panel: &mut [f32],
    parallel: bool,
) {
    let row = |(index, out): (usize, &mut [f32])| {
        let from = &right[index * strides.row..];
        if strides.column == 1 {
            for (to, x) in out.iter_mut().zip(from) {
                *to = x.widen();
            }
        } else {
            for (to, x) in out.iter_mut().zip(from.iter().step_by(strides.column.max(1))) {
                *to = x.widen();
            }
        }
    };
    if parallel {
        panel.par_chunks_mut(width).enumerate().with_min_len(64).for_each(row);
    } else {
        panel.chunks_mut(width).enumerate().for_each(row);
    }
}

/// A matrix as f32, rows one after another.
fn widened<T: Widen>(data: &[T], strides: Strides, rows: usize, columns: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        out.extend((0..columns).map(|i| data[row * strides.row + i * strides.column].widen()));
    }
    out
}

/// Runs products whose results are f32, and rounds them if the output is narrower.
fn with_result(
    products: &Products,
    call: &mut Call<'_, '_>,
    one: impl Fn((usize, usize), &mut [f32], bool) + Sync,
) -> Result<(), EvalError> {
    if products.is_empty() {
        return Ok(());
    }
    let count = products.size() * products.offsets.len();
    match products.result {
        DType::F16 => {
            let mut wide = vec![0f32; count];
            products.each(&mut wide, one);
            narrow(&wide, call.output(0)?, f16::from_f32);
        }
        DType::Bf16 => {
            let mut wide = vec![0f32; count];
            products.each(&mut wide, one);
            narrow(&wide, call.output(0)?, bf16::from_f32);
        }
        _ => products.each(call.output(0)?, one),
    }
    Ok(())
}

fn narrow<T>(wide: &[f32], out: &mut [T], round: fn(f32) -> T) {
    for (out, x) in out.iter_mut().zip(wide) {
        *out = round(*x);
    }
}
