//! `Einsum` by transpositions, matrix products and reductions; no equation is matched as a whole.

use super::matmul::product;
use super::shape::reshaped;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::ops::{Iota, Reduce, ReduceKind, Scalar, Transpose};
use membar_ir::{Axis, DType, Dim, ValueId};
use std::collections::BTreeMap;

/// A dimension of the equation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// A dimension of the ellipsis, counted from its innermost.
    Ellipsis(usize),
    /// A named dimension.
    Letter(char),
}

/// An operand whose dimensions have labels.
#[derive(Debug, Clone)]
struct Term {
    value: ValueId,
    labels: Vec<Label>,
}

/// `Einsum`.
pub(crate) fn einsum(cx: &mut NodeContext<'_, '_>) -> Result<(), NodeError> {
    let equation = cx.required::<&str>("equation")?.replace(' ', "");
    let ranks = (0..cx.operand_count())
        .map(|index| cx.ty(index).map(|ty| ty.rank()))
        .collect::<Result<Vec<_>, _>>()?;
    let (operands, output) = parse(&equation, &ranks)?;
    let mut terms = Vec::with_capacity(operands.len());
    for (index, labels) in operands.into_iter().enumerate() {
        let value = cx.operand(index)?;
        terms.push(diagonal(cx, Term { value, labels })?);
    }
    let mut terms = terms.into_iter();
    let Some(mut result) = terms.next() else {
        return Err(NodeError::new("no operand"));
    };
    loop {
        let rest = terms.as_slice();
        let kept = |label: &Label| {
            output.contains(label) || rest.iter().any(|term| term.labels.contains(label))
        };
        result = summed(cx, result, kept)?;
        let Some(next) = terms.next() else {
            break;
        };
        let rest = terms.as_slice();
        let later = |label: &Label| {
            output.contains(label) || rest.iter().any(|term| term.labels.contains(label))
        };
        let shared = result.labels.clone();
        let next = summed(cx, next, |label| later(label) || shared.contains(label))?;
        result = contracted(cx, &result, &next, later)?;
    }
    let result = permuted(cx, &result, &output)?;
    cx.output(0, result)
}

/// Labels of the operands and of the result. Without an arrow the result has the ellipsis, then
/// the letters that occur once, in alphabetical order.
fn parse(equation: &str, ranks: &[usize]) -> Result<(Vec<Vec<Label>>, Vec<Label>), NodeError> {
    let wrong = |what: &str| NodeError::new(format!("equation \"{equation}\": {what}"));
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (equation, None),
    };
    let inputs: Vec<&str> = inputs.split(',').collect();
    if inputs.len() != ranks.len() {
        return Err(wrong(&format!("{} terms for {} operands", inputs.len(), ranks.len())));
    }
    let mut operands = Vec::with_capacity(inputs.len());
    for (text, rank) in inputs.into_iter().zip(ranks) {
        let letters = text.chars().filter(|c| *c != '.').count();
        let dots = rank
            .checked_sub(letters)
            .ok_or_else(|| wrong(&format!("{letters} letters for an operand of rank {rank}")))?;
        let labels = labels(text, dots).ok_or_else(|| wrong("only letters and one ellipsis"))?;
        if labels.len() != *rank {
            return Err(wrong(&format!("{letters} letters for an operand of rank {rank}")));
        }
        operands.push(labels);
    }
    let dots = |label: &Label| matches!(label, Label::Ellipsis(_));
    let widest = operands.iter().map(|labels| labels.iter().filter(|l| dots(l)).count()).max();
    let widest = widest.unwrap_or(0);
    let output = match output {
        Some(text) => labels(text, widest).ok_or_else(|| wrong("only letters and one ellipsis"))?,
        None => {
            let mut counts: BTreeMap<char, usize> = BTreeMap::new();
            for label in operands.iter().flatten() {
                if let Label::Letter(letter) = label {
                    *counts.entry(*letter).or_insert(0) += 1;
                }
            }
            let once = counts.into_iter().filter(|(_, count)| *count == 1);
            let ellipsis = (0..widest).rev().map(Label::Ellipsis);
            ellipsis.chain(once.map(|(letter, _)| Label::Letter(letter))).collect()
        }
    };
    for (index, label) in output.iter().enumerate() {
        let known = operands.iter().any(|labels| labels.contains(label));
        if !known || output[..index].contains(label) {
            return Err(wrong("the result repeats a letter or has one that no operand has"));
        }
    }
    Ok((operands, output))
}

