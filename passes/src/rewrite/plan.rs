//! What a region becomes: the new operators, and which values they replace, without handles; and the
//! change to a graph. Never a choice between terms.

use super::cost::Costs;
use super::extract::{Choice, operand_class, term_cost};
use super::language::ENode;
use super::region::{Place, Region, Shape, Source};
use super::saturate::{Saturated, Step, term_of};
use egg::Id;
use membar_ir::attribute::Float;
use membar_ir::dtype::DType;
use membar_ir::element::Number;
use membar_ir::graph::{Graph, NodeId, ValueId};
use membar_ir::ops::Op;
use membar_ir::recipe::Recipe;
use membar_ir::tensor::Tensor;
use membar_ir::types::ConcreteType;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// What equal regions become.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// New operators, each behind those that it reads.
    pub new: Vec<New>,
    /// Values of the core, and what stands for them.
    pub replaced: Vec<(Place, Operand)>,
}

/// An operator to add.
#[derive(Clone, Debug)]
pub(super) struct New {
    pub op: Arc<Op>,
    pub operands: Vec<Operand>,
    /// The value of the core in whose place it, or what reads it, stands.
    pub place: Place,
    /// The nodes of the region that it and what it reads newly stand for.
    pub sources: Vec<u32>,
    /// The rules that led to it, in the order in which they were applied.
    pub rules: Vec<usize>,
    /// What the nodes that it stands for cost, and what it costs, in microseconds.
    pub before: f64,
    pub after: f64,
}

/// What a new operator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operand {
    Leaf(u32),
    /// A value of the region, or what stands for it now.
    Value(Place),
    /// The result of a new operator.
    New(u32),
    Constant(DType, Float),
}

/// The plan that makes a region what was chosen. `None` if a value cannot be made.
pub(super) fn plan(
    shape: &Shape,
    saturated: &Saturated,
    choice: &Choice,
    costs: &Costs<'_>,
) -> Option<Plan> {
    let mut planner = Planner::new(shape, saturated, choice, costs);
    let kept = shape.nodes.iter().enumerate().skip(shape.context).flat_map(|(node, shape)| {
        let outputs = shape.kept.iter().enumerate().filter(|(_, kept)| **kept);
        outputs.map(move |(output, _)| Place { node: node as u32, output: output as u32 })
    });
    for place in kept.collect::<Vec<_>>() {
        planner.value(planner.class(place)?, place)?;
    }
    let replaced = planner.replaced.into_iter().collect();
    Some(Plan { new: planner.new, replaced })
}

struct Planner<'a> {
    shape: &'a Shape,
    saturated: &'a Saturated,
    choice: &'a Choice,
    costs: &'a Costs<'a>,
    /// The values of the region that each class is, in execution order.
    originals: HashMap<Id, Vec<Place>>,
    terms: Vec<Option<ENode>>,
    made: HashMap<Id, Operand>,
    new: Vec<New>,
    replaced: BTreeMap<Place, Operand>,
}

