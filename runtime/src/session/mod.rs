//! A program ready to run again and again: binds symbols from inputs, keeps states between runs;
//! must never recompile or choose a kernel.

#[cfg(test)]
mod tests;

use crate::bundle::Bundle;
use crate::cpu::executor::{Executor, ExecutorError, value_name};
use crate::weights::{Materialiser, WeightError};
use membar_ir::dim::{Bindings, Dim, Range, Symbol};
use membar_ir::dtype::DType;
use membar_ir::graph::{Graph, ValueId};
use membar_ir::tensor::Tensor;
use membar_ir::types::{Axis, TensorType};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Why a session cannot start or a run fails.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The inputs do not fit the program: all that is wrong with them.
    #[error("{}", list(.0))]
    Inputs(Vec<InputFault>),
    /// The program cannot run, or a step failed.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// A weight cannot be made.
    #[error(transparent)]
    Weight(#[from] WeightError),
}

/// What is wrong with an input, or with the extents that the inputs give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputFault {
    /// An input was not given.
    #[error("input `{name}` ({expected}) is missing")]
    Missing {
        /// The input.
        name: String,
        /// Its type.
        expected: TensorType,
    },
    /// The program has no such input.
    #[error("there is no input `{name}`; the inputs are {}", quoted(.inputs))]
    Unknown {
        /// What was given.
        name: String,
        /// The inputs.
        inputs: Vec<String>,
    },
    /// Another element type.
    #[error("input `{name}` has element type {found}, expected {expected}")]
    DType {
        /// The input.
        name: String,
        /// Declared.
        expected: DType,
        /// Given.
        found: DType,
    },
    /// Another number of dimensions.
    #[error("input `{name}` has shape {found:?}, expected {expected}")]
    Rank {
        /// The input.
        name: String,
        /// Declared.
        expected: TensorType,
        /// Given.
        found: Vec<usize>,
    },
    /// A dimension that contradicts the declared shape or another input.
    #[error("input `{name}`: dimension {axis} is {found}, expected {expected}{}", valued(.value))]
    Dimension {
        /// The input.
        name: String,
        /// Which dimension.
        axis: Axis,
        /// Declared.
        expected: Dim,
        /// What the declared dimension comes out as with the other extents, if it does.
        value: Option<i64>,
        /// Given.
        found: usize,
    },
    /// A dimension outside its declared range.
    #[error("dimension `{symbol}` is {value} (input `{name}`), outside its range {}", Shown(*.range))]
    Range {
        /// The dimension.
        symbol: String,
        /// Its value.
        value: i64,
        /// The range.
        range: Range,
        /// The input that gave the value.
        name: String,
    },
    /// A dimension that no input determines.
    #[error("dimension `{symbol}` has no value: no input's shape determines it")]
    Unbound {
        /// The dimension.
        symbol: String,
    },
    /// A state would grow beyond its capacity.
    #[error(
        "state `{name}` would grow to {length} of at most {capacity}; \
         reset the session, or compile with a greater range"
    )]
    Capacity {
        /// The state's input.
        name: String,
        /// The length after the run.
        length: i64,
        /// The greatest length.
        capacity: i64,
    },
}

/// Settings of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Whether the outputs of states are returned as well.
    pub states: bool,
}

/// A program with its memory, weights and states.
pub struct Session {
    executor: Executor,
    inputs: Vec<(String, ValueId)>,
    outputs: Vec<(String, ValueId)>,
    states: Vec<StateSlot>,
}

/// A state and what it holds now.
struct StateSlot {
    name: String,
    input: ValueId,
    output_name: Arc<str>,
    output: ValueId,
    growth: Option<(Axis, Symbol, i64)>,
    /// Whether the output lies where the next run's input lies.
    shared: bool,
    held: Held,
}

/// What a state holds between runs.
#[derive(Clone)]
enum Held {
    /// Nothing: a growing state has length 0, another is all zeros.
    Nothing,
    /// A tensor of this shape, in the arena.
    Arena(Vec<usize>),
    /// A tensor outside.
    Tensor(Tensor),
}

impl Session {
    /// A session of a bundle's CPU target.
    ///
    /// # Errors
    /// A weight cannot be read, or the program does not fit this machine's memory.
    pub fn new(bundle: &Bundle) -> Result<Session, SessionError> {
        let graph = bundle.graph().clone();
        let weights = Materialiser::from_folder(bundle.folder()).weights(&graph)?;
        Session::with_weights(graph, weights)
    }