fn labels(text: &str, dots: usize) -> Option<Vec<Label>> {
    let letters = |text: &str| -> Option<Vec<Label>> {
        text.chars().map(|c| c.is_ascii_alphabetic().then_some(Label::Letter(c))).collect()
    };
    let Some((before, after)) = text.split_once("...") else {
        return letters(text);
    };
    let mut labels = letters(before)?;
    labels.extend((0..dots).rev().map(Label::Ellipsis));
    labels.extend(letters(after)?);
    Some(labels)
}

/// Takes the diagonal of dimensions with the same label.
fn diagonal(cx: &mut NodeContext<'_, '_>, mut term: Term) -> Result<Term, NodeError> {
    let repeated = |labels: &[Label]| {
        (0..labels.len()).find_map(|second| {
            let first = labels[..second].iter().position(|label| *label == labels[second])?;
            Some((first, second))
        })
    };
    while let Some((first, second)) = repeated(&term.labels) {
        let ty = cx.type_of(term.value);
        let (left, right) = (ty.shape[first].clone(), ty.shape[second].clone());
        cx.unify(&left, &right, "a repeated letter of the equation")?;
        let index = |axis: usize| {
            let mut shape = vec![Dim::ONE; ty.rank()];
            shape[axis] = left.clone();
            Iota { shape, axis: Axis::from(axis), dtype: DType::I64 }
        };
        let (row, column) = (cx.emit(index(first), &[])?, cx.emit(index(second), &[])?);
        let hit = cx.emit(Scalar::Equal, &[row, column])?;
        let zero = cx.scalar(ty.dtype, 0.0)?;
        let masked = cx.emit(Scalar::Select, &[hit, term.value, zero])?;
        term.value = sum(cx, masked, vec![Axis::from(second)])?;
        term.labels.remove(second);
    }
    Ok(term)
}

fn sum(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    axes: Vec<Axis>,
) -> Result<ValueId, NodeError> {
    if axes.is_empty() {
        return Ok(value);
    }
    cx.emit(Reduce { kind: ReduceKind::Sum, axes, keep: false }, &[value])
}

/// Sums over the labels that nothing else needs.
fn summed(
    cx: &mut NodeContext<'_, '_>,
    term: Term,
    kept: impl Fn(&Label) -> bool,
) -> Result<Term, NodeError> {
    let axes = term.labels.iter().enumerate().filter(|(_, label)| !kept(label));
    let axes: Vec<Axis> = axes.map(|(index, _)| Axis::from(index)).collect();
    let value = sum(cx, term.value, axes)?;
    let labels = term.labels.into_iter().filter(|label| kept(label)).collect();
    Ok(Term { value, labels })
}

