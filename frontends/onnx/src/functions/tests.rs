//! Tests of inlining, on models built in code. No expected name is derived from the code under
//! test.

use crate::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto};
use crate::testing::*;
use crate::{GraphDef, NodeDef};

fn with(functions: Vec<FunctionProto>, graph: GraphProto) -> ModelProto {
    ModelProto { functions, ..model(graph) }
}

fn call(name: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    node(name, op, inputs, outputs).of("local")
}

/// `name = Op(inputs) -> outputs` of each node.
fn lines(graph: &GraphDef) -> Vec<String> {
    let list = |names: &[Option<String>]| {
        let names = names.iter().map(|name| name.as_deref().unwrap_or("-"));
        names.collect::<Vec<_>>().join(", ")
    };
    let line = |node: &NodeDef| {
        let (inputs, outputs) = (list(&node.inputs), list(&node.outputs));
        format!("{} = {}({inputs}) -> {outputs}", node.name, node.op_type)
    };
    graph.nodes.iter().map(line).collect()
}

#[test]
fn calls_become_the_nodes_of_the_function() {
    let body =
        vec![node("sq", "Mul", &["a", "a"], &["t"]), node("add", "Add", &["t", "b"], &["r"])];
    let square = function("Square", &["a", "b"], body, &["r"]);
    let nodes = vec![
        call("one", "Square", &["x", "x"], &["t"]),
        call("two", "Square", &["t", "x"], &["y"]),
    ];
    let model = load(&with(vec![square], graph(&["x"], nodes, &["y"]))).unwrap();
    assert_eq!(
        lines(&model.graph),
        [
            "one/sq = Mul(x, x) -> one/t",
            "one/add = Add(one/t, x) -> t",
            "two/sq = Mul(t, t) -> two/t",
            "two/add = Add(two/t, x) -> y",
        ]
    );
    assert!(model.graph.nodes.iter().all(|node| node.opset == 18));
}

#[test]
fn fresh_names_do_not_hide_names_of_the_model() {
    let twice = function(
        "Twice",
        &["a"],
        vec![node("", "Neg", &["a"], &["t"]), node("", "Neg", &["t"], &["r"])],
        &["r"],
    );
    let nodes = vec![call("f", "Twice", &["f/t"], &["y"]), call("f", "Twice", &["y"], &["z"])];
    let model = load(&with(vec![twice], graph(&["f/t"], nodes, &["z"]))).unwrap();
    assert_eq!(
        lines(&model.graph),
        [
            "f/Neg_0 = Neg(f/t) -> f/t_2",
            "f/Neg_1 = Neg(f/t_2) -> y",
            "f_2/Neg_0 = Neg(y) -> f_2/t",
            "f_2/Neg_1 = Neg(f_2/t) -> z",
        ]
    );
}

#[test]
fn attributes_come_from_the_call_or_the_default_or_not_at_all() {
    let body = vec![
        node("n", "Op", &["a"], &["r"])
            .with(reference("given", "p"))
            .with(reference("default", "q"))
            .with(reference("absent", "s"))
            .with(int("own", 4)),
    ];
    let mut op = function("F", &["a"], body, &["r"]);
    op.attribute = vec!["p".into(), "s".into()];
    op.attribute_proto = vec![int("q", 7)];
    let nodes = vec![call("c", "F", &["x"], &["y"]).with(int("p", 3))];
    let model = load(&with(vec![op], graph(&["x"], nodes, &["y"]))).unwrap();
    let node = &model.graph.nodes[0];
    let value = |name| node.attribute::<i64>(name).unwrap();
    assert_eq!(value("given"), Some(3));
    assert_eq!(value("default"), Some(7));
    assert_eq!(value("absent"), None);
    assert_eq!(value("own"), Some(4));
}

#[test]
fn functions_call_functions_and_hand_attributes_on() {
    let inner = function(
        "Inner",
        &["a"],
        vec![node("n", "Op", &["a"], &["r"]).with(reference("k", "q"))],
        &["r"],
    );
    let outer = function(
        "Outer",
        &["b"],
        vec![call("i", "Inner", &["b"], &["s"]).with(reference("q", "p"))],
        &["s"],
    );
    let nodes = vec![call("c", "Outer", &["x"], &["y"]).with(int("p", 5))];
    let model = load(&with(vec![outer, inner], graph(&["x"], nodes, &["y"]))).unwrap();
    assert_eq!(lines(&model.graph), ["c/i/n = Op(x) -> y"]);
    assert_eq!(model.graph.nodes[0].required::<i64>("k").unwrap(), 5);
}

