//! Types: what operators infer against what the graph states, in recipes too; never shapes of a
//! run.

use super::Report;
use crate::graph::NodeKind;
use crate::ops::Op;
use crate::recipe::{Literal, Recipe, RecipeNode, Source};
use crate::text::Entity;
use crate::types::TensorType;
use std::collections::BTreeSet;

pub(super) fn check(report: &mut Report<'_>) {
    let graph = report.graph;
    for id in graph.nodes() {
        let node = graph.node(id);
        let stated: Vec<TensorType> = node.outputs().iter().map(|v| graph.ty(*v).clone()).collect();
        let faults = match &node.kind {
            NodeKind::Input => Vec::new(),
            NodeKind::Op(op) => {
                let operands: Vec<TensorType> =
                    node.operands().iter().map(|v| graph.ty(*v).clone()).collect();
                inferred(op, &operands, &stated).into_iter().collect()
            }
            NodeKind::Weight(recipe) => {
                let mut faults = Vec::new();
                let made = recipe.ty();
                for stated in stated.iter().filter(|stated| *stated != made) {
                    faults.push(format!("the recipe makes {made}, the value is {stated}"));
                }
                recipes(recipe, &mut faults);
                faults
            }
        };
        for fault in faults {
            report.fault(Entity::Node(id), fault);
        }
    }
}

fn inferred(op: &Op, operands: &[TensorType], stated: &[TensorType]) -> Option<String> {
    match op.infer(operands) {
        Err(error) => Some(format!("`{op}` does not take {}: {error}", list(operands))),
        Ok(inferred) if inferred != stated => {
            Some(format!("`{op}` gives {}, but {} is stated", list(&inferred), list(stated)))
        }
        Ok(_) => None,
    }
}

fn list(types: &[TensorType]) -> String {
    if types.is_empty() {
        return "nothing".to_string();
    }
    types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
}

/// Every step once, however often it is shared.
fn recipes(recipe: &Recipe, faults: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut open = vec![recipe];
    while let Some(recipe) = open.pop() {
        if !seen.insert(std::ptr::from_ref(recipe.node())) {
            continue;
        }
        match recipe.node() {
            RecipeNode::Source { ty, source: Source::Literal(Literal(tensor)) } => {
                let shape = tensor.shape().iter().map(|extent| i64::try_from(*extent));
                let shape: Result<Vec<i64>, _> = shape.collect();
                let found = shape.map(|shape| TensorType::fixed(tensor.dtype(), &shape));
                if found.as_ref() != Ok(ty) {
                    faults.push(format!("a literal of {} stands for {ty}", tensor.ty()));
                }
            }
            RecipeNode::Source { source: Source::File { .. } | Source::Random { .. }, .. } => {}
            RecipeNode::Apply { ty, op, operands } => {
                let types: Vec<TensorType> = operands.iter().map(|r| r.ty().clone()).collect();
                faults.extend(inferred(op, &types, std::slice::from_ref(ty)));
                open.extend(operands);
            }
        }
    }
}
