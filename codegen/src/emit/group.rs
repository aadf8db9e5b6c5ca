//! Fused groups: at most one operator that combines elements, the *anchor*, with functions of a
//! position before it (computed where the anchor reads) and behind it (applied where it writes).
//! Must never decide what is fused (a pass does) nor write a loop (the anchor's family does).

use super::EmitError;
use super::dims::{compute_type, storage_type};
use super::index::{Index, ravel};
use super::inline::Inline;
use super::kernel::{KernelBuilder, StepContext};
use super::pointwise::{Reads, is_pointwise};
use membar_ir::dim::Dim;
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::op::Meaning;
use membar_ir::ops::Op;
use membar_ir::types::TensorType;

/// A fused operator as a graph, with its anchor.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    graph: Box<Graph>,
    anchor: NodeId,
    /// The operators behind the anchor, one after another, each with the operand that the chain is.
    chain: Vec<(NodeId, usize)>,
}

impl Group {
    /// The group of a fused operator; `None` if it has no anchor, or more than one, or its anchor's
    /// result is not transformed element by element.
    pub fn of(op: &Op, operands: &[TensorType]) -> Option<Group> {
        let Op::Fused(_) = op else { return None };
        let Meaning::Composite(graph) = op.meaning(operands) else { return None };
        let types = |id: NodeId| -> Vec<TensorType> {
            graph.node(id).operands().iter().map(|value| graph.ty(*value).clone()).collect()
        };
        let is_anchor = |id: &NodeId| match &graph.node(*id).kind {
            NodeKind::Input | NodeKind::Weight(_) => false,
            NodeKind::Op(op) => !is_pointwise(op, &types(*id)),
        };
        let anchors: Vec<NodeId> = graph.nodes().filter(is_anchor).collect();
        let &[anchor] = anchors.as_slice() else { return None };
        let chain = chain(&graph, anchor)?;
        Some(Group { graph, anchor, chain })
    }

    /// The operator that combines elements.
    pub fn anchor_op(&self) -> Option<&Op> {
        self.graph.node(self.anchor).op()
    }

    fn types(&self, values: &[ValueId]) -> Vec<TensorType> {
        values.iter().map(|value| self.graph.ty(*value).clone()).collect()
    }

    /// How an operand of the anchor lies where an operand of the group is it, transposed or under
    /// another shape: that operand, the shape, and the strides if `strides` gives the group's own.
    /// An operand under another shape has no gaps.
    pub fn view(&self, operand: usize, strides: &dyn Fn(usize) -> Vec<Dim>) -> Option<View> {
        self.view_of(*self.graph.node(self.anchor).operands().get(operand)?, strides)
    }

    /// The view of an operand where the group's operands have no gaps.
    pub fn contiguous_view(&self, operand: usize) -> Option<View> {
        self.view(operand, &|input| row_major(&self.graph.ty(self.graph.inputs()[input]).shape))
    }

    fn view_of(&self, value: ValueId, strides: &dyn Fn(usize) -> Vec<Dim>) -> Option<View> {
        let shape = self.graph.ty(value).shape.clone();
        if let Some(operand) = self.graph.inputs().iter().position(|input| *input == value) {
            let strides = strides(operand);
            return Some(View { operand, shape, strides, whole: false });
        }
        let node = self.graph.node(self.graph.value(value).producer());
        let inner = self.view_of(*node.operands().first()?, strides)?;
        match node.op()? {
            Op::Transpose(op) => {
                let strides = op.perm.iter().map(|axis| inner.strides[axis.index()].clone());
                Some(View { strides: strides.collect(), shape, ..inner })
            }
            Op::Reshape(_) if inner.strides == row_major(&inner.shape) => {
                let strides = row_major(&shape);
                Some(View { operand: inner.operand, shape, strides, whole: true })
            }
            _ => None,
        }
    }

    /// Whether elements that follow one another along the last axis of the anchor's result do so in
    /// the group's, if that has no gaps.
    pub fn keeps_runs(&self) -> bool {
        let mut reshaped = false;
        self.chain.iter().all(|(id, _)| match self.graph.node(*id).op() {
            Some(Op::Transpose(op)) => {
                let last = op.perm.last().map(|axis| axis.index() + 1);
                !reshaped && last == Some(op.perm.len())
            }
            Some(Op::Reshape(_)) => {
                reshaped = true;
                true
            }
            _ => true,
        })
    }

    /// Whether there is nothing behind the anchor but functions of one element, so that the result
    /// lies as the anchor's does.
    pub fn keeps_positions(&self) -> bool {
        self.chain.iter().all(|(id, _)| matches!(self.graph.node(*id).op(), Some(Op::Scalar(_))))
    }

    /// Types of the anchor's operands.
    pub fn anchor_operands(&self) -> Vec<TensorType> {
        self.types(self.graph.node(self.anchor).operands())
    }

    /// Types of the anchor's results.
    pub fn anchor_outputs(&self) -> Vec<TensorType> {
        self.types(self.graph.node(self.anchor).outputs())
    }
}

/// An operand of the anchor as it lies in an operand of the group.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The group's operand.
    pub operand: usize,
    pub shape: Vec<Dim>,
    /// Elements from one to the next in each dimension.
    pub strides: Vec<Dim>,
    /// Whether the group's operand may have no gaps.
    pub whole: bool,
}

/// Strides of a tensor without gaps.
pub(crate) fn row_major(shape: &[Dim]) -> Vec<Dim> {
    let mut strides = vec![Dim::ONE; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].clone() * shape[axis].clone();
    }
    strides
}