#[test]
fn operands_may_be_left_out_and_results_unused() {
    let body = vec![
        node("clip", "Clip", &["a", "low", "high"], &["r"]),
        node("neg", "Neg", &["a"], &["s"]),
    ];
    let op = function("F", &["a", "low", "high"], body, &["s", "r"]);
    let nodes = vec![call("c", "F", &["x", "", "x"], &["", "y"]), call("d", "F", &["x"], &["z"])];
    let model = load(&with(vec![op], graph(&["x"], nodes, &["y", "z"]))).unwrap();
    assert_eq!(
        lines(&model.graph),
        [
            "c/clip = Clip(x, -, x) -> y",
            "c/neg = Neg(x) -> c/s",
            "d/clip = Clip(x) -> d/r",
            "d/neg = Neg(x) -> z",
        ]
    );
}

#[test]
fn a_result_that_is_an_operand_or_stands_twice_is_copied() {
    let op = function("F", &["a"], vec![node("n", "Neg", &["a"], &["r"])], &["a", "r", "r"]);
    let nodes = vec![call("c", "F", &["x"], &["p", "q", "s"])];
    let model = load(&with(vec![op], graph(&["x"], nodes, &["p", "q", "s"]))).unwrap();
    assert_eq!(
        lines(&model.graph),
        ["c/n = Neg(x) -> q", "c/Identity = Identity(x) -> p", "c/Identity_2 = Identity(q) -> s",]
    );
}

#[test]
fn subgraphs_of_a_body_capture_the_call_and_hide_nothing() {
    // The branch defines `x`, which is also what the caller passes as `a`.
    let branch = graph(
        &[],
        vec![node("m", "Neg", &["a"], &["x"]), node("s", "Add", &["x", "a"], &["r"])],
        &["r"],
    );
    let body = vec![node("if", "If", &["c"], &["o"]).with(subgraph("then_branch", branch))];
    let op = function("F", &["a", "c"], body, &["o"]);
    let nodes = vec![call("f", "F", &["x", "x"], &["y"])];
    let model = load(&with(vec![op], graph(&["x"], nodes, &["y"]))).unwrap();
    let branch = model.graph.nodes[0].required::<&GraphDef>("then_branch").unwrap();
    assert_eq!(lines(&model.graph), ["f/if = If(x) -> y"]);
    assert_eq!(lines(branch), ["f/m = Neg(x) -> f/x", "f/s = Add(f/x, x) -> f/r"]);
    assert_eq!(branch.outputs[0].name, "f/r");
}

#[test]
fn calls_inside_subgraphs_are_inlined_too() {
    let op = function("F", &["a"], vec![node("n", "Neg", &["a"], &["r"])], &["r"]);
    let branch = graph(&[], vec![call("c", "F", &["x"], &["b"])], &["b"]);
    let nodes = vec![node("if", "If", &["x"], &["y"]).with(subgraph("then_branch", branch))];
    let model = load(&with(vec![op], graph(&["x"], nodes, &["y"]))).unwrap();
    let branch = model.graph.nodes[0].required::<&GraphDef>("then_branch").unwrap();
    assert_eq!(lines(branch), ["c/n = Neg(x) -> b"]);
}

#[test]
fn a_graph_handed_to_a_function_keeps_the_names_of_the_caller() {
    let branch = graph(&[], vec![node("n", "Neg", &["a"], &["b"])], &["b"]);
    let handed = AttributeProto {
        ref_attr_name: Some("g".into()),
        ..empty("then_branch", crate::proto::attribute_proto::AttributeType::Graph)
    };
    // Inside the function `a` is something else than in the caller.
    let body = vec![node("if", "If", &["a"], &["r"]).with(handed)];
    let op = function("F", &["a"], body, &["r"]);
    let nodes = vec![call("c", "F", &["x"], &["y"]).with(subgraph("g", branch))];
    let model = load(&with(vec![op], graph(&["x", "a"], nodes, &["y"]))).unwrap();
    let branch = model.graph.nodes[0].required::<&GraphDef>("then_branch").unwrap();
    assert_eq!(lines(branch), ["n = Neg(a) -> b"]);
}

#[test]
fn overloads_are_different_functions() {
    let mut one = function("F", &["a"], vec![node("n", "Neg", &["a"], &["r"])], &["r"]);
    let mut two = function("F", &["a"], vec![node("n", "Abs", &["a"], &["r"])], &["r"]);
    one.overload = Some("one".into());
    two.overload = Some("two".into());
    let mut node = call("c", "F", &["x"], &["y"]);
    node.overload = Some("two".into());
    let functions = vec![one.clone(), two];
    let model = load(&with(functions, graph(&["x"], vec![node.clone()], &["y"]))).unwrap();
    assert_eq!(lines(&model.graph), ["c/n = Abs(x) -> y"]);
    let twice = with(vec![one.clone(), one], graph(&["x"], vec![node], &["y"]));
    assert_eq!(error(&twice), "the model defines the function `local::F:one` twice");
}

