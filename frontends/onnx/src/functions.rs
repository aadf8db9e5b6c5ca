//! Model-local functions: calls are replaced by the nodes of the function, also inside subgraphs.
//! A function is never kept as something that a later stage would have to know.

use crate::attributes::AttributeValue;
use crate::convert::{self, NESTING_LIMIT, Scope, normalised};
use crate::error::{ImportError, shown_domain};
use crate::model::{GraphDef, NodeDef, ValueInfo};
use crate::names::Names;
use crate::proto::FunctionProto;
use crate::source::Source;
use crate::tensors::TensorDef;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// Bytes, roughly, that expansion may produce. Functions that each call the next one twice double
/// their nodes at every step, and names grow with the depth, so a small file could ask for any
/// size; real models stay below a hundredth of this.
const EXPANSION_LIMIT: u64 = 128 << 20;

/// An attribute of a function body whose value is an attribute of the call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reference {
    /// Name of the call's attribute.
    pub(crate) target: String,
}

/// The identity of a function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FunctionKey {
    domain: String,
    name: String,
    overload: String,
}

impl FunctionKey {
    /// The function that a node calls, if the model has it.
    pub(crate) fn of_call(node: &NodeDef) -> Self {
        Self {
            domain: node.domain.clone(),
            name: node.op_type.clone(),
            overload: node.overload.clone(),
        }
    }
}

impl fmt::Display for FunctionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", shown_domain(&self.domain), self.name)?;
        if self.overload.is_empty() { Ok(()) } else { write!(f, ":{}", self.overload) }
    }
}

/// The functions of a model, and the operator sets that they fall back on.
pub(crate) struct Functions {
    protos: BTreeMap<FunctionKey, FunctionProto>,
    model_opsets: BTreeMap<String, i64>,
}

impl Functions {
    pub(crate) fn new(
        protos: Vec<FunctionProto>,
        model_opsets: &BTreeMap<String, i64>,
    ) -> Result<Self, ImportError> {
        let mut functions = Self { protos: BTreeMap::new(), model_opsets: model_opsets.clone() };
        for proto in protos {
            let key = FunctionKey {
                domain: normalised(proto.domain()).to_owned(),
                name: proto.name().to_owned(),
                overload: proto.overload().to_owned(),
            };
            let function = key.to_string();
            if functions.protos.insert(key, proto).is_some() {
                return Err(ImportError::DuplicateFunction { function });
            }
        }
        Ok(functions)
    }

    pub(crate) fn contains(&self, key: &FunctionKey) -> bool {
        self.protos.contains_key(key)
    }
}

/// Replaces every call in the graph. Values of a function's body are named after the call:
/// `call/value`.
pub(crate) fn inline(
    graph: GraphDef,
    functions: &Functions,
    source: &mut Source,
) -> Result<GraphDef, ImportError> {
    if functions.protos.is_empty() {
        return Ok(graph);
    }
    let mut values = Names::default();
    collect_values(&graph, &mut values);
    let mut inliner = Inliner {
        functions,
        source,
        bodies: BTreeMap::new(),
        values,
        calls: Vec::new(),
        budget: Budget { produced: 0 },
    };
    inliner.graph(graph, 0)
}

fn collect_values(graph: &GraphDef, values: &mut Names) {
    for info in graph.inputs.iter().chain(&graph.outputs) {
        values.insert(&info.name);
    }
    for tensor in &graph.initializers {
        values.insert(&tensor.name);
    }
    for node in &graph.nodes {
        for name in node.inputs.iter().chain(&node.outputs).flatten() {
            values.insert(name);
        }
        for subgraph in node.attributes.values().flat_map(AttributeValue::graphs) {
            collect_values(subgraph, values);
        }
    }
}

/// A function, converted once.
struct Body {
    inputs: Vec<String>,
    outputs: Vec<String>,
    defaults: BTreeMap<String, AttributeValue>,
    nodes: Vec<NodeDef>,
}

struct Inliner<'a> {
    functions: &'a Functions,
    source: &'a mut Source,
    bodies: BTreeMap<FunctionKey, Rc<Body>>,
    values: Names,
    /// The functions that are being expanded, outermost first.
    calls: Vec<FunctionKey>,
    budget: Budget,
}

