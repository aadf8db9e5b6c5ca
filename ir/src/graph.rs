//! The property graph: operators as nodes, values as typed edges, with typed handles; it keeps
//! itself consistent but decides nothing (see `verify` for what must hold).

use crate::dim::{Dim, Range, Ranges, Symbol};
use crate::kernel::Promise;
use crate::op::TypeError;
use crate::ops::Op;
use crate::recipe::Recipe;
use crate::schedule::{Buffer, BufferId, Layout, Order, Region};
use crate::topology::{DeviceId, MemoryId, Topology};
use crate::types::TensorType;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;

/// A handle of a node. Stays valid until the node is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(NodeIndex<u32>);

impl NodeId {
    /// The index for side tables: below [`Graph::node_bound`].
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// A handle of a value: an output of a node. Stays valid until the node is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(u32);

impl ValueId {
    /// The index for side tables: below [`Graph::value_bound`], and ascending in creation order.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}", self.0.index())
    }
}

impl fmt::Debug for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "value{}", self.0)
    }
}

/// How far a graph has come through the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Pure mathematics.
    Tensor,
    /// Every node has a device, every value a memory.
    Placed,
    /// Every value but the weights has a buffer region (the runtime keeps weights where it likes:
    /// mapped from a file, say), and nodes stand in execution order.
    Scheduled,
}

impl Stage {
    /// Every stage with its word in IR text, in pipeline order.
    pub const WORDS: &'static [(&'static str, Stage)] =
        &[("tensor", Stage::Tensor), ("placed", Stage::Placed), ("scheduled", Stage::Scheduled)];

    /// The word in IR text.
    pub fn word(self) -> &'static str {
        match self {
            Stage::Tensor => "tensor",
            Stage::Placed => "placed",
            Stage::Scheduled => "scheduled",
        }
    }
}

/// What a node does.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// An input of the graph; its value's name is the input's name.
    Input,
    /// A constant made by a recipe.
    Weight(Recipe),
    /// An operator.
    Op(Op),
}

/// An operator, weight or input with its properties.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it does.
    pub kind: NodeKind,
    /// The device that runs it; from stage placed on.
    pub device: Option<DeviceId>,
    /// The nodes of the source model that it stems from, for messages.
    pub origin: Vec<Arc<str>>,
    /// Scratch memory that it has to itself while it runs; from stage scheduled on, if it needs
    /// any.
    pub workspace: Option<Region>,
    /// What its kernels promise, once orders have been inserted (a GPU's steps have them); `None`
    /// from then on: it launches nothing.
    pub step: Option<Promise>,
    operands: Vec<ValueId>,
    /// Where each operand's use stands among the uses of its value.
    places: Vec<u32>,
    outputs: Vec<ValueId>,
    /// When it was created, or when the node in whose place it stands was. Handles do not tell:
    /// those of removed nodes are given out again.
    sequence: u64,
    /// When it was created: among nodes in the place of one, the first comes first.
    created: u64,
}

impl Node {
    /// The values it reads, in order.
    pub fn operands(&self) -> &[ValueId] {
        &self.operands
    }

    /// The values it makes, in order.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// The operator, unless it is an input or a weight.
    pub fn op(&self) -> Option<&Op> {
        match &self.kind {
            NodeKind::Op(op) => Some(op),
            NodeKind::Input | NodeKind::Weight(_) => None,
        }
    }
}

/// A value with its properties.
#[derive(Clone, Debug)]
pub struct Value {
    /// Element type and shape.
    pub ty: TensorType,
    /// A name for people: from the source model where there is one. Not necessarily unique, but
    /// inputs' are.
    pub name: Option<Arc<str>>,
    /// The memory that holds it; from stage placed on.
    pub memory: Option<MemoryId>,
    /// The bytes that hold it; from stage scheduled on.
    pub region: Option<Region>,
    /// How the elements lie in the region; row-major without gaps unless it says otherwise.
    pub layout: Layout,
    producer: NodeId,
    output: u32,
    /// How many outputs of the graph it is.
    graph_outputs: u32,
    /// Its readers, in no order.
    uses: Vec<Use>,
}

impl Value {
    /// The node that makes it.
    pub fn producer(&self) -> NodeId {
        self.producer
    }

    /// Which of the producer's outputs it is.
    pub fn output_index(&self) -> usize {
        self.output as usize
    }
}

/// A place where a value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The reader.
    pub node: NodeId,
    /// Which of its operands.
    pub operand: u32,
}

/// An output of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name.
    pub name: Arc<str>,
    /// Its value.
    pub value: ValueId,
}

