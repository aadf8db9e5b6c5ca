//! Kernels that work on one row at a time: softmax, its logarithm, layer and root-mean-square
//! normalisation, in f32 whatever the element type; must never read a row twice from memory.

use super::elementwise::math;
use super::matmul::Widen;
use super::reference::tensor;
use crate::cpu::arena::Source;
use crate::cpu::program::{Call, Run, Selected, Shapes, cast};
use crate::cpu::view::View;
use bytemuck::Pod;
use half::{bf16, f16};
use membar_ir::dtype::DType;
use membar_ir::op::EvalError;
use membar_ir::ops::{LayerNorm, LogSoftmax, RmsNorm, Softmax};
use membar_ir::types::{Axis, TensorType};
use rayon::prelude::*;

/// Elements below which a kernel runs on one thread.
const PARALLEL_ELEMENTS: usize = 16 << 10;

/// What becomes of a row. `scale` and `bias` are as long as the row, or empty.
#[derive(Clone, Copy, Debug)]
enum Function {
    Softmax,
    LogSoftmax,
    LayerNorm { epsilon: f32 },
    RmsNorm { epsilon: f32 },
}

/// `softmax` along the innermost axis; `None` for another, or another type.
pub(crate) fn softmax(op: &Softmax, operands: &[TensorType]) -> Option<Selected> {
    select("softmax", Function::Softmax, op.axis, 1, operands)
}

/// `log_softmax` along the innermost axis; `None` for another, or another type.
pub(crate) fn log_softmax(op: &LogSoftmax, operands: &[TensorType]) -> Option<Selected> {
    select("log_softmax", Function::LogSoftmax, op.axis, 1, operands)
}

/// `layer_norm` without statistics, scale and bias as long as a row; `None` for others.
pub(crate) fn layer_norm(op: &LayerNorm, operands: &[TensorType]) -> Option<Selected> {
    let function = Function::LayerNorm { epsilon: op.epsilon.0 as f32 };
    let rank = operands[0].rank() - op.axis.index();
    (!op.statistics).then(|| select("layer_norm", function, op.axis, rank, operands))?
}

/// `rms_norm`, the scale as long as a row; `None` for others.
pub(crate) fn rms_norm(op: &RmsNorm, operands: &[TensorType]) -> Option<Selected> {
    let function = Function::RmsNorm { epsilon: op.epsilon.0 as f32 };
    let rank = operands[0].rank() - op.axis.index();
    select("rms_norm", function, op.axis, rank, operands)
}

/// A kernel over rows of the `rank` innermost dimensions, which begin at `axis`.
fn select(
    name: &str,
    function: Function,
    axis: Axis,
    rank: usize,
    operands: &[TensorType],
) -> Option<Selected> {
    let x = &operands[0];
    let fits = |ty: &TensorType| ty.dtype == x.dtype && ty.shape == x.shape[axis.index()..];
    if axis.index() + rank != x.rank() || !operands[1..].iter().all(fits) {
        return None;
    }
    let prepare: fn(Function, usize, &Shapes<'_>) -> Run = match x.dtype {
        DType::F32 => prepare::<f32>,
        DType::F16 => prepare::<f16>,
        DType::Bf16 => prepare::<bf16>,
        _ => return None,
    };
    let prepare = move |shapes: &Shapes<'_>| Ok(prepare(function, axis.index(), shapes));
    Some(Selected::new(name, operands.len(), prepare).in_place(0, 0))
}

/// Element types that a row is computed in f32 for.
trait Narrow: Widen {
    fn narrow(x: f32) -> Self;
}

impl Narrow for f32 {
    #[inline(always)]
    fn narrow(x: f32) -> f32 {
        x
    }
}

impl Narrow for f16 {
    #[inline(always)]
    fn narrow(x: f32) -> f16 {
        f16::from_f32(x)
    }
}

impl Narrow for bf16 {
    #[inline(always)]
    fn narrow(x: f32) -> bf16 {
        bf16::from_f32(x)
    }
}

fn prepare<T: Narrow>(function: Function, axis: usize, shapes: &Shapes<'_>) -> Run {
    let views: Vec<View> = shapes.operands.to_vec();
    let length: usize = views[0].shape[axis..].iter().product();
    let elements = views[0].elements();
    let tasks = if elements < PARALLEL_ELEMENTS { 1 } else { 4 * rayon::current_num_threads() };
    let rows = (elements / length.max(1)).div_ceil(tasks).max(1);
    Box::new(move |call: &mut Call<'_, '_>| {
        if elements == 0 {
            return Ok(());
        }
        let parameters = [parameter::<T>(call, &views, 1)?, parameter::<T>(call, &views, 2)?];
        let packed;
        let x: Option<&[T]> = match call.sources[0] {
            Source::InPlace(_) => None,
            Source::Shared(bytes) if views[0].is_contiguous() => Some(cast(bytes)?),
            Source::Shared(bytes) => {
                packed = tensor(&views[0], bytes)?;
                Some(cast(packed.bytes())?)
            }
        };
        let task = |index: usize, out: &mut [T]| {
            let x = x.map(|x| &x[index * rows * length..][..out.len()]);
            pulp::Arch::new().dispatch(Task { function, length, parameters: &parameters, x, out });
        };
        let out = &mut call.output::<T>(0)?[..elements];
        if out.len() <= rows * length {
            task(0, out);
        } else {
            out.par_chunks_mut(rows * length).enumerate().for_each(|(i, out)| task(i, out));
        }
        Ok(())
    })
}

