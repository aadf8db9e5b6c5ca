//! Walks the nodes of a graph and of the branches taken in it: scopes of names, which nodes are
//! needed, and the faults found. Never interprets an operator.

use super::context::NodeContext;
use super::environment::{Environment, Slot};
use super::fault::{NodeError, Unsupported};
use super::table;
use crate::attributes::AttributeValue;
use crate::model::{GraphDef, NodeDef};
use std::collections::{HashMap, HashSet};

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Binding {
    /// A value.
    Slot(Slot),
    /// The result of a node that could not be imported, or of one that reads such a result.
    Poisoned,
}

/// An import under way.
pub(crate) struct Importer<'m> {
    pub(super) environment: Environment<'m>,
    pub(super) faults: Vec<Unsupported>,
    scopes: Vec<HashMap<&'m str, Binding>>,
}

impl<'m> Importer<'m> {
    pub(super) fn new(environment: Environment<'m>) -> Importer<'m> {
        Importer { environment, faults: Vec::new(), scopes: vec![HashMap::new()] }
    }

    /// Makes a name known in the innermost scope.
    pub(super) fn bind(&mut self, name: &'m str, binding: Binding) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, binding);
        }
    }

    /// What a name stands for. The loader has checked that every name is defined.
    pub(super) fn lookup(&self, name: &str) -> Binding {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name).copied());
        found.unwrap_or(Binding::Poisoned)
    }

    /// Constants of a graph.
    pub(super) fn initializers(&mut self, graph: &'m GraphDef) {
        for tensor in &graph.initializers {
            if matches!(self.scopes.last(), Some(scope) if scope.contains_key(tensor.name.as_str()))
            {
                continue;
            }
            let binding = match self.environment.add_constant(tensor) {
                Ok(slot) => Binding::Slot(slot),
                Err(error) => {
                    let what = format!("initializer `{}`", tensor.name);
                    self.faults.push(Unsupported::value(what, error.to_string()));
                    Binding::Poisoned
                }
            };
            self.bind(&tensor.name, binding);
        }
    }

    /// The nodes of a graph that its outputs need. `wanted` says which outputs are read.
    pub(super) fn nodes(&mut self, graph: &'m GraphDef, wanted: impl Fn(usize) -> bool) {
        for (node, wanted) in needed(graph, wanted) {
            self.node(node, &wanted);
        }
    }

    fn node(&mut self, node: &'m NodeDef, wanted: &[bool]) {
        let results = match self.operands(node) {
            Some(operands) => self.mapped(node, operands, wanted),
            None => None,
        };
        let results = results.unwrap_or_else(|| vec![None; node.outputs.len()]);
        for (name, slot) in node.outputs.iter().zip(results) {
            if let Some(name) = name {
                self.bind(name, slot.map_or(Binding::Poisoned, Binding::Slot));
            }
        }
    }

    /// `None` if the node depends on one that could not be imported.
    fn operands(&self, node: &'m NodeDef) -> Option<Vec<Option<Slot>>> {
        let operand = |name: &Option<String>| match name {
            None => Some(None),
            Some(name) => match self.lookup(name) {
                Binding::Slot(slot) => Some(Some(slot)),
                Binding::Poisoned => None,
            },
        };
        node.inputs.iter().map(operand).collect()
    }

    fn mapped(
        &mut self,
        node: &'m NodeDef,
        operands: Vec<Option<Slot>>,
        wanted: &[bool],
    ) -> Option<Vec<Option<Slot>>> {
        let mapping = match table::find(node) {
            Ok(mapping) => mapping,
            Err(reason) => {
                self.report(node, &operands, NodeError::new(reason), None);
                return None;
            }
        };
        let mut cx = NodeContext::new(self, node, operands.clone(), wanted);
        let outcome = (mapping.import)(&mut cx);
        let results = cx.into_results();
        let missing = |(index, slot): (usize, &Option<Slot>)| {
            (slot.is_none() && wanted.get(index) == Some(&true)).then_some(index)
        };
        let outcome = match (outcome, results.iter().enumerate().find_map(missing)) {
            (Ok(()), Some(index)) => {
                Err(NodeError::new(format!("result {index} is not supported")))
            }
            (outcome, _) => outcome,
        };
        match outcome {
            Ok(()) => Some(results),
            Err(NodeError::Poisoned) => None,
            Err(error) => {
                self.report(node, &operands, error, Some(mapping.supported));
                None
            }
        }
    }

    fn report(
        &mut self,
        node: &NodeDef,
        operands: &[Option<Slot>],
        error: NodeError,
        supported: Option<&'static str>,
    ) {
        let operands = operands
            .iter()
            .map(|slot| match slot {
                Some(slot) => self.environment.ty(*slot).to_string(),
                None => "absent".to_owned(),
            })
            .collect();
        self.faults.push(Unsupported::node(node, operands, error.to_string(), supported));
    }

    /// Imports a branch of `If` in a scope of its own; gives its outputs.
    pub(super) fn branch(
        &mut self,
        branch: &'m GraphDef,
        wanted: &[bool],
    ) -> Result<Vec<Option<Slot>>, NodeError> {
        self.scopes.push(HashMap::new());
        self.initializers(branch);
        self.nodes(branch, |index| wanted.get(index).copied().unwrap_or(false));
        let outputs: Vec<Binding> =
            branch.outputs.iter().map(|output| self.lookup(&output.name)).collect();
        self.scopes.pop();
        outputs
            .into_iter()
            .zip(wanted.iter().chain(std::iter::repeat(&false)))
            .map(|(output, wanted)| match output {
                Binding::Slot(slot) => Ok(Some(slot)),
                Binding::Poisoned if *wanted => Err(NodeError::Poisoned),
                Binding::Poisoned => Ok(None),
            })
            .collect()
    }
}

/// The nodes that the outputs depend on, in order, each with which of its results are read.
fn needed(graph: &GraphDef, wanted: impl Fn(usize) -> bool) -> Vec<(&NodeDef, Vec<bool>)> {
    let outputs = graph.outputs.iter().enumerate().filter(|(index, _)| wanted(*index));
    let mut names: HashSet<&str> = outputs.map(|(_, output)| output.name.as_str()).collect();
    let mut nodes = Vec::new();
    for node in graph.nodes.iter().rev() {
        let read: Vec<bool> = node
            .outputs
            .iter()
            .map(|name| name.as_ref().is_some_and(|name| names.contains(name.as_str())))
            .collect();
        if read.contains(&true) {
            read_by(node, &mut names);
            nodes.push((node, read));
        }
    }
    nodes.reverse();
    nodes
}

/// Adds every name that a node or anything in its subgraphs reads.
fn read_by<'g>(node: &'g NodeDef, names: &mut HashSet<&'g str>) {
    names.extend(node.inputs.iter().flatten().map(String::as_str));
    for subgraph in node.attributes.values().flat_map(AttributeValue::graphs) {
        names.extend(subgraph.outputs.iter().map(|output| output.name.as_str()));
        for node in &subgraph.nodes {
            read_by(node, names);
        }
    }
}