impl Inliner<'_> {
    fn graph(&mut self, mut graph: GraphDef, depth: usize) -> Result<GraphDef, ImportError> {
        if depth > NESTING_LIMIT {
            return Err(too_deep(format!("graph `{}`", graph.name)));
        }
        let nodes = std::mem::take(&mut graph.nodes);
        graph.nodes.reserve(nodes.len());
        for node in nodes {
            self.node(node, depth, &mut graph.nodes)?;
        }
        Ok(graph)
    }

    fn node(
        &mut self,
        mut node: NodeDef,
        depth: usize,
        out: &mut Vec<NodeDef>,
    ) -> Result<(), ImportError> {
        for value in node.attributes.values_mut() {
            for subgraph in value.graphs_mut() {
                *subgraph = self.graph(std::mem::take(subgraph), depth + 1)?;
            }
        }
        let key = FunctionKey::of_call(&node);
        if !self.functions.contains(&key) {
            out.push(node);
            return Ok(());
        }
        if let Some(start) = self.calls.iter().position(|call| *call == key) {
            let cycle = self.calls[start..].iter().chain([&key]);
            return Err(ImportError::FunctionCycle {
                functions: cycle.map(ToString::to_string).collect(),
            });
        }
        if depth >= NESTING_LIMIT {
            return Err(too_deep(format!("node `{}`, which calls `{key}`", node.name)));
        }
        let body = self.body(&key)?;
        let nodes = self.instantiate(&node, &key, &body)?;
        self.calls.push(key);
        for inner in nodes {
            self.node(inner, depth + 1, out)?;
        }
        self.calls.pop();
        Ok(())
    }

    fn body(&mut self, key: &FunctionKey) -> Result<Rc<Body>, ImportError> {
        if let Some(body) = self.bodies.get(key) {
            return Ok(Rc::clone(body));
        }
        let proto = self.functions.protos.get(key).cloned().unwrap_or_default();
        let mut opsets = self.functions.model_opsets.clone();
        opsets.extend(convert::opsets(&proto.opset_import, &format!("the function `{key}`"))?);
        let mut cx =
            Scope { opsets: &opsets, functions: self.functions, source: self.source, body: true };
        let owner =
            NodeDef { name: key.to_string(), op_type: "function".into(), ..NodeDef::default() };
        let mut defaults = BTreeMap::new();
        for attribute in proto.attribute_proto {
            let name = attribute.name().to_owned();
            defaults.insert(name, convert::attribute(attribute, &owner, &mut cx, 0)?);
        }
        let body = Rc::new(Body {
            inputs: proto.input,
            outputs: proto.output,
            defaults,
            nodes: convert::nodes(proto.node, &mut cx, 0)?,
        });
        self.bodies.insert(key.clone(), Rc::clone(&body));
        Ok(body)
    }

    /// The nodes of one call, in the names of the caller.
    fn instantiate(
        &mut self,
        call: &NodeDef,
        key: &FunctionKey,
        body: &Body,
    ) -> Result<Vec<NodeDef>, ImportError> {
        let place = || format!("the function `{key}`");
        check_arity(call, key, "inputs", call.inputs.len(), body.inputs.len())?;
        check_arity(call, key, "outputs", call.outputs.len(), body.outputs.len())?;

        let mut bound: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (position, formal) in body.inputs.iter().enumerate() {
            let actual = call.inputs.get(position).cloned().flatten();
            if bound.insert(formal.clone(), actual).is_some() {
                let by = "an input".to_owned();
                return Err(twice(place(), formal, by.clone(), by));
            }
        }
        let mut instance = Instance {
            call,
            defaults: &body.defaults,
            values: &mut self.values,
            budget: &mut self.budget,
            scopes: Vec::new(),
        };
        // A result that is also an operand, or that stands twice, needs a value of its own.
        let mut copies = Vec::new();
        for (formal, actual) in body.outputs.iter().zip(&call.outputs) {
            let Some(actual) = actual else { continue };
            if bound.contains_key(formal) {
                copies.push((formal, actual));
            } else {
                bound.insert(formal.clone(), Some(actual.clone()));
            }
        }
        let mut defined: BTreeSet<&str> = body.inputs.iter().map(String::as_str).collect();
        for node in &body.nodes {
            for output in node.outputs.iter().flatten() {
                if !defined.insert(output) {
                    let by = format!("node `{}`", node.name);
                    return Err(twice(place(), output, "an input or another node".into(), by));
                }
                if !bound.contains_key(output) {
                    let fresh = instance.fresh(output)?;
                    bound.insert(output.clone(), Some(fresh));
                }
            }
        }
        if let Some(output) = body.outputs.iter().find(|name| !defined.contains(name.as_str())) {
            return Err(ImportError::UndefinedOutput { place: place(), value: output.clone() });
        }

        instance.scopes.push(bound);
        let mut nodes = Vec::with_capacity(body.nodes.len());
        for node in &body.nodes {
            let mut node = node.clone();
            instance.node(&mut node)?;
            nodes.push(node);
        }
        for (formal, actual) in copies {
            let mut copy = NodeDef {
                name: "Identity".into(),
                op_type: "Identity".into(),
                opset: self.functions.model_opsets.get("").copied().unwrap_or(1),
                inputs: vec![Some(formal.clone())],
                ..NodeDef::default()
            };
            instance.node(&mut copy)?;
            if copy.inputs.is_empty() {
                return Err(ImportError::UndefinedValue {
                    node: call.name.clone(),
                    op: call.op_type.clone(),
                    value: formal.clone(),
                });
            }
            copy.outputs = vec![Some(actual.clone())];
            nodes.push(copy);
        }
        Ok(nodes)
    }
}