impl<'a> Planner<'a> {
    fn new(
        shape: &'a Shape,
        saturated: &'a Saturated,
        choice: &'a Choice,
        costs: &'a Costs<'a>,
    ) -> Planner<'a> {
        let graph = &saturated.graph;
        let mut originals: HashMap<Id, Vec<Place>> = HashMap::new();
        for (node, values) in saturated.values.iter().enumerate() {
            for (output, id) in values.iter().enumerate() {
                let place = Place { node: node as u32, output: output as u32 };
                originals.entry(graph.find(*id)).or_default().push(place);
            }
        }
        let term = |node| term_of(shape, &saturated.values, node, graph);
        let terms = (0..shape.nodes.len()).map(term).collect();
        let made = HashMap::new();
        let (new, replaced) = (Vec::new(), BTreeMap::new());
        Planner { shape, saturated, choice, costs, originals, terms, made, new, replaced }
    }

    fn class(&self, place: Place) -> Option<Id> {
        let id = self.saturated.values.get(place.node as usize)?.get(place.output as usize)?;
        Some(self.saturated.graph.find(*id))
    }

    /// What stands for a class; `place` is the value of the core for which it is needed.
    fn value(&mut self, id: Id, place: Place) -> Option<Operand> {
        let id = self.saturated.graph.find(id);
        if let Some(made) = self.made.get(&id) {
            return Some(*made);
        }
        let originals = self.originals.get(&id).cloned().unwrap_or_default();
        let place =
            originals.first().copied().filter(|first| self.is_core(*first)).unwrap_or(place);
        let made = self.make(id, &originals, place)?;
        self.made.insert(id, made);
        for original in originals {
            if self.is_core(original) && made != Operand::Value(original) {
                self.replaced.insert(original, made);
            }
        }
        Some(made)
    }

    fn is_core(&self, place: Place) -> bool {
        place.node as usize >= self.shape.context
    }

    fn make(&mut self, id: Id, originals: &[Place], place: Place) -> Option<Operand> {
        // What comes before the core is there, in whatever form its own region gave it.
        if let Some(context) = originals.first().filter(|first| !self.is_core(**first)) {
            return Some(Operand::Value(*context));
        }
        let (choice, saturated) = (self.choice, self.saturated);
        let term = choice.terms.get(&id)?;
        match term {
            ENode::Leaf(index) => Some(Operand::Leaf(*index)),
            ENode::Constant(dtype, value) => Some(Operand::Constant(*dtype, *value)),
            ENode::Result(..) => {
                // Rules make no operators of several results: it is one of the region.
                let original = *originals.first()?;
                self.keep(original)
            }
            ENode::Op(op, operands) => {
                let same = |place: &&Place| {
                    self.terms.get(place.node as usize).and_then(Option::as_ref) == Some(term)
                };
                if let Some(original) = originals.iter().find(same) {
                    return self.keep(*original);
                }
                let mut read = Vec::with_capacity(operands.len());
                for operand in operands {
                    read.push(self.value(*operand, place)?);
                }
                let sources = self.sources(id, operands);
                let rules = rules(saturated.makers.get(term).copied(), &saturated.steps);
                let before = sources.iter().map(|node| self.cost(*node)).sum();
                let after = term_cost(saturated, term, self.costs);
                let op = op.clone();
                self.new.push(New { op, operands: read, place, sources, rules, before, after });
                Some(Operand::New(self.new.len() as u32 - 1))
            }
        }
    }

    /// What a node of the region costs.
    fn cost(&self, node: u32) -> f64 {
        let term = self.terms.get(node as usize).and_then(Option::as_ref);
        term.map_or(0.0, |term| term_cost(self.saturated, term, self.costs))
    }

    /// A node of the core that stays; what it reads may change.
    fn keep(&mut self, place: Place) -> Option<Operand> {
        let shape = self.shape;
        for source in &shape.nodes.get(place.node as usize)?.operands {
            if let Source::Output(operand) = source
                && self.is_core(*operand)
            {
                let class = operand_class(self.saturated, *source)?;
                self.value(class, *operand)?;
            }
        }
        Some(Operand::Value(place))
    }

    /// The nodes between a class, as the region has it, and what its new term reads.
    fn sources(&self, id: Id, operands: &[Id]) -> Vec<u32> {
        let find = |id: Id| self.saturated.graph.find(id);
        let mut seen: HashSet<Id> = operands.iter().map(|id| find(*id)).collect();
        let mut sources = Vec::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let Some(place) = self.originals.get(&id).and_then(|places| places.first()) else {
                continue;
            };
            if !seen.insert(id) {
                continue;
            }
            sources.push(place.node);
            let node = self.shape.nodes.get(place.node as usize);
            let classes = node.into_iter().flat_map(|node| &node.operands);
            open.extend(classes.filter_map(|source| operand_class(self.saturated, *source)));
        }
        sources.sort_unstable();
        sources
    }
}

