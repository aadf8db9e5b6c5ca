//! A program ready to run again and again: binds symbols from inputs, keeps states between runs;
//! must never recompile or choose a kernel.

mod binder;
mod cuda;
mod fault;
#[cfg(test)]
mod tests;

pub use binder::bind;
pub use cuda::{CudaSession, DeviceBytes, Timing};
pub use fault::InputFault;

use crate::bundle::Bundle;
use crate::cpu;
use crate::cuda::{Context, CudaExecutor, CudaOptions, Device};
use crate::executor::{Executor, ExecutorError};
use crate::placement::{self, value_name};
use crate::weights::{Materialiser, WeightError};
use membar_ir::dim::{Bindings, Symbol};
use membar_ir::graph::{Graph, ValueId};
use membar_ir::program::DeviceProgram;
use membar_ir::tensor::Tensor;
use membar_ir::types::{Axis, ConcreteType};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Why a session cannot start or a run fails.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The inputs do not fit the program: all that is wrong with them.
    #[error("{}", list(.0))]
    Inputs(Vec<InputFault>),
    /// There are no inputs to run with.
    #[error("there is nothing to run: inputs are fed before each launch and used up by collecting")]
    NotFed,
    /// The program cannot run, or a step failed.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// A weight cannot be made.
    #[error(transparent)]
    Weight(#[from] WeightError),
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
    /// Every symbol in the shape of a value.
    symbols: BTreeSet<Symbol>,
    fed: Option<Fed>,
}

/// What a run begins with.
struct Fed {
    bindings: Bindings,
    /// Inputs that have no place in the arena.
    outside: BTreeMap<ValueId, Tensor>,
}