/// One call of a function: what its names and attributes stand for.
struct Instance<'a> {
    call: &'a NodeDef,
    defaults: &'a BTreeMap<String, AttributeValue>,
    values: &'a mut Names,
    budget: &'a mut Budget,
    /// Names of the body and of the subgraphs around the node, innermost last. `None` is an
    /// operand that the call leaves out.
    scopes: Vec<BTreeMap<String, Option<String>>>,
}

impl Instance<'_> {
    fn fresh(&mut self, name: &str) -> Result<String, ImportError> {
        self.budget.charge(self.call.name.len() + name.len())?;
        Ok(self.values.fresh(&format!("{}/{name}", self.call.name)))
    }

    fn node(&mut self, node: &mut NodeDef) -> Result<(), ImportError> {
        self.budget.charge(size_of::<NodeDef>() + self.call.name.len() + node.name.len())?;
        node.name = format!("{}/{}", self.call.name, node.name);
        for operand in node.inputs.iter_mut().chain(&mut node.outputs) {
            let Some(name) = operand else { continue };
            match self.lookup(name).cloned() {
                Some(value) => {
                    self.budget.charge(value.as_ref().map_or(0, String::len))?;
                    *operand = value;
                }
                None => {
                    return Err(ImportError::UndefinedValue {
                        node: node.name.clone(),
                        op: node.op_type.clone(),
                        value: name.clone(),
                    });
                }
            }
        }
        while node.inputs.last().is_some_and(Option::is_none) {
            node.inputs.pop();
        }
        for value in node.attributes.values_mut() {
            self.budget.charge(value_size(value))?;
            for subgraph in value.graphs_mut() {
                self.graph(subgraph)?;
            }
        }
        // The call's attributes are in the caller's names already, graphs among them too. One
        // that the call leaves out and that has no default is absent in the body as well.
        for (name, reference) in std::mem::take(&mut node.references) {
            let given = self.call.attributes.get(&reference.target);
            if let Some(value) = given.or_else(|| self.defaults.get(&reference.target)) {
                self.budget.charge(value_size(value))?;
                node.attributes.insert(name, value.clone());
            }
        }
        Ok(())
    }

    /// Renames everything that a subgraph of the body defines, since it must not hide values of
    /// the caller.
    fn graph(&mut self, graph: &mut GraphDef) -> Result<(), ImportError> {
        let mut bound = BTreeMap::new();
        let inputs = graph.inputs.iter().map(|info| &info.name);
        let constants = graph.initializers.iter().map(|tensor| &tensor.name);
        let results = graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten());
        for name in inputs.chain(constants).chain(results) {
            if !bound.contains_key(name) {
                let fresh = self.fresh(name)?;
                bound.insert(name.clone(), Some(fresh));
            }
        }
        self.scopes.push(bound);
        for node in &mut graph.nodes {
            self.node(node)?;
        }
        for tensor in &mut graph.initializers {
            self.rename(&mut tensor.name);
        }
        for info in graph.inputs.iter_mut().chain(&mut graph.value_infos) {
            self.rename(&mut info.name);
        }
        for info in &mut graph.outputs {
            if !self.rename(&mut info.name) {
                return Err(ImportError::UndefinedOutput {
                    place: format!("graph `{}` in `{}`", graph.name, self.call.name),
                    value: info.name.clone(),
                });
            }
        }
        self.scopes.pop();
        Ok(())
    }

    fn rename(&self, name: &mut String) -> bool {
        match self.lookup(name) {
            Some(Some(value)) => {
                name.clone_from(value);
                true
            }
            Some(None) | None => false,
        }
    }

    fn lookup(&self, name: &str) -> Option<&Option<String>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }
}

