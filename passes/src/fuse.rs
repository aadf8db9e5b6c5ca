//! `fuse`: makes groups of operators that one kernel computes; never decides how a kernel computes
//! them, and never duplicates work that costs more than the memory it saves.

use crate::dead_code::remove_replaced;
use crate::size::greatest;
use membar_ir::attribute::Float;
use membar_ir::dim::Dim;
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::ops::{Fused, Op, Part, PartOperand, Scalar};
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::types::TensorType;
use std::collections::BTreeMap;

/// Operators in one group at most: the text of a kernel grows with them.
const MOST_PARTS: usize = 24;
/// Tensors that a group reads at most: a kernel's parameters are limited.
const MOST_OPERANDS: usize = 12;

/// Joins an operator with the one whose result it alone reads, again and again, as long as the
/// kernel library has a kernel for the group. The value between them is never in memory, and one
/// launch with its order is saved, 0.6 to 1.1 µs on an H200:
///
/// ```text
/// ir 1 stage placed topology "cpu"
/// graph @g(%x: f32[2, 8] @cpu0.dram, %y: f32[8] @cpu0.dram) {
///   %a = add %x, %y : f32[2, 8] @cpu0.dram
///   %b = relu %a : f32[2, 8] @cpu0.dram
///   return %b
/// }
/// ```
/// becomes
/// ```text
/// ir 1 stage placed topology "cpu"
/// graph @g(%x: f32[2, 8] @cpu0.dram, %y: f32[8] @cpu0.dram) {
///   %b = fused %x, %y {body = [add(x0, x1), relu(p0)]} : f32[2, 8] @cpu0.dram
///   return %b
/// }
/// ```
///
/// A value with several readers stays in memory. One that is read more often than it has elements,
/// because its reader broadcasts it, is computed again only if that is cheap. Reshapes between two
/// operators, which cost nothing alone, join with them. Nothing changes with a library that has no
/// groups, the CPU's.
///
/// # Errors
/// None.
pub fn fuse(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    if !cx.kernels.has_groups() {
        return Ok(Changed::No);
    }
    let mut replaced = Vec::new();
    for id in graph.order() {
        let mut consumer = id;
        while let Some((joined, members)) = join(graph, cx, consumer) {
            for member in members {
                replaced.push(member);
                let operands = graph.node(member).operands().iter();
                replaced.extend(operands.map(|value| graph.value(*value).producer()));
                // Until it is removed it must not count as a reader.
                graph.set_operands(member, &[]);
            }
            consumer = joined;
        }
    }
    if replaced.is_empty() {
        return Ok(Changed::No);
    }
    // A schedule that was chosen before does not know the groups.
    graph.schedule.clear();
    remove_replaced(graph, replaced);
    Ok(Changed::Yes)
}

/// Joins a node with one of those whose results it reads; the group's node, if there is one, and the
/// nodes that it replaces.
fn join(graph: &mut Graph, cx: &PassContext, consumer: NodeId) -> Option<(NodeId, Vec<NodeId>)> {
    let node = graph.node(consumer);
    if !is_joinable(node.op()?) || node.outputs().len() != 1 {
        return None;
    }
    // Reshapes join only as part of what reads them.
    if is_alias(node.op()?) {
        return None;
    }
    let operands = node.operands().to_vec();
    for (position, value) in operands.iter().enumerate() {
        if operands[..position].contains(value) {
            continue;
        }
        let Some(mut members) = producers(graph, consumer, *value) else { continue };
        members.push(consumer);
        if let Some(group) = group(graph, cx, &members) {
            return Some((group, members));
        }
    }
    None
}

fn is_joinable(op: &Op) -> bool {
    // The place of a state's rows is the state's, whatever is computed.
    !matches!(op, Op::Append(_))
}

fn is_alias(op: &Op) -> bool {
    matches!(op, Op::Reshape(_))
}

/// The operator that makes a value, behind it the reshapes that lead to `consumer`, if each of these
/// values has no other reader.
fn producers(graph: &Graph, consumer: NodeId, value: ValueId) -> Option<Vec<NodeId>> {
    let mut members = Vec::new();
    let (mut value, mut reader) = (value, consumer);
    loop {
        if graph.only_reader(value) != Some(reader) || graph.is_output(value) {
            return None;
        }
        let producer = graph.value(value).producer();
        let node = graph.node(producer);
        if !is_joinable(node.op()?) || node.outputs().len() != 1 {
            return None;
        }
        members.insert(0, producer);
        if !is_alias(node.op()?) {
            return Some(members);
        }
        value = node.operands()[0];
        reader = producer;
    }
}

/// Replaces the last of these nodes by a group of all of them, if there is a kernel for it and the
/// group is worth it.
fn group(graph: &mut Graph, cx: &PassContext, members: &[NodeId]) -> Option<NodeId> {
    let consumer = *members.last()?;
    if !is_worth_it(graph, members) {
        return None;
    }
    let mut body = Body::default();
    for member in members {
        body.add(graph, *member)?;
    }
    if body.parts.len() > MOST_PARTS || body.operands.len() > MOST_OPERANDS {
        return None;
    }
    let op = Op::from(Fused { body: body.parts });
    let types: Vec<TensorType> =
        body.operands.iter().map(|value| graph.ty(*value).clone()).collect();
    let old = graph.node(consumer).outputs()[0];
    let outputs = op.infer(&types).ok()?;
    if outputs.first() != Some(graph.ty(old)) {
        return None;
    }
    cx.kernels.kernel(&op, &types, &outputs)?;
    let node = graph.add_node(NodeKind::Op(op), &body.operands, outputs);
    graph.stand_in(node, consumer);
    graph.node_mut(node).device = graph.node(consumer).device;
    let mut origin = Vec::new();
    for member in members {
        for name in &graph.node(*member).origin {
            if !origin.contains(name) {
                origin.push(name.clone());
            }
        }
    }
    graph.node_mut(node).origin = origin;
    let new = graph.node(node).outputs()[0];
    graph.value_mut(new).memory = graph.value(old).memory;
    graph.value_mut(new).name = graph.value(old).name.clone();
    graph.replace_uses(old, new);
    Some(node)
}

