//! Whether two graphs are equal up to their handles: everything that the text form prints, and
//! nothing else.

use super::labels::{labels, line_order};
use crate::graph::{Graph, NodeId, ValueId};
use std::collections::BTreeMap;

impl Graph {
    /// Whether the graphs are equal up to their handles: the same nodes in the order of the text,
    /// with equal types and properties.
    pub fn equivalent(&self, other: &Graph) -> bool {
        self.difference(other).is_none()
    }

    /// What first makes two graphs differ, in words.
    pub fn difference(&self, other: &Graph) -> Option<String> {
        let (nodes, others) = (line_order(self), line_order(other));
        if nodes.len() != others.len() {
            return Some(format!("{} nodes and {}", nodes.len(), others.len()));
        }
        let comparison = Comparison {
            left: self,
            right: other,
            nodes: nodes.iter().copied().zip(others.iter().copied()).collect(),
            values: zip_values(self, &nodes, other, &others),
        };
        let parts = comparison.header().or_else(|| comparison.lists());
        parts.or_else(|| nodes.iter().zip(&others).find_map(|(a, b)| comparison.node(*a, *b)))
    }
}

fn zip_values(
    left: &Graph,
    nodes: &[NodeId],
    right: &Graph,
    others: &[NodeId],
) -> BTreeMap<ValueId, ValueId> {
    let pairs = nodes.iter().zip(others).flat_map(|(a, b)| {
        let (a, b) = (left.node(*a).outputs(), right.node(*b).outputs());
        a.iter().copied().zip(b.iter().copied())
    });
    pairs.collect()
}

struct Comparison<'a> {
    left: &'a Graph,
    right: &'a Graph,
    nodes: BTreeMap<NodeId, NodeId>,
    values: BTreeMap<ValueId, ValueId>,
}

impl Comparison<'_> {
    fn header(&self) -> Option<String> {
        let (a, b) = (self.left, self.right);
        let same = [
            ("names", a.name == b.name),
            ("stages", a.stage == b.stage),
            ("topologies", a.topology == b.topology),
            ("ranges of symbols", a.symbols == b.symbols),
            ("buffers", a.buffers == b.buffers),
            ("inputs", self.same_values(a.inputs(), b.inputs())),
        ];
        same.iter().find(|(_, same)| !same).map(|(what, _)| format!("the {what} differ"))
    }

    fn lists(&self) -> Option<String> {
        let (a, b) = (self.left, self.right);
        let outputs = all_match(a.outputs(), b.outputs(), |x, y| {
            x.name == y.name && self.same_value(&x.value, &y.value)
        });
        let states = all_match(&a.states, &b.states, |x, y| {
            self.same_value(&x.input, &y.input) && x.output == y.output && x.growth == y.growth
        });
        let orders = all_match(&a.orders, &b.orders, |x, y| {
            self.same_node(&x.before, &y.before)
                && self.same_node(&x.after, &y.after)
                && x.reason == y.reason
                && x.mechanism == y.mechanism
        });
        let schedule = all_match(&a.schedule, &b.schedule, |x, y| self.same_node(x, y));
        let same =
            [("outputs", outputs), ("states", states), ("orders", orders), ("schedules", schedule)];
        same.iter().find(|(_, same)| !same).map(|(what, _)| format!("the {what} differ"))
    }

    fn node(&self, a: NodeId, b: NodeId) -> Option<String> {
        let (left, right) = (self.left.node(a), self.right.node(b));
        let same = left.kind == right.kind
            && left.device == right.device
            && left.workspace == right.workspace
            && left.step == right.step
            && left.origin == right.origin
            && left.outputs().len() == right.outputs().len()
            && self.same_values(left.operands(), right.operands());
        let same = same
            && left.outputs().iter().zip(right.outputs()).all(|(x, y)| {
                let (x, y) = (self.left.value(*x), self.right.value(*y));
                x.ty == y.ty
                    && x.name == y.name
                    && x.memory == y.memory
                    && x.region == y.region
                    && x.layout == y.layout
            });
        if same {
            return None;
        }
        let names = labels(self.left);
        let name = left.outputs().first().and_then(|value| names.get(value));
        Some(format!("the nodes of `{}` differ", name.map_or(String::new(), |n| n.to_string())))
    }

    fn same_values(&self, a: &[ValueId], b: &[ValueId]) -> bool {
        all_match(a, b, |x, y| self.same_value(x, y))
    }

    fn same_value(&self, a: &ValueId, b: &ValueId) -> bool {
        self.values.get(a) == Some(b)
    }

    fn same_node(&self, a: &NodeId, b: &NodeId) -> bool {
        self.nodes.get(a) == Some(b)
    }
}

fn all_match<T>(a: &[T], b: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(x, y))
}
