//! `pool`: its attributes, inference and meaning; nothing of any other operator.

use super::values::{floats, integers, lowest, store};
use super::window::{LIMIT, Sweep, Window};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::movement::{Elements, change, copy_runs};
use crate::op::{EvalError, Evaluation, Meaning, OpDef, TypeError, check};
use crate::tensor::Tensor;
use crate::types::ConcreteType;
use crate::types::TensorType;
use crate::{attribute_words, operator};

operator! {
    /// Pooling over windows in the spatial dimensions of `[N, C, D…]`.
    ///
    /// Results: the pooled tensor and, if `indices` (for `max` alone), the index of each maximum
    /// in the flattened operand, `i64`, the first of equals; NaN counts as greatest. Padding never
    /// wins a maximum. A window over padding alone gives the least value with index -1, or 0 where
    /// elements are added up. `before` and `after` are explicit; automatic padding is resolved
    /// before.
    Pool {
        /// What a window becomes.
        kind: PoolKind,
        /// Size of the window.
        kernel: Vec<i64>,
        /// Steps of the window.
        strides: Vec<i64>,
        /// Steps inside the window.
        dilations: Vec<i64>,
        /// Padding before each spatial dimension.
        before: Vec<i64>,
        /// Padding after it.
        after: Vec<i64>,
        /// Whether windows that reach over the end count; one that begins in the padding after the
        /// end never does.
        ceil: bool,
        /// Whether `average` divides by the window's elements over the operand and its padding,
        /// else by those over the operand alone.
        count_padding: bool,
        /// The p of `lp`; 2 otherwise.
        power: i64,
        /// Whether indices are a result too.
        indices: bool,
        /// Whether indices count columns first.
        column_major: bool,
    }
}

attribute_words! {
    /// What a window becomes.
    PoolKind {
        /// Its greatest element.
        Max = "max",
        /// Its mean.
        Average = "average",
        /// `(Σ |x|^p)^(1/p)`.
        Lp = "lp",
    }
}

impl OpDef for Pool {
    const MNEMONIC: &'static str = "pool";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::rank_at_least(operands, 0, 3)?;
        match self.kind {
            PoolKind::Max => check::dtype(operands, 0, "a number", |d| d != DType::Bool)?,
            PoolKind::Average | PoolKind::Lp => {
                check::dtype(operands, 0, "a floating-point type", DType::is_float)?
            }
        };
        let window = self.window();
        window.check(x.rank() - 2)?;
        window.check_padding()?;
        check::length("kernel", self.kernel.len(), x.rank() - 2)?;
        if let Some(size) = self.kernel.iter().find(|size| !(1..=LIMIT).contains(*size)) {
            return Err(TypeError::invalid(format!(
                "a window of {size} elements, expected 1..={LIMIT}"
            )));
        }
        if self.indices && self.kind != PoolKind::Max {
            return Err(TypeError::invalid("indices are a result of `max` alone"));
        }
        if self.power < 1 {
            return Err(TypeError::invalid(format!("a power of {}", self.power)));
        }
        let mut shape = x.shape[..2].to_vec();
        for (axis, (extent, kernel)) in x.shape[2..].iter().zip(&self.kernel).enumerate() {
            shape.push(window.count(axis, extent, &Dim::from(*kernel), self.ceil)?);
        }
        let mut results = vec![TensorType::new(x.dtype, shape.clone())];
        if self.indices {
            results.push(TensorType::new(DType::I64, shape));
        }
        Ok(results)
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        Meaning::primitive(self, evaluate)
    }

    fn operations(&self, _operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        self.kernel.iter().map(|size| Dim::from(*size)).product::<Dim>() * outputs[0].elements()
    }
}