/// Scale or bias as f32; empty if there is none.
fn parameter<T: Narrow>(
    call: &Call<'_, '_>,
    views: &[View],
    index: usize,
) -> Result<Vec<f32>, EvalError> {
    let Some(view) = views.get(index) else { return Ok(Vec::new()) };
    let packed = tensor(view, call.bytes(index)?)?;
    Ok(cast::<T>(packed.bytes())?.iter().map(|x| x.widen()).collect())
}

struct Task<'a, T> {
    function: Function,
    length: usize,
    parameters: &'a [Vec<f32>; 2],
    /// The rows to read; `None`: the results lie in their place.
    x: Option<&'a [T]>,
    out: &'a mut [T],
}

impl<T: Narrow + Pod> pulp::NullaryFnOnce for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Task { function, length, parameters: [scale, bias], x, out } = self;
        let mut row = vec![0f32; length];
        for (index, out) in out.chunks_mut(length).enumerate() {
            let from: &[T] = match x {
                Some(x) => &x[index * length..(index + 1) * length],
                None => out,
            };
            for (to, x) in row.iter_mut().zip(from) {
                *to = x.widen();
            }
            match function {
                Function::Softmax => softmax_row(&mut row),
                Function::LogSoftmax => log_softmax_row(&mut row),
                Function::LayerNorm { epsilon } => {
                    let mean = sum(&row, |x| x) / length as f32;
                    row.iter_mut().for_each(|x| *x -= mean);
                    normalise(&mut row, epsilon, scale, bias);
                }
                Function::RmsNorm { epsilon } => normalise(&mut row, epsilon, scale, bias),
            }
            for (to, x) in out.iter_mut().zip(&row) {
                *to = T::narrow(*x);
            }
        }
    }
}

#[inline(always)]
fn softmax_row(row: &mut [f32]) {
    let greatest = greatest(row);
    row.iter_mut().for_each(|x| *x = math::exp(*x - greatest));
    let factor = 1.0 / sum(row, |x| x);
    row.iter_mut().for_each(|x| *x *= factor);
}

#[allow(clippy::redundant_closure, reason = "a function's name is called one element at a time")]
#[inline(always)]
fn log_softmax_row(row: &mut [f32]) {
    let greatest = greatest(row);
    row.iter_mut().for_each(|x| *x -= greatest);
    let logarithm = sum(row, |x| math::exp(x)).ln();
    row.iter_mut().for_each(|x| *x -= logarithm);
}

/// Divides by the root of the mean square, then scales and shifts.
#[inline(always)]
fn normalise(row: &mut [f32], epsilon: f32, scale: &[f32], bias: &[f32]) {
    let square = sum(row, |x| x * x) / row.len() as f32;
    let factor = 1.0 / (square + epsilon).sqrt();
    for (x, scale) in row.iter_mut().zip(scale) {
        *x = *x * factor * scale;
    }
    for (x, bias) in row.iter_mut().zip(bias) {
        *x += bias;
    }
}

/// How many partial results vectorise.
const LANES: usize = 32;

#[inline(always)]
fn sum(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().map(|x| f(*x)).sum();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f(*x);
        }
    }
    lanes.iter().sum::<f32>() + rest
}

/// The greatest element; a NaN shows in the sum of exponentials.
#[inline(always)]
fn greatest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = row.chunks_exact(LANES);
    for (lane, x) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = *x;
    }
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    lanes.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Random, check_op, sure};
    use membar_ir::attribute::Float;
    use membar_ir::tensor::Tensor;

    #[test]
    fn rows_agree_with_the_definitions() {
        let mut random = Random::new(41);
        let epsilon = Float(1e-5);
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for shape in [&[3, 5, 67][..], &[1, 1], &[2, 129], &[40, 9, 64]] {
                let x = random.tensor(dtype, shape);
                let axis = Axis(shape.len() as u32 - 1);
                check_op(Softmax { axis }, std::slice::from_ref(&x));
                check_op(LogSoftmax { axis }, std::slice::from_ref(&x));
                for axis in 0..shape.len() {
                    let scale = random.tensor(dtype, &shape[axis..]);
                    let shift = random.tensor(dtype, &shape[axis..]);
                    let axis = Axis(axis as u32);
                    check_op(RmsNorm { axis, epsilon }, &[x.clone(), scale.clone()]);
                    let op = LayerNorm { axis, epsilon, bias: false, statistics: false };
                    check_op(op.clone(), &[x.clone(), scale.clone()]);
                    check_op(LayerNorm { bias: true, ..op }, &[x.clone(), scale, shift]);
                }
            }
        }
    }

    #[test]
    fn infinities_and_nan_give_what_the_definition_does() {
        let rows = [
            [1.0, f32::NEG_INFINITY, 2.0],
            [f32::NEG_INFINITY; 3],
            [f32::NAN, 1.0, 2.0],
            [f32::INFINITY, 1.0, 2.0],
            [-3e38, -3e38, -3e38],
            [1e4, -1e4, 0.0],
        ];
        let x = sure(Tensor::from_elements(&[6, 3], rows.as_flattened()));
        check_op(Softmax { axis: Axis(1) }, std::slice::from_ref(&x));
        check_op(LogSoftmax { axis: Axis(1) }, &[x]);
    }
}
