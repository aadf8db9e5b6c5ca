//! Structure: handles, names, acyclicity, symbols, states, recipes; never types or places.

use super::Report;
use crate::dim::{Dim, Symbol};
use crate::graph::{Growth, NodeId, NodeKind, State, ValueId};
use crate::recipe::{Recipe, RecipeNode};
use crate::schedule::Layout;
use crate::text::{Cursor, Entity};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many steps a recipe may have when shared ones are counted each time, as text spells them.
const MAX_RECIPE_STEPS: u64 = 4096;

/// How deep a recipe may be: text nests one level a step, and a type takes two more.
const MAX_RECIPE_DEPTH: u32 = Cursor::MAX_DEPTH / 2 - 2;

pub(super) fn check(report: &mut Report<'_>) {
    inputs(report);
    outputs(report);
    nodes(report);
    if report.faults.is_empty() {
        acyclic(report);
    }
    ranges(report);
    for node in report.graph.nodes() {
        symbols(report, node);
    }
    states(report);
}

fn inputs(report: &mut Report<'_>) {
    let graph = report.graph;
    let mut listed = BTreeSet::new();
    let mut names = BTreeSet::new();
    for input in graph.inputs() {
        let entity = Entity::Value(*input);
        let Some(value) = graph.try_value(*input) else {
            report.fault(Entity::Graph, "an input of the graph was removed");
            continue;
        };
        if !listed.insert(value.producer()) {
            report.fault(entity.clone(), "the input is listed twice");
        }
        if graph.try_node(value.producer()).map(|node| &node.kind) != Some(&NodeKind::Input) {
            report.fault(entity.clone(), "an input of the graph is made by something else");
        }
        match &value.name {
            None => report.fault(entity, "the input has no name"),
            Some(name) if !names.insert(name) => {
                report.fault(entity, format!("two inputs have the name `{name}`"));
            }
            Some(_) => {}
        }
    }
    for node in graph.nodes() {
        if graph.node(node).kind == NodeKind::Input && !listed.contains(&node) {
            report.fault(Entity::Node(node), "the node is not among the inputs of the graph");
        }
    }
}

fn outputs(report: &mut Report<'_>) {
    let graph = report.graph;
    let mut names = BTreeSet::new();
    for (index, output) in graph.outputs().iter().enumerate() {
        let entity = Entity::Output(index as u32);
        if graph.try_value(output.value).is_none() {
            report.fault(entity.clone(), "the value of the output was removed");
        }
        if !names.insert(&output.name) {
            report.fault(entity, format!("two outputs have the name `{}`", output.name));
        }
    }
}

fn nodes(report: &mut Report<'_>) {
    let graph = report.graph;
    for id in graph.nodes() {
        let (node, entity) = (graph.node(id), Entity::Node(id));
        if node.outputs().is_empty() {
            report.fault(entity.clone(), "the node has no output");
        }
        for (index, value) in node.outputs().iter().enumerate() {
            let back =
                graph.try_value(*value).map(|value| (value.producer(), value.output_index()));
            if back != Some((id, index)) {
                report.fault(entity.clone(), format!("output {index} belongs to another node"));
            }
        }
        for (index, operand) in node.operands().iter().enumerate() {
            if graph.try_value(*operand).is_none() {
                report.fault(entity.clone(), format!("operand {index} was removed"));
            }
        }
        let alone = node.outputs().len() == 1 && node.operands().is_empty();
        if node.op().is_none() && !alone {
            report.fault(entity.clone(), "an input or weight has one output and no operands");
        }
        if let NodeKind::Weight(recipe) = &node.kind {
            weight(report, id, recipe);
        }
    }
}

fn weight(report: &mut Report<'_>, node: NodeId, recipe: &Recipe) {
    let mut fault = |message: String| report.fault(Entity::Node(node), message);
    // Each step of a recipe is looked at once for each depth, so that shared steps cost little.
    let mut open: Vec<&Recipe> = vec![recipe];
    let mut depth = 0;
    while !open.is_empty() {
        depth += 1;
        if depth > MAX_RECIPE_DEPTH {
            fault(format!("the recipe is more than {MAX_RECIPE_DEPTH} steps deep"));
            return;
        }
        let mut next: Vec<&Recipe> = Vec::new();
        let mut seen = BTreeSet::new();
        for recipe in open {
            if recipe.ty().static_shape().is_none() {
                let ty = recipe.ty();
                fault(format!("{ty} in a recipe; expected dimensions that are known numbers"));
            }
            if let RecipeNode::Apply { operands, .. } = recipe.node() {
                let new = |operand: &&Recipe| seen.insert(std::ptr::from_ref(operand.node()));
                next.extend(operands.iter().filter(new));
            }
        }
        open = next;
    }
    // The depth is limited by now.
    let steps = steps(recipe, &mut BTreeMap::new());
    if steps > MAX_RECIPE_STEPS {
        fault(format!("the recipe has {steps} steps; expected at most {MAX_RECIPE_STEPS}"));
    }
}

fn steps(recipe: &Recipe, known: &mut BTreeMap<*const RecipeNode, u64>) -> u64 {
    let key = std::ptr::from_ref(recipe.node());
    if let Some(steps) = known.get(&key) {
        return *steps;
    }
    let operands = match recipe.node() {
        RecipeNode::Source { .. } => &[],
        RecipeNode::Apply { operands, .. } => operands.as_slice(),
    };
    let total =
        operands.iter().fold(1u64, |sum, operand| sum.saturating_add(steps(operand, known)));
    known.insert(key, total);
    total
}