fn evaluate(op: &Pool, evaluation: &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (x, ty) = (&evaluation.operands[0], &evaluation.outputs[0]);
    let kernel: Vec<usize> = op.kernel.iter().map(|size| *size as usize).collect();
    let window = op.window();
    let sweep = window.sweep(&x.shape()[2..], &kernel, &ty.shape[2..]);
    match op.kind {
        PoolKind::Average => Ok(vec![pool_floats(x, ty, &sweep, |elements, place| {
            let count = if op.count_padding { sweep.padded_taps(place) } else { elements.len() };
            elements.iter().fold(0.0, |sum, x| sum + x) / count.max(1) as f64
        })?]),
        PoolKind::Lp => {
            let power = op.power as f64;
            Ok(vec![pool_floats(x, ty, &sweep, |elements, _| {
                let sum: f64 = elements.iter().map(|x| libm::pow(x.abs(), power)).sum();
                libm::pow(sum, 1.0 / power)
            })?])
        }
        PoolKind::Max => {
            let winners = if x.dtype().is_float() {
                maxima(&floats(x), x, ty, &sweep)
            } else {
                maxima(&integers(x), x, ty, &sweep)
            };
            let mut results = vec![chosen(x, ty, &winners)?];
            if op.indices {
                let spatial = &x.shape()[2..];
                let index = |winner: &Option<usize>| match winner {
                    Some(place) if op.column_major => column_major(*place, spatial) as i64,
                    Some(place) => *place as i64,
                    None => -1,
                };
                let indices: Vec<i64> = winners.iter().map(index).collect();
                results.push(Tensor::from_elements(&ty.shape, &indices)?);
            }
            Ok(results)
        }
    }
}

/// Calls `visit` with each result's place, its window's place, and the places in the operand
/// beneath the window.
fn for_each_window(
    x: &Tensor,
    ty: &ConcreteType,
    sweep: &Sweep<'_>,
    mut visit: impl FnMut(usize, usize, &mut dyn Iterator<Item = usize>),
) {
    let area: usize = x.shape()[2..].iter().product();
    let windows: usize = ty.shape[2..].iter().product();
    let lines: usize = ty.shape[..2].iter().product();
    if lines == 0 {
        return;
    }
    for window in 0..windows {
        let taps = sweep.inside(window);
        for line in 0..lines {
            let mut places = taps.iter().map(|tap| line * area + tap);
            visit(line * windows + window, window, &mut places);
        }
    }
}

fn pool_floats(
    x: &Tensor,
    ty: &ConcreteType,
    sweep: &Sweep<'_>,
    reduce: impl Fn(&[f64], usize) -> f64,
) -> Result<Tensor, EvalError> {
    let values = floats(x);
    let mut result = vec![0.0; ty.elements()];
    let mut elements = Vec::new();
    for_each_window(x, ty, sweep, |place, window, beneath| {
        elements.clear();
        elements.extend(beneath.map(|at| values[at]));
        result[place] = reduce(&elements, window);
    });
    Ok(store(ty, &result)?)
}

/// The place of each window's greatest element, the first of equals; NaN counts as greatest.
fn maxima<T: PartialOrd>(
    values: &[T],
    x: &Tensor,
    ty: &ConcreteType,
    sweep: &Sweep<'_>,
) -> Vec<Option<usize>> {
    let is_nan = |value: &T| value.partial_cmp(value).is_none();
    let mut winners = vec![None; ty.elements()];
    for_each_window(x, ty, sweep, |place, _, beneath| {
        winners[place] = beneath.reduce(|best, next| {
            let (old, new) = (&values[best], &values[next]);
            if new > old || (is_nan(new) && !is_nan(old)) { next } else { best }
        });
    });
    winners
}

/// The elements at the winners' places; the least value of the type where there is none.
fn chosen(x: &Tensor, ty: &ConcreteType, winners: &[Option<usize>]) -> Result<Tensor, EvalError> {
    let mut result = Tensor::zeros(ty.clone());
    for (place, _) in winners.iter().enumerate().filter(|(_, winner)| winner.is_none()) {
        result.set(place, lowest(ty.dtype));
    }
    let elements = Elements::of(x);
    change(result, |target| {
        let places = winners.iter().enumerate();
        let places = places.filter_map(|(to, from)| from.map(|from| (from, to)));
        copy_runs(elements.width, 1, &elements.bytes, target, places);
        Ok(())
    })
}