    /// A session of a compiled graph whose recipes name files that are there.
    ///
    /// # Errors
    /// A weight cannot be read, or the program does not fit this machine's memory.
    pub fn from_graph(graph: Graph) -> Result<Session, SessionError> {
        let weights = Materialiser::default().weights(&graph)?;
        Session::with_weights(graph, weights)
    }

    /// A session of a compiled graph with a tensor for each weight.
    ///
    /// # Errors
    /// As [`Session::from_graph`].
    pub fn with_weights(
        graph: Graph,
        weights: BTreeMap<ValueId, Tensor>,
    ) -> Result<Session, SessionError> {
        let executor = Executor::new(graph, weights)?;
        let graph = executor.graph();
        let inputs = graph.inputs().iter().map(|v| (value_name(graph, *v), *v)).collect();
        let outputs =
            graph.outputs().iter().map(|output| (output.name.to_string(), output.value)).collect();
        let states = slots(graph);
        Ok(Session { executor, inputs, outputs, states })
    }

    /// The program.
    pub fn graph(&self) -> &Graph {
        self.executor.graph()
    }

    /// Size of the arena in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.executor.arena_bytes()
    }

    /// Forgets all states: growing ones are empty, the others zero.
    pub fn reset(&mut self) {
        for state in &mut self.states {
            state.held = Held::Nothing;
        }
    }

    /// Runs once; the outputs by name, those of states left out.
    ///
    /// An input that begins a state may be left out: the state goes on from the run before.
    ///
    /// # Errors
    /// The inputs do not fit, all reasons at once; or a step fails.
    pub fn run(
        &mut self,
        inputs: &BTreeMap<String, Tensor>,
    ) -> Result<BTreeMap<String, Tensor>, SessionError> {
        self.run_with(inputs, &RunOptions::default())
    }

    /// As [`Session::run`], with settings.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_with(
        &mut self,
        inputs: &BTreeMap<String, Tensor>,
        options: &RunOptions,
    ) -> Result<BTreeMap<String, Tensor>, SessionError> {
        let bindings = self.bind(inputs).map_err(SessionError::Inputs)?;
        let outside = self.place_inputs(inputs, &bindings)?;
        if let Err(error) = self.executor.run(&bindings, &outside) {
            // A state that is replaced in place may be half written.
            for state in &mut self.states {
                if state.shared && state.growth.is_none() {
                    state.held = Held::Nothing;
                }
            }
            return Err(error.into());
        }
        self.collect(&bindings, &outside, options)
    }

    /// The value of every symbol.
    fn bind(&self, inputs: &BTreeMap<String, Tensor>) -> Result<Bindings, Vec<InputFault>> {
        let mut faults = Vec::new();
        unknown_inputs(&self.inputs, inputs, &mut faults);
        let mut binder = Binder::default();
        for (name, value) in &self.inputs {
            let expected = self.graph().ty(*value);
            let state = self.states.iter().find(|state| state.input == *value);
            match (inputs.get(name), state) {
                (Some(tensor), _) => binder.tensor(name, expected, tensor, &mut faults),
                (None, Some(state)) => binder.state(state, expected),
                (None, None) => faults
                    .push(InputFault::Missing { name: name.clone(), expected: expected.clone() }),
            }
        }
        let bindings = binder.solve(self.graph(), &mut faults);
        self.check_capacities(&bindings, &mut faults);
        if faults.is_empty() {
            // Only now is an undetermined dimension a fault of its own.
            let mut unbound = BTreeSet::new();
            for value in self.graph().values() {
                for dim in &self.graph().value(value).ty.shape {
                    dim.for_each_symbol(&mut |symbol| {
                        if !bindings.contains_key(symbol) {
                            unbound.insert(symbol.name().to_string());
                        }
                    });
                }
            }
            faults.extend(unbound.into_iter().map(|symbol| InputFault::Unbound { symbol }));
        }
        if faults.is_empty() { Ok(bindings) } else { Err(faults) }
    }

    fn check_capacities(&self, bindings: &Bindings, faults: &mut Vec<InputFault>) {
        for state in &self.states {
            let Some((axis, _, capacity)) = &state.growth else { continue };
            let extent = self.graph().ty(state.output).shape.get(axis.index());
            if let Some(Ok(length)) = extent.map(|dim| dim.evaluate(bindings))
                && length > *capacity
            {
                // The range of the length is the same limit; one message is enough.
                faults.retain(
                    |fault| !matches!(fault, InputFault::Range { name, .. } if *name == state.name),
                );
                faults.push(InputFault::Capacity {
                    name: state.name.clone(),
                    length,
                    capacity: *capacity,
                });
            }
        }
    }

    /// Brings inputs and states to where the program reads them; what has no place in the arena
    /// is returned.
    fn place_inputs(
        &mut self,
        inputs: &BTreeMap<String, Tensor>,
        bindings: &Bindings,
    ) -> Result<BTreeMap<ValueId, Tensor>, SessionError> {
        let mut outside = BTreeMap::new();
        for (name, value) in &self.inputs {
            let state = self.states.iter().find(|state| state.input == *value);
            let tensor = match (inputs.get(name), state.map(|state| &state.held)) {
                (Some(tensor), _) | (None, Some(Held::Tensor(tensor))) => tensor.clone(),
                (None, Some(Held::Arena(_))) => continue,
                (None, Some(Held::Nothing)) | (None, None) => {
                    Tensor::zeros(self.executor.concrete(*value, bindings)?)
                }
            };
            if self.executor.is_planned(*value) {
                self.executor.write(*value, &tensor, bindings)?;
            } else {
                outside.insert(*value, tensor);
            }
        }
        Ok(outside)
    }

    /// The outputs, and the states for the next run.
    fn collect(
        &mut self,
        bindings: &Bindings,
        outside: &BTreeMap<ValueId, Tensor>,
        options: &RunOptions,
    ) -> Result<BTreeMap<String, Tensor>, SessionError> {
        let read = |value: ValueId| match outside.get(&value) {
            Some(tensor) => Ok(tensor.clone()),
            None => self.executor.read(value, bindings),
        };
        let mut results = BTreeMap::new();
        for (name, value) in &self.outputs {
            let is_state = self.states.iter().any(|state| *state.output_name == **name);
            if !is_state || options.states {
                results.insert(name.clone(), read(*value)?);
            }
        }
        let mut held = Vec::with_capacity(self.states.len());
        for state in &self.states {
            held.push(if state.shared {
                Held::Arena(self.executor.concrete(state.output, bindings)?.shape)
            } else {
                Held::Tensor(read(state.output)?)
            });
        }
        for (state, held) in self.states.iter_mut().zip(held) {
            state.held = held;
        }
        Ok(results)
    }
}

