//! The order of steps on GPUs: proven for every model, and no more than it takes; never a run.

use crate::fixture::{self, Fixture};
use membar::ir::graph::Stage;
use membar::ir::pass::{PassContext, PassOptions, StateOption};
use membar::ir::schedule::{Mechanism, Reason};
use membar::ir::topology::DeviceKind;
use membar::ir::verify::{Depth, check_order, verify};
use membar::{CompileOptions, Graph, Target};
use std::sync::Arc;

/// Of a graph with very many orders only so many are broken, evenly spread.
const BROKEN: usize = 300;

#[test]
fn of_every_fixture_is_proven_and_no_order_is_too_many() {
    fixture::each(&fixture::names(), |fixture| {
        for (target, states) in [("sm_90a", StateOption::Auto), ("sm_80", StateOption::None)] {
            let graph = ordered(fixture, target, states, "elide-barriers")?;
            holds(&graph).map_err(|error| format!("{target}: {error}"))?;
            breaks(&graph).map_err(|error| format!("{target}: {error}"))?;
        }
        Ok(())
    });
}

/// Kernels that do not wait, and ones that read by the asynchronous proxy.
#[test]
fn of_every_fixture_is_proven_whatever_kernels_promise() {
    fixture::each(&fixture::names(), |fixture| {
        let mut graph = ordered(fixture, "sm_90a", StateOption::None, "insert-barriers")?;
        for (index, id) in graph.schedule.clone().into_iter().enumerate() {
            let operands = graph.node(id).operands().len();
            let Some(step) = &mut graph.node_mut(id).step else { continue };
            step.waits = index % 4 != 0;
            if index % 3 == 0 && operands > 0 {
                step.async_operands = vec![0];
                step.async_fence = index % 2 == 0;
            }
        }
        let pass = membar::compile::find_pass("elide-barriers").map_err(|e| e.to_string())?;
        let topology = graph.topology.clone().expect("a placed graph");
        let options = PassOptions { device: DeviceKind::Gpu, ..PassOptions::default() };
        let mut cx = PassContext::new(options, topology, Arc::new(membar::CpuLibrary));
        (pass.run)(&mut graph, &mut cx).map_err(|error| error.to_string())?;
        holds(&graph)?;
        breaks(&graph)
    });
}

fn ordered(
    fixture: &Fixture,
    target: &str,
    states: StateOption,
    last: &str,
) -> Result<Graph, String> {
    let target: Target = target.parse().unwrap_or_else(|error| panic!("{error}"));
    let stop_after = Some(last.to_string());
    let options = CompileOptions { target, states, stop_after, ..fixture.options() };
    let compile = || membar::compile(fixture.graph.clone(), &options).map_err(|e| e.to_string());
    let graph = compile()?.graph;
    if graph.stage != Stage::Scheduled || graph.to_string() != compile()?.graph.to_string() {
        return Err("compiled twice, the texts differ".into());
    }
    Ok(graph)
}

/// Every conflict is ordered, and no order is wider than it must be or implied by others.
fn holds(graph: &Graph) -> Result<(), String> {
    verify(graph, Depth::Full).map_err(|error| error.to_string())?;
    let report = check_order(graph);
    if report.steps == 0 || !report.faults.is_empty() {
        return Err(format!("{report:#?}\n{graph}"));
    }
    Ok(())
}

/// Without any one of the orders that cover hazards, or by a mechanism that does not hold there, or
/// if the step that waits did not promise to, the proof fails.
fn breaks(graph: &Graph) -> Result<(), String> {
    let mut broken = graph.clone();
    let every = graph.orders.len().div_ceil(BROKEN).max(1);
    for (index, order) in graph.orders.iter().enumerate().step_by(every) {
        let found = |graph: &Graph, how: &str| match check_order(graph).errors().next() {
            Some(_) => Ok(()),
            None => Err(format!("order {index} {how}, and nobody objects\n{graph}")),
        };
        let taken = broken.orders.remove(index);
        if matches!(order.reason, Reason::Hazards(_)) {
            found(&broken, "is left out")?;
        }
        broken.orders.insert(index, taken);
        broken.orders[index].mechanism = Mechanism::Sequence;
        found(&broken, "is a sequence")?;
        broken.orders[index].mechanism = Mechanism::Programmatic;
        let step = graph.node(order.after).step.clone();
        let waits = step.as_ref().is_some_and(|step| step.waits);
        if order.mechanism == Mechanism::Programmatic {
            let promise = broken.node_mut(order.after).step.as_mut();
            promise.expect("a step").waits = false;
            found(&broken, "leads to a step that does not wait")?;
        } else if !waits {
            found(&broken, "is programmatic, to a step that does not wait")?;
        }
        broken.node_mut(order.after).step = step;
        broken.orders[index].mechanism = order.mechanism;
    }
    Ok(())
}