/// The same place counted with the first spatial dimension innermost; batches and channels stay
/// outermost.
fn column_major(place: usize, spatial: &[usize]) -> usize {
    let area: usize = spatial.iter().product();
    let mut rest = place % area;
    let mut stride = area;
    let mut result = place - rest;
    for extent in spatial.iter().rev() {
        stride /= extent;
        result += rest % extent * stride;
        rest /= extent;
    }
    result
}

impl Pool {
    fn window(&self) -> Window<'_> {
        Window {
            strides: &self.strides,
            dilations: &self.dilations,
            before: &self.before,
            after: &self.after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, evaluate, evaluate_one, floats, symbolic};
    use crate::testing::{tensor, tensor_of};
    use std::slice::from_ref;

    fn pool(kind: PoolKind, kernel: &[i64]) -> Pool {
        let zeros = vec![0; kernel.len()];
        Pool {
            kind,
            kernel: kernel.to_vec(),
            strides: vec![1; kernel.len()],
            dilations: vec![1; kernel.len()],
            before: zeros.clone(),
            after: zeros,
            ceil: false,
            count_padding: false,
            power: 2,
            indices: false,
            column_major: false,
        }
    }

    /// What lies under each window of a line; `None` is padding.
    fn windows(op: &Pool, line: &[f64], count: usize) -> Vec<Vec<Option<f64>>> {
        let at = |position: i64| usize::try_from(position).ok().and_then(|i| line.get(i).copied());
        let end = line.len() as i64 + op.after[0];
        let window = |i: i64| {
            let places = (0..op.kernel[0]).map(|k| i * op.strides[0] + k * op.dilations[0]);
            places.map(|p| p - op.before[0]).filter(|p| *p < end).map(at).collect()
        };
        (0..count as i64).map(window).collect()
    }

    #[test]
    fn windows_become_what_their_kind_says() {
        let mut random = Random::new(25);
        for (kernel, stride, dilation, before, after, ceil, count) in [
            (3, 1, 1, 0, 0, false, 9),
            (3, 2, 1, 1, 1, false, 6),
            (2, 3, 2, 1, 0, true, 4),
            (4, 3, 1, 3, 2, true, 5),
        ] {
            let x = random.tensor(DType::F32, &[2, 3, 11]);
            for (kind, count_padding, power) in [
                (PoolKind::Max, false, 2),
                (PoolKind::Average, false, 2),
                (PoolKind::Average, true, 2),
                (PoolKind::Lp, false, 1),
                (PoolKind::Lp, false, 3),
            ] {
                let op = Pool {
                    strides: vec![stride],
                    dilations: vec![dilation],
                    before: vec![before],
                    after: vec![after],
                    ceil,
                    count_padding,
                    power,
                    ..pool(kind, &[kernel])
                };
                let values = floats(&x);
                let lines = values.chunks(11).flat_map(|line| windows(&op, line, count));
                let expected: Vec<f64> = lines
                    .map(|window| {
                        let inside: Vec<f64> = window.iter().flatten().copied().collect();
                        let divisor = if count_padding { window.len() } else { inside.len() };
                        match kind {
                            PoolKind::Max => inside.into_iter().fold(f64::NEG_INFINITY, f64::max),
                            PoolKind::Average => inside.iter().sum::<f64>() / divisor as f64,
                            PoolKind::Lp => {
                                let power = power as i32;
                                let sum: f64 = inside.iter().map(|x| x.abs().powi(power)).sum();
                                sum.powf(1.0 / f64::from(power))
                            }
                        }
                    })
                    .collect();
                let expected = tensor_of(DType::F32, &[2, 3, count], &expected);
                assert_close(&evaluate_one(op, from_ref(&x)), &expected, 4);
            }
        }
    }