/// The value of every symbol that the shapes of these inputs determine, for a graph at any stage.
///
/// # Errors
/// [`SessionError::Inputs`]: an input is unknown, missing or of another type, or the shapes
/// contradict each other or the declared ranges.
pub fn bind(graph: &Graph, inputs: &BTreeMap<String, Tensor>) -> Result<Bindings, SessionError> {
    let mut faults = Vec::new();
    let mut binder = Binder::default();
    let named: Vec<(String, ValueId)> =
        graph.inputs().iter().map(|value| (value_name(graph, *value), *value)).collect();
    unknown_inputs(&named, inputs, &mut faults);
    for (name, value) in &named {
        let expected = graph.ty(*value);
        match inputs.get(name) {
            Some(tensor) => binder.tensor(name, expected, tensor, &mut faults),
            None => {
                let expected = expected.clone();
                faults.push(InputFault::Missing { name: name.clone(), expected });
            }
        }
    }
    let bindings = binder.solve(graph, &mut faults);
    if faults.is_empty() { Ok(bindings) } else { Err(SessionError::Inputs(faults)) }
}

fn unknown_inputs(
    known: &[(String, ValueId)],
    inputs: &BTreeMap<String, Tensor>,
    faults: &mut Vec<InputFault>,
) {
    let names: BTreeSet<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    for name in inputs.keys().filter(|name| !names.contains(name.as_str())) {
        let inputs = known.iter().map(|(name, _)| name.clone()).collect();
        faults.push(InputFault::Unknown { name: name.clone(), inputs });
    }
}

fn slots(graph: &Graph) -> Vec<StateSlot> {
    let mut slots = Vec::new();
    for state in &graph.states {
        let Some(output) = graph.outputs().iter().find(|output| output.name == state.output) else {
            // The structure verifier refuses a state whose output does not exist.
            continue;
        };
        let (before, after) = (graph.value(state.input), graph.value(output.value));
        let start = |value: &membar_ir::graph::Value| {
            value.region.as_ref().map(|region| (region.buffer, region.offset))
        };
        let shared = start(before).is_some()
            && start(before) == start(after)
            && before.layout == after.layout
            // A growing state keeps its elements in place only if its strides do not change.
            && (state.growth.is_none()
                || before.layout != membar_ir::schedule::Layout::Contiguous
                || state.growth.as_ref().is_some_and(|growth| growth.axis.index() == 0));
        slots.push(StateSlot {
            name: value_name(graph, state.input),
            input: state.input,
            output_name: state.output.clone(),
            output: output.value,
            growth: state
                .growth
                .as_ref()
                .map(|growth| (growth.axis, growth.length.clone(), growth.capacity)),
            shared,
            held: Held::Nothing,
        });
    }
    slots
}

