//! Padding, and exchange of depth and space. Never reads elements.

use super::shape::reshaped;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use crate::import::symbols::Symbols;
use membar_ir::ops::{Pad, PadMode, Slice, Transpose};
use membar_ir::{Axis, Dim};

type Outcome = Result<(), NodeError>;

/// `Pad`: amounts and value as attributes before opset 11, as operands since; of some axes since
/// opset 18. Negative amounts cut off, before anything is added.
pub(crate) fn pad(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ty = cx.ty(0)?;
    let rank = ty.rank();
    let mode = match cx.attribute_or("mode", "constant")? {
        "constant" => PadMode::Constant,
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        "wrap" => PadMode::Wrap,
        other => return Err(NodeError::new(format!("mode `{other}`"))),
    };
    let amounts = if cx.opset() < 11 {
        cx.required::<&[i64]>("pads")?.iter().copied().map(Dim::from).collect()
    } else {
        cx.dims(1)?
    };
    let axes: Vec<Axis> = if cx.has(3) {
        let axes = cx.integers(3)?;
        cx.axes(&axes, rank)?;
        axes.iter().map(|axis| cx.axis(*axis, rank)).collect::<Result<_, _>>()?
    } else {
        (0..rank).map(Axis::from).collect()
    };
    if amounts.len() != 2 * axes.len() {
        let (found, expected) = (amounts.len(), 2 * axes.len());
        return Err(NodeError::new(format!("{found} amounts; {expected} are expected")));
    }
    let mut before = vec![Dim::ZERO; rank];
    let mut after = vec![Dim::ZERO; rank];
    let mut part =
        Slice { starts: vec![Dim::ZERO; rank], sizes: ty.shape.clone(), steps: vec![1; rank] };
    for (index, axis) in axes.iter().enumerate() {
        let axis = axis.index();
        let start = split(cx.symbols(), &amounts[index])?;
        let end = split(cx.symbols(), &amounts[axes.len() + index])?;
        let size = part.sizes[axis].clone() - start.cut.clone() - end.cut;
        (part.starts[axis], part.sizes[axis]) = (start.cut, size);
        (before[axis], after[axis]) = (start.added, end.added);
    }
    let mut result = cx.operand(0)?;
    if part.sizes != ty.shape {
        result = cx.emit(part, &[result])?;
    }
    if before.iter().chain(&after).any(|amount| !amount.is(0)) {
        let mut operands = vec![result];
        if mode == PadMode::Constant {
            let value = if cx.opset() >= 11 && cx.has(2) {
                let value = cx.operand(2)?;
                reshaped(cx, value, Vec::new())?
            } else {
                let value = cx.attribute_or("value", 0.0_f32)?;
                cx.scalar(ty.dtype, value.into())?
            };
            operands.push(value);
        }
        result = cx.emit(Pad { mode, before, after }, &operands)?;
    }
    cx.output(0, result)
}

/// What one side gains and loses.
#[derive(Debug, PartialEq)]
struct Side {
    added: Dim,
    cut: Dim,
}

fn split(symbols: &Symbols, amount: &Dim) -> Result<Side, NodeError> {
    match symbols.at_least(amount, &Dim::ZERO) {
        Some(true) => Ok(Side { added: amount.clone(), cut: Dim::ZERO }),
        Some(false) => Ok(Side { added: Dim::ZERO, cut: Dim::ZERO - amount.clone() }),
        None => {
            Err(NodeError::new(format!("an amount of `{amount}`, which may be negative or not")))
        }
    }
}

/// The dimensions of images, the channels and the size of blocks.
fn blocks(cx: &mut NodeContext<'_, '_>) -> Result<([Dim; 4], Dim), NodeError> {
    let ty = cx.ty(0)?;
    let size = cx.required::<i64>("blocksize")?;
    if size < 1 {
        return Err(NodeError::new(format!("blocksize = {size}")));
    }
    let rank = ty.rank();
    let shape = <[Dim; 4]>::try_from(ty.shape);
    let shape =
        shape.map_err(|_| NodeError::new(format!("an operand of rank {rank}; 4 is expected")))?;
    Ok((shape, Dim::from(size)))
}

fn divided(dim: &Dim, by: &Dim, what: &str) -> Result<Dim, NodeError> {
    dim.exact_div(by)
        .ok_or_else(|| NodeError::new(format!("{what} of `{dim}`, which {by} does not divide")))
}

fn rearranged(
    cx: &mut NodeContext<'_, '_>,
    split: Vec<Dim>,
    perm: [usize; 6],
    merged: Vec<Dim>,
) -> Outcome {
    let x = cx.operand(0)?;
    let x = reshaped(cx, x, split)?;
    let perm = perm.map(Axis::from).to_vec();
    let x = cx.emit(Transpose { perm }, &[x])?;
    let result = reshaped(cx, x, merged)?;
    cx.output(0, result)
}

/// `DepthToSpace`, in both orders of depth.
pub(crate) fn depth_to_space(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ([n, c, h, w], b) = blocks(cx)?;
    let depth = divided(&c, &(b.clone() * b.clone()), "a depth")?;
    let merged = vec![n.clone(), depth.clone(), h.clone() * b.clone(), w.clone() * b.clone()];
    match cx.attribute_or("mode", "DCR")? {
        "DCR" => rearranged(cx, vec![n, b.clone(), b, depth, h, w], [0, 3, 4, 1, 5, 2], merged),
        "CRD" => rearranged(cx, vec![n, depth, b.clone(), b, h, w], [0, 1, 4, 2, 5, 3], merged),
        other => Err(NodeError::new(format!("mode `{other}`"))),
    }
}

/// `SpaceToDepth`, in both orders of depth.
pub(crate) fn space_to_depth(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ([n, c, h, w], b) = blocks(cx)?;
    let (rows, columns) = (divided(&h, &b, "a height")?, divided(&w, &b, "a width")?);
    let merged = vec![n.clone(), c.clone() * b.clone() * b.clone(), rows.clone(), columns.clone()];
    let split = vec![n, c, rows, b.clone(), columns, b];
    match cx.attribute_or("mode", "DCR")? {
        "DCR" => rearranged(cx, split, [0, 3, 5, 1, 2, 4], merged),
        "CRD" => rearranged(cx, split, [0, 1, 3, 5, 2, 4], merged),
        other => Err(NodeError::new(format!("mode `{other}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membar_ir::Range;

    #[test]
    fn the_sign_of_an_amount_must_be_known() {
        let mut symbols = Symbols::default();
        symbols.declare("n", Range { lo: 1, hi: None }, true);
        let n = Dim::symbol("n");
        let side = |added: Dim, cut: Dim| Some(Side { added, cut });
        assert_eq!(split(&symbols, &Dim::from(3)).ok(), side(Dim::from(3), Dim::ZERO));
        assert_eq!(split(&symbols, &Dim::from(-2)).ok(), side(Dim::ZERO, Dim::from(2)));
        assert_eq!(split(&symbols, &n).ok(), side(n.clone(), Dim::ZERO));
        assert!(split(&symbols, &(n - Dim::from(3))).is_err());
    }
}
