//! Rules about attention whose queries have more heads than its keys; never about masks.

use super::{Root, Rounding, Rule, Term, View};
use egg::Id;
use membar_ir::dim::Dim;
use membar_ir::ops::Op;

pub(super) const RULES: &[Rule] = &[Rule {
    name: "grouped-heads",
    summary: "attention over keys and values whose heads are repeated, each as often as the other, reads \
              them unrepeated",
    rounding: Rounding::Exact,
    root: |op| matches!(op, Op::Attention(_)),
    witness: |op| matches!(op, Op::Attention(_) | Op::Softmax(_)),
    apply: grouped_heads,
}];

fn grouped_heads(view: &View<'_>, root: Root<'_>) -> Option<Term> {
    let Op::Attention(op) = root.op else { return None };
    let (&[query, key, value], rest) = root.operands.split_first_chunk::<3>()?;
    let [(key, key_heads), (value, heads)] = [unrepeated(view, key)?, unrepeated(view, value)?];
    (key_heads == heads).then_some(())?;
    let operands = [Term::Class(query), key, value];
    let operands = operands.into_iter().chain(rest.iter().map(|id| Term::Class(*id)));
    Some(Term::op(op.clone(), operands.collect::<Vec<_>>()))
}

/// `[B, H, T, D]` before each of its heads was repeated, and H: `[B, H, 1, T, D]` stretched to
/// `[B, H, G, T, D]`, as `[B, H * G, T, D]`.
fn unrepeated(view: &View<'_>, id: Id) -> Option<(Term, Dim)> {
    let [batch, all, rows, width] = view.shape(id) else { return None };
    view.any(id, |op, operands| {
        let (Op::Reshape(_), [wide]) = (op, operands) else { return None };
        let [wide_batch, heads, group, wide_rows, wide_width] = view.shape(*wide) else {
            return None;
        };
        let same = [wide_batch, wide_rows, wide_width] == [batch, rows, width]
            && heads.clone() * group.clone() == *all;
        same.then_some(())?;
        view.any(*wide, |op, operands| {
            let (Op::Broadcast(_), [narrow]) = (op, operands) else { return None };
            let expected = [batch, heads, &Dim::ONE, rows, width];
            view.shape(*narrow).iter().eq(expected).then_some(())?;
            let shape = [batch, heads, rows, width].map(Dim::clone).to_vec();
            Some((Term::Class(*narrow).reshape(shape), heads.clone()))
        })
    })
}