/// Whether what the group computes again costs less than the memory traffic that it saves.
fn is_worth_it(graph: &Graph, members: &[NodeId]) -> bool {
    let (Some(first), Some(last)) = (members.first(), members.last()) else { return false };
    let elements = |id: NodeId| -> u64 {
        let node = graph.node(id);
        let ty = graph.ty(node.outputs()[0]);
        let product: Dim = ty.shape.iter().cloned().product();
        greatest(&product, &graph.symbols).unwrap_or(u64::MAX)
    };
    let (Some(producer), Some(consumer)) = (graph.node(*first).op(), graph.node(*last).op()) else {
        return false;
    };
    // An elementwise reader that broadcasts the value evaluates it once for each of its results.
    if elements(*last) > elements(*first) && is_pointwise(consumer) {
        return is_cheap(producer);
    }
    true
}

/// Whether each result is a function of few elements, so that the number of results says how often
/// operands are read.
fn is_pointwise(op: &Op) -> bool {
    match op {
        Op::Fused(group) => group.body.iter().all(|part| is_pointwise(&part.op)),
        Op::Scalar(_)
        | Op::Broadcast(_)
        | Op::Transpose(_)
        | Op::Reshape(_)
        | Op::Slice(_)
        | Op::Concat(_)
        | Op::Pad(_)
        | Op::Gather(_)
        | Op::GatherElements(_)
        | Op::GatherNd(_) => true,
        _ => false,
    }
}

/// Whether an operator is so cheap that computing it again costs less than a load.
fn is_cheap(op: &Op) -> bool {
    match op {
        Op::Fused(group) => group.body.iter().all(|part| is_cheap(&part.op)),
        Op::Scalar(scalar) => matches!(
            scalar,
            Scalar::Add
                | Scalar::Sub
                | Scalar::Mul
                | Scalar::Neg
                | Scalar::Cast { .. }
                | Scalar::Not
                | Scalar::And
                | Scalar::Or
                | Scalar::Relu
                | Scalar::Select
                | Scalar::Less
                | Scalar::LessOrEqual
                | Scalar::Greater
                | Scalar::GreaterOrEqual
                | Scalar::Equal
        ),
        Op::Broadcast(_) | Op::Transpose(_) | Op::Reshape(_) | Op::Slice(_) | Op::Iota(_) => true,
        _ => false,
    }
}

/// The parts of a group and what they read from outside.
#[derive(Default)]
struct Body {
    parts: Vec<Part>,
    operands: Vec<ValueId>,
    /// Which part makes a value.
    made: BTreeMap<ValueId, u32>,
}

impl Body {
    /// Adds an operator; the parts of a group one by one.
    fn add(&mut self, graph: &Graph, id: NodeId) -> Option<()> {
        let node = graph.node(id);
        let read: Vec<PartOperand> =
            node.operands().iter().map(|value| self.operand(graph, node.op(), *value)).collect();
        match node.op()? {
            Op::Fused(group) => {
                let base = self.parts.len() as u32;
                for part in &group.body {
                    let operands = part.operands.iter().map(|operand| match operand {
                        PartOperand::Operand(i) => read.get(*i as usize).copied(),
                        PartOperand::Part(i) => Some(PartOperand::Part(base + i)),
                        PartOperand::Scalar(..) => Some(*operand),
                    });
                    let operands = operands.collect::<Option<_>>()?;
                    self.parts.push(Part { op: part.op.clone(), operands });
                }
            }
            op => self.parts.push(Part { op: op.clone(), operands: read }),
        }
        self.made.insert(node.outputs()[0], self.parts.len() as u32 - 1);
        Some(())
    }

    fn operand(&mut self, graph: &Graph, reader: Option<&Op>, value: ValueId) -> PartOperand {
        if let Some(part) = self.made.get(&value) {
            return PartOperand::Part(*part);
        }
        if let Some(scalar) = scalar(graph, reader, value) {
            return scalar;
        }
        let position = self.operands.iter().position(|known| *known == value);
        let position = position.unwrap_or_else(|| {
            self.operands.push(value);
            self.operands.len() - 1
        });
        PartOperand::Operand(position as u32)
    }
}

/// A float scalar that an elementwise operator reads, as a number in the group's text.
fn scalar(graph: &Graph, reader: Option<&Op>, value: ValueId) -> Option<PartOperand> {
    let Some(Op::Scalar(_)) = reader else { return None };
    let ty = graph.ty(value);
    let NodeKind::Weight(recipe) = &graph.node(graph.value(value).producer()).kind else {
        return None;
    };
    // Of a higher rank it might decide the result's.
    if ty.rank() != 0 || !ty.dtype.is_float() {
        return None;
    }
    let number = recipe.as_literal()?.numbers().next()?;
    Some(PartOperand::Scalar(ty.dtype, Float(number.to_float())))
}
