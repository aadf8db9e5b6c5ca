//! Graphs to text, one node a line, at every stage; prints wrong graphs too, so that verifiers can
//! show them, and never changes or judges one.

use super::labels::{Label, is_listed_input, labels, line_order};
use super::print_helpers::{write_list, write_name, write_quoted, write_size};
use super::recipe::write_recipe;
use crate::dim::{Range, Symbol};
use crate::graph::{Graph, Node, NodeId, NodeKind, Output, Stage, State, Value, ValueId};
use crate::kernel::Promise;
use crate::schedule::{BufferId, Layout, Order, Reason, Region};
use crate::topology::{DeviceId, MemoryId};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::sync::Arc;

/// The version of the grammar.
pub(super) const VERSION: u64 = 1;

/// Something in a graph that has a line of its own in the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entity {
    /// The graph as a whole.
    Graph,
    /// A declared symbol.
    Symbol(Symbol),
    /// A state, by its position among [`Graph::states`].
    State(u32),
    /// A buffer.
    Buffer(BufferId),
    /// A node.
    Node(NodeId),
    /// A value; it stands on its node's line.
    Value(ValueId),
    /// An order, by its position among [`Graph::orders`].
    Order(u32),
    /// An output of the graph, by its position.
    Output(u32),
}

/// A graph as text, with the line of each entity.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The text.
    pub text: String,
    lines: BTreeMap<Entity, u32>,
    labels: BTreeMap<ValueId, Label>,
}

impl Printed {
    /// The line of an entity, from 1; the graph's own for one that the text does not have.
    pub fn line(&self, entity: &Entity) -> u32 {
        let line = self.lines.get(entity).or_else(|| self.lines.get(&Entity::Graph));
        line.copied().unwrap_or(1)
    }

    /// What the text calls a value.
    pub fn value(&self, value: ValueId) -> String {
        self.labels.get(&value).map_or_else(|| "%?".to_string(), Label::to_string)
    }
}

/// Prints a graph and notes where each of its parts stands.
pub fn print(graph: &Graph) -> Printed {
    let mut printer = Printer {
        graph,
        printed: Printed { text: String::new(), lines: BTreeMap::new(), labels: labels(graph) },
        line: 1,
    };
    // Writing to a string does not fail.
    let _ = printer.graph();
    printer.printed
}

/// The text form, with a line break at its end.
impl Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self).text)
    }
}

struct Printer<'a> {
    graph: &'a Graph,
    printed: Printed,
    line: u32,
}

impl Write for Printer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Quoted strings escape line breaks, so each one here ends a line.
        self.line += text.matches('\n').count() as u32;
        self.printed.text.write_str(text)
    }
}

