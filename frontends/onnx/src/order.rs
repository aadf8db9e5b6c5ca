//! Single assignment, scopes and order of nodes. Nodes are reordered, never changed.

use crate::attributes::AttributeValue;
use crate::error::ImportError;
use crate::model::{GraphDef, NodeDef};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Checks that every value is defined once and every name that is read is in scope, and puts the
/// nodes of the graph and its subgraphs into topological order: of the nodes that could come
/// next, the one that stands first in the file.
pub(crate) fn check_and_order(graph: &mut GraphDef) -> Result<(), ImportError> {
    order(graph, &mut Vec::new()).map(drop)
}

/// Gives the values of the graphs around it that the graph reads.
fn order(
    graph: &mut GraphDef,
    outer: &mut Vec<BTreeSet<String>>,
) -> Result<BTreeSet<String>, ImportError> {
    let producers = producers(graph)?;
    let mut captured = BTreeSet::new();
    let mut reads: Vec<BTreeSet<usize>> = Vec::with_capacity(graph.nodes.len());

    outer.push(producers.keys().cloned().collect());
    for node in &mut graph.nodes {
        let mut names: BTreeSet<String> = node.inputs.iter().flatten().cloned().collect();
        for subgraph in node.attributes.values_mut().flat_map(AttributeValue::graphs_mut) {
            names.extend(order(subgraph, outer)?);
        }
        let mut read = BTreeSet::new();
        for name in names {
            match producers.get(&name) {
                Some(Producer::Node(position)) => {
                    read.insert(*position);
                }
                Some(Producer::Input | Producer::Initializer) => {}
                None if in_scope(outer, &name) => {
                    captured.insert(name);
                }
                None => {
                    return Err(ImportError::UndefinedValue {
                        node: node.name.clone(),
                        op: node.op_type.clone(),
                        value: name,
                    });
                }
            }
        }
        reads.push(read);
    }
    for output in &graph.outputs {
        if producers.contains_key(&output.name) {
            continue;
        }
        if !in_scope(outer, &output.name) {
            let value = output.name.clone();
            return Err(ImportError::UndefinedOutput { place: place(graph), value });
        }
        captured.insert(output.name.clone());
    }
    outer.pop();

    sort(&mut graph.nodes, &reads)?;
    Ok(captured)
}

fn in_scope(scopes: &[BTreeSet<String>], name: &str) -> bool {
    scopes.iter().any(|scope| scope.contains(name))
}

/// What defines a value.
#[derive(Clone, Copy, PartialEq)]
enum Producer {
    Input,
    Initializer,
    /// The node at this position in the file.
    Node(usize),
}

fn producers(graph: &GraphDef) -> Result<BTreeMap<String, Producer>, ImportError> {
    let inputs = graph.inputs.iter().map(|info| (&info.name, Producer::Input));
    let constants = graph.initializers.iter().map(|tensor| (&tensor.name, Producer::Initializer));
    let results = graph.nodes.iter().enumerate().flat_map(|(position, node)| {
        node.outputs.iter().flatten().map(move |name| (name, Producer::Node(position)))
    });
    let mut producers = BTreeMap::new();
    for (name, producer) in inputs.chain(constants).chain(results) {
        let earlier = producers.insert(name.clone(), producer);
        // An input with an initializer is an input with a default.
        let default = earlier == Some(Producer::Input) && producer == Producer::Initializer;
        if let Some(first) = earlier
            && !default
        {
            return Err(ImportError::DuplicateValue {
                place: place(graph),
                value: name.clone(),
                first: described(first, &graph.nodes),
                second: described(producer, &graph.nodes),
            });
        }
    }
    Ok(producers)
}

fn place(graph: &GraphDef) -> String {
    if graph.name.is_empty() { "the graph".into() } else { format!("graph `{}`", graph.name) }
}

fn described(producer: Producer, nodes: &[NodeDef]) -> String {
    match producer {
        Producer::Input => "an input".into(),
        Producer::Initializer => "an initializer".into(),
        Producer::Node(position) => {
            nodes.get(position).map_or_else(String::new, |node| format!("node `{}`", node.name))
        }
    }
}

fn sort(nodes: &mut Vec<NodeDef>, reads: &[BTreeSet<usize>]) -> Result<(), ImportError> {
    let mut waiting: Vec<usize> = reads.iter().map(BTreeSet::len).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (reader, read) in reads.iter().enumerate() {
        for &position in read {
            readers[position].push(reader);
        }
    }
    let free = waiting.iter().enumerate().filter(|(_, count)| **count == 0);
    let mut ready: BinaryHeap<Reverse<usize>> =
        free.map(|(position, _)| Reverse(position)).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(position)) = ready.pop() {
        order.push(position);
        for &reader in &readers[position] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if order.len() < nodes.len() {
        let cycle = cycle(reads, &waiting);
        let name = |position: usize| nodes[position].name.clone();
        return Err(ImportError::Cycle { nodes: cycle.into_iter().map(name).collect() });
    }
    let mut unordered: Vec<Option<NodeDef>> = nodes.drain(..).map(Some).collect();
    nodes.extend(order.into_iter().filter_map(|position| unordered[position].take()));
    Ok(())
}

