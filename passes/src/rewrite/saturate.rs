//! A region as an e-graph, and the rules applied to it until nothing new is found; never a choice
//! between terms.

use super::language::{ENode, Knowledge};
use super::region::{Shape, Source};
use super::rules::{Root, Rule, Term, View};
use egg::{EGraph, Id, Language};
use membar_ir::dim::Ranges;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds after which a region is left as it is. The longest chains of rules that lead from one to
/// another take five.
const ROUNDS: usize = 12;

/// A region's terms may become so many times as many, and so many more.
const GROWTH: (usize, usize) = (8, 256);

/// The e-graph of a region.
pub(super) type RegionGraph = EGraph<ENode, Knowledge>;

/// A region with all that rules found equal.
pub(super) struct Saturated {
    pub graph: RegionGraph,
    /// The class of each output of each node of the region.
    pub values: Vec<Vec<Id>>,
    /// What each rule did, in order.
    pub steps: Vec<Step>,
    /// Which step made a term, for terms that no node of the region is.
    pub makers: HashMap<ENode, usize>,
    /// Whether a limit ended it.
    pub limited: bool,
}

/// A rule that united two classes.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The rule's number.
    pub rule: usize,
    /// Earlier steps whose terms it matched.
    pub via: Vec<usize>,
}

/// What a rule did and how long it took, over all regions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Statistics {
    /// How often its left side was found, in every round anew.
    pub matches: u64,
    /// How often it united two classes.
    pub unions: u64,
    /// How long it searched and built.
    pub time: Duration,
}

/// A left side that was found.
struct Match {
    rule: usize,
    class: Id,
    term: Term,
    trail: Vec<ENode>,
}