/// Equations between declared dimensions and actual extents.
#[derive(Default)]
struct Binder {
    equations: Vec<Equation>,
    bindings: Bindings,
    /// The input that gave a symbol its value.
    sources: BTreeMap<Symbol, String>,
}

struct Equation {
    name: String,
    axis: Axis,
    dim: Dim,
    extent: usize,
}

impl Binder {
    fn tensor(
        &mut self,
        name: &str,
        expected: &TensorType,
        tensor: &Tensor,
        faults: &mut Vec<InputFault>,
    ) {
        let name = name.to_string();
        if tensor.dtype() != expected.dtype {
            let (expected, found) = (expected.dtype, tensor.dtype());
            faults.push(InputFault::DType { name: name.clone(), expected, found });
        }
        if tensor.shape().len() != expected.rank() {
            let found = tensor.shape().to_vec();
            faults.push(InputFault::Rank { name, expected: expected.clone(), found });
            return;
        }
        self.shape(&name, expected, tensor.shape());
    }

    fn state(&mut self, state: &StateSlot, expected: &TensorType) {
        match (&state.held, &state.growth) {
            (Held::Arena(shape), _) => self.shape(&state.name, expected, shape),
            (Held::Tensor(tensor), _) => self.shape(&state.name, expected, tensor.shape()),
            (Held::Nothing, Some((axis, _, _))) => {
                let Some(dim) = expected.shape.get(axis.index()).cloned() else { return };
                let name = state.name.clone();
                self.equations.push(Equation { name, axis: *axis, dim, extent: 0 });
            }
            (Held::Nothing, None) => {}
        }
    }

    fn shape(&mut self, name: &str, expected: &TensorType, shape: &[usize]) {
        for (axis, (dim, extent)) in expected.shape.iter().zip(shape).enumerate() {
            self.equations.push(Equation {
                name: name.to_string(),
                axis: axis.into(),
                dim: dim.clone(),
                extent: *extent,
            });
        }
    }

    /// Solves equations with one unknown until none is left, then checks all of them.
    fn solve(mut self, graph: &Graph, faults: &mut Vec<InputFault>) -> Bindings {
        loop {
            let before = self.bindings.len();
            for equation in &self.equations {
                let mut unknown = BTreeSet::new();
                equation.dim.for_each_symbol(&mut |symbol| {
                    if !self.bindings.contains_key(symbol) {
                        unknown.insert(symbol.clone());
                    }
                });
                let mut unknown = unknown.into_iter();
                let (Some(symbol), None) = (unknown.next(), unknown.next()) else { continue };
                let extent = i64::try_from(equation.extent).unwrap_or(i64::MAX);
                if let Some(value) = equation.dim.solve(&symbol, extent, &self.bindings) {
                    self.sources.insert(symbol.clone(), equation.name.clone());
                    self.bindings.insert(symbol, value);
                }
            }
            if self.bindings.len() == before {
                break;
            }
        }
        for equation in &self.equations {
            let value = equation.dim.evaluate(&self.bindings).ok();
            if value.and_then(|value| usize::try_from(value).ok()) != Some(equation.extent) {
                faults.push(InputFault::Dimension {
                    name: equation.name.clone(),
                    axis: equation.axis,
                    expected: equation.dim.clone(),
                    value,
                    found: equation.extent,
                });
            }
        }
        for (symbol, value) in &self.bindings {
            let range = graph.symbols.get(symbol).copied().unwrap_or(Range::UNBOUNDED);
            if *value < range.lo || range.hi.is_some_and(|hi| *value > hi) {
                faults.push(InputFault::Range {
                    symbol: symbol.name().to_string(),
                    value: *value,
                    range,
                    name: self.sources.get(symbol).cloned().unwrap_or_default(),
                });
            }
        }
        self.bindings
    }
}

fn list(faults: &[InputFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn valued(value: &Option<i64>) -> String {
    value.map_or(String::new(), |value| format!(" = {value}"))
}

/// A range as the command line writes it.
struct Shown(Range);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.0.lo)?;
        self.0.hi.map_or(Ok(()), |hi| write!(f, "{hi}"))
    }
}
