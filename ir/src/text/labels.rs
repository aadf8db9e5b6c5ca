//! Names of values in text, `%x`, `%"any name"`, `%x#1`, `%0`: unique in a graph, and the value's
//! own name can be told from them; never a name that depends on handles.

use super::print_helpers::write_name;
use super::{Cursor, SyntaxError};
use crate::graph::{Graph, NodeId, NodeKind, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What a value is called in text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    /// A value without a name, by its number among those.
    Number(u32),
    /// A name, and how many values before it have the same.
    Name(Arc<str>, u32),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("%")?;
        match self {
            Label::Number(number) => write!(f, "{number}"),
            Label::Name(name, 0) => write_name(f, name),
            Label::Name(name, repeat) => {
                write_name(f, name)?;
                write!(f, "#{repeat}")
            }
        }
    }
}

impl Label {
    /// Reads a label.
    pub fn parse(cursor: &mut Cursor<'_>) -> Result<Label, SyntaxError> {
        let start = cursor.save();
        if !cursor.eat('%') {
            return Err(cursor.error("a value such as `%x`"));
        }
        if cursor.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return cursor.unsigned_32().map(Label::Number);
        }
        let Ok(name) = cursor.name() else {
            return Err(cursor.error_at(start, "a value such as `%x`"));
        };
        let repeat = if cursor.eat('#') { cursor.unsigned_32()? } else { 0 };
        Ok(Label::Name(name.into(), repeat))
    }

    /// The name of the value that is called so.
    pub fn name(&self) -> Option<Arc<str>> {
        match self {
            Label::Number(_) => None,
            Label::Name(name, _) => Some(name.clone()),
        }
    }
}

/// The labels of all values of a graph.
pub(super) fn labels(graph: &Graph) -> BTreeMap<ValueId, Label> {
    let mut repeats: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let mut unnamed = 0;
    let mut labels = BTreeMap::new();
    for node in line_order(graph) {
        for value in graph.node(node).outputs() {
            let label = match &graph.value(*value).name {
                Some(name) => {
                    let repeat = repeats.entry(name.clone()).or_insert(0);
                    *repeat += 1;
                    Label::Name(name.clone(), *repeat - 1)
                }
                None => {
                    unnamed += 1;
                    Label::Number(unnamed - 1)
                }
            };
            labels.insert(*value, label);
        }
    }
    labels
}

/// All nodes in the order of the text: inputs as the graph lists them, then the schedule where
/// there is one, else a topological order, else (in a graph that is wrong) the order of creation.
pub(super) fn line_order(graph: &Graph) -> Vec<NodeId> {
    let inputs = graph.inputs().iter().filter_map(|input| graph.try_value(*input));
    let inputs = inputs.map(|value| value.producer());
    let scheduled = if graph.schedule.is_empty() {
        graph.try_topological_order().unwrap_or_default()
    } else {
        graph.schedule.clone()
    };
    let present = scheduled.into_iter().filter(|node| graph.try_node(*node).is_some());
    let mut seen = BTreeSet::new();
    let all = inputs.chain(present).chain(graph.nodes());
    all.filter(|node| seen.insert(*node)).collect()
}

/// Whether a node prints among the inputs of the graph rather than on a line of the body.
pub(super) fn is_listed_input(graph: &Graph, node: NodeId) -> bool {
    let data = graph.node(node);
    data.kind == NodeKind::Input && data.outputs().iter().any(|v| graph.inputs().contains(v))
}
