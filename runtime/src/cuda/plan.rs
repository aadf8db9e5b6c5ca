//! From the orders of a scheduled graph to the edges between launches; must never drop an order nor
//! weaken one.

use super::graph::{Edge, EdgeKind, GraphNode};
use crate::executor::ExecutorError;
use crate::placement::node_name;
use membar_ir::graph::{Graph, NodeId};
use membar_ir::program::DeviceProgram;
use membar_ir::schedule::Mechanism;
use std::collections::BTreeMap;
use std::ops::Range;

/// A node's launches, numbered through the program, or what else is known of how it waits.
struct Steps {
    /// Launches of the nodes that launch something.
    launches: BTreeMap<NodeId, Range<u32>>,
    /// For each node, what its first launch waits for directly.
    before: BTreeMap<NodeId, Vec<(NodeId, EdgeKind)>>,
}

/// The edges that a program's launches need, sorted; launches are numbered in the order of the
/// program. A node that launches nothing hands on what it waits for to those that wait for it.
///
/// # Errors
/// The program's steps are not nodes of the schedule, an order leads backwards, or nobody has asked
/// which orders the graph needs.
pub fn edges(graph: &Graph, program: &DeviceProgram) -> Result<Vec<Edge>, ExecutorError> {
    let steps = Steps::new(graph, program)?;
    let mut edges: BTreeMap<(GraphNode, GraphNode), EdgeKind> = BTreeMap::new();
    let mut add = |before: u32, after: u32, kind: EdgeKind| {
        let edge = edges.entry((GraphNode(before), GraphNode(after))).or_insert(kind);
        *edge = (*edge).min(kind);
    };
    for launches in steps.launches.values() {
        for next in launches.start + 1..launches.end {
            add(next - 1, next, EdgeKind::Full);
        }
    }
    if program.steps.len() > 1 && graph.schedule.iter().all(|id| graph.node(*id).step.is_none()) {
        let message = "no orders between its steps; `insert-barriers` makes them".to_string();
        return Err(error(graph, message));
    }
    for (after, launches) in &steps.launches {
        for (before, kind) in steps.sources(*after) {
            if before >= launches.start {
                let (name, count) = (node_name(graph, *after), program.launch_count());
                let message = format!("launch {before} of {count} is before and after `{name}`");
                return Err(error(graph, message));
            }
            add(before, launches.start, kind);
        }
    }
    Ok(edges.into_iter().map(|((before, after), kind)| Edge { before, after, kind }).collect())
}

impl Steps {
    fn new(graph: &Graph, program: &DeviceProgram) -> Result<Steps, ExecutorError> {
        let mut launches = BTreeMap::new();
        let mut next = 0u32;
        let mut last = None;
        for step in &program.steps {
            let Some(node) = graph.schedule.get(step.position as usize) else {
                let (position, length) = (step.position, graph.schedule.len());
                let message = format!("step {position} of a schedule of {length}");
                return Err(error(graph, message));
            };
            if last.is_some_and(|last| last >= step.position) || step.launches.is_empty() {
                let message = format!("step {} is out of order, or empty", step.position);
                return Err(error(graph, message));
            }
            last = Some(step.position);
            let end = next + step.launches.len() as u32;
            launches.insert(*node, next..end);
            next = end;
        }
        let mut before: BTreeMap<NodeId, Vec<(NodeId, EdgeKind)>> = BTreeMap::new();
        for order in &graph.orders {
            let kind = match order.mechanism {
                Mechanism::Programmatic => EdgeKind::Programmatic,
                Mechanism::Edge | Mechanism::Sequence => EdgeKind::Full,
            };
            before.entry(order.after).or_default().push((order.before, kind));
        }
        Ok(Steps { launches, before })
    }

    /// The launches that a node's first launch waits for, through nodes that launch nothing. On
    /// such a way an edge is programmatic only if every order is.
    fn sources(&self, node: NodeId) -> Vec<(u32, EdgeKind)> {
        let mut found = Vec::new();
        let mut seen: BTreeMap<NodeId, EdgeKind> = BTreeMap::new();
        let mut open: Vec<(NodeId, EdgeKind)> =
            self.before.get(&node).into_iter().flatten().copied().collect();
        while let Some((node, kind)) = open.pop() {
            if seen.get(&node).is_some_and(|known| *known <= kind) {
                continue;
            }
            seen.insert(node, kind);
            match self.launches.get(&node) {
                Some(launches) => found.push((launches.end - 1, kind)),
                None => {
                    let further = self.before.get(&node).into_iter().flatten();
                    open.extend(further.map(|(node, other)| (*node, kind.min(*other))));
                }
            }
        }
        found
    }
}

