//! Which values share their bytes, for how long these are needed, and where they live; never an
//! offset.

use super::arena::Block;
use crate::insert_copies::gapped;
use crate::schedule::aliased_operand;
use crate::size::{NoSize, described, greatest, greatest_bytes};
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::kernel::KernelSpec;
use membar_ir::ops::Op;
use membar_ir::pass::PassContext;
use membar_ir::types::TensorType;
use membar_ir::{Dim, Symbol};
use std::collections::{BTreeMap, BTreeSet};

/// Where bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Only while they are needed.
    Arena,
    /// With the inputs: written by the caller before a run.
    Input,
    /// With the outputs: read by the caller after a run.
    Output,
    /// With a state, by its index: what the run begins with.
    StateInput(usize),
    /// With a state: what the run ends with, where that cannot be in place.
    StateOutput(usize),
}

/// Bytes that hold one value, or several that share them.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub block: Block,
    pub home: Home,
    /// The value that it was made for.
    pub value: ValueId,
}

/// Everything that needs bytes.
#[derive(Default)]
pub(crate) struct Storages {
    pub list: Vec<Storage>,
    /// The storage of each value, by value; weights have none.
    pub of: Vec<Option<usize>>,
    /// Scratch memory of nodes.
    pub workspaces: Vec<(NodeId, Block)>,
    /// Shapes at capacity, of values that lie so.
    pub capacities: BTreeMap<ValueId, Vec<Dim>>,
    /// What is wrong.
    pub faults: Vec<String>,
    /// Symbols without an upper bound.
    pub unbounded: BTreeSet<Symbol>,
}

/// Finds out the storages of a graph in execution order.
pub(crate) fn storages(graph: &Graph, cx: &PassContext) -> Storages {
    let order = graph.order();
    let facts = Facts::new(graph, &order);
    let mut result = Storages { of: vec![None; graph.value_bound()], ..Storages::default() };
    for (step, id) in order.iter().enumerate() {
        let node = graph.node(*id);
        match &node.kind {
            NodeKind::Weight(_) => {}
            NodeKind::Input => result.input(graph, &facts, step, node.outputs()),
            NodeKind::Op(op) => result.operator(graph, &facts, cx, step, *id, op),
        }
    }
    result
}

/// What is looked up often.
struct Facts {
    /// The last step that reads a value, by value; past the last step for outputs.
    last_use: Vec<usize>,
    /// States by their input.
    state_inputs: BTreeMap<ValueId, usize>,
    /// States by their output; the first one where several share it.
    state_outputs: BTreeMap<ValueId, usize>,
    gapped: BTreeSet<ValueId>,
}

impl Facts {
    fn new(graph: &Graph, order: &[NodeId]) -> Facts {
        let mut last_use = vec![0; graph.value_bound()];
        for (step, id) in order.iter().enumerate() {
            for value in graph.node(*id).operands() {
                last_use[value.index()] = step;
            }
        }
        let mut values = BTreeMap::new();
        for output in graph.outputs() {
            last_use[output.value.index()] = order.len();
            values.insert(output.name.as_ref(), output.value);
        }
        let mut state_inputs = BTreeMap::new();
        let mut state_outputs = BTreeMap::new();
        for (index, state) in graph.states.iter().enumerate() {
            state_inputs.insert(state.input, index);
            if let Some(value) = values.get(state.output.as_ref()) {
                state_outputs.entry(*value).or_insert(index);
            }
        }
        Facts { last_use, state_inputs, state_outputs, gapped: gapped(graph) }
    }
}

impl Storages {
    fn input(&mut self, graph: &Graph, facts: &Facts, step: usize, values: &[ValueId]) {
        for value in values {
            let home = match facts.state_inputs.get(value) {
                Some(state) => Home::StateInput(*state),
                None => Home::Input,
            };
            let mut ty = graph.ty(*value).clone();
            if let Home::StateInput(state) = home
                && let Some(growth) = &graph.states[state].growth
            {
                let shape = self.capacity(graph, &ty, growth.axis.index(), growth.capacity);
                self.capacities.insert(*value, shape.clone());
                ty.shape = shape;
            }
            let bytes = self.bytes(graph, *value, &ty);
            self.add(facts, *value, bytes, home, step);
        }
    }