fn check_arity(
    call: &NodeDef,
    key: &FunctionKey,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), ImportError> {
    if found <= expected {
        return Ok(());
    }
    let (node, function) = (call.name.clone(), key.to_string());
    Err(ImportError::FunctionArity { node, function, what, found, expected })
}

fn twice(place: String, value: &str, first: String, second: String) -> ImportError {
    ImportError::DuplicateValue { place, value: value.to_owned(), first, second }
}

fn too_deep(place: String) -> ImportError {
    ImportError::TooDeep { place, limit: NESTING_LIMIT }
}

/// What expansion has produced so far.
struct Budget {
    produced: u64,
}

impl Budget {
    fn charge(&mut self, bytes: usize) -> Result<(), ImportError> {
        self.produced = self.produced.saturating_add(bytes as u64);
        if self.produced > EXPANSION_LIMIT {
            return Err(ImportError::ExpansionTooLarge { limit: EXPANSION_LIMIT });
        }
        Ok(())
    }
}

/// Bytes, roughly, of a copy of the value. The data of tensors and strings is shared.
fn value_size(value: &AttributeValue) -> usize {
    let elements = match value {
        AttributeValue::Ints(values) => values.len().saturating_mul(size_of::<i64>()),
        AttributeValue::Floats(values) => values.len().saturating_mul(size_of::<f32>()),
        AttributeValue::Strings(values) => values.len().saturating_mul(size_of::<bytes::Bytes>()),
        AttributeValue::Tensors(tensors) => tensors.iter().map(tensor_size).sum(),
        AttributeValue::Tensor(tensor) => tensor_size(tensor),
        AttributeValue::Graph(_) | AttributeValue::Graphs(_) => {
            value.graphs().iter().map(graph_size).sum()
        }
        AttributeValue::Int(_)
        | AttributeValue::Float(_)
        | AttributeValue::String(_)
        | AttributeValue::Unsupported(_) => 0,
    };
    elements.saturating_add(size_of::<AttributeValue>())
}

fn tensor_size(tensor: &TensorDef) -> usize {
    size_of::<TensorDef>() + tensor.name.len() + tensor.shape.len().saturating_mul(8)
}

fn graph_size(graph: &GraphDef) -> usize {
    let infos = graph.inputs.iter().chain(&graph.outputs).chain(&graph.value_infos);
    let infos: usize = infos.map(|info| size_of::<ValueInfo>() + info.name.len()).sum();
    let constants: usize = graph.initializers.iter().map(tensor_size).sum();
    let nodes: usize = graph.nodes.iter().map(node_size).sum();
    infos.saturating_add(constants).saturating_add(nodes)
}

fn node_size(node: &NodeDef) -> usize {
    let operands = node.inputs.iter().chain(&node.outputs).flatten();
    let operands: usize = operands.map(|name| size_of::<String>() + name.len()).sum();
    let attributes: usize = node.attributes.values().map(value_size).sum();
    (size_of::<NodeDef>() + node.name.len()).saturating_add(operands).saturating_add(attributes)
}

#[cfg(test)]
mod tests;
