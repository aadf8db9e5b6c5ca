//! Integers that count along axes, as linear functions of an index; never a rule.

use super::View;
use egg::Id;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::{Op, Scalar};
use std::collections::BTreeMap;

/// How deep counting is looked through.
const DEPTH: u32 = 12;

/// A tensor of integers, each the sum of its index along some axes, times a number, and an offset.
/// Axes are counted from the innermost, 0, so that broadcasting changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Linear {
    pub offset: Dim,
    /// Never 0, and never of an axis of extent 1.
    pub terms: BTreeMap<usize, Dim>,
}

impl Linear {
    /// The offset, where it counts along one axis, one by one.
    pub fn along(&self, axis: usize) -> Option<&Dim> {
        let mut terms = self.terms.iter();
        let only = terms.next().is_some_and(|(found, by)| *found == axis && by.is(1));
        (only && terms.next().is_none()).then_some(&self.offset)
    }

    /// Whether it counts the elements of a shape, row by row, from 0.
    pub fn counts(&self, shape: &[Dim]) -> bool {
        let mut inner = Dim::ONE;
        let mut terms = 0;
        for (axis, extent) in shape.iter().rev().enumerate().filter(|(_, extent)| !extent.is(1)) {
            if self.terms.get(&axis) != Some(&inner) {
                return false;
            }
            inner = inner * extent.clone();
            terms += 1;
        }
        self.offset.is(0) && self.terms.len() == terms
    }

    /// Its product with a number, plus another.
    pub fn times_plus(self, factor: &Dim, other: Linear) -> Linear {
        let mut sum = Linear { offset: self.offset * factor.clone() + other.offset, ..other };
        for (axis, by) in self.terms {
            let term = sum.terms.entry(axis).or_insert(Dim::ZERO);
            *term = term.clone() + by * factor.clone();
        }
        sum.terms.retain(|_, by| !by.is(0));
        sum
    }
}

/// What a class counts; `None` if that is not known.
pub(super) fn linear(view: &View<'_>, id: Id) -> Option<Linear> {
    nested(view, id, DEPTH)
}

fn nested(view: &View<'_>, id: Id, depth: u32) -> Option<Linear> {
    let ty = view.ty(id)?;
    (matches!(ty.dtype, DType::I64 | DType::I32) && depth > 0).then_some(())?;
    let constant = |offset| Linear { offset, terms: BTreeMap::new() };
    if let Some(number) = view.uniform(id) {
        // Larger ones may have been rounded when they became a float.
        let exact = number.abs() < 9.0e15;
        return exact.then(|| constant(Dim::from(number as i64)));
    }
    let inner = |id: Id| nested(view, id, depth - 1);
    view.any(id, |op, operands| match (op, operands) {
        (Op::Iota(op), []) => {
            let mut terms = BTreeMap::new();
            if !ty.shape.get(op.axis.index())?.is(1) {
                terms.insert(ty.rank() - 1 - op.axis.index(), Dim::ONE);
            }
            Some(Linear { offset: Dim::ZERO, terms })
        }
        (Op::Dims(op), []) => match op.values.as_slice() {
            [value] => Some(constant(value.clone())),
            _ => None,
        },
        (Op::Broadcast(_), [x]) => inner(*x),
        (Op::Scalar(Scalar::Cast { .. }), [x]) if view.dtype(*x)? != DType::Bool => inner(*x),
        (Op::Scalar(Scalar::Add), [x, y]) => Some(inner(*x)?.times_plus(&Dim::ONE, inner(*y)?)),
        (Op::Scalar(Scalar::Sub), [x, y]) => {
            Some(inner(*y)?.times_plus(&Dim::from(-1), inner(*x)?))
        }
        (Op::Scalar(Scalar::Mul), [x, y]) => {
            let (x, y) = (inner(*x)?, inner(*y)?);
            let (x, y) = if x.terms.is_empty() { (y, x) } else { (x, y) };
            y.terms.is_empty().then(|| x.times_plus(&y.offset, constant(Dim::ZERO)))
        }
        (Op::Reshape(_), [x]) => {
            let of = inner(*x)?;
            let extents = |shape: &[Dim]| -> Vec<(usize, Dim)> {
                let axes = shape.iter().rev().cloned().enumerate();
                axes.filter(|(_, extent)| !extent.is(1)).collect()
            };
            // Dimensions of 1 come and go; the others stay in order.
            let (from, to) = (extents(view.shape(*x)), extents(&ty.shape));
            let same = from.len() == to.len() && from.iter().zip(&to).all(|(a, b)| a.1 == b.1);
            let moved = |axis: usize| from.iter().position(|(found, _)| *found == axis);
            let terms = of.terms.into_iter().map(|(axis, by)| Some((to.get(moved(axis)?)?.0, by)));
            same.then(|| Some(Linear { offset: of.offset, terms: terms.collect::<Option<_>>()? }))?
        }
        _ => None,
    })
}