/// The product of two terms, summed over the labels that both have and nothing later needs.
fn contracted(
    cx: &mut NodeContext<'_, '_>,
    left: &Term,
    right: &Term,
    later: impl Fn(&Label) -> bool,
) -> Result<Term, NodeError> {
    let both = |label: &&Label| left.labels.contains(label) && right.labels.contains(label);
    let shared: Vec<Label> = left.labels.iter().filter(both).copied().collect();
    let (batch, inner): (Vec<Label>, Vec<Label>) = shared.into_iter().partition(&later);
    let own = |term: &Term| -> Vec<Label> {
        let own = term.labels.iter().filter(|l| !batch.contains(l) && !inner.contains(l));
        own.copied().collect()
    };
    let (rows, columns) = (own(left), own(right));
    let order = |parts: [&[Label]; 3]| parts.concat();

    let mut a = permuted(cx, left, &order([&batch, &rows, &inner]))?;
    let mut b = permuted(cx, right, &order([&batch, &inner, &columns]))?;
    let (a_shape, b_shape) = (cx.type_of(a).shape, cx.type_of(b).shape);
    let (a_batch, a_rest) = a_shape.split_at(batch.len());
    let (b_batch, b_rest) = b_shape.split_at(batch.len());
    let (row_dims, a_inner) = a_rest.split_at(rows.len());
    let (b_inner, column_dims) = b_rest.split_at(inner.len());

    let value = if inner.is_empty() {
        let spread = |outer: &[Dim], before: usize, own: &[Dim], after: usize| {
            let ones = |count: usize| std::iter::repeat_n(Dim::ONE, count);
            let dims = outer.iter().cloned().chain(ones(before));
            dims.chain(own.iter().cloned()).chain(ones(after)).collect::<Vec<_>>()
        };
        a = reshaped(cx, a, spread(a_batch, 0, row_dims, columns.len()))?;
        b = reshaped(cx, b, spread(b_batch, rows.len(), column_dims, 0))?;
        cx.emit(Scalar::Mul, &[a, b])?
    } else {
        let flat = |outer: &[Dim], first: &[Dim], second: &[Dim]| {
            let pair = [first, second].map(|dims| dims.iter().cloned().product::<Dim>());
            outer.iter().cloned().chain(pair).collect::<Vec<_>>()
        };
        a = reshaped(cx, a, flat(a_batch, row_dims, a_inner))?;
        b = reshaped(cx, b, flat(b_batch, b_inner, column_dims))?;
        let result = product(cx, a, b)?;
        let mut shape = cx.type_of(result).shape;
        shape.truncate(batch.len());
        shape.extend(row_dims.iter().chain(column_dims).cloned());
        shape.iter_mut().for_each(|dim| cx.symbols().resolve(dim));
        reshaped(cx, result, shape)?
    };
    Ok(Term { value, labels: order([&batch, &rows, &columns]) })
}

/// The value with its dimensions in another order.
fn permuted(
    cx: &mut NodeContext<'_, '_>,
    term: &Term,
    order: &[Label],
) -> Result<ValueId, NodeError> {
    let position = |label: &Label| term.labels.iter().position(|other| other == label);
    let perm: Option<Vec<Axis>> =
        order.iter().map(|label| position(label).map(Axis::from)).collect();
    let perm = perm.ok_or_else(|| NodeError::new("a letter of the result is in no operand"))?;
    if perm.is_sorted() {
        return Ok(term.value);
    }
    cx.emit(Transpose { perm }, &[term.value])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_read_as_numpy_reads_them() {
        let letters = |text: &str| text.chars().map(Label::Letter).collect::<Vec<_>>();
        let cases = [("ij,jk->ik", [2, 2], "ik"), ("ij,jk", [2, 2], "ik"), ("ba,a", [2, 1], "b")];
        for (equation, ranks, output) in cases {
            assert_eq!(
                parse(equation, &ranks).map(|(_, output)| output).ok(),
                Some(letters(output))
            );
        }
        let dotted = parse("...ij,jk->...ik", &[4, 2]).ok();
        let expected = [Label::Ellipsis(1), Label::Ellipsis(0), Label::Letter('i')];
        assert_eq!(dotted.map(|(_, output)| output[..3].to_vec()), Some(expected.to_vec()));
    }

    #[test]
    fn malformed_equations_are_refused() {
        for (equation, ranks) in [
            ("ij->k", vec![2]),
            ("ij", vec![3]),
            ("ij->ii", vec![2]),
            ("i1", vec![2]),
            ("i", vec![1, 1]),
        ] {
            assert!(parse(equation, &ranks).is_err(), "{equation}");
        }
    }
}
