//! From a loaded model to a graph of IR operators. The operators themselves are mapped in `ops`;
//! this file only drives, and never looks at one.
//!
//! - Each ONNX value is followed in up to three forms: a value of the graph, dimensions (small
//!   integer tensors that depend on shapes and constants alone), a constant (`environment`).
//! - Names of dimensions are hints; equations between them come from the operators (`symbols`).
//! - Everything that cannot be imported is reported at once (`fault`).

mod branch;
mod constants;
mod context;
mod environment;
mod fault;
mod listing;
mod ops;
mod symbols;
mod table;

pub(crate) use constants::read as read_constant;
pub use fault::Unsupported;
pub(crate) use fault::listed;
pub use listing::{SupportedOperator, refused_operators, supported_operators};

use crate::dims::{DimDef, DimExpr};
use crate::error::ImportError;
use crate::model::{Model, ValueInfo, ValueType};
use branch::{Binding, Importer};
use constants::WeightRole;
use environment::Environment;
use membar_ir::{Dim, Graph, NodeKind, Range, Symbol, Tensor, TensorType};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use symbols::Symbols;

/// Settings of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Inputs that are fixed to a value: they become constants.
    pub bound: BTreeMap<String, Tensor>,
    /// Random weights instead of those whose data is absent. Without it such a weight is an error.
    pub random_weights: Option<RandomWeights>,
}

/// How weights are drawn: from N(0, 0.02); factors of normalisations are 1, integers 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomWeights {
    /// What the values derive from.
    pub seed: u64,
    /// Whether every floating-point weight is drawn, or only those whose data file is absent.
    pub all: bool,
}

/// Loads a model and imports it.
///
/// # Errors
/// Whatever is wrong with the file ([`Model::load`]), or everything in it that Membar does not
/// take ([`ImportError::Unsupported`]).
pub fn import(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Graph, ImportError> {
    import_model(&Model::load(path)?, options)
}

/// Imports a loaded model. Inputs and outputs keep their names and order; an input that has an
/// initializer is a weight.
///
/// # Errors
/// As [`import`].
pub fn import_model(model: &Model, options: &ImportOptions) -> Result<Graph, ImportError> {
    let mut importer = Importer::new(Environment::new(model, options));
    inputs(&mut importer, model, options)?;
    importer.initializers(&model.graph);
    importer.nodes(&model.graph, |_| true);
    outputs(&mut importer, model);
    if !importer.faults.is_empty() {
        return Err(ImportError::Unsupported { faults: importer.faults });
    }
    Ok(finish(importer.environment))
}

fn inputs<'m>(
    importer: &mut Importer<'m>,
    model: &'m Model,
    options: &ImportOptions,
) -> Result<(), ImportError> {
    let infos: Vec<&ValueInfo> = model.graph.free_inputs().collect();
    for name in options.bound.keys() {
        if !infos.iter().any(|info| &info.name == name) {
            let inputs = infos.iter().map(|info| info.name.clone()).collect();
            return Err(ImportError::UnknownBinding { name: name.clone(), inputs });
        }
    }
    for info in &infos {
        match input(importer, info, &infos, options.bound.get(&info.name)) {
            Ok(binding) => importer.bind(&info.name, binding),
            Err(reason) => {
                let what = format!("input `{}`", info.name);
                importer.faults.push(Unsupported::value(what, reason));
                importer.bind(&info.name, Binding::Poisoned);
            }
        }
    }
    Ok(())
}

fn input(
    importer: &mut Importer<'_>,
    info: &ValueInfo,
    all: &[&ValueInfo],
    bound: Option<&Tensor>,
) -> Result<Binding, String> {
    let environment = &mut importer.environment;
    if let Some(tensor) = bound {
        let ty = match &info.value_type {
            ValueType::Tensor { dims: None, .. } => None,
            _ => Some(input_type(&mut environment.symbols, info, all)?),
        };
        if let Some(ty) = ty {
            let mismatch = || format!("is bound to {}, but the model declares {ty}", tensor.ty());
            if ty.dtype != tensor.dtype() || ty.rank() != tensor.shape().len() {
                return Err(mismatch());
            }
            for (dim, extent) in ty.shape.iter().zip(tensor.shape()) {
                let extent = Dim::from(*extent as i64);
                if !environment.symbols.unify(dim, &extent, &info.name) {
                    return Err(mismatch());
                }
            }
        }
        return Ok(Binding::Slot(environment.add_tensor(tensor.clone())));
    }
    let ty = input_type(&mut environment.symbols, info, all)?;
    let value = environment.graph.add_input(&info.name, ty);
    Ok(Binding::Slot(environment.add_value(value)))
}

