//! Imports of whole models; numbers are compared elsewhere.

use super::*;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, ModelProto, NodeProto, TensorProto};
use crate::testing::{graph, int, load, model, node, subgraph, tensor};
use membar_ir::recipe::{Distribution, RecipeNode, Source};
use membar_ir::{DType, Recipe};
use std::path::PathBuf;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

#[test]
fn all_fixtures_import() {
    let mut failures = Vec::new();
    let mut paths = Vec::new();
    for folder in ["models", "graphs"] {
        let entries = std::fs::read_dir(fixtures().join(folder)).expect("the fixtures are there");
        paths.extend(entries.flatten().map(|entry| entry.path()));
    }
    paths.sort();
    assert!(paths.len() > 30);
    for path in &paths {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let model = if path.is_dir() { path.join("model.onnx") } else { path.clone() };
        let random_weights = Some(RandomWeights { seed: 1, all: false });
        let result = import(model, &ImportOptions { random_weights, ..ImportOptions::default() });
        match result {
            Ok(graph) => check_graph(&graph, name),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What holds of every imported graph: inputs give all symbols, and nothing is left over.
fn check_graph(graph: &Graph, name: &str) {
    let mut given = BTreeSet::new();
    for input in graph.inputs() {
        for dim in &graph.ty(*input).shape {
            dim.for_each_symbol(&mut |symbol| {
                given.insert(symbol.clone());
            });
        }
    }
    let symbols: BTreeSet<Symbol> = graph.symbols.keys().cloned().collect();
    assert_eq!(symbols, given, "{name}");
    for node in graph.nodes() {
        let node = graph.node(node);
        let read =
            |value: &membar_ir::ValueId| !graph.users(*value).is_empty() || graph.is_output(*value);
        assert!(node.kind == NodeKind::Input || node.outputs().iter().any(read), "{name}");
    }
    assert!(graph.try_topological_order().is_some(), "{name}");
}

fn integers(name: &str, values: &[i64]) -> TensorProto {
    TensorProto { int64_data: values.to_vec(), ..tensor(name, 7, &[values.len() as i64]) }
}

fn floats(name: &str, shape: &[i64]) -> TensorProto {
    let count = shape.iter().product::<i64>() as usize;
    TensorProto { float_data: vec![0.5; count], ..tensor(name, 1, shape) }
}

/// A model of `x: f32[n, 3]`, nodes, constants, and the result `y`.
fn model_of(nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> ModelProto {
    let mut main = graph(&["x"], nodes, &["y"]);
    main.initializer = constants;
    model(main)
}

fn imported(model: &ModelProto, options: &ImportOptions) -> Result<Graph, ImportError> {
    import_model(&load(model)?, options)
}

fn graph_of(nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> Graph {
    match imported(&model_of(nodes, constants), &ImportOptions::default()) {
        Ok(graph) => {
            check_graph(&graph, "graph");
            graph
        }
        Err(error) => panic!("{error}"),
    }
}

fn faults(nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> Vec<Unsupported> {
    match imported(&model_of(nodes, constants), &ImportOptions::default()) {
        Err(ImportError::Unsupported { faults }) => faults,
        other => panic!("{other:?}"),
    }
}

fn operators(graph: &Graph) -> Vec<&'static str> {
    graph.nodes().filter_map(|node| graph.node(node).op().map(|op| op.mnemonic())).collect()
}

fn result_type(graph: &Graph) -> String {
    graph.ty(graph.outputs()[0].value).to_string()
}

#[test]
fn shape_arithmetic_disappears() {
    let nodes = vec![
        node("shape", "Shape", &["x"], &["s"]),
        node("n", "Gather", &["s", "zero"], &["n"]),
        node("twice", "Mul", &["n", "two"], &["m"]),
        node("half", "Div", &["m", "two"], &["h"]),
        node("join", "Concat", &["h", "minus", "three"], &["t"]).with(int("axis", 0)),
        node("reshape", "Reshape", &["x", "t"], &["r"]),
        node("neg", "Neg", &["r"], &["y"]),
    ];
    let constants = vec![
        integers("zero", &[0]),
        integers("two", &[2]),
        integers("minus", &[-1]),
        integers("three", &[3]),
    ];
    let graph = graph_of(nodes, constants);
    assert_eq!(operators(&graph), ["reshape", "neg"]);
    assert_eq!(result_type(&graph), "f32[n, 1, 3]");
}

#[test]
fn dimensions_become_data_where_data_is_read() {
    let nodes = vec![
        node("shape", "Shape", &["x"], &["s"]),
        node("cast", "Cast", &["s"], &["y"]).with(int("to", 1)),
    ];
    let graph = graph_of(nodes, Vec::new());
    assert_eq!(operators(&graph), ["dims", "cast"]);
    assert_eq!(result_type(&graph), "f32[2]");
}

#[test]
fn slices_take_the_last_element_and_whole_dimensions() {
    let slice = |starts, ends| {
        let nodes = vec![node("part", "Slice", &["x", "starts", "ends", "axes"], &["y"])];
        let constants =
            vec![integers("starts", &[starts]), integers("ends", &[ends]), integers("axes", &[0])];
        result_type(&graph_of(nodes, constants))
    };
    assert_eq!(slice(-1, i64::MAX), "f32[1, 3]");
    assert_eq!(slice(0, i64::MAX), "f32[n, 3]");
    assert_eq!(slice(0, 1), "f32[1, 3]");
    assert_eq!(slice(1, i64::MAX), "f32[n - 1, 3]");
}

#[test]
fn a_known_condition_takes_its_branch() {
    let branch = |operator: &str| graph(&[], vec![node("b", operator, &["x"], &["r"])], &["r"]);
    let nodes = vec![
        node("shape", "Shape", &["x"], &["s"]),
        node("width", "Gather", &["s", "one"], &["w"]),
        node("compare", "Equal", &["w", "three"], &["c"]),
        node("if", "If", &["c"], &["t"])
            .with(subgraph("then_branch", branch("Exp")))
            .with(subgraph("else_branch", branch("NonZero"))),
        node("neg", "Neg", &["t"], &["y"]),
    ];
    let graph = graph_of(nodes, vec![integers("one", &[1]), integers("three", &[3])]);
    assert_eq!(operators(&graph), ["exp", "neg"]);
}

#[test]
fn different_names_of_one_dimension_are_found() {
    let mut main = graph(&["x"], vec![node("add", "Add", &["x", "z"], &["y"])], &["y"]);
    let mut other = crate::testing::value("z");
    let kind = other.r#type.as_mut().and_then(|ty| ty.value.as_mut());
    if let Some(crate::proto::type_proto::Value::TensorType(tensor)) = kind
        && let Some(shape) = &mut tensor.shape
    {
        use crate::proto::tensor_shape_proto::dimension::Value;
        shape.dim[0].value = Some(Value::DimParam("m".into()));
        shape.dim[1].value = None;
    }
    main.input.push(other);
    let graph = match imported(&model(main), &ImportOptions::default()) {
        Ok(graph) => graph,
        Err(error) => panic!("{error}"),
    };
    check_graph(&graph, "add");
    assert_eq!(result_type(&graph), "f32[n, 3]");
    assert_eq!(graph.ty(graph.inputs()[1]).to_string(), "f32[n, 3]");
}

#[test]
fn everything_unsupported_is_reported_at_once() {
    let nodes = vec![
        node("first", "NonZero", &["x"], &["a"]),
        node("after", "Neg", &["a"], &["b"]),
        node("second", "Frobnicate", &["x"], &["c"]),
        node("third", "Reshape", &["x", "shape"], &["d"]),
        node("unused", "Unique", &["x"], &["e"]),
        node("join", "Max", &["b", "c", "d"], &["y"]),
    ];
    let faults = faults(nodes, vec![integers("shape", &[5, 7, 11])]);
    let names: Vec<&str> = faults.iter().map(|fault| fault.node.as_str()).collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(faults[0].operands, ["f32[n, 3]"]);
    assert!(faults[0].reason.contains("depends on data"));
    assert_eq!((faults[1].op.as_str(), faults[1].opset), ("Frobnicate", 21));
}

#[test]
fn huge_sizes_allocate_nothing() {
    let huge = 1 << 40;
    let nodes = vec![
        node("expand", "Expand", &["w", "shape"], &["e"]),
        node("tile", "Tile", &["w", "shape"], &["t"]),
        node("range", "Range", &["from", "to", "step"], &["r"]),
        node("fill", "ConstantOfShape", &["shape"], &["f"]),
        node("max", "Max", &["e", "f", "t"], &["y"]),
    ];
    let scalar =
        |name: &str, value| TensorProto { int64_data: vec![value], ..tensor(name, 7, &[]) };
    let constants = vec![
        floats("w", &[1]),
        integers("shape", &[huge]),
        scalar("from", 0),
        scalar("to", huge),
        scalar("step", 1),
    ];
    let graph = graph_of(nodes, constants);
    assert_eq!(result_type(&graph), format!("f32[{huge}]"));
}

#[test]
fn dimensions_cannot_grow_without_limit() {
    let mut nodes = vec![node("size", "Size", &["x"], &["d0"])];
    for index in 0..64 {
        let (from, to) = (format!("d{index}"), format!("d{}", index + 1));
        nodes.push(node(&format!("n{index}"), "Mul", &[&from, &from], &[&to]));
    }
    nodes.push(node("cast", "Cast", &["d64"], &["y"]).with(int("to", 1)));
    assert_eq!(faults(nodes, Vec::new()).len(), 1);
}

#[test]
fn bound_inputs_are_constants() {
    let floats = |name: &str, values: &[i64]| AttributeProto {
        ints: values.to_vec(),
        ..crate::testing::empty(name, AttributeType::Ints)
    };
    let nodes = vec![node("t", "Transpose", &["x"], &["y"]).with(floats("perm", &[1, 0]))];
    let model = model_of(nodes, Vec::new());
    let tensor = Tensor::from_elements(&[2, 3], &[1f32; 6]).expect("six elements");
    let bound = |name: &str| ImportOptions {
        bound: BTreeMap::from([(name.to_owned(), tensor.clone())]),
        ..ImportOptions::default()
    };
    let graph = imported(&model, &bound("x")).expect("the model imports");
    assert!(graph.inputs().is_empty() && graph.symbols.is_empty());
    assert_eq!(result_type(&graph), "f32[3, 2]");
    assert!(matches!(imported(&model, &bound("z")), Err(ImportError::UnknownBinding { .. })));
}

#[test]
fn random_weights_know_their_role() {
    let nodes = vec![
        node("mm", "MatMul", &["x", "w"], &["h"]),
        node("norm", "LayerNormalization", &["h", "g", "b"], &["y"]),
    ];
    let model = model_of(nodes, vec![floats("w", &[3, 3]), floats("g", &[3]), floats("b", &[3])]);
    let random_weights = Some(RandomWeights { seed: 7, all: true });
    let options = ImportOptions { random_weights, ..ImportOptions::default() };
    let graph = imported(&model, &options).expect("the model imports");
    let mut constant = Vec::new();
    for node in graph.nodes() {
        let node = graph.node(node);
        if let NodeKind::Weight(recipe) = &node.kind {
            let name = graph.value(node.outputs()[0]).name.clone();
            constant.push((name.as_deref().map(str::to_owned), is_constant(recipe)));
        }
    }
    let expected = [("w", false), ("g", true), ("b", false)];
    assert_eq!(constant, expected.map(|(name, constant)| (Some(name.to_owned()), constant)));
}

fn is_constant(recipe: &Recipe) -> bool {
    assert_eq!(recipe.ty().dtype, DType::F32);
    match recipe.node() {
        RecipeNode::Source { source: Source::Random { seed: 7, distribution, .. }, .. } => {
            matches!(distribution, Distribution::Constant(_))
        }
        other => panic!("{other:?}"),
    }
}
