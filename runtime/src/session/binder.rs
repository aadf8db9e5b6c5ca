//! The values of symbols from the shapes of inputs; must never touch a tensor's elements.

use super::fault::InputFault;
use super::{Held, SessionError, StateSlot};
use crate::placement::value_name;
use membar_ir::dim::{Bindings, Dim, Range, Symbol};
use membar_ir::graph::{Graph, ValueId};
use membar_ir::tensor::Tensor;
use membar_ir::types::{Axis, ConcreteType, TensorType};
use std::collections::{BTreeMap, BTreeSet};

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
    unknown_inputs(&named, inputs.keys().map(String::as_str), &mut faults);
    for (name, value) in &named {
        let expected = graph.ty(*value);
        match inputs.get(name) {
            Some(tensor) => binder.tensor(name, expected, tensor.ty(), &mut faults),
            None => {
                let expected = expected.clone();
                faults.push(InputFault::Missing { name: name.clone(), expected });
            }
        }
    }
    let bindings = binder.solve(graph, &mut faults);
    if faults.is_empty() { Ok(bindings) } else { Err(SessionError::Inputs(faults)) }
}

/// Notes every given input that the program does not have.
pub(super) fn unknown_inputs<'a>(
    known: &[(String, ValueId)],
    given: impl IntoIterator<Item = &'a str>,
    faults: &mut Vec<InputFault>,
) {
    let names: BTreeSet<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    for name in given.into_iter().filter(|name| !names.contains(name)) {
        let inputs = known.iter().map(|(name, _)| name.clone()).collect();
        faults.push(InputFault::Unknown { name: name.to_string(), inputs });
    }
}

/// Equations between declared dimensions and actual extents.
#[derive(Default)]
pub(super) struct Binder {
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
    pub fn tensor(
        &mut self,
        name: &str,
        expected: &TensorType,
        found: &ConcreteType,
        faults: &mut Vec<InputFault>,
    ) {
        let name = name.to_string();
        if found.dtype != expected.dtype {
            let (expected, found) = (expected.dtype, found.dtype);
            faults.push(InputFault::DType { name: name.clone(), expected, found });
        }
        if found.shape.len() != expected.rank() {
            let found = found.shape.clone();
            faults.push(InputFault::Rank { name, expected: expected.clone(), found });
            return;
        }
        self.shape(&name, expected, &found.shape);
    }

    pub fn state(&mut self, state: &StateSlot, expected: &TensorType) {
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
    pub fn solve(mut self, graph: &Graph, faults: &mut Vec<InputFault>) -> Bindings {
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