/// Applies rules to a region. `None` if the region cannot be expressed: an operator gives other types
/// than the graph says.
///
/// # Errors
/// A rule united what is not equal, in words: a defect of the rule.
pub(super) fn saturate(
    shape: &Shape,
    symbols: &Arc<Ranges>,
    rules: &[&'static Rule],
    statistics: &mut [Statistics],
) -> Result<Option<Saturated>, String> {
    let Some((mut graph, values)) = express(shape, symbols) else { return Ok(None) };
    let limit = graph.total_size() * GROWTH.0 + GROWTH.1;
    let mut steps: Vec<Step> = Vec::new();
    let mut made: Vec<(ENode, usize)> = Vec::new();
    let mut makers = HashMap::new();
    let mut limited = true;
    for _ in 0..ROUNDS {
        let mut changed = false;
        for found in search(&graph, rules, statistics) {
            let begin = Instant::now();
            let number = steps.len();
            let before = graph.total_size();
            let mut new = Vec::new();
            let built = found.term.build(&mut graph, &mut |node| new.push(node.clone()));
            let class = graph.find(found.class);
            // A rule whose right side has another type does not hold here.
            let alike = |id: &Id| graph[*id].data.types == graph[class].data.types;
            if let Some(id) = built.filter(alike)
                && graph.find(id) != class
            {
                graph.union(class, id);
                changed = true;
                let via = found.trail.iter().filter_map(|node| makers.get(node).copied());
                let mut via: Vec<usize> = via.collect();
                via.sort_unstable();
                via.dedup();
                steps.push(Step { rule: found.rule, via });
                made.extend(new.into_iter().map(|node| (node, number)));
                statistics[found.rule].unions += 1;
            }
            changed |= graph.total_size() != before;
            statistics[found.rule].time += begin.elapsed();
        }
        graph.rebuild();
        check(&graph, rules, &steps)?;
        makers = canonical(&graph, &made, shape, &values);
        if !changed {
            limited = false;
            break;
        }
        if graph.total_size() > limit {
            break;
        }
    }
    Ok(Some(Saturated { graph, values, steps, makers, limited }))
}

/// The e-graph of a region, and the classes of its values.
fn express(shape: &Shape, symbols: &Arc<Ranges>) -> Option<(RegionGraph, Vec<Vec<Id>>)> {
    let mut graph =
        EGraph::new(Knowledge { leaves: shape.leaves.clone(), symbols: symbols.clone() });
    let leaves: Vec<Id> =
        (0..shape.leaves.len()).map(|index| graph.add(ENode::Leaf(index as u32))).collect();
    let mut values: Vec<Vec<Id>> = Vec::with_capacity(shape.nodes.len());
    for node in &shape.nodes {
        let operand = |source: &Source| match source {
            Source::Leaf(index) => leaves.get(*index as usize).copied(),
            Source::Output(place) => {
                values.get(place.node as usize)?.get(place.output as usize).copied()
            }
        };
        let operands = node.operands.iter().map(operand).collect::<Option<_>>()?;
        let id = graph.add(ENode::Op(node.op.clone(), operands));
        if graph[id].data.types.as_slice() != node.outputs.as_slice() {
            return None;
        }
        values.push(match node.outputs.len() {
            1 => vec![id],
            count => (0..count).map(|i| graph.add(ENode::Result(i as u32, [id]))).collect(),
        });
    }
    graph.rebuild();
    Some((graph, values))
}

/// Every left side in the e-graph, in the order of classes.
fn search(
    graph: &RegionGraph,
    rules: &[&'static Rule],
    statistics: &mut [Statistics],
) -> Vec<Match> {
    let view = View::new(graph);
    let mut classes: Vec<Id> = graph.classes().map(|class| class.id).collect();
    classes.sort_unstable();
    let mut found = Vec::new();
    for class in classes {
        for node in &graph[class].nodes {
            let ENode::Op(op, operands) = node else { continue };
            let root = Root { class, op, operands };
            for (number, rule) in rules.iter().enumerate() {
                if !(rule.root)(op) {
                    continue;
                }
                let begin = Instant::now();
                let term = (rule.apply)(&view, root);
                let trail = view.take_trail();
                if let Some(term) = term {
                    let trail = trail.into_iter().chain([node]).cloned().collect();
                    found.push(Match { rule: number, class, term, trail });
                    statistics[number].matches += 1;
                }
                statistics[number].time += begin.elapsed();
            }
        }
    }
    found
}

/// Which step made each term, first steps first; terms that nodes of the region are have none.
fn canonical(
    graph: &RegionGraph,
    made: &[(ENode, usize)],
    shape: &Shape,
    values: &[Vec<Id>],
) -> HashMap<ENode, usize> {
    let mut makers = HashMap::new();
    let find = |node: &ENode| node.clone().map_children(|id| graph.find(id));
    for (node, step) in made {
        makers.entry(find(node)).or_insert(*step);
    }
    for (index, node) in shape.nodes.iter().enumerate() {
        if let Some(term) = term_of(shape, values, index, graph) {
            debug_assert!(matches!(&term, ENode::Op(op, _) if **op == *node.op));
            makers.remove(&term);
        }
    }
    makers
}

/// The term that a node of the region is.
pub(super) fn term_of(
    shape: &Shape,
    values: &[Vec<Id>],
    node: usize,
    graph: &RegionGraph,
) -> Option<ENode> {
    let node = shape.nodes.get(node)?;
    let operand = |source: &Source| {
        let id = match source {
            Source::Leaf(index) => graph.lookup(ENode::Leaf(*index))?,
            Source::Output(place) => {
                *values.get(place.node as usize)?.get(place.output as usize)?
            }
        };
        Some(graph.find(id))
    };
    let operands = node.operands.iter().map(operand).collect::<Option<_>>()?;
    Some(ENode::Op(node.op.clone(), operands))
}

/// Whether no class holds facts that exclude each other.
fn check(graph: &RegionGraph, rules: &[&'static Rule], steps: &[Step]) -> Result<(), String> {
    let mut conflicts: Vec<(Id, String)> = graph
        .classes()
        .filter_map(|class| Some((class.id, class.data.conflict.as_ref()?.to_string())))
        .collect();
    conflicts.sort();
    let Some((_, conflict)) = conflicts.into_iter().next() else { return Ok(()) };
    let mut names: Vec<&str> =
        steps.iter().filter_map(|step| Some(rules.get(step.rule)?.name)).collect();
    names.sort_unstable();
    names.dedup();
    Err(format!("the rules {} make equal what is not: {conflict}", names.join(", ")))
}