/// What is given of an input.
enum Given<'a> {
    /// Its elements.
    Tensor(&'a Tensor),
    /// Its extents; the elements are where the program reads them.
    Elsewhere,
    /// Nothing: it is a state that goes on.
    Nothing,
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
        let executor = cpu::Executor::new(graph, weights)?;
        Ok(Session::start(Executor::Cpu(Box::new(executor))))
    }

    /// A session on a CUDA device: a scheduled graph, what the device runs of it, a cubin for each
    /// kernel in order, and a tensor for each weight.
    ///
    /// Cubins are native code: give it only what was compiled here or comes from somebody who is
    /// trusted.
    ///
    /// # Errors
    /// The program does not fit the graph, the device has not enough memory, or the driver's.
    pub fn on_cuda(
        device: Device,
        graph: Graph,
        program: DeviceProgram,
        cubins: Vec<Vec<u8>>,
        weights: BTreeMap<ValueId, Tensor>,
    ) -> Result<Session, SessionError> {
        let options = CudaOptions::default();
        Session::on_cuda_with(device, graph, program, cubins, weights, options)
    }

    /// As [`Session::on_cuda`], with settings.
    ///
    /// # Errors
    /// As [`Session::on_cuda`].
    pub fn on_cuda_with(
        device: Device,
        graph: Graph,
        program: DeviceProgram,
        cubins: Vec<Vec<u8>>,
        weights: BTreeMap<ValueId, Tensor>,
        options: CudaOptions<'_>,
    ) -> Result<Session, SessionError> {
        let context = Context::new(device).map_err(ExecutorError::from)?;
        let executor = CudaExecutor::new(&context, graph, program, &cubins, &weights, options)?;
        Ok(Session::start(Executor::Cuda(Box::new(executor))))
    }

    fn start(executor: Executor) -> Session {
        let graph = executor.graph();
        let inputs = graph.inputs().iter().map(|v| (value_name(graph, *v), *v)).collect();
        let outputs =
            graph.outputs().iter().map(|output| (output.name.to_string(), output.value)).collect();
        let states = slots(graph);
        let mut symbols = BTreeSet::new();
        for dim in graph.values().flat_map(|value| &graph.value(value).ty.shape) {
            dim.for_each_symbol(&mut |symbol| {
                symbols.insert(symbol.clone());
            });
        }
        Session { executor, inputs, outputs, states, symbols, fed: None }
    }

    /// The program.
    pub fn graph(&self) -> &Graph {
        self.executor.graph()
    }

    /// Size of the arena in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.executor.arena_bytes()
    }

    /// What somebody should know of this session, such as why it runs without a CUDA graph.
    pub fn notes(&self) -> &[String] {
        match &self.executor {
            Executor::Cpu(_) => &[],
            Executor::Cuda(executor) => executor.notes(),
        }
    }

    /// Gives weights new values, of the same types; the others keep theirs, and so do the states.
    /// Nothing is compiled or built anew.
    ///
    /// # Errors
    /// A value is no weight or its tensor is of another type, and nothing changed; or the device's.
    pub fn update_weights(
        &mut self,
        values: &BTreeMap<ValueId, Tensor>,
    ) -> Result<(), SessionError> {
        Ok(self.executor.update_weights(values)?)
    }

    /// Follows the recipes of all weights again, with files of the same names in another folder, and
    /// updates what comes out: folded and packed weights too.
    ///
    /// # Errors
    /// A weight cannot be read, or as [`Session::update_weights`].
    pub fn update_weights_from(&mut self, folder: &Path) -> Result<(), SessionError> {
        let weights = Materialiser::from_folder(folder).weights(self.graph())?;
        self.update_weights(&weights)
    }

    /// Forgets all states: growing ones are empty, the others zero.
    pub fn reset(&mut self) {
        self.fed = None;
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
        self.feed(inputs)?;
        self.launch()?;
        self.synchronize()?;
        self.collect(options)
    }

    /// The first part of [`Session::run`]: binds the extents and copies the inputs to where the
    /// program reads them.
    ///
    /// # Errors
    /// The inputs do not fit, all reasons at once; or they cannot be copied.
    pub fn feed(&mut self, inputs: &BTreeMap<String, Tensor>) -> Result<(), SessionError> {
        self.fed = None;
        let types = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.ty())).collect();
        let bindings = self.bind(&types).map_err(SessionError::Inputs)?;
        self.place(bindings, |name| inputs.get(name).map_or(Given::Nothing, Given::Tensor))
    }

    /// As [`Session::feed`] for inputs whose bytes are written by other means (on a CUDA device, to
    /// [`CudaSession::bytes_of`]), or still there from before: binds the extents alone.
    ///
    /// # Errors
    /// The types do not fit, all reasons at once.
    pub fn feed_extents(
        &mut self,
        types: &BTreeMap<String, ConcreteType>,
    ) -> Result<(), SessionError> {
        self.fed = None;
        let given = types.iter().map(|(name, ty)| (name.as_str(), ty)).collect();
        let bindings = self.bind(&given).map_err(SessionError::Inputs)?;
        self.place(bindings, |name| match types.contains_key(name) {
            true => Given::Elsewhere,
            false => Given::Nothing,
        })
    }

    /// The second part of [`Session::run`]: starts a run with the inputs that are there. On a
    /// device it does not wait; starting another one before the first has ended queues it, and
    /// states stay as [`Session::feed`] found them until [`Session::collect`].
    ///
    /// # Errors
    /// Nothing was fed, or a step fails.
    pub fn launch(&mut self) -> Result<(), SessionError> {
        let fed = self.fed.as_ref().ok_or(SessionError::NotFed)?;
        let result = self.executor.launch(&fed.bindings, &fed.outside);
        self.forget_after(result)
    }

    /// The third part of [`Session::run`]: waits for all that was launched.
    ///
    /// # Errors
    /// A step failed.
    pub fn synchronize(&mut self) -> Result<(), SessionError> {
        let result = self.executor.synchronize();
        self.forget_after(result)
    }

    /// The last part of [`Session::run`]: reads the outputs, and lets the states go on from here.
    /// What was fed is used up.
    ///
    /// # Errors
    /// Nothing was fed, or the outputs cannot be read.
    pub fn collect(
        &mut self,
        options: &RunOptions,
    ) -> Result<BTreeMap<String, Tensor>, SessionError> {
        let fed = self.fed.take().ok_or(SessionError::NotFed)?;
        self.outputs(&fed, options)
    }

    /// After a failure, a state that is replaced in place may be half written.
    fn forget_after(&mut self, result: Result<(), ExecutorError>) -> Result<(), SessionError> {
        if result.is_err() {
            self.fed = None;
            for state in &mut self.states {
                if state.shared && state.growth.is_none() {
                    state.held = Held::Nothing;
                }
            }
        }
        Ok(result?)
    }

    /// The value of every symbol.
    fn bind(&self, given: &BTreeMap<&str, &ConcreteType>) -> Result<Bindings, Vec<InputFault>> {
        let mut faults = Vec::new();
        binder::unknown_inputs(&self.inputs, given.keys().copied(), &mut faults);
        let mut binder = binder::Binder::default();
        for (name, value) in &self.inputs {
            let expected = self.graph().ty(*value);
            let state = self.states.iter().find(|state| state.input == *value);
            match (given.get(name.as_str()), state) {
                (Some(found), _) => binder.tensor(name, expected, found, &mut faults),
                (None, Some(state)) => binder.state(state, expected),
                (None, None) => faults
                    .push(InputFault::Missing { name: name.clone(), expected: expected.clone() }),
            }
        }
        let bindings = binder.solve(self.graph(), &mut faults);
        self.check_capacities(&bindings, &mut faults);
        if faults.is_empty() {
            // Only now is an undetermined dimension a fault of its own.
            let unbound = self.symbols.iter().filter(|symbol| !bindings.contains_key(*symbol));
            faults.extend(unbound.map(|symbol| {
                let symbol = symbol.name().to_string();
                InputFault::Unbound { symbol }
            }));
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

    /// Brings inputs and states to where the program reads them.
    fn place<'t>(
        &mut self,
        bindings: Bindings,
        given: impl Fn(&str) -> Given<'t>,
    ) -> Result<(), SessionError> {
        let mut outside = BTreeMap::new();
        for (name, value) in &self.inputs {
            let state = self.states.iter().find(|state| state.input == *value);
            let tensor = match (given(name), state.map(|state| &state.held)) {
                (Given::Tensor(tensor), _) | (Given::Nothing, Some(Held::Tensor(tensor))) => {
                    tensor.clone()
                }
                (Given::Elsewhere, _) if self.executor.is_planned(*value) => continue,
                (Given::Nothing, Some(Held::Arena(_))) => continue,
                (Given::Elsewhere, _) | (Given::Nothing, Some(Held::Nothing) | None) => {
                    Tensor::zeros(placement::concrete(self.executor.graph(), *value, &bindings)?)
                }
            };
            if self.executor.is_planned(*value) {
                self.executor.write(*value, &tensor, &bindings)?;
            } else {
                outside.insert(*value, tensor);
            }
        }
        self.executor.bind(&bindings)?;
        self.fed = Some(Fed { bindings, outside });
        Ok(())
    }

    /// The outputs, and the states for the next run.
    fn outputs(
        &mut self,
        fed: &Fed,
        options: &RunOptions,
    ) -> Result<BTreeMap<String, Tensor>, SessionError> {
        let Fed { bindings, outside } = fed;
        let read = |executor: &mut Executor, value: ValueId| match outside.get(&value) {
            Some(tensor) => Ok(tensor.clone()),
            None => executor.read(value, bindings),
        };
        let mut results = BTreeMap::new();
        for (name, value) in &self.outputs {
            let is_state = self.states.iter().any(|state| *state.output_name == **name);
            if !is_state || options.states {
                results.insert(name.clone(), read(&mut self.executor, *value)?);
            }
        }
        let mut held = Vec::with_capacity(self.states.len());
        for state in &self.states {
            held.push(if state.shared {
                let ty = placement::concrete(self.executor.graph(), state.output, bindings)?;
                Held::Arena(ty.shape)
            } else {
                Held::Tensor(read(&mut self.executor, state.output)?)
            });
        }
        for (state, held) in self.states.iter_mut().zip(held) {
            state.held = held;
        }
        Ok(results)
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

fn list(faults: &[InputFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
