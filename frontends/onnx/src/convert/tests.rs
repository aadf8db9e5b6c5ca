//! Tests of what single messages become. Nothing that spans nodes is tested here.

use super::dimension;
use crate::dims::DimDef;
use crate::element::ElementType;
use crate::error::ImportError;
use crate::model::ValueType;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, tensor_shape_proto};
use crate::proto::{SparseTensorProto, StringStringEntryProto, TensorProto};
use crate::testing::*;
use crate::{GraphDef, TensorDef};
use bytes::Bytes;
use std::collections::BTreeMap;

#[test]
fn the_model_is_described() {
    let mut proto = model(graph(&["x"], vec![node("", "Relu", &["x", "", ""], &["y"])], &["y"]));
    proto.producer_version = Some("2".into());
    proto.opset_import.push(opset("ai.onnx.ml", 3));
    let (key, value) = (Some("author".into()), Some("me".into()));
    proto.metadata_props = vec![StringStringEntryProto { key, value }];
    let model = load(&proto).unwrap();
    assert_eq!((model.ir_version, model.producer.as_str()), (10, "tests 2"));
    assert_eq!(model.opsets, BTreeMap::from([("".into(), 21), ("ai.onnx.ml".into(), 3)]));
    assert_eq!(model.metadata, BTreeMap::from([("author".into(), "me".into())]));
    assert_eq!(
        model.graph.inputs[0].value_type,
        ValueType::Tensor {
            element_type: ElementType::Supported(membar_ir::DType::F32),
            dims: Some(vec![DimDef::Param("n".into()), DimDef::Known(3)]),
        }
    );
    assert_eq!(model.graph.nodes[0].inputs, [Some("x".into())]);
    assert_eq!(model.graph.nodes[0].opset, 21);
}

#[test]
fn opsets_outside_the_range_are_named() {
    let with = |opsets| {
        let mut proto = model(graph(&["x"], vec![], &["x"]));
        proto.opset_import = opsets;
        proto
    };
    for version in [7, 28] {
        load(&with(vec![opset("ai.onnx", version), opset("", version)])).unwrap();
    }
    for version in [0, 6, 29] {
        assert_eq!(
            error(&with(vec![opset("", version)])),
            format!(
                "the model imports version {version} of the operator set `ai.onnx`; \
                 supported: 7 to 28"
            )
        );
    }
    assert_eq!(
        error(&with(vec![opset("com.microsoft", 2)])),
        "the model imports version 2 of the operator set `com.microsoft`; supported: 1"
    );
    assert_eq!(
        error(&with(vec![opset("", 17), opset("ai.onnx", 18)])),
        "the model imports both version 17 and version 18 of the operator set `ai.onnx`"
    );
    let nodes = vec![node("n", "Gelu", &["x"], &["y"]).of("com.microsoft")];
    assert_eq!(
        error(&model(graph(&["x"], nodes, &["y"]))),
        "node `n`: Gelu is in the domain `com.microsoft`, which the model does not import"
    );
}

