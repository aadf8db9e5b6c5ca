//! Rules that find scaled dot-product attention in its parts; never one about how a mask is built.

use super::layout::swapped;
use super::{Root, Rounding, Rule, Term, View};
use egg::Id;
use membar_ir::attribute::Float;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::op::check;
use membar_ir::ops::{Attention, MaskKind, Matmul, Op, Position, Scalar, Scores, Softmax};

pub(super) const RULES: &[Rule] = &[Rule {
    name: "attention",
    summary: "softmax(scale Q Kᵀ + mask) V, scaled, capped, masked and guarded as exporters do, is \
              attention",
    rounding: Rounding::Reassociated,
    root: |op| matches!(op, Op::Matmul(_)),
    witness: |op| matches!(op, Op::Softmax(_)),
    apply: attention,
}];

/// The greatest number that masks away what it stands for or is added to, whatever the scores: far
/// below all of them, and the same number again when a score is added to it.
pub(super) fn masks_away(dtype: DType, number: f64) -> bool {
    match dtype {
        DType::F16 => number <= -65_504.0,
        _ => number <= -1e30,
    }
}

/// Scores as softmax reads them, taken apart.
#[derive(Clone)]
struct ScoresParts {
    query: Id,
    /// Swapped already.
    key: Term,
    key_type: Vec<Dim>,
    scale: f64,
    softcap: Option<f64>,
    mask: Option<Mask>,
}

/// What is done to scores before softmax.
#[derive(Clone)]
enum Mask {
    /// Added.
    Additive(Term),
    /// Where it is false, this number stands instead.
    Boolean { visible: Id, instead: f64 },
}

/// Rows that are masked as a whole by -infinity are NaN when spelled out without a guard; `attention`
/// averages the values there. Rows that hold NaN are 0 behind a guard, and NaN in `attention`.
fn attention(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let (Op::Matmul(Matmul { acc, result }), [weights, value]) = (root.op, root.operands) else {
        return None;
    };
    let dtype = view.dtype(*value)?;
    (acc.is_float() && *result == dtype).then_some(())?;
    let rank = view.shape(*value).len();
    matches!(rank, 3 | 4).then_some(())?;
    let (scores, guarded) = view.through_casts(*weights, &|id| {
        softmax(view, id)
            .map(|scores| (scores, false))
            .or_else(|| guard(view, id).map(|scores| (scores, true)))
    })?;
    let shape = view.shape(scores);
    (shape.len() == rank).then_some(())?;
    let parts = masked(view, scores, dtype, shape)?;
    let (mask, kind, minus_infinity) = match parts.mask {
        None => (None, MaskKind::None, false),
        Some(Mask::Additive(mask)) => (Some(mask), MaskKind::Additive, true),
        Some(Mask::Boolean { visible, instead }) => {
            (Some(Term::Class(visible)), MaskKind::Boolean, instead == f64::NEG_INFINITY)
        }
    };
    let op = Attention {
        scale: Float(parts.scale),
        position: Position::Offset(Dim::ZERO),
        before: None,
        after: None,
        mask: kind,
        lengths: false,
        softcap: parts.softcap.map(Float),
        empty_rows_zero: guarded && minus_infinity,
        scores: Scores::None,
    };
    let query = Term::Class(parts.query);
    if rank == 4 {
        let operands = [query, parts.key, Term::Class(*value)].into_iter().chain(mask);
        return Some(Term::op(op, operands.collect::<Vec<_>>()));
    }
    // Matrices of a batch are heads of a batch, one each.
    let one_head = |term: Term, shape: &[Dim]| {
        let shape = [&shape[..1], &[Dim::ONE], &shape[1..]].concat();
        term.reshape(shape)
    };
    let mask = match mask {
        None => None,
        Some(Term::Class(mask)) => {
            let found = view.shape(mask);
            let padded = [vec![Dim::ONE; 3 - found.len().min(3)], found.to_vec()].concat();
            Some(one_head(Term::Class(mask), &padded))
        }
        Some(_) => return None,
    };
    let operands = [
        one_head(query, view.shape(parts.query)),
        one_head(parts.key, &parts.key_type),
        one_head(Term::Class(*value), view.shape(*value)),
    ];
    let operands: Vec<Term> = operands.into_iter().chain(mask).collect();
    Some(Term::op(op, operands).reshape(view.shape(root.class).to_vec()))
}

/// What a class is the softmax of, over the innermost dimension.
fn softmax(view: &View<'_>, id: Id) -> Option<Id> {
    view.any(id, |op, operands| match (op, operands) {
        (Op::Softmax(Softmax { axis }), [scores]) => {
            (axis.index() + 1 == view.shape(*scores).len()).then_some(*scores)
        }
        _ => None,
    })
}

/// As [`softmax`], where NaN has become 0.
fn guard(view: &View<'_>, id: Id) -> Option<Id> {
    view.any(id, |op, operands| {
        let (Op::Scalar(Scalar::Select), [nan, zero, weights]) = (op, operands) else {
            return None;
        };
        (view.uniform(*zero) == Some(0.0)).then_some(())?;
        let scores = view.through_casts(*weights, &|id| softmax(view, id))?;
        let tested = view.unary(*nan, &Scalar::IsNan)?;
        let same = view.through_casts(tested, &|id| softmax(view, id))?;
        view.same(scores, same).then_some(scores)
    })
}

