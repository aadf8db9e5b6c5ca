//! Graphs of operators that are functions of a position, written as one function: meanings of
//! composite operators, and fused groups. Must never decide what is fused.

use super::EmitError;
use super::dims::compute_type;
use super::index::Index;
use super::kernel::KernelBuilder;
use super::pointwise::{Applied, Reads, at, is_pointwise};
use super::scalar::literal;
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::types::TensorType;
use std::collections::BTreeMap;

/// Whether every node of a graph with one output is a function of a position, so that the graph is.
pub(crate) fn is_inlinable(graph: &Graph) -> bool {
    graph.outputs().len() == 1
        && graph.nodes().all(|id| match &graph.node(id).kind {
            NodeKind::Input => true,
            NodeKind::Weight(recipe) => {
                recipe.as_literal().is_some_and(|tensor| tensor.elements() == 1)
            }
            NodeKind::Op(op) => is_pointwise(op, &types(graph, id)),
        })
}

/// The meaning of a composite operator that is a function of a position.
pub(crate) fn inlinable_meaning(
    op: &membar_ir::ops::Op,
    operands: &[TensorType],
) -> Option<Box<Graph>> {
    match op.meaning(operands) {
        membar_ir::op::Meaning::Composite(graph) => is_inlinable(&graph).then_some(graph),
        membar_ir::op::Meaning::Scalar(_) | membar_ir::op::Meaning::Primitive(_) => None,
    }
}

fn types(graph: &Graph, node: NodeId) -> Vec<TensorType> {
    graph.node(node).operands().iter().map(|value| graph.ty(*value).clone()).collect()
}

/// The element at `index` of the only output of an inlinable graph, whose inputs are read by
/// `outer`.
pub(crate) fn graph_at(
    graph: &Graph,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    outer: &mut dyn Reads,
) -> Result<String, EmitError> {
    let output = graph.outputs()[0].value;
    Inline::new(graph, outer).value(output, index, kernel)
}

/// A value at a position, by its coordinates.
type Place = (ValueId, Vec<String>);

/// A graph whose values are computed where they are asked for.
pub(crate) struct Inline<'g, 'r> {
    graph: &'g Graph,
    inputs: BTreeMap<ValueId, usize>,
    outer: &'r mut dyn Reads,
    /// What was computed at a position, and in which block.
    known: BTreeMap<Place, Vec<(u32, String)>>,
}

impl<'g, 'r> Inline<'g, 'r> {
    /// A graph whose inputs are read by `outer`.
    pub fn new(graph: &'g Graph, outer: &'r mut dyn Reads) -> Inline<'g, 'r> {
        let inputs = graph.inputs().iter().enumerate().map(|(i, value)| (*value, i)).collect();
        Inline { graph, inputs, outer, known: BTreeMap::new() }
    }

    /// Says what a value is at a position.
    pub fn know(&mut self, value: ValueId, index: &Index, kernel: &KernelBuilder<'_>, name: &str) {
        let key = (value, index.axes.clone());
        self.known.entry(key).or_default().push((kernel.block(), name.to_string()));
    }

    /// The element of a value at a position.
    pub fn value(
        &mut self,
        value: ValueId,
        index: &Index,
        kernel: &mut KernelBuilder<'_>,
    ) -> Result<String, EmitError> {
        let key = (value, index.axes.clone());
        let mut known = self.known.get(&key).into_iter().flatten();
        if let Some((_, name)) = known.find(|(block, _)| kernel.is_open(*block)) {
            return Ok(name.clone());
        }
        let graph = self.graph;
        let producer = graph.value(value).producer();
        let ty = graph.ty(value);
        let text = match &graph.node(producer).kind {
            NodeKind::Input => match self.inputs.get(&value) {
                Some(input) => self.outer.read(kernel, *input, index)?,
                None => return Err(EmitError::NoKernel { operator: "input".to_string() }),
            },
            NodeKind::Weight(recipe) => {
                let number = recipe.as_literal().and_then(|tensor| tensor.numbers().next());
                let number =
                    number.ok_or_else(|| EmitError::NoKernel { operator: "weight".to_string() })?;
                return Ok(literal(number, ty.dtype.compute()));
            }
            NodeKind::Op(op) => {
                let operands = types(graph, producer);
                let applied = Applied { op, operands: &operands, output: ty };
                let mut reads = NodeReads { inline: self, node: producer };
                at(&applied, index, kernel, &mut reads)?
            }
        };
        let name = kernel.bind(compute_type(ty.dtype), "v", text);
        self.know(value, index, kernel, &name);
        Ok(name)
    }
}

struct NodeReads<'i, 'g, 'r> {
    inline: &'i mut Inline<'g, 'r>,
    node: NodeId,
}

impl Reads for NodeReads<'_, '_, '_> {
    fn read(
        &mut self,
        kernel: &mut KernelBuilder<'_>,
        operand: usize,
        index: &Index,
    ) -> Result<String, EmitError> {
        let value = self.inline.graph.node(self.node).operands()[operand];
        self.inline.value(value, index, kernel)
    }
}