/// The operators from the anchor to the result, if each has the anchor's elements, each once.
fn chain(graph: &Graph, anchor: NodeId) -> Option<Vec<(NodeId, usize)>> {
    let &[mut value] = graph.node(anchor).outputs() else { return None };
    let result = graph.outputs().first()?.value;
    let mut chain = Vec::new();
    while value != result {
        let users = graph.users(value);
        let [user] = users.as_slice() else { return None };
        let node = graph.node(user.node);
        let &[next] = node.outputs() else { return None };
        let keeps = match node.op()? {
            Op::Scalar(_) => graph.ty(next).shape == graph.ty(value).shape,
            Op::Transpose(_) | Op::Reshape(_) => true,
            _ => false,
        };
        if !keeps {
            return None;
        }
        chain.push((user.node, user.operand as usize));
        value = next;
    }
    // Nothing before the anchor may read its result: the chain would have another reader.
    Some(chain)
}

/// An operator that a kernel family writes: a step's own, or the anchor of its group.
pub(crate) struct Anchor<'a> {
    pub op: &'a Op,
    pub operands: Vec<TensorType>,
    pub outputs: Vec<TensorType>,
    group: Option<&'a Group>,
}

impl<'a> Anchor<'a> {
    /// The operator of a step, or the anchor of `group`, which is the step's.
    pub fn of(step: &'a StepContext<'a>, group: Option<&'a Group>) -> Anchor<'a> {
        match group.and_then(|group| Some((group, group.anchor_op()?))) {
            Some((group, op)) => Anchor {
                op,
                operands: group.anchor_operands(),
                outputs: group.anchor_outputs(),
                group: Some(group),
            },
            None => Anchor {
                op: step.op,
                operands: step.operand_types(),
                outputs: step.output_types(),
                group: None,
            },
        }
    }

    /// How an operand lies in one of the step's.
    pub fn view(&self, step: &StepContext<'_>, operand: usize) -> Option<View> {
        let strides = |operand: usize| step.operands[operand].strides();
        match self.group {
            Some(group) => group.view(operand, &strides),
            None => {
                let shape = self.operands[operand].shape.clone();
                Some(View { operand, shape, strides: strides(operand), whole: false })
            }
        }
    }

    /// Whether this is the anchor of a group.
    pub fn is_grouped(&self) -> bool {
        self.group.is_some()
    }

    /// As [`Group::keeps_runs`].
    pub fn keeps_runs(&self) -> bool {
        self.group.is_none_or(Group::keeps_runs)
    }

    /// Whether results lie as the operator's own do, so that neighbours stay neighbours.
    pub fn keeps_positions(&self) -> bool {
        self.group.is_none_or(Group::keeps_positions)
    }

    /// An operand's element, as an expression in its compute type.
    pub fn read(
        &self,
        kernel: &mut KernelBuilder<'_>,
        operand: usize,
        index: &Index,
    ) -> Result<String, EmitError> {
        let mut memory = Memory;
        match self.group {
            None => memory.read(kernel, operand, index),
            Some(group) => {
                let value = group.graph.node(group.anchor).operands()[operand];
                Inline::new(&group.graph, &mut memory).value(value, index, kernel)
            }
        }
    }

    /// What becomes of an element of the operator's result, `value` in its compute type: the
    /// element of the step's result, and where it belongs.
    pub fn apply(
        &self,
        kernel: &mut KernelBuilder<'_>,
        index: &Index,
        value: &str,
    ) -> Result<(String, Index), EmitError> {
        let Some(group) = self.group else { return Ok((value.to_string(), index.clone())) };
        let graph = &group.graph;
        let mut memory = Memory;
        let mut inline = Inline::new(graph, &mut memory);
        let mut text = kernel.bind(compute_type(self.outputs[0].dtype), "v", value);
        let mut index = index.clone();
        let mut last = graph.node(group.anchor).outputs()[0];
        for (id, _) in &group.chain {
            let node = graph.node(*id);
            let next = node.outputs()[0];
            match node.op() {
                Some(Op::Transpose(op)) => {
                    let axes = op.perm.iter().map(|axis| index.axes[axis.index()].clone());
                    index = Index::at(&graph.ty(next).shape, axes.collect());
                }
                Some(Op::Reshape(_)) => {
                    let number = match &index.linear {
                        Some(linear) => linear.clone(),
                        None => {
                            let number = ravel(kernel, &index.axes, &index.shape);
                            kernel.bind("idx", "n", number)
                        }
                    };
                    index = Index::unravel(kernel, &number, &graph.ty(next).shape);
                }
                _ => {
                    inline.know(last, &index, kernel, &text);
                    text = inline.value(next, &index, kernel)?;
                }
            }
            last = next;
        }
        Ok((text, index))
    }

    /// Writes an element of output `output` of the operator, transformed as the group says.
    pub fn write(
        &self,
        kernel: &mut KernelBuilder<'_>,
        output: usize,
        index: &Index,
        value: &str,
    ) -> Result<(), EmitError> {
        let (value, index) = self.apply(kernel, index, value)?;
        let y = kernel.output(output);
        let tensor = &kernel.step.outputs[output];
        let offset = index.offset(kernel, tensor);
        let element = storage_type(tensor.ty.dtype);
        kernel.line(format!("{y}[{offset}] = Element<{element}>::of({value});"));
        Ok(())
    }
}

/// Reads of a step's operands from memory.
pub(crate) struct Memory;

impl Reads for Memory {
    fn read(
        &mut self,
        kernel: &mut KernelBuilder<'_>,
        operand: usize,
        index: &Index,
    ) -> Result<String, EmitError> {
        let offset = index.offset(kernel, &kernel.step.operands[operand]);
        let pointer = kernel.operand(operand);
        Ok(format!("load({pointer}, {offset})"))
    }
}
