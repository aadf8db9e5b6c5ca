//! Rules about normalisations that exporters spell out; never another reduction.

use super::{Root, Rounding, Rule, Term, View};
use egg::Id;
use membar_ir::attribute::Float;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::op::check;
use membar_ir::ops::{LayerNorm, Op, ReduceKind, RmsNorm, Scalar};
use membar_ir::types::Axis;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "rms-norm",
        summary: "x / √(mean(x²) + epsilon) is rms_norm(x, 1)",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Scalar(Scalar::Mul | Scalar::Div)),
        witness: |op| matches!(op, Op::Reduce(_)),
        apply: rms_norm,
    },
    Rule {
        name: "layer-norm",
        summary: "(x - mean(x)) / √(mean((x - mean(x))²) + epsilon) is layer_norm(x, 1)",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Scalar(Scalar::Mul | Scalar::Div)),
        witness: |op| matches!(op, Op::Reduce(_)),
        apply: layer_norm,
    },
    Rule {
        name: "norm-scale",
        summary: "a norm without scale, times w, is the norm with scale w",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Scalar(Scalar::Mul)),
        witness: |op| matches!(op, Op::Reduce(_) | Op::LayerNorm(_) | Op::RmsNorm(_)),
        apply: norm_scale,
    },
    Rule {
        name: "norm-bias",
        summary: "a layer norm without bias, plus b, is the norm with bias b",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Scalar(Scalar::Add)),
        witness: |op| matches!(op, Op::Reduce(_) | Op::LayerNorm(_)),
        apply: norm_bias,
    },
    Rule {
        name: "norm-cast",
        summary: "a norm in f32 between two conversions is the norm of the narrow type",
        rounding: Rounding::Exact,
        root: |op| matches!(op, Op::Scalar(Scalar::Cast { .. })),
        witness: |op| matches!(op, Op::Reduce(_) | Op::LayerNorm(_) | Op::RmsNorm(_)),
        apply: norm_cast,
    },
];

/// `x` and what it is divided by the root of: `x / √y`, `x (1 / √y)`, `x rsqrt(y)`, `x y^-½`.
fn over_root<T>(
    view: &View<'_>,
    root: Root<'_>,
    matches: &dyn Fn(Id, Id) -> Option<T>,
) -> Option<T> {
    let [a, b] = root.operands else { return None };
    if matches!(root.op, Op::Scalar(Scalar::Div)) {
        return matches(*a, view.unary(*b, &Scalar::Sqrt)?);
    }
    [(*a, *b), (*b, *a)].into_iter().find_map(|(x, factor)| {
        view.any(factor, |op, operands| match (op, operands) {
            (Op::Scalar(Scalar::Rsqrt), [y]) => matches(x, *y),
            (Op::Scalar(Scalar::Reciprocal), [root]) => {
                matches(x, view.unary(*root, &Scalar::Sqrt)?)
            }
            (Op::Scalar(Scalar::Div), [one, root]) if view.uniform(*one) == Some(1.0) => {
                matches(x, view.unary(*root, &Scalar::Sqrt)?)
            }
            (Op::Scalar(Scalar::Pow), [y, power]) if view.uniform(*power) == Some(-0.5) => {
                matches(x, *y)
            }
            _ => None,
        })
    })
}

/// `y` and epsilon of `y + epsilon`, a number that is not negative.
fn plus_epsilon<T>(view: &View<'_>, sum: Id, matches: &dyn Fn(Id, f64) -> Option<T>) -> Option<T> {
    view.either(sum, &Scalar::Add, |y, epsilon| {
        let number = view.uniform(epsilon).filter(|number| *number >= 0.0)?;
        // A constant of higher rank would stretch the sum.
        (view.ty(y) == view.ty(sum)).then(|| matches(y, number))?
    })
}

/// What a class is the mean of over the innermost dimensions, which stay as 1, and the first of them:
/// a mean, or a sum over their number.
fn mean<T>(view: &View<'_>, id: Id, matches: &dyn Fn(Id, Axis) -> Option<T>) -> Option<T> {
    let reduced = |id: Id, wanted: ReduceKind, matches: &dyn Fn(Id, Axis) -> Option<T>| {
        view.any(id, |op, operands| {
            let (Op::Reduce(op), [x]) = (op, operands) else { return None };
            let rank = view.shape(*x).len();
            let first = op.axes.first()?;
            let innermost = op.axes.iter().map(|a| a.index()).eq(first.index()..rank);
            (op.kind == wanted && op.keep && innermost).then(|| matches(*x, *first))?
        })
    };
    reduced(id, ReduceKind::Mean, matches).or_else(|| {
        let (sum, factor) = view.scaled(id)?;
        reduced(sum, ReduceKind::Sum, &|x, axis| {
            let count: Dim = view.shape(x)[axis.index()..].iter().cloned().product();
            let count = count.as_constant()?;
            view.about(x, factor, 1.0 / count as f64).then(|| matches(x, axis))?
        })
    })
}

