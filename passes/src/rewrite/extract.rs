//! Which term stands for each class: the cheapest graph, what is used twice counted once, and never a
//! graph with a cycle.

use super::cost::Costs;
use super::language::ENode;
use super::region::{Shape, Source};
use super::saturate::{Saturated, term_of};
use egg::{Id, Language};
use membar_ir::types::TensorType;
use std::collections::HashMap;

/// Rounds of changes, each of which makes the graph cheaper; the last ones change little.
const ROUNDS: usize = 8;

/// How much cheaper a graph must be to be worth a change: what summing up in another order changes is
/// less.
const WORTH: f64 = 1e-9;

/// The chosen term of each class.
pub(super) struct Choice {
    pub terms: HashMap<Id, ENode>,
}

/// A class that a root needs.
struct Class {
    candidates: Vec<Candidate>,
    chosen: usize,
}

struct Candidate {
    term: ENode,
    /// Positions of classes.
    children: Vec<usize>,
    cost: f64,
}

/// Begins with the region as it is, and changes terms while that makes the whole cheaper.
pub(super) fn extract(shape: &Shape, saturated: &Saturated, costs: &Costs<'_>) -> Choice {
    let (mut classes, ids, roots) = classes(shape, saturated, costs);
    let mut cost = total(&classes, &roots).unwrap_or(f64::MAX);
    for _ in 0..ROUNDS {
        let mut improved = false;
        for class in reachable(&classes, &roots) {
            for candidate in 0..classes[class].candidates.len() {
                let kept = classes[class].chosen;
                if candidate == kept {
                    continue;
                }
                classes[class].chosen = candidate;
                match total(&classes, &roots) {
                    Some(changed) if changed < cost - WORTH * (1.0 + cost) => {
                        cost = changed;
                        improved = true;
                    }
                    _ => classes[class].chosen = kept,
                }
            }
        }
        if !improved {
            break;
        }
    }
    let chosen = classes
        .iter()
        .zip(&ids)
        .filter_map(|(class, id)| Some((*id, class.candidates.get(class.chosen)?.term.clone())));
    Choice { terms: chosen.collect() }
}

/// The classes that are needed, each with its terms, first the node of the region that it is; their
/// handles, and the positions of the roots.
fn classes(
    shape: &Shape,
    saturated: &Saturated,
    costs: &Costs<'_>,
) -> (Vec<Class>, Vec<Id>, Vec<usize>) {
    let graph = &saturated.graph;
    let mut originals: HashMap<Id, ENode> = HashMap::new();
    for index in 0..shape.nodes.len() {
        if let Some(term) = term_of(shape, &saturated.values, index, graph)
            && let Some(id) = graph.lookup(term.clone())
        {
            originals.entry(id).or_insert(term);
        }
    }
    let mut ids: Vec<Id> = Vec::new();
    let mut positions: HashMap<Id, usize> = HashMap::new();
    let mut position = |id: Id, ids: &mut Vec<Id>| {
        let id = graph.find(id);
        *positions.entry(id).or_insert_with(|| {
            ids.push(id);
            ids.len() - 1
        })
    };
    let mut roots = Vec::new();
    for (node, values) in shape.nodes.iter().zip(&saturated.values) {
        let kept = node.kept.iter().zip(values).filter(|(kept, _)| **kept);
        roots.extend(kept.map(|(_, id)| position(*id, &mut ids)));
    }
    let mut classes: Vec<Class> = Vec::new();
    while let Some(id) = ids.get(classes.len()).copied() {
        let class = &graph[id];
        let mut candidates: Vec<Candidate> = Vec::with_capacity(class.nodes.len());
        let original = originals.get(&id);
        let rest = class.nodes.iter().filter(|node| Some(*node) != original);
        for node in original.into_iter().chain(rest) {
            let children = node.children().iter().map(|id| position(*id, &mut ids)).collect();
            let cost = term_cost(saturated, node, costs);
            candidates.push(Candidate { term: node.clone(), children, cost });
        }
        // A leaf is there already.
        let leaf = candidates.iter().position(|c| matches!(c.term, ENode::Leaf(_)));
        let chosen = leaf.unwrap_or(0);
        classes.push(Class { candidates, chosen });
    }
    choose_new(&mut classes, &ids, &originals);
    (classes, ids, roots)
}

