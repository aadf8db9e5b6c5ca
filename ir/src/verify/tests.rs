//! Tests of what no text can express: graphs whose handles or recipes are wrong, and how faults are
//! shown. All other faults stand in `tests/verify/*.ir`.

use super::{Depth, VerifyErrors, verify};
use crate::dtype::DType;
use crate::graph::{Graph, NodeKind, Stage, State};
use crate::op::TypeError;
use crate::ops::{Op, Scalar};
use crate::recipe::{Literal, Recipe, Source};
use crate::tensor::Tensor;
use crate::text::{check_laws, parse};
use crate::topology::{DeviceId, MemoryId, Topology};
use crate::types::TensorType;
use std::sync::Arc;

fn ty() -> TensorType {
    TensorType::fixed(DType::F32, &[4])
}

fn chain() -> Result<Graph, TypeError> {
    let mut graph = Graph::new("chain");
    let x = graph.add_input("x", ty());
    let y = graph.apply(Scalar::Neg, &[x])?;
    let z = graph.apply(Scalar::Exp, &[y])?;
    graph.set_outputs([("z", z)]);
    Ok(graph)
}

fn messages(graph: &Graph) -> Vec<String> {
    let faults = verify(graph, Depth::Full).err().map_or(Vec::new(), |errors| errors.errors);
    faults.into_iter().map(|error| format!("{}: {}", error.context, error.message)).collect()
}

#[test]
fn a_schedule_has_every_node_once() -> Result<(), TypeError> {
    let mut graph = chain()?;
    let nodes: Vec<_> = graph.nodes().collect();
    graph.schedule = nodes.clone();
    assert_eq!(messages(&graph), Vec::<String>::new());
    graph.schedule = vec![nodes[0], nodes[1], nodes[1]];
    assert_eq!(
        messages(&graph),
        [
            "placement: the schedule has the node twice",
            "placement: the schedule does not have the node",
        ]
    );
    graph.schedule = vec![nodes[1], nodes[0], nodes[2]];
    assert_eq!(
        messages(&graph),
        [
            "placement: the schedule does not begin with the inputs as they are listed",
            "placement: the node is scheduled before one whose output it reads",
        ]
    );
    graph.schedule.clear();
    graph.stage = Stage::Scheduled;
    graph.topology = Topology::builtin("cpu").map(Arc::new);
    let found = messages(&graph);
    let expected = "placement: the graph is scheduled, but has no schedule".to_string();
    assert!(found.contains(&expected), "{found:?}");
    Ok(())
}

#[test]
fn handles_are_checked() -> Result<(), TypeError> {
    let mut graph = chain()?;
    graph.add_node(NodeKind::Input, &[], vec![ty()]);
    let spare = graph.add_input("spare", ty());
    graph.states.push(State { input: spare, output: "z".into(), growth: None });
    assert!(graph.remove_node(graph.value(spare).producer()));
    assert_eq!(
        messages(&graph),
        [
            "structure: the state's input is no input of the graph",
            "structure: the node is not among the inputs of the graph",
        ]
    );
    let mut graph = chain()?;
    graph.topology = Topology::builtin("cpu").map(Arc::new);
    graph.stage = Stage::Placed;
    let (nodes, values): (Vec<_>, Vec<_>) = (graph.nodes().collect(), graph.values().collect());
    for node in nodes {
        graph.node_mut(node).device = Some(DeviceId(9));
    }
    for value in values {
        graph.value_mut(value).memory = Some(MemoryId(9));
    }
    let found = messages(&graph);
    let device = "placement: topology `cpu` does not have the device".to_string();
    let memory = "placement: topology `cpu` does not have the memory".to_string();
    assert_eq!(found, [&device, &memory, &device, &memory, &device, &memory].map(String::clone));
    Ok(())
}

#[test]
fn recipes_are_limited_to_what_text_can_hold() {
    let double = |recipe: &Recipe| {
        let ty = recipe.ty().clone();
        Recipe::apply(ty, Op::from(Scalar::Add), vec![recipe.clone(), recipe.clone()])
    };
    let negate = |recipe: &Recipe| {
        Recipe::apply(recipe.ty().clone(), Op::from(Scalar::Neg), vec![recipe.clone()])
    };
    let build = |step: &dyn Fn(&Recipe) -> Recipe, depth: usize| {
        let mut recipe = Recipe::literal(Tensor::scalar(1.5f32));
        for _ in 1..depth {
            recipe = step(&recipe);
        }
        let mut graph = Graph::new("recipe");
        graph.add_weight(Some("w"), recipe);
        graph
    };
    let deepest = build(&negate, 30);
    assert_eq!(messages(&deepest), Vec::<String>::new());
    assert_eq!(check_laws(&deepest), Ok(()));
    let deep = build(&negate, 31);
    assert_eq!(messages(&deep), ["structure: the recipe is more than 30 steps deep"]);
    let long = messages(&build(&double, 13));
    assert_eq!(long, ["structure: the recipe has 8191 steps; expected at most 4096"]);
}

#[test]
fn weights_agree_with_their_recipes() {
    let mut graph = Graph::new("weights");
    let w = graph
        .add_weight(Some("w"), Recipe::source(ty(), Source::File { path: "w".into(), offset: 0 }));
    graph.value_mut(w).ty = TensorType::fixed(DType::F32, &[5]);
    let literal = Source::Literal(Literal(Tensor::scalar(1.0f32)));
    graph.add_weight(Some("v"), Recipe::source(ty(), literal));
    assert_eq!(
        messages(&graph),
        [
            "types: the recipe makes f32[4], the value is f32[5]",
            "types: a literal of f32[] stands for f32[4]",
        ]
    );
}

#[test]
fn faults_are_shown_under_their_lines() {
    let text = "ir 1 stage tensor\ngraph @g(%x: f32[4]) {\n  %y = neg %x : f32[5]\n  \
                %z = neg %y : f32[5]\n  return %z\n}\n";
    let shown = parse(text).map(|graph| verify(&graph, Depth::Full).map_err(|e| e.to_string()));
    let expected = "graph `g` has 1 fault\n    3 |   %y = neg %x : f32[5]\n      \
                    ^ types: `neg` gives f32[4], but f32[5] is stated";
    assert_eq!(shown, Ok(Err(expected.to_string())));
    let cheap: Result<Result<(), VerifyErrors>, _> = parse(text).map(|g| verify(&g, Depth::Cheap));
    assert_eq!(cheap, Ok(Ok(())));
}
