//! Text to graphs at every stage. Types are what the text says; whether they, and everything else,
//! are right is for the verifiers. Hostile text never panics and never decides an allocation.

use super::labels::Label;
use super::print::VERSION;
use super::print_helpers::AttributeParser;
use super::recipe::parse_recipe;
use super::{Cursor, Position, SyntaxError};
use crate::dim::{Dim, Range, Symbol};
use crate::graph::{Graph, Growth, NodeId, NodeKind, Stage, State, ValueId};
use crate::kernel::Promise;
use crate::ops::Op;
use crate::schedule::{
    Buffer, BufferId, Extent, Hazard, HazardKind, Layout, Mechanism, Order, Reason, Region,
};
use crate::topology::{DeviceId, MemoryId, Topology};
use crate::types::TensorType;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Graph {
    /// Reads a graph; see [`parse`].
    ///
    /// # Errors
    /// As [`parse`].
    pub fn parse(text: &str) -> Result<Graph, SyntaxError> {
        parse(text)
    }
}

/// Reads a graph. Its topology, if it names one, must be a built-in one.
///
/// # Errors
/// The first thing that is not as the grammar says, or a name that nothing has, with its place.
pub fn parse(text: &str) -> Result<Graph, SyntaxError> {
    parse_with_topology(text, None)
}

/// Reads a graph for a machine that need not be built in: `topology` is what the text means if it
/// names it.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_topology(
    text: &str,
    topology: Option<&Arc<Topology>>,
) -> Result<Graph, SyntaxError> {
    let mut parser = Parser {
        cursor: Cursor::new(text),
        graph: Graph::new(""),
        values: BTreeMap::new(),
        operands: Vec::new(),
        states: Vec::new(),
        orders: Vec::new(),
        lines: Vec::new(),
        ordered: false,
    };
    parser.header(topology)?;
    parser.body()?;
    parser.resolve()?;
    Ok(parser.graph)
}

/// A label where it is used; it may be defined further down, so it is looked up at the end.
struct Reference {
    label: Label,
    position: Position,
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    graph: Graph,
    values: BTreeMap<Label, ValueId>,
    operands: Vec<(NodeId, Vec<Reference>)>,
    states: Vec<(Reference, Arc<str>, Option<Growth>)>,
    orders: Vec<(Reference, Reference, Reason, Mechanism)>,
    lines: Vec<NodeId>,
    /// Whether the order of the lines is the schedule.
    ordered: bool,
}

/// What the text says of a value after its name.
struct ValueSpec {
    ty: TensorType,
    memory: Option<MemoryId>,
    region: Option<Region>,
    layout: Layout,
}