/// The rules that led to a step, that step's last.
fn rules(step: Option<usize>, steps: &[Step]) -> Vec<usize> {
    let mut needed: Vec<usize> = Vec::new();
    let mut open: Vec<usize> = step.into_iter().collect();
    while let Some(step) = open.pop() {
        if !needed.contains(&step) {
            needed.push(step);
            open.extend(steps.get(step).into_iter().flat_map(|step| &step.via));
        }
    }
    needed.sort_unstable();
    needed.into_iter().filter_map(|step| Some(steps.get(step)?.rule)).collect()
}

/// What has been put in the place of what, over all regions of a graph.
#[derive(Default)]
pub(super) struct Replacements {
    values: HashMap<ValueId, ValueId>,
    /// New operators by what they compute, so that two regions that need the same make it once.
    known: HashMap<(Arc<Op>, Vec<ValueId>), ValueId>,
    constants: HashMap<(DType, Float), ValueId>,
    /// Nodes whose values have been replaced, in execution order.
    pub nodes: Vec<NodeId>,
}

impl Replacements {
    /// What stands for a value now.
    fn find(&self, mut value: ValueId) -> ValueId {
        while let Some(next) = self.values.get(&value) {
            value = *next;
        }
        value
    }

    /// Makes a graph's region what the plan says. Gives the new nodes, as the plan lists them.
    pub fn apply(
        &mut self,
        graph: &mut Graph,
        region: &Region,
        plan: &Plan,
    ) -> Option<Vec<NodeId>> {
        let value_at = |graph: &Graph, place: Place| -> Option<ValueId> {
            let node = region.nodes.get(place.node as usize)?;
            graph.node(*node).outputs().get(place.output as usize).copied()
        };
        let mut made: Vec<ValueId> = Vec::with_capacity(plan.new.len());
        let resolve = |this: &mut Replacements, graph: &mut Graph, made: &[ValueId], operand| {
            let value = match operand {
                Operand::Leaf(index) => region.leaves.get(index as usize).copied()?,
                Operand::Value(place) => value_at(graph, place)?,
                Operand::New(index) => made.get(index as usize).copied()?,
                Operand::Constant(dtype, value) => {
                    *this.constants.entry((dtype, value)).or_insert_with(|| {
                        graph.add_weight(None, Recipe::literal(scalar(dtype, value)))
                    })
                }
            };
            Some(this.find(value))
        };
        for new in &plan.new {
            let mut operands = Vec::with_capacity(new.operands.len());
            for operand in &new.operands {
                operands.push(resolve(self, graph, &made, *operand)?);
            }
            let key = (new.op.clone(), operands);
            if let Some(value) = self.known.get(&key) {
                made.push(*value);
                continue;
            }
            let value = graph.apply((*new.op).clone(), &key.1).ok()?;
            let node = graph.value(value).producer();
            let old = graph.value(value_at(graph, new.place)?).producer();
            graph.stand_in(node, old);
            graph.node_mut(node).origin = origins(graph, region, new, old);
            self.known.insert(key, value);
            made.push(value);
        }
        for (place, operand) in &plan.replaced {
            let old = value_at(graph, *place)?;
            let new = resolve(self, graph, &made, *operand)?;
            if old == new {
                continue;
            }
            if graph.value(new).name.is_none() {
                graph.value_mut(new).name = graph.value(old).name.clone();
            }
            graph.replace_uses(old, new);
            self.values.insert(old, new);
            let node = graph.value(old).producer();
            if self.nodes.last() != Some(&node) {
                self.nodes.push(node);
            }
        }
        Some(made.into_iter().map(|value| graph.value(value).producer()).collect())
    }
}

/// The source model's names of all that an operator stands for, that in whose place it stands first.
fn origins(graph: &Graph, region: &Region, new: &New, old: NodeId) -> Vec<Arc<str>> {
    let nodes = new.sources.iter().rev().filter_map(|node| region.nodes.get(*node as usize));
    let mut names: Vec<Arc<str>> = Vec::new();
    for id in std::iter::once(&old).chain(nodes) {
        for name in &graph.node(*id).origin {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

fn scalar(dtype: DType, value: Float) -> Tensor {
    let mut tensor = Tensor::zeros(ConcreteType { dtype, shape: Vec::new() });
    tensor.set(0, Number::Float(value.0));
    tensor
}