/// An input that a run continues from the output of the run before: a KV cache, say.
///
/// From stage scheduled on, a state has a buffer of its own. One that grows lies there once, at its
/// capacity, and so does one whose output is made in place; then both values have one region, and
/// nothing is to be done between two runs. Else the two regions differ, and the runtime copies the
/// output's to the input's after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The input.
    pub input: ValueId,
    /// The name of the output.
    pub output: Arc<str>,
    /// How it grows, once `lower_states` has found it out; `None`: replaced as a whole.
    pub growth: Option<Growth>,
}

/// A state that each run appends to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The axis that grows.
    pub axis: crate::types::Axis,
    /// The length before the run: the symbol of the input's extent along the axis.
    pub length: Symbol,
    /// The greatest length.
    pub capacity: i64,
}

/// A graph of operators over typed values.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// How far it has come.
    pub stage: Stage,
    /// The machine that it is for; from stage placed on.
    pub topology: Option<Arc<Topology>>,
    /// Declared ranges of the symbols.
    pub symbols: Ranges,
    /// Pairs of inputs and outputs that are one state.
    pub states: Vec<State>,
    /// Arena buffers; from stage scheduled on. Indexed by [`BufferId`].
    pub buffers: BTreeMap<BufferId, Buffer>,
    /// Orders between steps; from stage scheduled on.
    pub orders: Vec<Order>,
    /// Every node in execution order, the inputs first and as listed; empty until `schedule` has
    /// chosen one.
    pub schedule: Vec<NodeId>,
    /// Petgraph keeps the nodes and their handles. The edges stand at the values, since petgraph
    /// removes one in a time that grows with the degree of its ends.
    nodes: StableDiGraph<Node, (), u32>,
    values: Vec<Option<Value>>,
    inputs: Vec<ValueId>,
    outputs: Vec<Output>,
    created: u64,
}

impl Graph {
    /// An empty graph at stage tensor.
    pub fn new(name: &str) -> Graph {
        Graph {
            name: name.to_string(),
            stage: Stage::Tensor,
            topology: None,
            symbols: Ranges::new(),
            states: Vec::new(),
            buffers: BTreeMap::new(),
            orders: Vec::new(),
            schedule: Vec::new(),
            nodes: StableDiGraph::new(),
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            created: 0,
        }
    }

    /// Declares the range of a symbol; replaces an earlier one.
    pub fn declare(&mut self, symbol: Symbol, range: Range) {
        self.symbols.insert(symbol, range);
    }

    /// Adds an input.
    pub fn add_input(&mut self, name: &str, ty: TensorType) -> ValueId {
        let node = self.add_node(NodeKind::Input, &[], vec![ty]);
        let value = self.nodes[node.0].outputs[0];
        self.set_name(value, name);
        self.inputs.push(value);
        value
    }

    /// Adds a weight.
    pub fn add_weight(&mut self, name: Option<&str>, recipe: Recipe) -> ValueId {
        let ty = recipe.ty().clone();
        let node = self.add_node(NodeKind::Weight(recipe), &[], vec![ty]);
        let value = self.nodes[node.0].outputs[0];
        if let Some(name) = name {
            self.set_name(value, name);
        }
        value
    }

    /// Adds an operator and infers its outputs' types.
    ///
    /// # Errors
    /// What the operator's inference reports; the graph is unchanged then.
    pub fn add_op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<NodeId, TypeError> {
        let op = op.into();
        let types: Vec<TensorType> = operands.iter().map(|v| self.value(*v).ty.clone()).collect();
        let outputs = op.infer(&types)?;
        Ok(self.add_node(NodeKind::Op(op), operands, outputs))
    }