    /// A shape at the upper ends of ranges, and at the capacity along the axis that grows.
    fn capacity(&mut self, graph: &Graph, ty: &TensorType, axis: usize, rows: i64) -> Vec<Dim> {
        let extents = ty.shape.iter().enumerate().map(|(i, dim)| {
            if i == axis {
                return Dim::from(rows);
            }
            match greatest(dim, &graph.symbols) {
                Ok(extent) => Dim::from(i64::try_from(extent).unwrap_or(i64::MAX)),
                Err(NoSize::Unbounded(symbols)) => {
                    self.unbounded.extend(symbols);
                    Dim::ZERO
                }
                Err(NoSize::Overflow) => Dim::from(i64::MAX),
            }
        });
        extents.collect()
    }

    fn bytes(&mut self, graph: &Graph, value: ValueId, ty: &TensorType) -> u64 {
        match greatest_bytes(ty, &graph.symbols) {
            Ok(bytes) => bytes,
            Err(NoSize::Unbounded(symbols)) => {
                self.unbounded.extend(symbols);
                0
            }
            Err(NoSize::Overflow) => {
                self.faults.push(format!(
                    "{} does not fit the address space at the upper ends of its ranges",
                    described(graph, value),
                ));
                0
            }
        }
    }

    fn add(&mut self, facts: &Facts, value: ValueId, bytes: u64, home: Home, step: usize) {
        let last = facts.last_use[value.index()].max(step);
        self.of[value.index()] = Some(self.list.len());
        let block = Block { bytes, first: step, last };
        self.list.push(Storage { block, home, value });
    }

    fn operator(
        &mut self,
        graph: &Graph,
        facts: &Facts,
        cx: &PassContext,
        step: usize,
        id: NodeId,
        op: &Op,
    ) {
        let node = graph.node(id);
        let types = |values: &[ValueId]| -> Vec<TensorType> {
            values.iter().map(|value| graph.ty(*value).clone()).collect()
        };
        let (operands, outputs) = (types(node.operands()), types(node.outputs()));
        let Some(spec) = cx.kernels.kernel(op, &operands, &outputs) else {
            self.faults.push(format!(
                "node `{}`: no kernel for {op}; `decompose` replaces such operators",
                graph.label(id),
            ));
            return;
        };
        for (output, value) in node.outputs().iter().enumerate() {
            let bytes = self.bytes(graph, *value, &outputs[output]);
            let step = Step { graph, facts, step, id, spec: &spec, output, value: *value, bytes };
            let shared = self.appended(&step).or_else(|| self.aliased(&step));
            match shared.or_else(|| self.in_place(&step)) {
                Some(storage) => self.join(&step, storage),
                None => self.add(facts, *value, bytes, step.home(), step.step),
            }
        }
        match greatest(&spec.workspace, &graph.symbols) {
            Ok(0) => {}
            Ok(bytes) => self.workspaces.push((id, Block { bytes, first: step, last: step })),
            Err(NoSize::Unbounded(symbols)) => self.unbounded.extend(symbols),
            Err(NoSize::Overflow) => self.faults.push(format!(
                "node `{}`: its scratch memory does not fit the address space",
                graph.label(id),
            )),
        }
    }

    /// The storage of the state that the output grows.
    fn appended(&mut self, step: &Step<'_>) -> Option<usize> {
        let state = *step.facts.state_outputs.get(&step.value)?;
        let state = &step.graph.states[state];
        state.growth.as_ref()?;
        let node = step.graph.node(step.id);
        let appends = matches!(node.op(), Some(Op::Append(_)));
        if !appends || node.operands().first() != Some(&state.input) {
            self.faults.push(format!(
                "state `{}` grows, but output `{}` is no append to it",
                step.graph.value(state.input).name.as_deref().unwrap_or_default(),
                state.output,
            ));
            return None;
        }
        let shape = self.capacities.get(&state.input)?.clone();
        self.capacities.insert(step.value, shape);
        self.of[state.input.index()]
    }