fn acyclic(report: &mut Report<'_>) {
    let graph = report.graph;
    if graph.try_topological_order().is_some() {
        return;
    }
    // Whatever is left after sources and sinks are peeled off lies on a cycle or between two.
    let mut left: BTreeSet<NodeId> = graph.nodes().collect();
    loop {
        let inner = |id: &NodeId| {
            let node = graph.node(*id);
            let reads = node.operands().iter().any(|v| left.contains(&graph.value(*v).producer()));
            let users = node.outputs().iter().flat_map(|value| graph.users(*value));
            reads && users.into_iter().any(|user| left.contains(&user.node))
        };
        let next: BTreeSet<NodeId> = left.iter().copied().filter(inner).collect();
        if next.len() == left.len() {
            break;
        }
        left = next;
    }
    for node in left {
        report.fault(Entity::Node(node), "the node is part of a cycle");
    }
}

fn ranges(report: &mut Report<'_>) {
    for (symbol, range) in &report.graph.symbols {
        let entity = Entity::Symbol(symbol.clone());
        if range.lo < 0 {
            let message =
                format!("the range of `{symbol}` begins at {}; expected 0 or more", range.lo);
            report.fault(entity.clone(), message);
        }
        if range.hi.is_some_and(|hi| hi < range.lo) {
            report.fault(entity, format!("the range of `{symbol}` is empty"));
        }
    }
}

fn symbols(report: &mut Report<'_>, id: NodeId) {
    let graph = report.graph;
    let node = graph.node(id);
    let mut missing: BTreeSet<Symbol> = BTreeSet::new();
    let mut need = |dim: &Dim| {
        dim.for_each_symbol(&mut |symbol| {
            if !graph.symbols.contains_key(symbol) {
                missing.insert(symbol.clone());
            }
        });
    };
    let mut negative = Vec::new();
    for value in node.outputs().iter().filter_map(|value| graph.try_value(*value)) {
        for (axis, dim) in value.ty.shape.iter().enumerate() {
            need(dim);
            if dim.bounds(&graph.symbols).hi.is_some_and(|hi| hi < 0) {
                negative.push(format!("dimension {axis} is {dim}; expected 0 or more"));
            }
        }
        if let Layout::Capacity(shape) = &value.layout {
            shape.iter().for_each(&mut need);
        }
    }
    if let Some(op) = node.op() {
        op.clone().visit_dims(&mut |dim| need(dim));
    }
    for message in negative {
        report.fault(Entity::Node(id), message);
    }
    for symbol in missing {
        let message = format!("symbol `{symbol}` has no range; expected one after `where`");
        report.fault(Entity::Node(id), message);
    }
}

fn states(report: &mut Report<'_>) {
    let graph = report.graph;
    let outputs: BTreeMap<&Arc<str>, ValueId> =
        graph.outputs().iter().map(|output| (&output.name, output.value)).collect();
    let (mut inputs_seen, mut outputs_seen) = (BTreeSet::new(), BTreeSet::new());
    for (index, state) in graph.states.iter().enumerate() {
        let entity = Entity::State(index as u32);
        let name = &state.output;
        if !inputs_seen.insert(state.input) | !outputs_seen.insert(name) {
            report.fault(entity.clone(), "the input or the output belongs to another state too");
        }
        let is_input = graph.inputs().contains(&state.input);
        if !is_input {
            report.fault(entity.clone(), "the state's input is no input of the graph");
        }
        match outputs.get(name) {
            None => report.fault(entity, format!("the graph has no output `{name}`")),
            Some(output) if is_input => state_types(report, entity, state, *output),
            Some(_) => {}
        }
    }
}

fn state_types(report: &mut Report<'_>, entity: Entity, state: &State, output: ValueId) {
    let graph = report.graph;
    let (Some(before), Some(after)) = (graph.try_value(state.input), graph.try_value(output))
    else {
        return;
    };
    let (before, after) = (&before.ty, &after.ty);
    if before.dtype != after.dtype || before.rank() != after.rank() {
        let message = format!(
            "the input is {before}, the output {after}; expected one element type and rank"
        );
        report.fault(entity, message);
        return;
    }
    let Some(Growth { axis, length, capacity }) = &state.growth else {
        return;
    };
    let along = before.shape.get(axis.index());
    if along.and_then(Dim::as_symbol) != Some(length) {
        let found = along.map_or("nothing".to_string(), Dim::to_string);
        let message =
            format!("the input's extent along axis {axis} is {found}; expected `{length}`");
        report.fault(entity.clone(), message);
    }
    for (other, (a, b)) in before.shape.iter().zip(&after.shape).enumerate() {
        if other != axis.index() && a != b {
            let message =
                format!("dimension {other}, which does not grow, is {a} before and {b} after");
            report.fault(entity.clone(), message);
        }
    }
    let longest = graph.symbols.get(length).and_then(|range| range.hi);
    if longest.is_some_and(|longest| longest > *capacity) {
        let longest = longest.unwrap_or_default();
        let message = format!("the capacity is {capacity}, but `{length}` may be {longest}");
        report.fault(entity, message);
    }
}