impl Parser<'_> {
    fn header(&mut self, given: Option<&Arc<Topology>>) -> Result<(), SyntaxError> {
        self.cursor.expect_word("ir")?;
        let start = self.cursor.save();
        if self.cursor.unsigned()? != VERSION {
            let expected = format!("version {VERSION} of the text form");
            return Err(self.cursor.error_at(start, &expected));
        }
        self.cursor.expect_word("stage")?;
        self.graph.stage = self.cursor.word_in(Stage::WORDS)?;
        self.ordered = self.graph.stage == Stage::Scheduled || self.cursor.eat_word("ordered");
        if self.cursor.eat_word("topology") {
            let start = self.cursor.save();
            let name = self.cursor.quoted()?;
            let known = given.filter(|topology| topology.name == name).cloned();
            let known = known.or_else(|| Topology::builtin(&name).map(Arc::new));
            if known.is_none() {
                let names = Topology::BUILTIN.join(", ");
                let expected = format!("the name of the machine given, or one of {names}");
                return Err(self.cursor.error_at(start, &expected));
            }
            self.graph.topology = known;
        }
        self.cursor.expect_word("graph")?;
        self.cursor.expect('@')?;
        self.graph.name = self.cursor.name()?;
        self.inputs()?;
        if self.cursor.eat_word("where") {
            self.symbols()?;
        }
        Ok(())
    }

    fn inputs(&mut self) -> Result<(), SyntaxError> {
        self.cursor.expect('(')?;
        while !self.cursor.eat(')') {
            if !self.graph.inputs().is_empty() {
                self.cursor.expect(',')?;
            }
            let position = self.cursor.save();
            let label = Label::parse(&mut self.cursor)?;
            self.cursor.expect(':')?;
            let spec = self.value_spec()?;
            let value = self.graph.add_input("", spec.ty.clone());
            self.define(label, position, value, spec)?;
            let node = self.graph.value(value).producer();
            self.node_spec(node)?;
            self.lines.push(node);
        }
        Ok(())
    }

    fn symbols(&mut self) -> Result<(), SyntaxError> {
        loop {
            let start = self.cursor.save();
            let symbol = self.symbol()?;
            if self.graph.symbols.contains_key(&symbol) {
                return Err(self.cursor.error_at(start, "a symbol without a range so far"));
            }
            self.cursor.expect_word("in")?;
            let lo = self.cursor.integer()?;
            let hi = if self.cursor.eat_symbol("..=") {
                Some(self.cursor.integer()?)
            } else {
                self.cursor.expect_symbol("..")?;
                None
            };
            self.graph.declare(symbol, Range { lo, hi });
            if !self.cursor.eat(',') {
                return Ok(());
            }
        }
    }

    fn symbol(&mut self) -> Result<Symbol, SyntaxError> {
        let start = self.cursor.save();
        let dim = self.cursor.dim()?;
        dim.as_symbol().cloned().ok_or_else(|| self.cursor.error_at(start, "a symbol"))
    }

    fn body(&mut self) -> Result<(), SyntaxError> {
        self.cursor.expect('{')?;
        loop {
            if self.cursor.peek('%') {
                self.node()?;
            } else if self.cursor.eat_word("state") {
                self.state()?;
            } else if self.cursor.eat_word("buffer") {
                self.buffer()?;
            } else if self.cursor.eat_word("order") {
                self.order()?;
            } else if self.cursor.eat_word("return") {
                break;
            } else {
                let expected = "a value such as `%x`, `state`, `buffer`, `order` or `return`";
                return Err(self.cursor.error(expected));
            }
        }
        self.outputs()?;
        self.cursor.expect('}')?;
        if self.cursor.at_end() { Ok(()) } else { Err(self.cursor.error("the end of the text")) }
    }

    fn node(&mut self) -> Result<(), SyntaxError> {
        let mut labels = Vec::new();
        loop {
            let position = self.cursor.save();
            labels.push((Label::parse(&mut self.cursor)?, position));
            if !self.cursor.eat(',') {
                break;
            }
        }
        self.cursor.expect('=')?;
        let start = self.cursor.save();
        let (kind, operands, first) = if self.cursor.eat_word("weight") {
            let recipe = parse_recipe(&mut self.cursor)?;
            let ty = recipe.ty().clone();
            (NodeKind::Weight(recipe), Vec::new(), Some(ty))
        } else {
            let Ok(mnemonic) = self.cursor.word() else {
                return Err(self.cursor.error_at(start, "`weight` or the name of an operator"));
            };
            let operands = self.operands()?;
            let Some(op) = Op::parse(mnemonic, &mut self.cursor) else {
                return Err(self.cursor.error_at(start, "`weight` or the name of an operator"));
            };
            let op = op?;
            self.cursor.expect(':')?;
            (NodeKind::Op(op), operands, None)
        };
        // A recipe ends with the type of the weight.
        let mut specs = vec![match first {
            Some(ty) => self.value_spec_after(ty)?,
            None => self.value_spec()?,
        }];
        while specs.len() < labels.len() {
            self.cursor.expect(',')?;
            specs.push(self.value_spec()?);
        }
        let types = specs.iter().map(|spec| spec.ty.clone()).collect();
        let node = self.graph.add_node(kind, &[], types);
        let outputs = self.graph.node(node).outputs().to_vec();
        for ((value, spec), (label, position)) in outputs.into_iter().zip(specs).zip(labels) {
            self.define(label, position, value, spec)?;
        }
        self.node_spec(node)?;
        self.operands.push((node, operands));
        self.lines.push(node);
        Ok(())
    }

    fn operands(&mut self) -> Result<Vec<Reference>, SyntaxError> {
        let mut operands = Vec::new();
        if self.cursor.peek('%') {
            operands.push(self.reference()?);
            while self.cursor.eat(',') {
                operands.push(self.reference()?);
            }
        }
        Ok(operands)
    }

    fn reference(&mut self) -> Result<Reference, SyntaxError> {
        let position = self.cursor.save();
        Ok(Reference { label: Label::parse(&mut self.cursor)?, position })
    }

    fn define(
        &mut self,
        label: Label,
        position: Position,
        value: ValueId,
        spec: ValueSpec,
    ) -> Result<(), SyntaxError> {
        let data = self.graph.value_mut(value);
        data.name = label.name();
        data.memory = spec.memory;
        data.region = spec.region;
        data.layout = spec.layout;
        match self.values.insert(label, value) {
            None => Ok(()),
            Some(_) => Err(self.cursor.error_at(position, "a value not defined before")),
        }
    }

    fn value_spec(&mut self) -> Result<ValueSpec, SyntaxError> {
        let ty = self.cursor.tensor_type()?;
        self.value_spec_after(ty)
    }

    fn value_spec_after(&mut self, ty: TensorType) -> Result<ValueSpec, SyntaxError> {
        let memory = if self.cursor.peek('@') { Some(self.memory()?) } else { None };
        let region = if self.cursor.eat_word("in") { Some(self.region()?) } else { None };
        let layout = if self.cursor.eat_word("capacity") {
            Layout::Capacity(self.cursor.list('[', ']', Cursor::dim)?)
        } else {
            Layout::Contiguous
        };
        Ok(ValueSpec { ty, memory, region, layout })
    }

    fn node_spec(&mut self, node: NodeId) -> Result<(), SyntaxError> {
        if self.cursor.eat_word("on") {
            let device = self.device()?;
            self.graph.node_mut(node).device = Some(device);
        }
        if self.cursor.eat_word("workspace") {
            let workspace = self.region()?;
            self.graph.node_mut(node).workspace = Some(workspace);
        }
        if self.cursor.eat_word("step") {
            let promise = self.promise()?;
            self.graph.node_mut(node).step = Some(promise);
        }
        if self.cursor.eat_word("from") {
            let mut origin: Vec<Arc<str>> = vec![self.cursor.quoted()?.into()];
            // In the list of inputs a comma may also lead to the next input.
            loop {
                let comma = self.cursor.save();
                if !self.cursor.eat(',') {
                    break;
                }
                if !self.cursor.peek('"') {
                    self.cursor.restore(comma);
                    break;
                }
                origin.push(self.cursor.quoted()?.into());
            }
            self.graph.node_mut(node).origin = origin;
        }
        Ok(())
    }

    fn promise(&mut self) -> Result<Promise, SyntaxError> {
        let waits = self.cursor.eat_word("waits");
        let async_operands = match self.cursor.eat_word("async") {
            true => self.cursor.list('[', ']', Cursor::unsigned_32)?,
            false => Vec::new(),
        };
        let async_fence = self.cursor.eat_word("fenced");
        Ok(Promise { waits, async_operands, async_fence })
    }

    fn memory(&mut self) -> Result<MemoryId, SyntaxError> {
        self.cursor.expect('@')?;
        let start = self.cursor.save();
        let name = self.cursor.word().unwrap_or_default();
        let topology = self.graph.topology.as_ref();
        let found = topology.and_then(|topology| topology.memory_named(name));
        found.ok_or_else(|| self.unknown(start, "memory"))
    }

    fn device(&mut self) -> Result<DeviceId, SyntaxError> {
        let start = self.cursor.save();
        let name = self.cursor.word().unwrap_or_default();
        let topology = self.graph.topology.as_ref();
        let found = topology.and_then(|topology| topology.device_named(name));
        found.ok_or_else(|| self.unknown(start, "device"))
    }

    fn unknown(&mut self, position: Position, what: &str) -> SyntaxError {
        let expected = match &self.graph.topology {
            Some(topology) => format!("a {what} of topology `{}`", topology.name),
            None => format!("no {what}, since the first line names no topology"),
        };
        self.cursor.error_at(position, &expected)
    }

    fn buffer_id(&mut self) -> Result<BufferId, SyntaxError> {
        self.cursor.expect('$')?;
        self.cursor.unsigned_32().map(BufferId)
    }

    fn region(&mut self) -> Result<Region, SyntaxError> {
        let buffer = self.buffer_id()?;
        self.cursor.expect('[')?;
        let start = self.cursor.save();
        let offset = self.cursor.size()?;
        self.cursor.expect_symbol("..")?;
        let end = self.cursor.size()?;
        let Some(len) = end.checked_sub(offset) else {
            return Err(self.cursor.error_at(start, "a range that does not end before it begins"));
        };
        let mut extents = Vec::new();
        if self.cursor.eat(';') {
            loop {
                let count = self.cursor.unsigned()?;
                self.cursor.expect_word("by")?;
                extents.push(Extent { count, stride: self.cursor.size()? });
                if !self.cursor.eat(',') {
                    break;
                }
            }
        }
        self.cursor.expect(']')?;
        Ok(Region { buffer, offset, len, extents })
    }

    fn state(&mut self) -> Result<(), SyntaxError> {
        let input = self.reference()?;
        self.cursor.expect_symbol("->")?;
        let output = self.cursor.name()?.into();
        let growth = if self.cursor.peek('{') {
            let mut list = AttributeParser::new(&mut self.cursor)?;
            let axis = list.field("axis")?;
            let start = list.position();
            let length: Dim = list.field("length")?;
            let capacity = list.field("capacity")?;
            list.finish()?;
            let Some(length) = length.as_symbol().cloned() else {
                return Err(self.cursor.error_at(start, "a length that is a symbol"));
            };
            Some(Growth { axis, length, capacity })
        } else {
            None
        };
        self.states.push((input, output, growth));
        Ok(())
    }

    fn buffer(&mut self) -> Result<(), SyntaxError> {
        let start = self.cursor.save();
        let id = self.buffer_id()?;
        self.cursor.expect('=')?;
        let bytes = self.cursor.size()?;
        let memory = self.memory()?;
        match self.graph.buffers.insert(id, Buffer { bytes, memory }) {
            None => Ok(()),
            Some(_) => Err(self.cursor.error_at(start, "a buffer not declared before")),
        }
    }

    fn order(&mut self) -> Result<(), SyntaxError> {
        let before = self.reference()?;
        self.cursor.expect_symbol("->")?;
        let after = self.reference()?;
        let reason = if self.cursor.eat_word("linearise") {
            Reason::Linearise
        } else {
            let mut hazards = Vec::new();
            while self.cursor.peek_word() != Some("by") {
                if !hazards.is_empty() {
                    self.cursor.expect(',')?;
                }
                let kind = self.cursor.word_in(HazardKind::WORDS)?;
                hazards.push(Hazard { kind, region: self.region()? });
            }
            Reason::Hazards(hazards)
        };
        self.cursor.expect_word("by")?;
        let mechanism = self.cursor.word_in(Mechanism::WORDS)?;
        self.orders.push((before, after, reason, mechanism));
        Ok(())
    }

    fn outputs(&mut self) -> Result<(), SyntaxError> {
        let mut outputs: Vec<(Arc<str>, ValueId)> = Vec::new();
        while !self.cursor.peek('}') {
            if !outputs.is_empty() {
                self.cursor.expect(',')?;
            }
            let mut name: Option<Arc<str>> = None;
            if !self.cursor.peek('%') {
                name = Some(self.cursor.name()?.into());
                self.cursor.expect('=')?;
            }
            let reference = self.reference()?;
            let value = self.lookup(&reference)?;
            let name = name.or_else(|| reference.label.name());
            let Some(name) = name else {
                let expected = "a name before a value that has none: `name = %0`";
                return Err(self.cursor.error_at(reference.position, expected));
            };
            outputs.push((name, value));
        }
        self.graph.set_outputs(outputs);
        Ok(())
    }

    fn lookup(&mut self, reference: &Reference) -> Result<ValueId, SyntaxError> {
        match self.values.get(&reference.label) {
            Some(value) => Ok(*value),
            None => Err(self.cursor.error_at(reference.position, "a value that a line defines")),
        }
    }

    fn resolve(&mut self) -> Result<(), SyntaxError> {
        for (node, references) in std::mem::take(&mut self.operands) {
            let operands = references.iter().map(|reference| self.lookup(reference));
            let operands = operands.collect::<Result<Vec<ValueId>, SyntaxError>>()?;
            self.graph.set_operands(node, &operands);
        }
        for (input, output, growth) in std::mem::take(&mut self.states) {
            let input = self.lookup(&input)?;
            self.graph.states.push(State { input, output, growth });
        }
        for (before, after, reason, mechanism) in std::mem::take(&mut self.orders) {
            let before = self.lookup(&before)?;
            let before = self.graph.value(before).producer();
            let after = self.lookup(&after)?;
            let after = self.graph.value(after).producer();
            self.graph.orders.push(Order { before, after, reason, mechanism });
        }
        if self.ordered {
            self.graph.schedule = std::mem::take(&mut self.lines);
        }
        Ok(())
    }
}