    /// The storage of the operand whose bytes the output shows under another type.
    fn aliased(&self, step: &Step<'_>) -> Option<usize> {
        let operand = aliased_operand(step.spec, step.output)?;
        let operand = step.graph.node(step.id).operands()[operand];
        let storage = self.of[operand.index()]?;
        let gaps = step.facts.gapped.contains(&operand) || step.facts.gapped.contains(&step.value);
        // What ends in a state's own bytes must not be another state's, or an input's: the copy
        // after the run would read what another copy has overwritten.
        let allowed = match (step.home(), self.list[storage].home) {
            (Home::StateOutput(state), Home::StateInput(own)) => state == own,
            (Home::StateOutput(_), home) => home == Home::Arena,
            _ => true,
        };
        let fits = step.bytes <= self.list[storage].block.bytes;
        (allowed && fits && !gaps).then_some(storage)
    }

    /// The storage of an operand that nobody reads after this step, and over which the kernel can
    /// write its output.
    fn in_place(&self, step: &Step<'_>) -> Option<usize> {
        let node = step.graph.node(step.id);
        let pairs = step.spec.in_place.iter().filter(|pair| pair.output as usize == step.output);
        pairs.map(|pair| pair.operand as usize).find_map(|operand| {
            let value = node.operands()[operand];
            let storage = self.of[value.index()]?;
            let (from, to) = (step.graph.ty(value), step.graph.ty(step.value));
            let alike = from.shape == to.shape && from.dtype.bits() == to.dtype.bits();
            let owned = match (self.list[storage].home, step.home()) {
                (Home::Arena, _) => true,
                (Home::StateInput(own), Home::StateOutput(state)) => own == state,
                _ => false,
            };
            // Another operand in the same bytes must be one that may be overwritten as well.
            let others = (0..node.operands().len()).all(|other| {
                let same = self.of[node.operands()[other].index()] == Some(storage);
                let allowed = step.spec.in_place.iter().any(|pair| {
                    (pair.operand as usize, pair.output as usize) == (other, step.output)
                });
                !same || allowed && step.graph.ty(node.operands()[other]).shape == to.shape
            });
            let claimed = node.outputs()[..step.output]
                .iter()
                .any(|earlier| self.of[earlier.index()] == Some(storage));
            let dies = self.list[storage].block.last == step.step;
            let gaps = step.facts.gapped.contains(&value);
            let fits = step.bytes <= self.list[storage].block.bytes;
            (alike && owned && others && !claimed && dies && !gaps && fits).then_some(storage)
        })
    }

    /// Makes an output share a storage.
    fn join(&mut self, step: &Step<'_>, storage: usize) {
        self.of[step.value.index()] = Some(storage);
        let last = step.facts.last_use[step.value.index()].max(step.step);
        let storage = &mut self.list[storage];
        storage.block.last = storage.block.last.max(last);
        if storage.home == Home::Arena {
            storage.home = step.home();
        }
    }
}

/// One output of one step.
struct Step<'a> {
    graph: &'a Graph,
    facts: &'a Facts,
    step: usize,
    id: NodeId,
    spec: &'a KernelSpec,
    output: usize,
    value: ValueId,
    bytes: u64,
}

impl Step<'_> {
    /// Where the output lives if it shares its bytes with nothing.
    fn home(&self) -> Home {
        match self.facts.state_outputs.get(&self.value) {
            Some(state) if self.graph.states[*state].growth.is_none() => Home::StateOutput(*state),
            Some(_) => Home::Output,
            None if self.graph.is_output(self.value) => Home::Output,
            None => Home::Arena,
        }
    }
}