    /// Adds an operator and returns its first output.
    ///
    /// # Errors
    /// As [`Graph::add_op`].
    pub fn apply(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId, TypeError> {
        let node = self.add_op(op, operands)?;
        let first = self.node(node).outputs().first().copied();
        first.ok_or_else(|| TypeError::invalid("the operator has no output"))
    }

    /// Adds a node with given output types. For parsers and copies; operators elsewhere go through
    /// [`Graph::add_op`], which infers the types.
    pub fn add_node(
        &mut self,
        kind: NodeKind,
        operands: &[ValueId],
        types: Vec<TensorType>,
    ) -> NodeId {
        let id = NodeId(self.nodes.add_node(Node {
            kind,
            device: None,
            origin: Vec::new(),
            workspace: None,
            step: None,
            operands: operands.to_vec(),
            places: vec![0; operands.len()],
            outputs: Vec::new(),
            sequence: self.created,
            created: self.created,
        }));
        self.created += 1;
        for (index, value) in operands.iter().enumerate() {
            self.connect(id, index as u32, *value);
        }
        let outputs = types.into_iter().enumerate().map(|(output, ty)| {
            self.values.push(Some(Value {
                ty,
                name: None,
                memory: None,
                region: None,
                layout: Layout::Contiguous,
                producer: id,
                output: output as u32,
                graph_outputs: 0,
                uses: Vec::new(),
            }));
            ValueId((self.values.len() - 1) as u32)
        });
        let outputs = outputs.collect();
        self.nodes[id.0].outputs = outputs;
        id
    }

    fn connect(&mut self, node: NodeId, operand: u32, value: ValueId) {
        let uses = &mut self.value_mut(value).uses;
        let place = uses.len() as u32;
        uses.push(Use { node, operand });
        let node = &mut self.nodes[node.0];
        node.operands[operand as usize] = value;
        node.places[operand as usize] = place;
    }

    fn disconnect(&mut self, node: NodeId, operand: u32) {
        let reader = &self.nodes[node.0];
        let (value, place) = (reader.operands[operand as usize], reader.places[operand as usize]);
        let uses = &mut self.value_mut(value).uses;
        uses.swap_remove(place as usize);
        if let Some(moved) = uses.get(place as usize).copied() {
            self.nodes[moved.node.0].places[moved.operand as usize] = place;
        }
    }

    /// A node.
    ///
    /// # Panics
    /// If it was removed, or belongs to another graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// A node, or `None` if it was removed.
    pub fn try_node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.node_weight(id.0)
    }

    /// A value, or `None` if its node was removed.
    pub fn try_value(&self, id: ValueId) -> Option<&Value> {
        self.values.get(id.0 as usize).and_then(Option::as_ref)
    }