/// What does not fit the graph.
pub(super) fn error(graph: &Graph, message: String) -> ExecutorError {
    ExecutorError::Program { graph: graph.name.clone(), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::sure;
    use membar_ir::DType;
    use membar_ir::graph::Stage;
    use membar_ir::kernel::Promise;
    use membar_ir::ops::Scalar;
    use membar_ir::program::{KernelId, Launch, Step};
    use membar_ir::schedule::{Order, Reason};
    use membar_ir::types::TensorType;

    /// A chain of `launches.len()` nodes with that many launches each.
    fn chain(launches: &[usize]) -> (Graph, DeviceProgram) {
        let mut graph = Graph::new("chain");
        let mut value = graph.add_input("x", TensorType::fixed(DType::F32, &[4]));
        for _ in launches {
            value = sure(graph.apply(Scalar::Neg, &[value]));
        }
        graph.set_outputs([("y", value)]);
        graph.schedule = graph.order();
        graph.stage = Stage::Scheduled;
        for (id, count) in graph.schedule.clone().iter().skip(1).zip(launches) {
            graph.node_mut(*id).step = (*count > 0).then(Promise::default);
        }
        let launch = Launch {
            kernel: KernelId(0),
            grid: [1; 3],
            block: [32, 1, 1],
            cluster: 1,
            shared_bytes: 0,
            arguments: Vec::new(),
        };
        let steps = (1..)
            .zip(launches)
            .filter(|(_, count)| **count > 0)
            .map(|(position, count)| Step { position, launches: vec![launch.clone(); *count] })
            .collect();
        let program = DeviceProgram {
            target: "sm_90a".to_string(),
            symbols: Vec::new(),
            kernels: Vec::new(),
            steps,
        };
        (graph, program)
    }

    fn order(graph: &mut Graph, before: usize, after: usize, mechanism: Mechanism) {
        let (before, after) = (graph.schedule[before], graph.schedule[after]);
        graph.orders.push(Order { before, after, reason: Reason::Linearise, mechanism });
    }

    fn found(graph: &Graph, program: &DeviceProgram) -> Vec<(u32, u32, EdgeKind)> {
        let edges = sure(edges(graph, program));
        edges.iter().map(|edge| (edge.before.0, edge.after.0, edge.kind)).collect()
    }

    const FULL: EdgeKind = EdgeKind::Full;
    const PROGRAMMATIC: EdgeKind = EdgeKind::Programmatic;

    #[test]
    fn orders_lead_from_last_to_first_launches() {
        let (mut graph, program) = chain(&[2, 1, 3]);
        assert_eq!(found(&graph, &program), [(0, 1, FULL), (3, 4, FULL), (4, 5, FULL)]);
        order(&mut graph, 1, 2, Mechanism::Programmatic);
        order(&mut graph, 1, 3, Mechanism::Edge);
        let expected =
            [(0, 1, FULL), (1, 2, PROGRAMMATIC), (1, 3, FULL), (3, 4, FULL), (4, 5, FULL)];
        assert_eq!(found(&graph, &program), expected);
    }

    #[test]
    fn orders_pass_through_steps_that_launch_nothing() {
        let (mut graph, program) = chain(&[1, 0, 0, 1, 1]);
        order(&mut graph, 1, 2, Mechanism::Programmatic);
        order(&mut graph, 2, 3, Mechanism::Programmatic);
        order(&mut graph, 3, 4, Mechanism::Programmatic);
        order(&mut graph, 2, 5, Mechanism::Edge);
        assert_eq!(found(&graph, &program), [(0, 1, PROGRAMMATIC), (0, 2, FULL)]);
        // A second way to the same launch that must be full makes the edge full.
        order(&mut graph, 2, 4, Mechanism::Edge);
        assert_eq!(found(&graph, &program), [(0, 1, FULL), (0, 2, FULL)]);
        // What an input orders is nothing.
        order(&mut graph, 0, 1, Mechanism::Edge);
        assert_eq!(found(&graph, &program).len(), 2);
    }

    #[test]
    fn programs_that_do_not_fit_are_refused() {
        let (mut graph, mut program) = chain(&[1, 1]);
        order(&mut graph, 2, 1, Mechanism::Edge);
        assert!(edges(&graph, &program).is_err());
        graph.orders.clear();
        program.steps.swap(0, 1);
        assert!(edges(&graph, &program).is_err());
        program.steps.swap(0, 1);
        assert!(edges(&graph, &program).is_ok());
        for id in graph.schedule.clone() {
            graph.node_mut(id).step = None;
        }
        assert!(edges(&graph, &program).is_err());
        program.steps[1].position = 9;
        assert!(edges(&graph, &program).is_err());
    }
}