/// Chooses terms for classes that the region does not have: the cheapest trees.
fn choose_new(classes: &mut [Class], ids: &[Id], originals: &HashMap<Id, ENode>) {
    let mut known: Vec<Option<f64>> = classes
        .iter()
        .zip(ids)
        .map(|(class, id)| {
            let leaf = class.candidates.iter().any(|c| matches!(c.term, ENode::Leaf(_)));
            (leaf || originals.contains_key(id)).then_some(0.0)
        })
        .collect();
    let fixed = known.clone();
    // Costs of trees sink from round to round; as many rounds as a tree is deep suffice.
    for _ in 0..classes.len() {
        let mut changed = false;
        for class in 0..classes.len() {
            if fixed[class].is_some() {
                continue;
            }
            for candidate in 0..classes[class].candidates.len() {
                let term = &classes[class].candidates[candidate];
                let below: Option<f64> = term.children.iter().map(|child| known[*child]).sum();
                let Some(cost) = below.map(|below| below + term.cost) else { continue };
                if known[class].is_none_or(|best| cost < best) {
                    known[class] = Some(cost);
                    classes[class].chosen = candidate;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
}

/// What a term costs, what it reads left out, in microseconds.
pub(super) fn term_cost(saturated: &Saturated, term: &ENode, costs: &Costs<'_>) -> f64 {
    let graph = &saturated.graph;
    let types = |id: &Id| graph[*id].data.types.first().cloned();
    match term {
        ENode::Leaf(_) | ENode::Constant(..) | ENode::Result(..) => 0.0,
        ENode::Op(op, operands) => {
            let types: Option<Vec<TensorType>> = operands.iter().map(types).collect();
            let outputs = graph.lookup(term.clone()).map(|id| &graph[id].data.types);
            types.zip(outputs).map_or(f64::MAX, |(types, outputs)| costs.of(op, &types, outputs))
        }
    }
}

/// What the chosen graph costs; `None` if it has a cycle.
fn total(classes: &[Class], roots: &[usize]) -> Option<f64> {
    let mut sum = 0.0;
    walk(classes, roots, &mut |class| {
        sum += classes[class].candidates.get(classes[class].chosen).map_or(0.0, |c| c.cost);
    })?;
    Some(sum)
}

/// The classes of the chosen graph, readers before what they read.
fn reachable(classes: &[Class], roots: &[usize]) -> Vec<usize> {
    let mut order = Vec::new();
    let acyclic = walk(classes, roots, &mut |class| order.push(class));
    order.reverse();
    acyclic.map_or(Vec::new(), |()| order)
}

/// Visits each class of the chosen graph once, behind those that it reads; `None` if there is a cycle.
fn walk(classes: &[Class], roots: &[usize], visit: &mut dyn FnMut(usize)) -> Option<()> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut states = vec![State::New; classes.len()];
    // Each with the position of the child that comes next.
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for root in roots {
        if states[*root] == State::New {
            states[*root] = State::Open;
            stack.push((*root, 0));
        }
        while let Some((class, next)) = stack.pop() {
            let chosen = classes[class].candidates.get(classes[class].chosen)?;
            match chosen.children.get(next) {
                Some(child) => {
                    stack.push((class, next + 1));
                    match states[*child] {
                        State::Done => {}
                        State::Open => return None,
                        State::New => {
                            states[*child] = State::Open;
                            stack.push((*child, 0));
                        }
                    }
                }
                None => {
                    states[class] = State::Done;
                    visit(class);
                }
            }
        }
    }
    Some(())
}

/// Where the operands of a node of a region come from, as classes.
pub(super) fn operand_class(saturated: &Saturated, source: Source) -> Option<Id> {
    let id = match source {
        Source::Leaf(index) => saturated.graph.lookup(ENode::Leaf(index))?,
        Source::Output(place) => {
            *saturated.values.get(place.node as usize)?.get(place.output as usize)?
        }
    };
    Some(saturated.graph.find(id))
}
