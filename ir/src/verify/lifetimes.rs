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
    /// The state that the value begins or ends.
    state: Option<u32>,
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
    let mut states: BTreeMap<ValueId, u32> = BTreeMap::new();
    let mut kept: BTreeSet<ValueId> = BTreeSet::new();
    for (state, index) in graph.states.iter().zip(0u32..) {
        kept.insert(state.input);
        let named = graph.outputs().iter().find(|output| output.name == state.output);
        for value in [Some(state.input), named.map(|output| output.value)].into_iter().flatten() {
            states.insert(value, index);
        }
    }
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
                state: states.get(value).copied(),
            });
        }
        if let Some(region) = &node.workspace {
            let (first, last) = (own, own);
            let tenant =
                Tenant { value: None, node: *id, region, first, last, root: None, state: None };
            tenants.push(tenant);
        }
    }
    tenants
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
    let takes_over = |last: usize| {
        let reads = graph.node(later.node).operands().contains(&old);
        reads && last == later.first && earlier.first < later.first && new != old
    };
    if takes_over(earlier.last) {
        return true;
    }
    // A state's input is kept for the next run, unless the state's own output replaces it after
    // its last use.
    let same_state = earlier.state.is_some() && earlier.state == later.state;
    let used = graph.users(old).into_iter().map(|user| user.node);
    let position = |node: NodeId| graph.schedule.iter().position(|other| *other == node);
    let last_use = used.filter_map(position).max().unwrap_or(0);
    same_state && !graph.is_output(old) && last_use <= later.first
}