#[test]
fn attributes_are_read_by_type() {
    let f = AttributeProto { f: Some(0.5), ..empty("f", AttributeType::Float) };
    let s = AttributeProto { s: Some("hé".into()), ..empty("s", AttributeType::String) };
    let bad = AttributeProto {
        s: Some(Bytes::from_static(&[0xff])),
        ..empty("bad", AttributeType::String)
    };
    let ints = AttributeProto { ints: vec![1, 2], ..empty("ints", AttributeType::Ints) };
    let floats = AttributeProto { floats: vec![1.0], ..empty("floats", AttributeType::Floats) };
    let strings =
        AttributeProto { strings: vec!["a".into()], ..empty("strings", AttributeType::Strings) };
    let value = TensorProto { int64_data: vec![4], ..tensor("", 7, &[1]) };
    let value = AttributeProto { t: Some(value), ..empty("value", AttributeType::Tensor) };
    let untyped = AttributeProto { r#type: None, ..int("untyped", 6) };
    let unknown = AttributeProto { r#type: Some(99), ..int("unknown", 6) };
    let mut node = node("n", "Op", &[], &["y"])
        .with(int("i", 3))
        .with(empty("zero", AttributeType::Int))
        .with(empty("none", AttributeType::Ints))
        .with(subgraph("g", graph(&["p"], vec![], &["p"])));
    node.attribute.extend([f, s, bad, ints, floats, strings, value, untyped, unknown]);
    let model = load(&model(graph(&[], vec![node], &["y"]))).unwrap();
    let node = &model.graph.nodes[0];

    assert_eq!(node.required::<i64>("i").unwrap(), 3);
    assert_eq!(node.required::<i64>("zero").unwrap(), 0);
    assert_eq!(node.required::<i64>("untyped").unwrap(), 6);
    assert_eq!(node.required::<f32>("f").unwrap(), 0.5);
    assert_eq!(node.required::<&str>("s").unwrap(), "hé");
    assert_eq!(node.required::<&[i64]>("ints").unwrap(), [1, 2]);
    assert_eq!(node.required::<&[i64]>("none").unwrap(), [0i64; 0]);
    assert_eq!(node.required::<&[f32]>("floats").unwrap(), [1.0]);
    assert_eq!(node.required::<Vec<&str>>("strings").unwrap(), ["a"]);
    assert_eq!(node.required::<&TensorDef>("value").unwrap().name, "n/value");
    assert_eq!(node.required::<&GraphDef>("g").unwrap().inputs.len(), 1);
    assert_eq!(node.attribute::<i64>("absent").unwrap(), None);

    let message = |error: ImportError| error.to_string();
    assert_eq!(
        message(node.required::<i64>("absent").unwrap_err()),
        "node `n` (Op): attribute `absent` is missing; expected an integer"
    );
    assert_eq!(
        message(node.required::<i64>("f").unwrap_err()),
        "node `n` (Op): attribute `f` is a float; expected an integer"
    );
    assert_eq!(
        message(node.required::<&str>("bad").unwrap_err()),
        "node `n` (Op): attribute `bad` is not valid UTF-8"
    );
    assert_eq!(
        message(node.required::<i64>("unknown").unwrap_err()),
        "node `n` (Op): attribute `unknown` is of a type that ONNX did not define yet; \
         expected an integer"
    );
    let known: Vec<&str> = node.attributes.keys().map(String::as_str).collect();
    node.only_attributes(&known).unwrap();
    let known: Vec<&str> = known.into_iter().filter(|name| *name != "f").collect();
    let error = message(node.only_attributes(&known).unwrap_err());
    assert!(error.starts_with("node `n` (Op): unknown attributes `f`; known: `bad`"));
}

#[test]
fn malformed_attributes_are_refused() {
    let with = |attributes: Vec<AttributeProto>| {
        let mut node = node("n", "Op", &[], &["y"]);
        node.attribute = attributes;
        error(&model(graph(&[], vec![node], &["y"])))
    };
    assert_eq!(with(vec![int("i", 1), int("i", 1)]), "node `n` (Op): attribute `i` is given twice");
    assert_eq!(
        with(vec![empty("t", AttributeType::Tensor)]),
        "node `n` (Op): attribute `t` has no value of its declared type 4"
    );
}

#[test]
fn sparse_initializers_are_refused_by_name() {
    let mut sparse = graph(&["x"], vec![], &["x"]);
    let values = Some(tensor("sparse_weight", 1, &[0]));
    sparse.sparse_initializer = vec![SparseTensorProto { values, indices: None, dims: vec![] }];
    assert_eq!(
        error(&model(sparse)),
        "initializer `sparse_weight` is a sparse tensor, which is not supported"
    );
}

#[test]
fn node_names_become_unique() {
    let branch = graph(&[], vec![node("", "Neg", &["x"], &["b"])], &["b"]);
    let nodes = vec![
        node("", "Neg", &["x"], &["p"]),
        node("n", "Neg", &["x"], &["q"]),
        node("n", "If", &["x"], &["y"]).with(subgraph("then_branch", branch)),
    ];
    let model = load(&model(graph(&["x"], nodes, &["y"]))).unwrap();
    let names: Vec<_> = model.graph.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["Neg_0", "n", "n_2"]);
    let branch = model.graph.nodes[2].required::<&GraphDef>("then_branch").unwrap();
    assert_eq!(branch.nodes[0].name, "Neg_0_2");
}

#[test]
fn odd_dimensions_are_unknown() {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = |value| dimension(Dimension { value, denotation: None });
    assert_eq!(dim(None), DimDef::Unknown);
    assert_eq!(dim(Some(Value::DimValue(-1))), DimDef::Unknown);
    assert_eq!(dim(Some(Value::DimValue(0))), DimDef::Known(0));
    assert_eq!(dim(Some(Value::DimParam(" ".into()))), DimDef::Unknown);
}