/// Scores with a mask or without.
fn masked(view: &View<'_>, id: Id, dtype: DType, shape: &[Dim]) -> Option<ScoresParts> {
    view.through_casts(id, &|id| {
        (view.shape(id) == shape).then_some(())?;
        view.either(id, &Scalar::Add, |scores, mask| added(view, scores, mask, dtype, shape))
            .or_else(|| {
                view.any(id, |op, operands| {
                    let (Op::Scalar(Scalar::Select), [visible, scores, instead]) = (op, operands)
                    else {
                        return None;
                    };
                    let number = view.uniform(*instead)?;
                    masks_away(view.dtype(*instead)?, number).then_some(())?;
                    check::broadcasts_to(view.shape(*visible), shape).ok()?;
                    let parts = capped(view, *scores, dtype, shape)?;
                    let mask = Mask::Boolean { visible: *visible, instead: number };
                    Some(ScoresParts { mask: Some(mask), ..parts })
                })
            })
            .or_else(|| capped(view, id, dtype, shape))
    })
}

/// Scores plus a mask, or plus two: a bias of positions, say.
fn added(
    view: &View<'_>,
    scores: Id,
    mask: Id,
    dtype: DType,
    shape: &[Dim],
) -> Option<ScoresParts> {
    let is_mask = |mask: Id| check::broadcasts_to(view.shape(mask), shape).is_ok();
    is_mask(mask).then_some(())?;
    let with = |parts: ScoresParts, mask: Term| {
        let mask = Some(Mask::Additive(mask));
        ScoresParts { mask, ..parts }
    };
    let plain = capped(view, scores, dtype, shape).map(|parts| with(parts, Term::Class(mask)));
    plain.or_else(|| {
        (view.shape(scores) == shape).then_some(())?;
        view.either(scores, &Scalar::Add, |scores, other| {
            (is_mask(other) && view.dtype(other) == view.dtype(mask)).then_some(())?;
            let both = Term::op(Scalar::Add, [other, mask].map(Term::Class));
            capped(view, scores, dtype, shape).map(|parts| with(parts, both))
        })
    })
}

/// Scores without a mask, soft-capped or not.
fn capped(view: &View<'_>, id: Id, dtype: DType, shape: &[Dim]) -> Option<ScoresParts> {
    view.through_casts(id, &|id| {
        let scored = |id: Id, factor: f64| scaled(view, id, factor, dtype, shape, 3);
        let (bounded, cap) = match view.scaled(id) {
            Some(found) => found,
            None => return scored(id, 1.0),
        };
        let capped = (cap > 0.0).then(|| view.unary(bounded, &Scalar::Tanh)).flatten();
        match capped {
            None => scored(id, 1.0),
            Some(inner) => {
                let parts = scored(inner, cap)?;
                Some(ScoresParts { softcap: Some(cap), ..parts })
            }
        }
    })
}

/// The product of queries and keys, times numbers before it and behind it.
fn scaled(
    view: &View<'_>,
    id: Id,
    factor: f64,
    dtype: DType,
    shape: &[Dim],
    depth: u32,
) -> Option<ScoresParts> {
    view.through_casts(id, &|id| {
        (view.shape(id) == shape).then_some(())?;
        let product = view.any(id, |op, operands| {
            let (Op::Matmul(op), [query, key]) = (op, operands) else { return None };
            op.acc.is_float().then(|| product(view, *query, *key, factor, dtype))?
        });
        product.or_else(|| {
            let (inner, by) = view.scaled(id).filter(|_| depth > 0)?;
            scaled(view, inner, factor * by, dtype, shape, depth - 1)
        })
    })
}

fn product(view: &View<'_>, query: Id, key: Id, factor: f64, dtype: DType) -> Option<ScoresParts> {
    let (query, by_query) = unscaled(view, query);
    let query = view.through_casts(query, &|id| (view.dtype(id) == Some(dtype)).then_some(id))?;
    let (query, again) = unscaled(view, query);
    let (key, by_key) = unscaled(view, key);
    let key = view.through_casts(key, &|id| (view.dtype(id) == Some(dtype)).then_some(id))?;
    let (key, key_again) = unscaled(view, key);
    let mut key_type = view.shape(key).to_vec();
    let inner = key_type.len().checked_sub(2)?;
    key_type.swap(inner, inner + 1);
    let (key, inside) = match swapped(view, key) {
        Term::Class(id) => {
            let (id, by) = unscaled(view, id);
            (Term::Class(id), by)
        }
        term => (term, 1.0),
    };
    let scale = factor * by_query * again * by_key * key_again * inside;
    // A scale that is not a positive number would turn masks around, or be no scale.
    (scale.is_finite() && scale != 0.0).then_some(())?;
    Some(ScoresParts { query, key, key_type, scale, softcap: None, mask: None })
}

/// What a class is a number times of, and the number; itself and 1 if it is none.
fn unscaled(view: &View<'_>, id: Id) -> (Id, f64) {
    view.scaled(id).unwrap_or((id, 1.0))
}