fn input_type(
    symbols: &mut Symbols,
    info: &ValueInfo,
    all: &[&ValueInfo],
) -> Result<TensorType, String> {
    let (element_type, dims) = match &info.value_type {
        ValueType::Tensor { element_type, dims: Some(dims) } => (element_type, dims),
        ValueType::Tensor { dims: None, .. } => return Err("has no rank".to_owned()),
        ValueType::Other(kind) => return Err(format!("is {kind}; tensors are supported")),
        ValueType::Unknown => return Err("has no type".to_owned()),
    };
    let Some(dtype) = element_type.dtype() else {
        return Err(format!("has elements of type {element_type}, which is not supported"));
    };
    let shape = dims.iter().enumerate().map(|(axis, dim)| {
        let range = Range { lo: least_extent(info, axis, all), hi: None };
        let wanted = || format!("{}_{axis}", info.name);
        match dim.expression() {
            Some(expression) => dimension(symbols, &expression, range)
                .unwrap_or_else(|| symbols.generate(&wanted(), range)),
            None => symbols.generate(&wanted(), range),
        }
    });
    Ok(TensorType::new(dtype, shape.collect::<Vec<_>>()))
}

/// The least extent that a dimension may take: 0 for the lengths of caches, which are empty
/// before the first run, and 1 for others, so that slices such as `[-1:]` keep a known size.
///
/// A model with caches has several inputs of one type and a rank of at least 4, where an inner
/// dimension is not fixed.
fn least_extent(info: &ValueInfo, axis: usize, all: &[&ValueInfo]) -> i64 {
    let kind = |info: &ValueInfo| match &info.value_type {
        ValueType::Tensor { element_type, dims: Some(dims) } if dims.len() >= 4 => {
            let fixed = matches!(dims.get(axis), Some(DimDef::Known(_)));
            Some((*element_type, dims.len(), fixed))
        }
        _ => None,
    };
    let this = kind(info);
    let alike = all.iter().filter(|other| this.is_some() && kind(other) == this).count();
    if axis > 0 && alike >= 2 { 0 } else { 1 }
}

/// A dimension that may be named by itself, with its range. `None` for a division by zero.
fn dimension(symbols: &mut Symbols, expression: &DimExpr, range: Range) -> Option<Dim> {
    if let DimExpr::Symbol(name) = expression {
        symbols.declare(name, range, true);
        return Some(Dim::symbol(name));
    }
    part(symbols, expression)
}

/// A part of an expression, where a symbol may be 0 for all that is known.
fn part(symbols: &mut Symbols, expression: &DimExpr) -> Option<Dim> {
    let mut pair = |a: &DimExpr, b: &DimExpr| Some((part(symbols, a)?, part(symbols, b)?));
    Some(match expression {
        DimExpr::Integer(value) => Dim::from(*value),
        DimExpr::Symbol(name) => {
            symbols.declare(name, Range::UNBOUNDED, false);
            Dim::symbol(name)
        }
        DimExpr::Add(a, b) => pair(a, b).map(|(a, b)| a + b)?,
        DimExpr::Sub(a, b) => pair(a, b).map(|(a, b)| a - b)?,
        DimExpr::Mul(a, b) => pair(a, b).map(|(a, b)| a * b)?,
        DimExpr::FloorDiv(a, b) => pair(a, b).and_then(|(a, b)| a.floor_div(&b))?,
        DimExpr::Mod(a, b) => pair(a, b).and_then(|(a, b)| a.modulo(&b))?,
        DimExpr::Min(a, b) => pair(a, b).map(|(a, b)| a.minimum(&b))?,
        DimExpr::Max(a, b) => pair(a, b).map(|(a, b)| a.maximum(&b))?,
    })
}

fn outputs(importer: &mut Importer<'_>, model: &Model) {
    let mut outputs = Vec::with_capacity(model.graph.outputs.len());
    for output in &model.graph.outputs {
        let Binding::Slot(slot) = importer.lookup(&output.name) else {
            continue;
        };
        match importer.environment.value(slot, WeightRole::Other) {
            Ok(value) => outputs.push((output.name.as_str(), value)),
            Err(error) => {
                let what = format!("output `{}`", output.name);
                importer.faults.push(Unsupported::value(what, error.to_string()));
            }
        }
    }
    importer.environment.graph.set_outputs(outputs);
}

/// Brings all dimensions up to date and drops what nothing reads.
fn finish(environment: Environment<'_>) -> Graph {
    let mut graph = environment.graph;
    graph.substitute(environment.symbols.replacements());
    let mut nodes: Vec<_> = graph.nodes().collect();
    nodes.reverse();
    for node in nodes {
        if graph.node(node).kind != NodeKind::Input {
            graph.remove_node(node);
        }
    }
    let used = used_symbols(&graph);
    for (symbol, range) in environment.symbols.ranges() {
        if used.contains(symbol) {
            graph.declare(symbol.clone(), *range);
        }
    }
    graph
}

fn used_symbols(graph: &Graph) -> BTreeSet<Symbol> {
    let mut used = BTreeSet::new();
    let mut note = |dim: &Dim| {
        dim.for_each_symbol(&mut |symbol| {
            used.insert(symbol.clone());
        });
    };
    for value in graph.values() {
        graph.ty(value).shape.iter().for_each(&mut note);
    }
    for node in graph.nodes() {
        if let Some(op) = graph.node(node).op() {
            op.clone().visit_dims(&mut |dim| note(dim));
        }
    }
    used
}

#[cfg(test)]
mod tests;
