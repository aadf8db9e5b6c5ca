//! `simplify`: removes operators that change nothing, bit for bit; never an equality that holds
//! only up to rounding (the rewriter has those).

use crate::dead_code::remove_replaced;
use membar_ir::dim::Dim;
use membar_ir::element::Number;
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::ops::{Broadcast, Op, Reshape, Scalar, Slice, Transpose};
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::tensor::Tensor;
use membar_ir::types::{Axis, TensorType};

/// Replaces an operator that gives back its operand by the operand, two movements in a row by one,
/// and a transposition that only moves dimensions of 1 by a reshape, which moves no data:
///
/// ```text
/// graph @g(%x: f32[2, 3], %y: f32[2, 1, 3]) {
///   %one = weight [1.0] : f32[1]
///   %a = mul %x, %one : f32[2, 3]
///   %b = transpose %a {perm = [1, 0]} : f32[3, 2]
///   %c = transpose %b {perm = [1, 0]} : f32[2, 3]
///   %d = transpose %y {perm = [1, 0, 2]} : f32[1, 2, 3]
///   return %c, %d
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%x: f32[2, 3], %y: f32[2, 1, 3]) {
///   %d = reshape %y {shape = [1, 2, 3]} : f32[1, 2, 3]
///   return c = %x, %d
/// }
/// ```
///
/// `x * 1`, `x - 0` and `x + -0` are exact; `x + 0` is not, since it turns `-0` into `0`.
///
/// # Errors
/// None.
pub fn simplify(graph: &mut Graph, _cx: &mut PassContext) -> Result<Changed, PassError> {
    let mut replaced = Vec::new();
    for id in graph.order() {
        let &[result] = graph.node(id).outputs() else { continue };
        let new = match identity(graph, id) {
            Some(value) => Some(value),
            None => merged(graph, id).and_then(|(op, operand)| {
                let types = op.infer(std::slice::from_ref(graph.ty(operand))).ok()?;
                if types.first() != Some(graph.ty(result)) {
                    return None;
                }
                let origin = graph.node(id).origin.clone();
                let node = graph.add_op(op, &[operand]).ok()?;
                graph.node_mut(node).origin = origin;
                graph.stand_in(node, id);
                replaced.extend(identity(graph, node).map(|_| node));
                identity(graph, node).or_else(|| graph.node(node).outputs().first().copied())
            }),
        };
        if let Some(new) = new {
            if graph.value(new).name.is_none() {
                graph.value_mut(new).name = graph.value(result).name.clone();
            }
            graph.replace_uses(result, new);
            replaced.push(id);
        }
    }
    let changed = !replaced.is_empty();
    remove_replaced(graph, replaced);
    Ok(changed.into())
}

/// The value that a node's only output equals bit for bit, if it is one that exists already.
pub(crate) fn identity(graph: &Graph, id: NodeId) -> Option<ValueId> {
    let node = graph.node(id);
    let (operands, &[result]) = (node.operands(), node.outputs()) else { return None };
    let first = operands.first().copied();
    let same = match node.op()? {
        // Of equal types, these keep every element in its place.
        Op::Reshape(_) | Op::Broadcast(_) | Op::Bitcast(_) | Op::Scalar(Scalar::Cast { .. }) => {
            first
        }
        Op::Transpose(op) => {
            let sorted = op.perm.iter().enumerate().all(|(i, axis)| axis.index() == i);
            first.filter(|_| sorted)
        }
        Op::Slice(op) => {
            let whole = op.starts.iter().all(|d| d.is(0)) && op.steps.iter().all(|s| *s == 1);
            first.filter(|_| whole)
        }
        Op::Pad(op) => first.filter(|_| op.before.iter().chain(&op.after).all(|d| d.is(0))),
        Op::Concat(op) => {
            let axis = op.axis.index();
            let empty = |v: &ValueId| graph.ty(*v).shape.get(axis).is_some_and(|d| d.is(0));
            let mut rest = operands.iter().copied().filter(|v| !empty(v));
            let only = rest.next();
            only.filter(|_| rest.next().is_none())
        }
        Op::Scalar(op) => scalar_identity(graph, op, operands),
        // A movement is an identity only where the rules above say so; the others compute.
        Op::Iota(_)
        | Op::Dims(_)
        | Op::Append(_)
        | Op::Gather(_)
        | Op::GatherElements(_)
        | Op::GatherNd(_)
        | Op::ScatterElements(_)
        | Op::ScatterNd(_)
        | Op::TensorScatter(_)
        | Op::Matmul(_)
        | Op::Reduce(_)
        | Op::ArgReduce(_)
        | Op::Cumulative(_)
        | Op::TopK(_)
        | Op::Softmax(_)
        | Op::LogSoftmax(_)
        | Op::LayerNorm(_)
        | Op::RmsNorm(_)
        | Op::GroupNorm(_)
        | Op::BatchNorm(_)
        | Op::LocalResponseNorm(_)
        | Op::Attention(_)
        | Op::RotaryEmbedding(_)
        | Op::Quantize(_)
        | Op::Dequantize(_)
        | Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::Pool(_)
        | Op::Resize(_)
        | Op::GridSample(_)
        | Op::Fused(_) => None,
    }?;
    (graph.ty(same) == graph.ty(result)).then_some(same)
}

/// As [`identity`], for elementwise functions that have a neutral operand.
fn scalar_identity(graph: &Graph, op: &Scalar, operands: &[ValueId]) -> Option<ValueId> {
    let all = |operand: usize, neutral: &dyn Fn(Number) -> bool| {
        operands.get(operand).is_some_and(|value| uniform(graph, *value, neutral))
    };
    let either = |neutral: &dyn Fn(Number) -> bool| {
        if all(1, neutral) {
            operands.first().copied()
        } else if all(0, neutral) {
            operands.get(1).copied()
        } else {
            None
        }
    };
    match (op, operands) {
        (Scalar::Mul, _) => either(&|n| n.to_float() == 1.0),
        (Scalar::Div, [x, _]) if all(1, &|n| n.to_float() == 1.0) => Some(*x),
        (Scalar::Add, _) => either(&|n| is_zero(n, true)),
        (Scalar::Sub, [x, _]) if all(1, &|n| is_zero(n, false)) => Some(*x),
        (Scalar::And, _) => either(&|n| n == Number::Bool(true)),
        (Scalar::Or | Scalar::Xor, _) => either(&|n| n == Number::Bool(false)),
        (Scalar::Select, [_, then, _]) if all(0, &|n| n == Number::Bool(true)) => Some(*then),
        (Scalar::Select, [_, _, other]) if all(0, &|n| n == Number::Bool(false)) => Some(*other),
        _ => None,
    }
}

/// Whether a number is zero; of floats, the zero of that sign.
fn is_zero(number: Number, negative: bool) -> bool {
    match number {
        Number::Float(x) => x == 0.0 && x.is_sign_negative() == negative,
        Number::Signed(x) => x == 0,
        Number::Unsigned(x) => x == 0,
        Number::Bool(_) => false,
    }
}

/// Whether a value is a small literal all of whose elements are so.
fn uniform(graph: &Graph, value: ValueId, holds: &dyn Fn(Number) -> bool) -> bool {
    // Larger neutral operands are rare, and looking at them takes time.
    const ELEMENTS: usize = 1 << 12;
    let node = graph.node(graph.value(value).producer());
    let NodeKind::Weight(recipe) = &node.kind else { return false };
    let small = |tensor: &&Tensor| (1..=ELEMENTS).contains(&tensor.elements());
    recipe.as_literal().filter(small).is_some_and(|tensor| tensor.numbers().all(holds))
}

/// One operator that does what a node and the one before it do together, and its operand.
fn merged(graph: &Graph, id: NodeId) -> Option<(Op, ValueId)> {
    let node = graph.node(id);
    let operand = *node.operands().first()?;
    let before = graph.node(graph.value(operand).producer());
    let source = before.operands().first().copied();
    match (node.op()?, before.op()) {
        (Op::Transpose(outer), Some(Op::Transpose(inner))) => {
            let perm = outer.perm.iter().map(|axis| inner.perm.get(axis.index()).copied());
            Some((Transpose { perm: perm.collect::<Option<Vec<Axis>>>()? }.into(), source?))
        }
        (Op::Transpose(outer), _) => {
            moves_only_ones(&outer.perm, graph.ty(operand)).then_some(())?;
            let shape = graph.ty(*node.outputs().first()?).shape.clone();
            Some((Reshape { shape }.into(), operand))
        }
        (Op::Reshape(outer), Some(Op::Reshape(_))) => Some((outer.clone().into(), source?)),
        (Op::Broadcast(outer), Some(Op::Broadcast(_))) => {
            Some((Broadcast { shape: outer.shape.clone() }.into(), source?))
        }
        (Op::Slice(outer), Some(Op::Slice(inner))) => {
            let starts = inner.starts.iter().zip(&inner.steps).zip(&outer.starts);
            let starts = starts
                .map(|((inner, step), outer)| inner.clone() + Dim::from(*step) * outer.clone());
            let steps = inner.steps.iter().zip(&outer.steps).map(|(a, b)| a.checked_mul(*b));
            let slice = Slice {
                starts: starts.collect(),
                sizes: outer.sizes.clone(),
                steps: steps.collect::<Option<_>>()?,
            };
            Some((slice.into(), source?))
        }
        _ => None,
    }
}

/// Whether the dimensions that are not 1 keep their order.
fn moves_only_ones(perm: &[Axis], ty: &TensorType) -> bool {
    let is_one = |axis: &&Axis| ty.shape.get(axis.index()).is_some_and(|dim| dim.is(1));
    let kept: Vec<&Axis> = perm.iter().filter(|axis| !is_one(axis)).collect();
    kept.windows(2).all(|pair| pair[0] < pair[1])
}
