//! `specialise`: applies the dimensions that the user gave; never guesses one.

use membar_ir::dim::{Dim, Range, Symbol};
use membar_ir::graph::Graph;
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::types::TensorType;
use std::collections::{BTreeMap, BTreeSet};

/// Binds symbols to numbers where `options.dims` gives a number, and narrows their declared ranges
/// where it gives a range. With `B = 2` and `S in 1..=64`:
///
/// ```text
/// graph @g(%x: f32[B, S]) where B in 1..=8, S in 0.. {
///   %y = reshape %x {shape = [B*S]} : f32[B*S]
///   return %y
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%x: f32[2, S]) where S in 1..=64 {
///   %y = reshape %x {shape = [2*S]} : f32[2*S]
///   return %y
/// }
/// ```
///
/// # Errors
/// A name that is no dimension of the graph, a range that has nothing in common with the declared
/// one, or a number under which an operator's operands no longer fit it.
pub fn specialise(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    if cx.options.dims.is_empty() {
        return Ok(Changed::No);
    }
    let known = symbols(graph);
    let mut faults = Vec::new();
    let mut bound: BTreeMap<Symbol, Dim> = BTreeMap::new();
    let mut changed = false;
    for (symbol, asked) in &cx.options.dims {
        if !known.contains(symbol) {
            faults.push(unknown(symbol, &known));
            continue;
        }
        let declared = graph.symbols.get(symbol).copied().unwrap_or(Range::UNBOUNDED);
        match intersect(declared, *asked) {
            None => faults.push(format!(
                "`--dim {}={}`: the model allows {}",
                symbol.name(),
                shown(*asked),
                shown(declared),
            )),
            Some(Range { lo, hi }) if hi == Some(lo) => {
                bound.insert(symbol.clone(), Dim::from(lo));
            }
            Some(range) => {
                changed |= graph.symbols.get(symbol) != Some(&range);
                graph.declare(symbol.clone(), range);
            }
        }
    }
    if faults.is_empty() && !bound.is_empty() {
        graph.substitute(&bound);
        infer_again(graph, &mut faults);
        changed = true;
    }
    if faults.is_empty() { Ok(changed.into()) } else { Err(PassError::Faults(faults)) }
}

/// Every symbol that is declared, or stands in an input's type.
fn symbols(graph: &Graph) -> BTreeSet<Symbol> {
    let mut known: BTreeSet<Symbol> = graph.symbols.keys().cloned().collect();
    for dim in graph.inputs().iter().flat_map(|input| &graph.ty(*input).shape) {
        dim.for_each_symbol(&mut |symbol| {
            known.insert(symbol.clone());
        });
    }
    known
}

fn unknown(symbol: &Symbol, known: &BTreeSet<Symbol>) -> String {
    let names: Vec<String> = known.iter().map(|known| format!("`{}`", known.name())).collect();
    let have = match names.is_empty() {
        true => "all its dimensions are numbers".to_string(),
        false => format!("it has {}", names.join(", ")),
    };
    format!("`--dim {0}=…`: the model has no dimension `{0}`; {have}", symbol.name())
}

/// What two ranges have in common, if anything.
fn intersect(a: Range, b: Range) -> Option<Range> {
    let lo = a.lo.max(b.lo);
    let hi = match (a.hi, b.hi) {
        (Some(x), Some(y)) => Some(x.min(y)),
        (x, y) => x.or(y),
    };
    hi.is_none_or(|hi| lo <= hi).then_some(Range { lo, hi })
}

/// A range as the command line spells it.
fn shown(range: Range) -> String {
    match range.hi {
        Some(hi) if hi == range.lo => hi.to_string(),
        Some(hi) => format!("{}..{hi}", range.lo),
        None => format!("{}..", range.lo),
    }
}

/// Infers every type again: a number can settle a `min`, or make a dimension impossible.
fn infer_again(graph: &mut Graph, faults: &mut Vec<String>) {
    for id in graph.order() {
        let node = graph.node(id);
        let Some(op) = node.op() else { continue };
        let operands: Vec<TensorType> =
            node.operands().iter().map(|value| graph.ty(*value).clone()).collect();
        match op.infer(&operands) {
            Ok(types) => {
                let outputs = node.outputs().to_vec();
                for (value, ty) in outputs.into_iter().zip(types) {
                    graph.value_mut(value).ty = ty;
                }
            }
            Err(error) => faults.push(format!(
                "node `{}`: {} does not fit the dimensions asked for: {error}",
                graph.label(id),
                op.mnemonic(),
            )),
        }
    }
    for value in graph.values() {
        let ty = graph.ty(value);
        if ty.shape.iter().any(|dim| dim.as_constant().is_some_and(|extent| extent < 0)) {
            let name = graph.label(graph.value(value).producer());
            faults.push(format!("node `{name}`: its result {ty} has a negative dimension"));
        }
    }
}