fn rms_norm(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    over_root(view, root, &|x, sum| {
        let (axis, epsilon) = plus_epsilon(view, sum, &|mean_square, epsilon| {
            mean(view, mean_square, &|square, axis| view.is_square(square, x).then_some(axis))
                .map(|axis| (axis, epsilon))
        })?;
        let one = Term::Constant(view.dtype(x)?, 1.0);
        let op = RmsNorm { axis, epsilon: Float(epsilon) };
        Some(Term::op(op, [Term::Class(x), one]))
    })
}

fn layer_norm(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    over_root(view, root, &|centred, sum| {
        let (axis, epsilon) = plus_epsilon(view, sum, &|variance, epsilon| {
            let of = |square: Id, axis| view.is_square(square, centred).then_some(axis);
            mean(view, variance, &of).map(|axis| (axis, epsilon))
        })?;
        let x = view.binary(centred, &Scalar::Sub, |x, subtracted| {
            let same = |of: Id, over| (view.same(of, x) && over == axis).then_some(x);
            mean(view, subtracted, &same)
        })?;
        let one = Term::Constant(view.dtype(x)?, 1.0);
        let (bias, statistics) = (false, false);
        let op = LayerNorm { axis, epsilon: Float(epsilon), bias, statistics };
        Some(Term::op(op, [Term::Class(x), one]))
    })
}

fn norm_scale(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let [a, b] = root.operands else { return None };
    [(*a, *b), (*b, *a)].into_iter().find_map(|(norm, scale)| {
        let unscaled = |one: Id| view.uniform(one) == Some(1.0);
        view.any(norm, |op, operands| match (op, operands) {
            (Op::RmsNorm(op), [x, one]) if unscaled(*one) => {
                let fits = is_parameter(view, *x, scale, op.axis);
                fits.then(|| Term::op(op.clone(), [*x, scale].map(Term::Class)))
            }
            (Op::LayerNorm(op), [x, one]) if unscaled(*one) && !op.statistics => {
                let fits = is_parameter(view, *x, scale, op.axis);
                fits.then(|| Term::op(op.clone(), [*x, scale].map(Term::Class)))
            }
            _ => None,
        })
    })
}

fn norm_bias(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let [a, b] = root.operands else { return None };
    [(*a, *b), (*b, *a)].into_iter().find_map(|(norm, bias)| {
        view.any(norm, |op, operands| match (op, operands) {
            (Op::LayerNorm(op), [x, scale])
                if !op.bias && !op.statistics && is_parameter(view, *x, bias, op.axis) =>
            {
                let op = LayerNorm { bias: true, ..op.clone() };
                Some(Term::op(op, [*x, *scale, bias].map(Term::Class)))
            }
            _ => None,
        })
    })
}

/// Whether a value broadcasts to `x` and varies along its normalised dimensions alone.
fn is_parameter(view: &View<'_>, x: Id, value: Id, axis: Axis) -> bool {
    let (shape, found) = (view.shape(x), view.shape(value));
    let outer = found.len().saturating_sub(shape.len() - axis.index());
    view.dtype(value).is_some_and(DType::is_float)
        && check::broadcasts_to(found, shape).is_ok()
        && found[..outer].iter().all(|dim| dim.is(1))
}

fn norm_cast(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let (Op::Scalar(Scalar::Cast { to, .. }), [norm]) = (root.op, root.operands) else {
        return None;
    };
    // The norm computes in the type that it is converted from now.
    let narrow = to.is_float() && Some(to.compute()) == view.dtype(*norm);
    narrow.then_some(())?;
    view.any(*norm, |op, operands| {
        let single = match op {
            Op::RmsNorm(_) => true,
            Op::LayerNorm(op) => !op.statistics,
            _ => false,
        };
        let (true, Some((x, parameters))) = (single, operands.split_first()) else { return None };
        view.any(*x, |cast, from| match (cast, from) {
            (Op::Scalar(Scalar::Cast { .. }), [from]) if view.dtype(*from) == Some(*to) => {
                let operands = std::iter::once(from).chain(parameters);
                Some(Term::op(op.clone(), operands.map(|id| Term::Class(*id)).collect::<Vec<_>>()))
            }
            _ => None,
        })
    })
}
