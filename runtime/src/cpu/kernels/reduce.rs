//! The kernel of `reduce` over neighbouring axes; floats add up in f64 as the reference does. Must
//! never be chosen for axes that others separate.

use super::reference::tensor;
use crate::cpu::arena::Source;
use crate::cpu::program::{Call, Run, Selected, Shapes, cast};
use crate::cpu::view::View;
use bytemuck::Pod;
use half::{bf16, f16};
use membar_ir::dtype::DType;
use membar_ir::ops::{Reduce, ReduceKind};
use membar_ir::types::TensorType;
use rayon::prelude::*;

/// Elements below which the kernel runs on one thread.
const PARALLEL_ELEMENTS: usize = 16 << 10;

/// `reduce` over neighbouring axes; `None` for others, and for types without a fast sum.
pub(crate) fn select(op: &Reduce, operands: &[TensorType]) -> Option<Selected> {
    let first = op.axes.first()?.index();
    let last = op.axes.last()?.index();
    if last - first + 1 != op.axes.len() {
        return None;
    }
    let kind = op.kind;
    let prepare: fn(ReduceKind, [usize; 2], &Shapes<'_>) -> Run = match operands[0].dtype {
        DType::F32 => prepare::<f32>,
        DType::F64 => prepare::<f64>,
        DType::F16 => prepare::<f16>,
        DType::Bf16 => prepare::<bf16>,
        // The mean of 64-bit integers needs a wider sum.
        DType::I64 if kind != ReduceKind::Mean => prepare::<i64>,
        DType::I32 => prepare::<i32>,
        _ => return None,
    };
    let axes = [first, last + 1];
    Some(Selected::new("reduce", 1, move |shapes| Ok(prepare(kind, axes, shapes))))
}

/// Elements with a wider type to reduce them in.
trait Reducible: Pod + Send + Sync {
    type Wide: Copy + Send + Sync;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn neutral(kind: ReduceKind) -> Self::Wide;
    fn step(kind: ReduceKind, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn finish(kind: ReduceKind, wide: Self::Wide, count: usize) -> Self::Wide;
}

macro_rules! float {
    ($type:ty, $widen:expr, $narrow:expr) => {
        impl Reducible for $type {
            type Wide = f64;

            #[inline(always)]
            fn widen(self) -> f64 {
                $widen(self)
            }

            fn narrow(wide: f64) -> $type {
                $narrow(wide)
            }

            fn neutral(kind: ReduceKind) -> f64 {
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => 0.0,
                    ReduceKind::Prod => 1.0,
                    ReduceKind::Max => f64::NEG_INFINITY,
                    ReduceKind::Min => f64::INFINITY,
                }
            }

            #[inline(always)]
            fn step(kind: ReduceKind, a: f64, b: f64) -> f64 {
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => a + b,
                    ReduceKind::Prod => a * b,
                    ReduceKind::Max => {
                        if a > b || a.is_nan() {
                            a
                        } else {
                            b
                        }
                    }
                    ReduceKind::Min => {
                        if a < b || a.is_nan() {
                            a
                        } else {
                            b
                        }
                    }
                }
            }

            fn finish(kind: ReduceKind, wide: f64, count: usize) -> f64 {
                if kind == ReduceKind::Mean { wide / count as f64 } else { wide }
            }
        }
    };
}

float!(f64, |x| x, |x| x);
float!(f32, f64::from, |x| x as f32);
float!(f16, |x: f16| x.to_f64(), f16::from_f64);
float!(bf16, |x: bf16| x.to_f64(), bf16::from_f64);

macro_rules! integer {
    ($type:ident) => {
        impl Reducible for $type {
            type Wide = i64;

            #[inline(always)]
            fn widen(self) -> i64 {
                self.into()
            }

            fn narrow(wide: i64) -> $type {
                wide as $type
            }

            fn neutral(kind: ReduceKind) -> i64 {
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => 0,
                    ReduceKind::Prod => 1,
                    ReduceKind::Max => $type::MIN.into(),
                    ReduceKind::Min => $type::MAX.into(),
                }
            }

            #[inline(always)]
            fn step(kind: ReduceKind, a: i64, b: i64) -> i64 {
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => a.wrapping_add(b),
                    ReduceKind::Prod => a.wrapping_mul(b),
                    ReduceKind::Max => a.max(b),
                    ReduceKind::Min => a.min(b),
                }
            }

            fn finish(kind: ReduceKind, wide: i64, count: usize) -> i64 {
                if kind == ReduceKind::Mean {
                    wide.checked_div(count as i64).unwrap_or(0)
                } else {
                    wide
                }
            }
        }
    };
}

