//! Lifetimes: no two values that are needed at the same time share bytes, except where that is
//! meant; never whether accesses are ordered.

use super::Report;
use crate::graph::{Graph, NodeId, NodeKind, Stage, ValueId};
use crate::ops::Op;
use crate::schedule::Region;
use crate::text::{Entity, print};
use std::collections::{BTreeMap, BTreeSet};

/// Something that occupies bytes for a while.
struct Tenant<'a> {
    /// The value; `None` for a workspace.
    value: Option<ValueId>,
    node: NodeId,
    region: &'a Region,
    /// The first and last step, as positions in the schedule.
    first: usize,
    last: usize,
    /// The value whose bytes it shows.
    root: Option<ValueId>,
}

pub(super) fn check(report: &mut Report<'_>) {
    let graph = report.graph;
    if graph.stage != Stage::Scheduled {
        return;
    }
    let mut tenants = tenants(graph);
    tenants.sort_by_key(|tenant| tenant.first);
    let mut clashes: Vec<(usize, usize)> = Vec::new();
    let mut live: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let others = live.entry(tenant.region.buffer.0).or_default();
        others.retain(|other| tenants[*other].last >= tenant.first);
        let clash = |other: &&usize| {
            let other = &tenants[**other];
            other.region.overlaps(tenant.region) && !is_meant(graph, other, tenant)
        };
        clashes.extend(others.iter().filter(clash).map(|other| (*other, index)));
        others.push(index);
    }
    if clashes.is_empty() {
        return;
    }
    let printed = print(graph);
    let name = |tenant: &Tenant<'_>| match tenant.value {
        Some(value) => format!("`{}`", printed.value(value)),
        None => {
            let first = graph.node(tenant.node).outputs().first();
            let node = first.map_or(String::new(), |value| printed.value(*value));
            format!("the workspace of `{node}`")
        }
    };
    for (earlier, later) in clashes {
        let (earlier, later) = (&tenants[earlier], &tenants[later]);
        let message = format!(
            "{} in {} overlaps {} in {}, which is still needed",
            name(later),
            later.region,
            name(earlier),
            earlier.region
        );
        report.fault(Entity::Node(later.node), message);
    }
}

fn tenants(graph: &Graph) -> Vec<Tenant<'_>> {
    let schedule = graph.schedule.iter().enumerate();
    let position: BTreeMap<NodeId, usize> = schedule.map(|(index, id)| (*id, index)).collect();
    let end = graph.schedule.len();
    let kept = kept_inputs(graph);
    let mut roots: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut tenants = Vec::new();
    for id in &graph.schedule {
        let node = graph.node(*id);
        let own = position[id];
        let first = if node.kind == NodeKind::Input { 0 } else { own };
        for value in node.outputs() {
            let Some(region) = &graph.value(*value).region else { continue };
            let shown = shown_operand(graph, *id, region);
            let root = shown.map_or(*value, |operand| *roots.get(&operand).unwrap_or(&operand));
            roots.insert(*value, root);
            let readers = graph.users(*value).into_iter().map(|user| position[&user.node]);
            let read = readers.max().unwrap_or(own).max(own);
            let last = if graph.is_output(*value) || kept.contains(value) { end } else { read };
            tenants.push(Tenant {
                value: Some(*value),
                node: *id,
                region,
                first,
                last,
                root: Some(root),
            });
        }
        if let Some(region) = &node.workspace {
            let (first, last) = (own, own);
            let tenant = Tenant { value: None, node: *id, region, first, last, root: None };
            tenants.push(tenant);
        }
    }
    tenants
}

/// Inputs of states that the next run finds where they lie: all but those whose state's output lies
/// in the same place, and so replaces them.
fn kept_inputs(graph: &Graph) -> BTreeSet<ValueId> {
    let place = |value: ValueId| graph.try_value(value).and_then(|value| value.region.as_ref());
    let kept = graph.states.iter().filter(|state| {
        let output = graph.outputs().iter().find(|output| output.name == state.output);
        match (place(state.input), output.and_then(|output| place(output.value))) {
            (Some(before), Some(after)) => !same_start(before, after),
            (None, _) | (_, None) => true,
        }
    });
    kept.map(|state| state.input).collect()
}

/// The operand whose bytes a node's output shows again, if the plan has put both in one place.
fn shown_operand(graph: &Graph, node: NodeId, region: &Region) -> Option<ValueId> {
    let node = graph.node(node);
    let op = node.op()?;
    if !matches!(op, Op::Reshape(_) | Op::Bitcast(_) | Op::Append(_)) {
        return None;
    }
    let operand = *node.operands().first()?;
    let place = graph.value(operand).region.as_ref()?;
    same_start(place, region).then_some(operand)
}

fn same_start(a: &Region, b: &Region) -> bool {
    a.buffer == b.buffer && a.offset == b.offset
}

/// Whether the later tenant may have the earlier one's bytes.
fn is_meant(graph: &Graph, earlier: &Tenant<'_>, later: &Tenant<'_>) -> bool {
    let (Some(old), Some(new)) = (earlier.value, later.value) else {
        return false;
    };
    if earlier.root == later.root {
        return true;
    }
    if !same_start(earlier.region, later.region) {
        return false;
    }
    let reads = graph.node(later.node).operands().contains(&old);
    reads && earlier.last == later.first && earlier.first < later.first && new != old
}