    /// A node, to change its properties. Its operands change through
    /// [`Graph::set_operand`] alone.
    ///
    /// # Panics
    /// As [`Graph::node`].
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0]
    }

    /// A value.
    ///
    /// # Panics
    /// If its node was removed, or it belongs to another graph.
    pub fn value(&self, id: ValueId) -> &Value {
        match self.values.get(id.0 as usize) {
            Some(Some(value)) => value,
            _ => panic!("{id:?} is not a value of graph `{}`", self.name),
        }
    }

    /// A value, to change its properties.
    ///
    /// # Panics
    /// As [`Graph::value`].
    pub fn value_mut(&mut self, id: ValueId) -> &mut Value {
        match self.values.get_mut(id.0 as usize) {
            Some(Some(value)) => value,
            _ => panic!("{id:?} is not a value of this graph"),
        }
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.value(id).ty
    }

    /// Names a value.
    pub fn set_name(&mut self, id: ValueId, name: &str) {
        self.value_mut(id).name = Some(name.into());
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Sets the outputs.
    pub fn set_outputs<N: Into<Arc<str>>>(
        &mut self,
        outputs: impl IntoIterator<Item = (N, ValueId)>,
    ) {
        for output in std::mem::take(&mut self.outputs) {
            self.value_mut(output.value).graph_outputs -= 1;
        }
        for (name, value) in outputs {
            self.value_mut(value).graph_outputs += 1;
            self.outputs.push(Output { name: name.into(), value });
        }
    }

    /// All nodes, in the order of their handles.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.node_indices().map(NodeId)
    }

    /// One more than the greatest index of a node.
    pub fn node_bound(&self) -> usize {
        self.nodes.node_indices().next_back().map_or(0, |node| node.index() + 1)
    }

    /// One more than the greatest index of a value.
    pub fn value_bound(&self) -> usize {
        self.values.len()
    }

    /// What messages call a node: its name in the source model, else that of a value of it.
    pub fn label(&self, id: NodeId) -> String {
        let node = self.node(id);
        let origin = node.origin.first().cloned();
        let named = || node.outputs.iter().find_map(|value| self.value(*value).name.clone());
        origin.or_else(named).map_or_else(|| format!("{id:?}"), |name| name.to_string())
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.node_count()
    }

    /// All values, in the order of their creation.
    pub fn values(&self) -> impl Iterator<Item = ValueId> + '_ {
        let present = self.values.iter().enumerate().filter(|(_, value)| value.is_some());
        present.map(|(index, _)| ValueId(index as u32))
    }

    /// The places where a value is read, sorted; graph outputs are not among them.
    pub fn users(&self, id: ValueId) -> Vec<Use> {
        let mut users = self.value(id).uses.clone();
        users.sort_unstable();
        users
    }

    /// The places where a value is read, in no order; graph outputs are not among them.
    pub fn uses(&self, id: ValueId) -> impl Iterator<Item = Use> + '_ {
        self.value(id).uses.iter().copied()
    }

    /// The only node that reads a value, once or more; `None` if nobody does, or several do. Takes no
    /// longer for a value with many readers.
    pub fn only_reader(&self, id: ValueId) -> Option<NodeId> {
        let uses = &self.value(id).uses;
        let reader = uses.first()?.node;
        uses.iter().all(|user| user.node == reader).then_some(reader)
    }

    /// Whether an operator reads a value.
    pub fn is_read(&self, id: ValueId) -> bool {
        !self.value(id).uses.is_empty()
    }

    /// Whether a value is an output of the graph.
    pub fn is_output(&self, id: ValueId) -> bool {
        self.value(id).graph_outputs > 0
    }

    /// Makes a node read these values in place of all that it read.
    pub fn set_operands(&mut self, node: NodeId, operands: &[ValueId]) {
        for index in 0..self.nodes[node.0].operands.len() {
            self.disconnect(node, index as u32);
        }
        self.nodes[node.0].operands = operands.to_vec();
        self.nodes[node.0].places = vec![0; operands.len()];
        for (index, value) in operands.iter().enumerate() {
            self.connect(node, index as u32, *value);
        }
    }

    /// Makes a node read another value.
    pub fn set_operand(&mut self, node: NodeId, operand: usize, value: ValueId) {
        self.disconnect(node, operand as u32);
        self.connect(node, operand as u32, value);
    }

    /// Makes all readers of `old`, graph outputs and states too, read `new`.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        for user in std::mem::take(&mut self.value_mut(old).uses) {
            self.connect(user.node, user.operand, new);
        }
        let moved = std::mem::take(&mut self.value_mut(old).graph_outputs);
        if moved > 0 {
            self.value_mut(new).graph_outputs += moved;
            for output in self.outputs.iter_mut().filter(|output| output.value == old) {
                output.value = new;
            }
        }
    }

    /// Removes a node whose values nobody reads. Returns whether it was removed: a node that is
    /// still read, or makes an output, stays. An input is taken from the list of inputs.
    pub fn remove_node(&mut self, id: NodeId) -> bool {
        let outputs = self.nodes[id.0].outputs.clone();
        if outputs.iter().any(|value| self.is_read(*value) || self.is_output(*value)) {
            return false;
        }
        for operand in 0..self.nodes[id.0].operands.len() {
            self.disconnect(id, operand as u32);
        }
        if self.nodes[id.0].kind == NodeKind::Input {
            self.inputs.retain(|input| !outputs.contains(input));
        }
        if !self.schedule.is_empty() {
            self.schedule.retain(|node| *node != id);
        }
        for value in outputs {
            self.values[value.0 as usize] = None;
        }
        self.nodes.remove_node(id.0);
        true
    }

    /// Makes a new node stand where an older one stands in orders that follow creation: for nodes
    /// that take another's place.
    pub fn stand_in(&mut self, new: NodeId, old: NodeId) {
        self.nodes[new.0].sequence = self.nodes[old.0].sequence;
    }

    /// Nodes such that each comes after those that it reads from; among several possible orders
    /// the one closest to creation order. `None` if there is a cycle.
    pub fn try_topological_order(&self) -> Option<Vec<NodeId>> {
        let mut waiting =
            vec![0u32; self.nodes.node_indices().next_back().map_or(0, |n| n.index() + 1)];
        for node in self.nodes.node_indices() {
            waiting[node.index()] = self.nodes[node].operands.len() as u32;
        }
        let key = |node: NodeIndex<u32>| {
            let found = &self.nodes[node];
            Reverse((found.sequence, found.created, node))
        };
        let mut ready: BinaryHeap<Reverse<(u64, u64, NodeIndex<u32>)>> =
            self.nodes.node_indices().filter(|n| waiting[n.index()] == 0).map(key).collect();
        let mut order = Vec::with_capacity(self.nodes.node_count());
        while let Some(Reverse((.., node))) = ready.pop() {
            order.push(NodeId(node));
            let outputs = self.nodes[node].outputs.iter();
            for user in outputs.flat_map(|value| &self.value(*value).uses) {
                let count = &mut waiting[user.node.index()];
                *count -= 1;
                if *count == 0 {
                    ready.push(key(user.node.0));
                }
            }
        }
        (order.len() == self.nodes.node_count()).then_some(order)
    }

    /// The schedule where there is one, else a topological order. Text prints nodes in it.
    ///
    /// # Panics
    /// If the graph has a cycle, which the structure verifier excludes.
    pub fn order(&self) -> Vec<NodeId> {
        if !self.schedule.is_empty() {
            return self.schedule.clone();
        }
        match self.try_topological_order() {
            Some(order) => order,
            None => panic!("graph `{}` has a cycle", self.name),
        }
    }

    /// Copies another graph's operators and weights into this one, its inputs replaced by the
    /// given values; returns its outputs. `origin` is noted on each new node.
    ///
    /// # Panics
    /// If there are fewer values than inputs.
    pub fn inline(
        &mut self,
        other: &Graph,
        arguments: &[ValueId],
        origin: &[Arc<str>],
    ) -> Vec<ValueId> {
        self.inline_nodes(other, arguments, origin, &mut |_| {})
    }

    /// As [`Graph::inline`]; calls `added` on each new node, in the order of the other graph.
    ///
    /// # Panics
    /// As [`Graph::inline`].
    pub fn inline_nodes(
        &mut self,
        other: &Graph,
        arguments: &[ValueId],
        origin: &[Arc<str>],
        added: &mut dyn FnMut(NodeId),
    ) -> Vec<ValueId> {
        let mut map: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        for (input, argument) in other.inputs.iter().zip(arguments) {
            map.insert(*input, *argument);
        }
        for id in other.order() {
            let node = other.node(id);
            if node.kind == NodeKind::Input {
                continue;
            }
            let operands: Vec<ValueId> = node.operands.iter().map(|v| map[v]).collect();
            let types = node.outputs.iter().map(|v| other.ty(*v).clone()).collect();
            let copy = self.add_node(node.kind.clone(), &operands, types);
            self.nodes[copy.0].origin = origin.to_vec();
            added(copy);
            for (old, new) in node.outputs.iter().zip(self.nodes[copy.0].outputs.clone()) {
                map.insert(*old, new);
            }
        }
        other.outputs.iter().map(|output| map[&output.value]).collect()
    }

    /// Replaces symbols in every type, attribute and layout; declarations of replaced symbols
    /// disappear. Attributes may hold dimensions that inference combined, so callers that bind
    /// symbols to numbers get fully known types.
    pub fn substitute(&mut self, replacements: &BTreeMap<Symbol, Dim>) {
        if replacements.is_empty() {
            return;
        }
        let mut visit = |dim: &mut Dim| *dim = dim.substitute(replacements);
        for value in self.values.iter_mut().flatten() {
            value.ty.shape.iter_mut().for_each(&mut visit);
            value.layout.visit_dims(&mut visit);
        }
        for node in self.nodes.node_weights_mut() {
            if let NodeKind::Op(op) = &mut node.kind {
                op.visit_dims(&mut visit);
            }
        }
        self.symbols.retain(|symbol, _| !replacements.contains_key(symbol));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::{Reshape, Scalar};

    fn types() -> TensorType {
        TensorType::new(DType::F32, vec![Dim::symbol("B"), Dim::from(4)])
    }

    #[test]
    fn uses_follow_replacements() -> Result<(), TypeError> {
        let mut graph = Graph::new("test");
        let x = graph.add_input("x", types());
        let y = graph.apply(Scalar::Neg, &[x])?;
        let z = graph.apply(Scalar::Add, &[y, y])?;
        graph.set_outputs([("z", z)]);
        assert_eq!(graph.users(y).len(), 2);
        graph.replace_uses(y, x);
        let neg = graph.value(y).producer();
        assert!(graph.remove_node(neg));
        assert_eq!(graph.users(x).len(), 2);
        assert_eq!(graph.node_count(), 2);
        assert!(!graph.remove_node(graph.value(z).producer()));
        Ok(())
    }

    #[test]
    fn symbols_are_substituted_in_types_and_attributes() -> Result<(), TypeError> {
        let mut graph = Graph::new("test");
        graph.declare(Symbol::new("B"), Range::new(1, 8));
        let x = graph.add_input("x", types());
        let flat = Reshape { shape: vec![Dim::symbol("B") * Dim::from(4)] };
        let y = graph.apply(flat, &[x])?;
        graph.substitute(&[(Symbol::new("B"), Dim::from(3))].into());
        assert_eq!(graph.ty(y), &TensorType::fixed(DType::F32, &[12]));
        assert!(graph.symbols.is_empty());
        let node = graph.value(y).producer();
        assert_eq!(graph.node(node).op(), Some(&Reshape { shape: vec![Dim::from(12)] }.into()));
        Ok(())
    }
}