/// One cycle among the nodes that still wait, each node after the one it reads from, and the one
/// that stands first in the file at the front.
fn cycle(reads: &[BTreeSet<usize>], waiting: &[usize]) -> Vec<usize> {
    let mut path: Vec<usize> = Vec::new();
    let mut steps: BTreeMap<usize, usize> = BTreeMap::new();
    let mut next = waiting.iter().position(|count| *count > 0);
    while let Some(position) = next {
        if let Some(start) = steps.insert(position, path.len()) {
            path.drain(..start);
            path.reverse();
            let first = (0..path.len()).min_by_key(|&index| path[index]).unwrap_or(0);
            path.rotate_left(first);
            return path;
        }
        path.push(position);
        // Every waiting node reads from a waiting one, so the walk cannot end elsewhere.
        next = reads[position].iter().copied().find(|&read| waiting[read] > 0);
    }
    path
}

#[cfg(test)]
mod tests {
    use crate::testing::{error, graph, load, model, node, subgraph, tensor, value};

    fn names(model: &crate::Model) -> Vec<&str> {
        model.graph.nodes.iter().map(|node| node.name.as_str()).collect()
    }

    #[test]
    fn nodes_in_order_stay_where_they_are() {
        let nodes = vec![
            node("a", "Relu", &["x"], &["a"]),
            node("z", "Relu", &["x"], &["z"]),
            node("b", "Add", &["a", "z"], &["b"]),
        ];
        assert_eq!(names(&load(&model(graph(&["x"], nodes, &["b"]))).unwrap()), ["a", "z", "b"]);
    }

    #[test]
    fn nodes_out_of_order_move_behind_what_they_read() {
        let branch = |name: &str| graph(&[], vec![node("", "Neg", &["late"], &[name])], &[name]);
        let choice = node("choice", "If", &["x"], &["r"])
            .with(subgraph("then_branch", branch("p")))
            .with(subgraph("else_branch", branch("q")));
        let nodes = vec![
            choice,
            node("last", "Add", &["r", "late"], &["y"]),
            node("late", "Relu", &["x"], &["late"]),
        ];
        let model = load(&model(graph(&["x"], nodes, &["y"]))).unwrap();
        assert_eq!(names(&model), ["late", "choice", "last"]);
    }

    #[test]
    fn a_cycle_is_reported_in_order() {
        let nodes = vec![
            node("head", "Relu", &["x"], &["h"]),
            node("tail", "Relu", &["b"], &["t"]),
            node("one", "Add", &["h", "c"], &["a"]),
            node("two", "Relu", &["a"], &["b"]),
            node("three", "Relu", &["b"], &["c"]),
        ];
        assert_eq!(
            error(&model(graph(&["x"], nodes, &["t"]))),
            "the nodes `one`, `two`, `three` form a cycle"
        );
        let own = vec![node("own", "Add", &["x", "y"], &["y"])];
        assert_eq!(error(&model(graph(&["x"], own, &["y"]))), "the nodes `own` form a cycle");
    }

    #[test]
    fn a_value_is_defined_once() {
        let nodes = || vec![node("a", "Relu", &["x"], &["y"]), node("b", "Relu", &["x"], &["y"])];
        assert_eq!(
            error(&model(graph(&["x"], nodes(), &["y"]))),
            "value `y` is defined twice in graph `main`: by node `a` and by node `b`"
        );
        assert_eq!(
            error(&model(graph(&["x", "x"], vec![], &["x"]))),
            "value `x` is defined twice in graph `main`: by an input and by an input"
        );
        let mut constant = graph(&[], vec![], &[]);
        constant.initializer = vec![tensor("w", 1, &[0]), tensor("w", 1, &[0])];
        assert_eq!(
            error(&model(constant)),
            "value `w` is defined twice in graph `main`: by an initializer and by an initializer"
        );
    }

    #[test]
    fn an_input_may_have_a_default() {
        let mut graph = graph(&["x", "w"], vec![node("", "Add", &["x", "w"], &["y"])], &["y"]);
        graph.initializer = vec![tensor("w", 1, &[0])];
        let model = load(&model(graph)).unwrap();
        let free: Vec<_> = model.graph.free_inputs().map(|input| input.name.as_str()).collect();
        assert_eq!(free, ["x"]);
        assert_eq!(model.graph.nodes[0].name, "Add_0");
    }

    #[test]
    fn names_must_be_in_scope() {
        assert_eq!(
            error(&model(graph(&["x"], vec![node("n", "Relu", &["w"], &["y"])], &["y"]))),
            "node `n` (Relu) reads `w`, which nothing in scope defines"
        );
        assert_eq!(
            error(&model(graph(&["x"], vec![], &["y"]))),
            "output `y` of graph `main` is not defined by anything in it"
        );
        // What a branch defines is not visible outside of it.
        let branch = graph(&[], vec![node("in", "Neg", &["x"], &["inner"])], &["inner"]);
        let nodes = vec![
            node("if", "If", &["x"], &["r"]).with(subgraph("then_branch", branch)),
            node("out", "Relu", &["inner"], &["y"]),
        ];
        assert_eq!(
            error(&model(graph(&["x"], nodes, &["y"]))),
            "node `out` (Relu) reads `inner`, which nothing in scope defines"
        );
    }

    #[test]
    fn a_branch_may_return_a_value_from_outside() {
        let mut branch = graph(&[], vec![], &[]);
        branch.output = vec![value("x")];
        let nodes = vec![node("if", "If", &["x"], &["r"]).with(subgraph("then_branch", branch))];
        load(&model(graph(&["x"], nodes, &["r"]))).unwrap();
    }
}
