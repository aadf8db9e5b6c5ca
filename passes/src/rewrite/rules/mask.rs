//! Rules about how masks of attention are built; never about scores.

use super::attention::masks_away;
use super::count::linear;
use super::{Root, Rounding, Rule, Term, View};
use egg::Id;
use membar_ir::dim::Dim;
use membar_ir::ops::{Attention, MaskKind, Op, Position, Scalar};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "boolean-mask",
        summary: "adding 0 where a condition holds and a number below all scores elsewhere masks by \
                  the condition",
        rounding: Rounding::Reassociated,
        root: |op| matches!(op, Op::Attention(_)),
        witness: |op| matches!(op, Op::Attention(_) | Op::Softmax(_)),
        apply: boolean_mask,
    },
    Rule {
        name: "mask-by-position",
        summary: "a mask that compares positions of keys and queries is one of position: causal, or \
                  a window",
        rounding: Rounding::Exact,
        root: |op| matches!(op, Op::Attention(_)),
        witness: |op| matches!(op, Op::Attention(_) | Op::Softmax(_)),
        apply: mask_by_position,
    },
];

fn boolean_mask(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let Op::Attention(op) = root.op else { return None };
    (op.mask == MaskKind::Additive).then_some(())?;
    let (visible, low) = view.through_casts(*root.operands.get(3)?, &|id| {
        view.any(id, |op, operands| {
            let (Op::Scalar(Scalar::Select), [condition, yes, no]) = (op, operands) else {
                return None;
            };
            let dtype = view.dtype(*yes)?;
            let (yes, no) = (view.uniform(*yes)?, view.uniform(*no)?);
            let condition = Term::Class(*condition);
            if yes == 0.0 && masks_away(dtype, no) {
                Some((condition, no))
            } else if no == 0.0 && masks_away(dtype, yes) {
                Some((Term::op(Scalar::Not, [condition]), yes))
            } else {
                None
            }
        })
    })?;
    let boolean = Attention {
        mask: MaskKind::Boolean,
        // A row of finite numbers alone is averaged, whatever becomes of NaN.
        empty_rows_zero: op.empty_rows_zero && low == f64::NEG_INFINITY,
        ..op.clone()
    };
    Some(with_mask(boolean, root.operands, Some(visible)))
}

/// Attention over the same operands, with another mask or none.
fn with_mask(op: Attention, operands: &[Id], mask: Option<Term>) -> Term {
    let (first, rest) = operands.split_at(3.min(operands.len()));
    let class = |id: &Id| Term::Class(*id);
    let operands = first.iter().map(class).chain(mask).chain(rest.iter().skip(1).map(class));
    Term::op(op, operands.collect::<Vec<_>>())
}

/// What one of several conditions says.
enum Condition {
    /// Nothing: it always holds.
    Always,
    /// Keys up to the query's index plus this are visible.
    UpTo(Dim),
    /// Keys from the query's index plus this on are visible.
    From(Dim),
    /// Something else.
    Other(Id),
}

fn mask_by_position(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let Op::Attention(op) = root.op else { return None };
    let unwindowed = op.before.is_none() && op.after.is_none();
    (op.mask == MaskKind::Boolean && unwindowed && !op.lengths).then_some(())?;
    let [query, key, _, mask] = root.operands else { return None };
    let extents = [view.shape(*query).get(2)?, view.shape(*key).get(2)?];
    let mut conditions = Vec::new();
    conjuncts(view, *mask, extents, 4, &mut conditions);
    let (mut up_to, mut from, mut rest) = (None, None, Vec::new());
    for (id, condition) in conditions {
        match condition {
            Condition::Always => {}
            Condition::UpTo(last) if up_to.is_none() => up_to = Some(last),
            Condition::From(first) if from.is_none() => from = Some(first),
            Condition::UpTo(_) | Condition::From(_) => rest.push(id),
            Condition::Other(id) => rest.push(id),
        }
    }
    let mut op = op.clone();
    // The position is chosen so that a causal mask sees nothing behind it.
    match (up_to, from) {
        (Some(last), None) => (op.position, op.after) = (Position::Offset(last), Some(0)),
        (None, Some(first)) => (op.position, op.before) = (Position::Offset(first), Some(0)),
        (Some(last), Some(first)) => {
            let before = (last.clone() - first).as_constant().filter(|n| *n >= 0)?;
            op.position = Position::Offset(last);
            (op.before, op.after) = (Some(before), Some(0));
        }
        (None, None) => {}
    }
    let mut rest = rest.into_iter().map(Term::Class);
    let mask = rest.next();
    let mask = mask.map(|first| rest.fold(first, |a, b| Term::op(Scalar::And, [a, b])));
    if mask.is_none() {
        op.mask = MaskKind::None;
    }
    let unchanged = op.position == Position::Offset(Dim::ZERO)
        && op.before.is_none()
        && op.after.is_none()
        && matches!(&mask, Some(Term::Class(id)) if view.same(*id, root.operands[3]));
    (!unchanged).then(|| with_mask(op, root.operands, mask))
}

/// The conditions that a class is the conjunction of.
fn conjuncts(
    view: &View<'_>,
    id: Id,
    extents: [&Dim; 2],
    depth: u32,
    found: &mut Vec<(Id, Condition)>,
) {
    let parts = view.any(id, |op, operands| match (op, operands) {
        (Op::Scalar(Scalar::And), [a, b]) if depth > 0 => Some([*a, *b]),
        _ => None,
    });
    match parts {
        Some(parts) => {
            parts.into_iter().for_each(|part| conjuncts(view, part, extents, depth - 1, found));
        }
        None => {
            found.push((id, condition(view, id, extents).unwrap_or(Condition::Other(id))));
        }
    }
}

fn condition(view: &View<'_>, id: Id, extents: [&Dim; 2]) -> Option<Condition> {
    if view.uniform(id) == Some(1.0) {
        return Some(Condition::Always);
    }
    // `less` plus `slack` is at most `greater`.
    let (less, greater, slack) = view.any(id, |op, operands| {
        let (Op::Scalar(op), [a, b]) = (op, operands) else { return None };
        match op {
            Scalar::LessOrEqual => Some((*a, *b, 0)),
            Scalar::GreaterOrEqual => Some((*b, *a, 0)),
            Scalar::Less => Some((*a, *b, 1)),
            Scalar::Greater => Some((*b, *a, 1)),
            _ => None,
        }
    })?;
    let (less, greater) = (linear(view, less)?, linear(view, greater)?);
    let slack = Dim::from(slack);
    let difference = |a: &Dim, b: &Dim| a.clone() - b.clone();
    if less.terms.is_empty() {
        // What is counted is at least its offset.
        let least = difference(&greater.offset, &less.offset) - slack.clone();
        let upwards = greater.terms.values().all(|by| view.is_not_negative(by));
        if upwards && view.is_not_negative(&least) {
            return Some(Condition::Always);
        }
    }
    // Keys lie along the innermost axis and queries along the next, each over its whole extent: an
    // axis of 1 would stand for all of them.
    let shape = view.shape(id);
    let whole = shape.len() >= 2 && shape[shape.len() - 2..].iter().eq(extents);
    whole.then_some(())?;
    if let (Some(key), Some(query)) = (less.along(0), greater.along(1)) {
        // j + key + slack ≤ i + query
        return Some(Condition::UpTo(difference(query, key) - slack));
    }
    if let (Some(query), Some(key)) = (less.along(1), greater.along(0)) {
        // i + query + slack ≤ j + key
        return Some(Condition::From(difference(query, key) + slack));
    }
    None
}