impl Printer<'_> {
    fn graph(&mut self) -> fmt::Result {
        let graph = self.graph;
        write!(self, "ir {VERSION} stage {}", graph.stage.word())?;
        if graph.stage != Stage::Scheduled && !graph.schedule.is_empty() {
            self.write_str(" ordered")?;
        }
        if let Some(topology) = &graph.topology {
            self.write_str(" topology ")?;
            write_quoted(self, &topology.name)?;
        }
        self.write_str("\n")?;
        self.mark(Entity::Graph);
        self.write_str("graph @")?;
        write_name(self, &graph.name)?;
        self.inputs()?;
        self.symbols()?;
        self.write_str(" {\n")?;
        for (index, state) in graph.states.iter().enumerate() {
            self.mark(Entity::State(index as u32));
            self.state(state)?;
        }
        for (id, buffer) in &graph.buffers {
            self.mark(Entity::Buffer(*id));
            write!(self, "  buffer ${} = ", id.0)?;
            write_size(self, buffer.bytes)?;
            self.memory(Some(buffer.memory))?;
            self.write_str("\n")?;
        }
        for node in line_order(graph) {
            if !is_listed_input(graph, node) {
                self.node(node)?;
            }
        }
        for (index, order) in graph.orders.iter().enumerate() {
            self.mark(Entity::Order(index as u32));
            self.order(order)?;
        }
        self.outputs()?;
        self.write_str("}\n")
    }

    fn mark(&mut self, entity: Entity) {
        let line = self.line;
        self.printed.lines.insert(entity, line);
    }

    /// Each input has a line of its own if there are several.
    fn inputs(&mut self) -> fmt::Result {
        let graph = self.graph;
        let several = graph.inputs().len() > 1;
        self.write_str("(")?;
        for (index, input) in graph.inputs().iter().enumerate() {
            if several {
                self.write_str(if index > 0 { ",\n  " } else { "\n  " })?;
            }
            self.mark(Entity::Value(*input));
            self.label(*input)?;
            if let Some(value) = graph.try_value(*input) {
                self.mark(Entity::Node(value.producer()));
                write!(self, ": {}", value.ty)?;
                self.place_of_value(value)?;
                self.place_of_node(graph.node(value.producer()))?;
            }
        }
        self.write_str(if several { "\n)" } else { ")" })
    }

    fn symbols(&mut self) -> fmt::Result {
        for (index, (symbol, range)) in self.graph.symbols.iter().enumerate() {
            self.mark(Entity::Symbol(symbol.clone()));
            self.write_str(if index > 0 { ", " } else { " where " })?;
            let Range { lo, hi } = range;
            match hi {
                Some(hi) => write!(self, "{symbol} in {lo}..={hi}")?,
                None => write!(self, "{symbol} in {lo}..")?,
            }
        }
        Ok(())
    }

    fn state(&mut self, state: &State) -> fmt::Result {
        self.write_str("  state ")?;
        self.label(state.input)?;
        self.write_str(" -> ")?;
        write_name(self, &state.output)?;
        if let Some(growth) = &state.growth {
            let (axis, length, capacity) = (growth.axis, &growth.length, growth.capacity);
            write!(self, " {{axis = {axis}, length = {length}, capacity = {capacity}}}")?;
        }
        self.write_str("\n")
    }

    fn node(&mut self, id: NodeId) -> fmt::Result {
        let graph = self.graph;
        let node = graph.node(id);
        self.mark(Entity::Node(id));
        self.write_str("  ")?;
        write_list(self, node.outputs(), |printer, value| {
            printer.mark(Entity::Value(*value));
            printer.label(*value)
        })?;
        self.write_str(" = ")?;
        match &node.kind {
            NodeKind::Input => self.write_str("input")?,
            NodeKind::Weight(recipe) => {
                self.write_str("weight ")?;
                write_recipe(self, recipe)?;
            }
            NodeKind::Op(op) => {
                self.write_str(op.mnemonic())?;
                self.write_str(if node.operands().is_empty() { "" } else { " " })?;
                write_list(self, node.operands(), |printer, value| printer.label(*value))?;
                write!(self, "{}", op.attributes())?;
            }
        }
        self.write_str(" : ")?;
        write_list(self, node.outputs(), |printer, value| {
            let value = graph.value(*value);
            write!(printer, "{}", value.ty)?;
            printer.place_of_value(value)
        })?;
        self.place_of_node(node)?;
        self.write_str("\n")
    }

    fn place_of_value(&mut self, value: &Value) -> fmt::Result {
        self.memory(value.memory)?;
        if let Some(region) = &value.region {
            write!(self, " in {region}")?;
        }
        match &value.layout {
            Layout::Contiguous => Ok(()),
            Layout::Capacity(shape) => {
                self.write_str(" capacity [")?;
                write_list(self, shape, |printer, dim| write!(printer, "{dim}"))?;
                self.write_str("]")
            }
        }
    }

    fn place_of_node(&mut self, node: &Node) -> fmt::Result {
        if let Some(device) = node.device {
            write!(self, " on {}", self.device(device))?;
        }
        if let Some(workspace) = &node.workspace {
            write!(self, " workspace {workspace}")?;
        }
        if let Some(promise) = &node.step {
            self.promise(promise)?;
        }
        if !node.origin.is_empty() {
            self.write_str(" from ")?;
            write_list(self, &node.origin, |printer, name: &Arc<str>| write_quoted(printer, name))?;
        }
        Ok(())
    }

    fn promise(&mut self, promise: &Promise) -> fmt::Result {
        self.write_str(if promise.waits { " step waits" } else { " step" })?;
        if !promise.async_operands.is_empty() {
            self.write_str(" async [")?;
            write_list(self, &promise.async_operands, |printer, operand| {
                write!(printer, "{operand}")
            })?;
            self.write_str("]")?;
        }
        self.write_str(if promise.async_fence { " fenced" } else { "" })
    }

    fn memory(&mut self, memory: Option<MemoryId>) -> fmt::Result {
        let Some(id) = memory else {
            return Ok(());
        };
        match self.graph.topology.as_ref().and_then(|topology| topology.memory(id)) {
            Some(memory) => write!(self, " @{}", memory.name),
            None => write!(self, " @?{}", id.0),
        }
    }

    fn device(&self, id: DeviceId) -> String {
        match self.graph.topology.as_ref().and_then(|topology| topology.device(id)) {
            Some(device) => device.name.clone(),
            None => format!("?{}", id.0),
        }
    }

    fn order(&mut self, order: &Order) -> fmt::Result {
        self.write_str("  order ")?;
        self.step(order.before)?;
        self.write_str(" -> ")?;
        self.step(order.after)?;
        match &order.reason {
            Reason::Linearise => self.write_str(" linearise")?,
            Reason::Hazards(hazards) => {
                self.write_str(if hazards.is_empty() { "" } else { " " })?;
                write_list(self, hazards, |printer, hazard| {
                    write!(printer, "{} {}", hazard.kind.word(), hazard.region)
                })?;
            }
        }
        writeln!(self, " by {}", order.mechanism.word())
    }

    /// A node, by its first output.
    fn step(&mut self, node: NodeId) -> fmt::Result {
        let first = self.graph.try_node(node).and_then(|node| node.outputs().first());
        match first {
            Some(value) => self.label(*value),
            None => self.write_str("%?"),
        }
    }

    /// Each output has a line of its own if there are several.
    fn outputs(&mut self) -> fmt::Result {
        let outputs = self.graph.outputs();
        self.write_str("  return")?;
        for (index, output) in outputs.iter().enumerate() {
            self.write_str(if index > 0 { "," } else { "" })?;
            self.write_str(if outputs.len() > 1 { "\n    " } else { " " })?;
            self.mark(Entity::Output(index as u32));
            self.output(output)?;
        }
        self.write_str("\n")
    }

    /// The name is left out where the value is called the same.
    fn output(&mut self, output: &Output) -> fmt::Result {
        let same = Label::Name(output.name.clone(), 0);
        if self.printed.labels.get(&output.value) != Some(&same) {
            write_name(self, &output.name)?;
            self.write_str(" = ")?;
        }
        self.label(output.value)
    }

    fn label(&mut self, value: ValueId) -> fmt::Result {
        match self.printed.labels.get(&value) {
            Some(label) => {
                let label = label.to_string();
                self.write_str(&label)
            }
            None => self.write_str("%?"),
        }
    }
}

/// `$0[64K..320K]`, and with repetitions `$0[0..4; 8 by 64, 2 by 1K]`: from the outermost inwards,
/// how many and how many bytes apart.
impl Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}[", self.buffer.0)?;
        write_size(f, self.offset)?;
        f.write_str("..")?;
        write_size(f, self.offset.saturating_add(self.len))?;
        f.write_str(if self.extents.is_empty() { "" } else { "; " })?;
        write_list(f, &self.extents, |f, extent| {
            write!(f, "{} by ", extent.count)?;
            write_size(f, extent.stride)
        })?;
        f.write_str("]")
    }
}
