//! Rules about activation functions that exporters spell out; never a product.

use super::{Root, Rounding, Rule, Term, View};
use egg::Id;
use membar_ir::attribute::Float;
use membar_ir::ops::{GeluForm, Op, Scalar};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "sigmoid",
        summary: "1 / (1 + e⁻ˣ) is sigmoid(x)",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Scalar(Scalar::Div | Scalar::Reciprocal)),
        witness: |op| matches!(op, Op::Scalar(Scalar::Exp)),
        apply: sigmoid,
    },
    Rule {
        name: "swish",
        summary: "x sigmoid(beta x) is swish(x), and x / (1 + e⁻ˣ) too",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Scalar(Scalar::Mul | Scalar::Div)),
        witness: |op| matches!(op, Op::Scalar(Scalar::Exp | Scalar::Sigmoid)),
        apply: swish,
    },
    Rule {
        name: "gelu-erf",
        summary: "0.5 x (1 + erf(x / √2)), in any order of factors, is gelu(x)",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Scalar(Scalar::Mul | Scalar::Div)),
        witness: |op| matches!(op, Op::Scalar(Scalar::Erf)),
        apply: gelu_erf,
    },
    Rule {
        name: "gelu-tanh",
        summary: "0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), in any order of factors, is gelu(x)",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Scalar(Scalar::Mul | Scalar::Div)),
        witness: |op| matches!(op, Op::Scalar(Scalar::Tanh)),
        apply: gelu_tanh,
    },
];

/// The factor of Quick GELU.
const QUICK: f64 = 1.702;

fn sigmoid(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let sum = match (root.op, root.operands) {
        (Op::Scalar(Scalar::Div), [one, sum]) if view.uniform(*one) == Some(1.0) => *sum,
        (Op::Scalar(Scalar::Reciprocal), [sum]) => *sum,
        _ => return None,
    };
    let x = one_plus(view, sum, &|power| negated_power(view, power))?;
    Some(Term::op(Scalar::Sigmoid, [Term::Class(x)]))
}

fn swish(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let [a, b] = root.operands else { return None };
    if matches!(root.op, Op::Scalar(Scalar::Div)) {
        let x = one_plus(view, *b, &|power| negated_power(view, power))?;
        let swish = Scalar::Swish { beta: Float(1.0) };
        return view.same(x, *a).then(|| Term::op(swish, [Term::Class(x)]));
    }
    [(*a, *b), (*b, *a)].into_iter().find_map(|(x, factor)| {
        let inner = view.unary(factor, &Scalar::Sigmoid)?;
        let beta = if view.same(inner, x) {
            1.0
        } else {
            let (of, beta) = view.scaled(inner)?;
            view.same(of, x).then_some(beta)?
        };
        let quick = view.about(x, beta, QUICK);
        let op = match quick {
            true => Scalar::Gelu { form: GeluForm::Quick },
            false => Scalar::Swish { beta: Float(beta) },
        };
        Some(Term::op(op, [Term::Class(x)]))
    })
}

fn gelu_erf(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    gelu(view, root, GeluForm::Erf, &|sum| {
        let inner = one_plus(view, sum, &|erf| view.unary(erf, &Scalar::Erf))?;
        let (x, factor) = view.scaled(inner)?;
        view.about(x, factor, FRAC_1_SQRT_2).then_some(x)
    })
}

fn gelu_tanh(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    gelu(view, root, GeluForm::Tanh, &|sum| {
        let inner = one_plus(view, sum, &|tanh| view.unary(tanh, &Scalar::Tanh))?;
        // √(2/π)
        let outer = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
        let with_cube = |sum: Id| {
            view.either(sum, &Scalar::Add, |x, cube| {
                let cubic = view.product(cube, &[x]);
                (cubic.is(view, &[x, x, x], 0.044715)).then_some(x)
            })
        };
        // The sum as such, or x outside of it.
        let found = view
            .scaled(inner)
            .and_then(|(sum, factor)| with_cube(sum).filter(|x| view.about(*x, factor, outer)));
        found.or_else(|| {
            let product = view.product(inner, &[]);
            product.factors.iter().find_map(|sum| {
                let x = product.factors.iter().copied().find(|x| {
                    let square = |square: Id| {
                        let product = view.product(square, &[*x]);
                        product.is(view, &[*x, *x], 0.044715).then_some(())
                    };
                    !view.same(*x, *sum) && one_plus(view, *sum, &square).is_some()
                })?;
                product.is(view, &[x, *sum], outer).then_some(x)
            })
        })
    })
}

/// `0.5 x f` in any order, where `matches` gives `x` for the factor `f`.
fn gelu(
    view: &View<'_>,
    root: Root<'_>,
    form: GeluForm,
    matches: &dyn Fn(Id) -> Option<Id>,
) -> Option<Term> {
    let factors = view.product(root.class, &[]).factors;
    factors.into_iter().find_map(|factor| {
        let x = matches(factor)?;
        let product = view.product(root.class, &[x, factor]);
        let whole = product.is(view, &[x, factor], 0.5);
        whole.then(|| Term::op(Scalar::Gelu { form }, [Term::Class(x)]))
    })
}

/// `1 + y`, where `matches` takes `y`.
fn one_plus<T>(view: &View<'_>, sum: Id, matches: &dyn Fn(Id) -> Option<T>) -> Option<T> {
    view.either(sum, &Scalar::Add, |one, other| {
        (view.uniform(one) == Some(1.0)).then(|| matches(other))?
    })
}

/// `x` of `e⁻ˣ`.
fn negated_power(view: &View<'_>, power: Id) -> Option<Id> {
    view.unary(view.unary(power, &Scalar::Exp)?, &Scalar::Neg)
}
