//! Rules about movements; never one that changes a number.

use super::count::linear;
use super::{Root, Rounding, Rule, Term, View};
use egg::Id;
use membar_ir::dim::Dim;
use membar_ir::ops::{Op, Transpose};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "merge-transposes",
        summary: "two transpositions in a row are one, or none",
        rounding: Rounding::Exact,
        root: |op| matches!(op, Op::Transpose(_)),
        witness: |op| matches!(op, Op::Transpose(_)),
        apply: merge_transposes,
    },
    Rule {
        name: "merge-reshapes",
        summary: "two reshapes in a row are one, or none",
        rounding: Rounding::Exact,
        root: |op| matches!(op, Op::Reshape(_)),
        witness: |op| matches!(op, Op::Transpose(_) | Op::Broadcast(_)),
        apply: merge_reshapes,
    },
    Rule {
        name: "gather-in-order",
        summary: "gathering every element in order is a reshape",
        rounding: Rounding::Exact,
        root: |op| matches!(op, Op::Gather(_) | Op::GatherNd(_)),
        witness: |op| matches!(op, Op::Iota(_)),
        apply: gather_in_order,
    },
    Rule {
        name: "transpose-matrices",
        summary: "reshaping outer dimensions, swapping the inner two and reshaping the outer ones again \
                  only swaps",
        rounding: Rounding::Exact,
        root: |op| matches!(op, Op::Reshape(_)),
        witness: |op| matches!(op, Op::Transpose(_)),
        apply: transpose_matrices,
    },
];

fn merge_transposes(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let (Op::Transpose(outer), [between]) = (root.op, root.operands) else { return None };
    view.any(*between, |op, operands| {
        let (Op::Transpose(inner), [x]) = (op, operands) else { return None };
        let perm = outer.perm.iter().map(|axis| Some(inner.perm.get(axis.index())?.index()));
        Some(Term::Class(*x).transpose(&perm.collect::<Option<Vec<_>>>()?))
    })
}

fn merge_reshapes(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let (Op::Reshape(outer), [between]) = (root.op, root.operands) else { return None };
    view.any(*between, |op, operands| {
        let (Op::Reshape(_), [x]) = (op, operands) else { return None };
        Some(Term::Class(*x).reshape(outer.shape.clone()))
    })
}

/// Indices that count the elements of their own shape, row by row, over as many elements of the data.
fn gather_in_order(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let [data, indices] = root.operands else { return None };
    let (from, over) = (view.shape(*data), view.shape(*indices));
    let whole = |taken: &[Dim], over: &[Dim]| {
        taken.iter().cloned().product::<Dim>() == over.iter().cloned().product::<Dim>()
    };
    let in_order = match root.op {
        Op::Gather(op) => {
            whole(from.get(op.axis.index()..=op.axis.index())?, over)
                && linear(view, *indices)?.counts(over)
        }
        Op::GatherNd(op) if op.batch_dims == 0 => {
            let (length, over) = over.split_last()?;
            let taken = from.get(..usize::try_from(length.as_constant()?).ok()?)?;
            let parts = view.any(*indices, |op, operands| match op {
                Op::Concat(op) if op.axis.index() == over.len() => Some(operands),
                _ => None,
            })?;
            // One part for each dimension: each has one index of the tuple.
            let single = |part: &Id| view.shape(*part).last().is_some_and(|last| last.is(1));
            (parts.len() == taken.len() && parts.iter().all(single)).then_some(())?;
            let mut flat = super::count::Linear { offset: Dim::ZERO, terms: Default::default() };
            for (part, extent) in parts.iter().zip(taken) {
                flat = flat.times_plus(extent, linear(view, *part)?);
            }
            // The tuples' own dimension is the innermost one of the parts.
            let mut shape = over.to_vec();
            shape.push(Dim::ONE);
            whole(taken, over) && flat.counts(&shape)
        }
        _ => false,
    };
    in_order.then(|| Term::Class(*data).reshape(view.shape(root.class).to_vec()))
}

fn transpose_matrices(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let (Op::Reshape(_), [swapped]) = (root.op, root.operands) else { return None };
    let result = view.shape(root.class);
    view.any(*swapped, |op, operands| {
        let (Op::Transpose(Transpose { perm }), [matrices]) = (op, operands) else { return None };
        let rank = perm.len();
        let inner = rank.checked_sub(2)?;
        let swaps = perm.iter().enumerate().all(|(i, axis)| {
            let from = if i < inner { i } else { 2 * inner + 1 - i };
            axis.index() == from
        });
        swaps.then_some(())?;
        view.any(*matrices, |op, operands| {
            let (Op::Reshape(_), [x]) = (op, operands) else { return None };
            let (from, to) = (matrix(view.shape(*x))?, matrix(result)?);
            // The inner two are the same matrices on both sides.
            let between = matrix(view.shape(*matrices))?;
            let same = from.inner == between.inner
                && to.inner == [&from.inner[1], &from.inner[0]].map(Dim::clone);
            same.then_some(())?;
            let rank = to.outer.len() + 2;
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(rank - 2, rank - 1);
            Some(Term::Class(*x).reshape([to.outer, &from.inner].concat()).transpose(&perm))
        })
    })
}

struct Matrix<'a> {
    outer: &'a [Dim],
    inner: [Dim; 2],
}

fn matrix(shape: &[Dim]) -> Option<Matrix<'_>> {
    let (outer, inner) = shape.split_at_checked(shape.len().checked_sub(2)?)?;
    let inner: [Dim; 2] = inner.to_vec().try_into().ok()?;
    Some(Matrix { outer, inner })
}

/// `x` as it stands before its two innermost dimensions were swapped: what is transposed, with another
/// permutation, where there is such a term; else `x` transposed.
pub(super) fn swapped(view: &View<'_>, x: Id) -> Term {
    let rank = view.shape(x).len();
    let mut swap: Vec<usize> = (0..rank).collect();
    if rank >= 2 {
        swap.swap(rank - 2, rank - 1);
    }
    let found = view.any(x, |op, operands| {
        let (Op::Transpose(op), [of]) = (op, operands) else { return None };
        let perm = swap.iter().map(|axis| Some(op.perm.get(*axis)?.index()));
        Some(Term::Class(*of).transpose(&perm.collect::<Option<Vec<_>>>()?))
    });
    found.unwrap_or_else(|| Term::Class(x).transpose(&swap))
}
