//! Rules about how masks of attention are built; never about scores.

use super::attention::masks_away;
use super::{Root, Rounding, Rule, Term, View};
use membar_ir::ops::{Attention, MaskKind, Op, Scalar};

pub(super) const RULES: &[Rule] = &[Rule {
    name: "boolean-mask",
    summary: "adding 0 where a condition holds and a number below all scores elsewhere masks by the \
              condition",
    rounding: Rounding::Reassociated,
    root: |op| matches!(op, Op::Attention(_)),
    witness: |op| matches!(op, Op::Attention(_) | Op::Softmax(_)),
    apply: boolean_mask,
}];

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
    let operands = root.operands.iter().enumerate().map(|(index, operand)| match index {
        3 => visible.clone(),
        _ => Term::Class(*operand),
    });
    Some(Term::op(boolean, operands.collect::<Vec<_>>()))
}