#[test]
fn cycles_are_refused_with_the_functions_in_them() {
    let to = |name: &str, next: &str| {
        function(name, &["a"], vec![call("n", next, &["a"], &["r"])], &["r"])
    };
    let functions = vec![to("A", "B"), to("B", "C"), to("C", "B")];
    let nodes = vec![call("c", "A", &["x"], &["y"])];
    assert_eq!(
        error(&with(functions.clone(), graph(&["x"], nodes, &["y"]))),
        "the model's functions call each other in a cycle: local::B -> local::C -> local::B"
    );
    // Functions that nothing calls do no harm.
    load(&with(functions, graph(&["x"], vec![], &["x"]))).unwrap();
}

#[test]
fn long_chains_and_large_expansions_are_refused() {
    let chain = |count: usize, calls: usize| -> ModelProto {
        let functions = (0..count).map(|level| {
            let next = format!("F{}", level + 1);
            let mut body: Vec<_> =
                (0..calls).map(|index| call("", &next, &["a"], &[&format!("r{index}")])).collect();
            if level + 1 == count {
                body = vec![node("", "Neg", &["a"], &["r0"])];
            }
            function(&format!("F{level}"), &["a"], body, &["r0"])
        });
        let nodes = vec![call("c", "F0", &["x"], &["y"])];
        with(functions.collect(), graph(&["x"], nodes, &["y"]))
    };
    load(&chain(60, 1)).unwrap();
    assert!(error(&chain(100, 1)).starts_with("functions and subgraphs are nested more"));
    assert!(error(&chain(40, 2)).starts_with("expanding the model's functions gives more"));
}

#[test]
fn long_names_count_as_well() {
    // Each of the body's many nodes would carry the long names of the call.
    let long = "x".repeat(1 << 20);
    let body = |read: &str| -> Vec<NodeProto> {
        let result = |index: usize| if index == 0 { "r".into() } else { format!("t{index}") };
        (0..1000).map(|index| node("", "Neg", &[read], &[&result(index)])).collect()
    };
    let op = function("F", &["a"], body("a"), &["r"]);
    let named = vec![call(&long, "F", &["x"], &["y"])];
    assert!(
        error(&with(vec![op.clone()], graph(&["x"], named, &["y"])))
            .starts_with("expanding the model's functions gives more")
    );
    let reading = vec![call("c", "F", &[&long], &["y"])];
    assert!(
        error(&with(vec![op], graph(&[&long], reading, &["y"])))
            .starts_with("expanding the model's functions gives more")
    );
}

#[test]
fn wrong_calls_and_bodies_are_refused() {
    let neg = || vec![node("n", "Neg", &["a"], &["r"])];
    let calling = |op: FunctionProto, inputs: &[&str]| {
        error(&with(vec![op], graph(&["x"], vec![call("c", "F", inputs, &["y"])], &["y"])))
    };
    assert_eq!(
        calling(function("F", &["a"], neg(), &["r"]), &["x", "x"]),
        "node `c` calls `local::F` with 2 inputs, which declares 1"
    );
    assert_eq!(
        calling(function("F", &["b"], neg(), &["r"]), &["x"]),
        "node `c/n` (Neg) reads `a`, which nothing in scope defines"
    );
    assert_eq!(
        calling(function("F", &["a"], neg(), &["s"]), &["x"]),
        "output `s` of the function `local::F` is not defined by anything in it"
    );
    assert_eq!(
        calling(function("F", &["a", "r"], neg(), &["r"]), &["x"]),
        "value `r` is defined twice in the function `local::F`: \
         by an input or another node and by node `n`"
    );
    let mut old = function("F", &["a"], neg(), &["r"]);
    old.opset_import = vec![opset("", 5)];
    assert_eq!(
        calling(old, &["x"]),
        "the function `local::F` imports version 5 of the operator set `ai.onnx`; \
         supported: 7 to 28"
    );
    let stray = node("n", "Neg", &["x"], &["y"]).with(reference("k", "p"));
    assert_eq!(
        error(&model(graph(&["x"], vec![stray], &["y"]))),
        "node `n` (Neg): attribute `k` refers to the function attribute `p`, \
         but is not in a function"
    );
}
