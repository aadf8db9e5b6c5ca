//! Orders of random and of very large graphs on a GPU; never a graph chosen by hand.

use crate::support::TestLibrary;
use membar_ir::dim::{Range, Symbol};
use membar_ir::dtype::DType;
use membar_ir::graph::Graph;
use membar_ir::ops::{Concat, Scalar};
use membar_ir::pass::{PassContext, PassOptions};
use membar_ir::schedule::Reason;
use membar_ir::testing::random_graph;
use membar_ir::text::check_laws;
use membar_ir::topology::{DeviceKind, Topology};
use membar_ir::types::{Axis, TensorType};
use membar_ir::verify::{Depth, check_order, verify};
use std::sync::Arc;

/// Runs the passes from one to another for one GPU.
fn compiled(mut graph: Graph, first: &str, last: &str) -> Graph {
    let topology = Arc::new(Topology::builtin("h200").expect("a built-in topology"));
    let dims = graph.symbols.keys().map(|symbol: &Symbol| (symbol.clone(), Range::new(1, 16)));
    let options =
        PassOptions { dims: dims.collect(), device: DeviceKind::Gpu, ..PassOptions::default() };
    let mut cx = PassContext::new(options, topology, Arc::new(TestLibrary::default()));
    for pass in membar_passes::PASSES.iter().skip_while(|pass| pass.name != first) {
        if let Err(error) = (pass.run)(&mut graph, &mut cx) {
            panic!("{}: {error}", pass.name);
        }
        if pass.name == last {
            break;
        }
    }
    graph
}

#[test]
fn random_graphs_are_ordered_as_much_as_they_must_be() {
    for seed in 0..80 {
        let source = random_graph(seed, 10 + seed as usize % 40);
        let inserted = compiled(source.clone(), "specialise", "insert-barriers");
        let graph = compiled(source.clone(), "specialise", "elide-barriers");
        let again = compiled(source, "specialise", "elide-barriers");
        assert_eq!(again.to_string(), graph.to_string());
        for graph in [&inserted, &graph] {
            assert_eq!(check_laws(graph), Ok(()), "seed {seed}");
            let result = verify(graph, Depth::Full);
            assert!(result.is_ok(), "seed {seed}: {result:?}\n{graph}");
        }
        let report = check_order(&graph);
        assert!(report.faults.is_empty(), "seed {seed}: {report:?}\n{graph}");
        for index in 0..graph.orders.len() {
            let mut broken = graph.clone();
            let order = broken.orders.remove(index);
            let errors = check_order(&broken).errors().count();
            let needed = matches!(order.reason, Reason::Hazards(_));
            assert!(!needed || errors > 0, "seed {seed}: without order {index}\n{graph}");
        }
        // Whatever is taken from a complete set of orders leaves a path, or is missed.
        for index in 0..inserted.orders.len() {
            let mut broken = inserted.clone();
            let order = broken.orders.remove(index);
            let without = check_order(&broken).errors().count() > 0;
            broken.orders.insert(index, order);
            let redundant = check_order(&broken)
                .faults
                .iter()
                .any(|fault| fault.entity == membar_ir::text::Entity::Order(index as u32));
            assert_ne!(without, redundant, "seed {seed}: order {index}\n{inserted}");
        }
    }
}

/// A quadratic step would take minutes here.
#[test]
fn orders_of_long_and_wide_graphs_take_little_time() {
    const NODES: usize = 20_000;
    let mut graph = Graph::new("g");
    let ty = TensorType::fixed(DType::F32, &[8]);
    let x = graph.add_input("x", ty.clone());
    let mut chain = x;
    for index in 0..NODES {
        let scalar = if index % 2 == 0 { Scalar::Neg } else { Scalar::Exp };
        chain = graph.apply(scalar, &[chain]).expect("it fits");
    }
    // Side by side, each from one value, all read by one step, twice.
    let fans = [Scalar::Neg, Scalar::Exp].map(|scalar| {
        let root = graph.apply(scalar.clone(), &[x]).expect("it fits");
        let each = |_| graph.apply(scalar.clone(), &[root]).expect("it fits");
        let fan: Vec<_> = (0..NODES).map(each).collect();
        graph.apply(Concat { axis: Axis(0) }, &fan).expect("it fits")
    });
    graph.set_outputs([("chain", chain), ("a", fans[0]), ("b", fans[1])]);
    // Nothing is fused, so that the steps stay many.
    let graph = compiled(graph, "place", "place");
    for last in ["insert-barriers", "elide-barriers"] {
        let graph = compiled(graph.clone(), "schedule", last);
        let report = check_order(&graph);
        assert!(report.steps >= 3 * NODES, "{} steps", report.steps);
        assert_eq!(report.errors().count(), 0);
    }
}