integer!(i64);
integer!(i32);

/// Reduces the middle of `[outer, middle, inner]`.
fn prepare<T: Reducible>(kind: ReduceKind, axes: [usize; 2], shapes: &Shapes<'_>) -> Run {
    let view: View = shapes.operands[0].clone();
    let [first, end] = axes;
    let middle: usize = view.shape[first..end].iter().product();
    let inner: usize = view.shape[end..].iter().product();
    let outer: usize = view.shape[..first].iter().product();
    Box::new(move |call: &mut Call<'_, '_>| {
        if outer * inner == 0 {
            return Ok(());
        }
        let packed;
        let x: &[T] = match call.sources[0] {
            Source::Shared(bytes) if view.is_contiguous() => cast(bytes)?,
            _ => {
                packed = tensor(&view, call.bytes(0)?)?;
                cast(packed.bytes())?
            }
        };
        let block = |(index, out): (usize, &mut [T])| {
            let x = &x[index * middle * inner..(index + 1) * middle * inner];
            pulp::Arch::new().dispatch(Block { kind, middle, inner, x, out });
        };
        let out = &mut call.output::<T>(0)?[..outer * inner];
        if x.len() < PARALLEL_ELEMENTS {
            out.chunks_mut(inner).enumerate().for_each(block);
        } else {
            let least = (PARALLEL_ELEMENTS / 2).div_ceil((middle * inner).max(1));
            out.par_chunks_mut(inner).enumerate().with_min_len(least).for_each(block);
        }
        Ok(())
    })
}

struct Block<'a, T> {
    kind: ReduceKind,
    middle: usize,
    inner: usize,
    x: &'a [T],
    out: &'a mut [T],
}

impl<T: Reducible> pulp::NullaryFnOnce for Block<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        // Each reduction gets a loop of its own, so that it vectorises.
        match self.kind {
            ReduceKind::Sum => self.reduce(ReduceKind::Sum),
            ReduceKind::Mean => self.reduce(ReduceKind::Mean),
            ReduceKind::Prod => self.reduce(ReduceKind::Prod),
            ReduceKind::Max => self.reduce(ReduceKind::Max),
            ReduceKind::Min => self.reduce(ReduceKind::Min),
        }
    }
}

impl<T: Reducible> Block<'_, T> {
    #[inline(always)]
    fn reduce(self, kind: ReduceKind) {
        const LANES: usize = 16;
        let Block { middle, inner, x, out, .. } = self;
        let finish = |wide| T::narrow(T::finish(kind, wide, middle));
        if inner == 1 {
            let mut lanes = [T::neutral(kind); LANES];
            let chunks = x.chunks_exact(LANES);
            let rest = chunks.remainder();
            for chunk in chunks {
                for (lane, x) in lanes.iter_mut().zip(chunk) {
                    *lane = T::step(kind, *lane, x.widen());
                }
            }
            let rest = rest.iter().fold(T::neutral(kind), |a, x| T::step(kind, a, x.widen()));
            out[0] = finish(lanes.iter().fold(rest, |a, b| T::step(kind, a, *b)));
            return;
        }
        let mut sums = vec![T::neutral(kind); inner];
        for row in x.chunks(inner).take(middle) {
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum = T::step(kind, *sum, x.widen());
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = finish(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Random, check_op};
    use membar_ir::types::Axis;

    #[test]
    fn reductions_agree_with_the_reference() {
        let kinds =
            [ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min];
        let mut random = Random::new(51);
        for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I64, DType::I32] {
            for shape in [[3, 5, 37], [1, 0, 4], [2, 41, 1]] {
                let x = random.tensor(dtype, &shape);
                for kind in kinds {
                    for axes in [&[2][..], &[1], &[0], &[1, 2], &[0, 2], &[0, 1, 2], &[]] {
                        let axes = axes.iter().map(|axis| Axis(*axis)).collect();
                        check_op(
                            Reduce { kind, axes, keep: kind == ReduceKind::Sum },
                            std::slice::from_ref(&x),
                        );
                    }
                }
            }
        }
        let large = random.tensor(DType::F32, &[130, 301]);
        for axis in 0..2 {
            let axes = vec![Axis(axis)];
            check_op(
                Reduce { kind: ReduceKind::Mean, axes, keep: true },
                std::slice::from_ref(&large),
            );
        }
    }
}