    #[test]
    fn maxima_know_where_they_came_from() {
        let mut random = Random::new(26);
        let x = random.tensor(DType::F32, &[2, 2, 5, 4]);
        for column_major in [false, true] {
            let op = Pool {
                strides: vec![2, 1],
                before: vec![1, 0],
                indices: true,
                column_major,
                ..pool(PoolKind::Max, &[2, 3])
            };
            let results = evaluate(op, from_ref(&x));
            assert_eq!(results[0].shape(), [2, 2, 3, 2]);
            for (place, number) in results[1].numbers().enumerate() {
                let index = number.to_i64().unwrap_or(-1) as usize;
                let (plane, inside) = (index / 20, index % 20);
                let (row, column) =
                    if column_major { (inside % 5, inside / 5) } else { (inside / 4, inside % 4) };
                assert_eq!(x.get((plane * 5 + row) * 4 + column), results[0].get(place));
                assert_eq!(plane, place / 6);
            }
        }
    }

    #[test]
    fn integers_nan_and_padding() {
        let line = tensor(&[1, 1, 4], &[-3i8, -7, -128, -5]);
        let op = Pool { before: vec![1], after: vec![1], ..pool(PoolKind::Max, &[2]) };
        assert_eq!(evaluate_one(op, &[line]), tensor(&[1, 1, 5], &[-3i8, -3, -7, -5, -5]));
        let line = tensor(&[1, 1, 4], &[1f32, f32::NAN, 2.0, 3.0]);
        let result = evaluate_one(pool(PoolKind::Max, &[2]), from_ref(&line));
        assert!(result.get(0).to_float().is_nan() && result.get(1).to_float().is_nan());
        assert_eq!(result.get(2).to_float(), 3.0);
        // Windows over padding alone.
        let op = Pool { before: vec![2], indices: true, ..pool(PoolKind::Max, &[1]) };
        let results = evaluate(op.clone(), from_ref(&line));
        assert_eq!(results[0].get(0).to_float(), f64::NEG_INFINITY);
        assert_eq!(results[1].get(0).to_i64(), Some(-1));
        let op = Pool { kind: PoolKind::Average, indices: false, ..op };
        assert_eq!(evaluate_one(op, &[line]).get(0).to_float(), 0.0);
    }

    #[test]
    fn windows_may_be_far_larger_than_the_operand() {
        let x = tensor(&[1, 1, 2], &[1f32, 3.0]);
        let (huge, half) = (i64::from(i32::MAX), i64::from(i32::MAX) / 2);
        let op = Pool { before: vec![half], after: vec![half], ..pool(PoolKind::Average, &[huge]) };
        let result = evaluate_one(op, &[x]);
        assert_eq!(result, tensor(&[1, 1, 2], &[2f32; 2]));
    }

    #[test]
    fn shapes_and_misfits() {
        let x = symbolic(DType::F16, &["B", "C", "H", "W"]);
        let op = Pool { strides: vec![2, 2], ..pool(PoolKind::Average, &[2, 2]) };
        let half = |s| Dim::symbol(s).floor_div(&Dim::from(2)).unwrap_or(Dim::ZERO);
        let shape = vec![Dim::symbol("B"), Dim::symbol("C"), half("H"), half("W")];
        assert_eq!(op.infer(from_ref(&x)), Ok(vec![TensorType::new(DType::F16, shape)]));
        for wrong in [
            Pool { indices: true, ..op.clone() },
            Pool { power: 0, ..op.clone() },
            Pool { kernel: vec![2], ..op.clone() },
            Pool { kernel: vec![0, 1], ..op.clone() },
            Pool { before: vec![-1, 0], ..op.clone() },
        ] {
            assert!(wrong.infer(from_ref(&x)).is_err(), "{wrong:?}");
        }
        assert!(op.infer(&[symbolic(DType::I32, &["B", "C", "H", "W"])]).is_err());
        assert!(op.infer(&[TensorType::fixed(DType::F32, &[1, 1, 1, 4])]).is_err());
    }
}
