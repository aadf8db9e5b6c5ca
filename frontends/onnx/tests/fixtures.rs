//! Loads every fixture model and compares what it finds with the fixture's description, which the
//! program that made the fixture wrote. Nothing is run here.

use membar_onnx::{
    AttributeValue, DimDef, DimExpr, GraphDef, Model, TensorDef, ValueInfo, ValueType,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Operators in the body of the one function that fixtures define.
const FUNCTION: &str = "com.microsoft::SkipSimplifiedLayerNormalization";
const FUNCTION_BODY: [(&str, u64); 3] = [("Add", 1), ("Constant", 2), ("RMSNormalization", 1)];

#[test]
fn operators_are_those_of_the_description() {
    for (name, model, description) in fixtures() {
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        let listed = description["ops"].as_object().expect("operator counts");
        let has_function = listed.keys().any(|op| op.starts_with("fn:"));
        for (op, count) in listed {
            let count = count.as_u64().expect("a count");
            if has_function && op == FUNCTION {
                for (inner, times) in FUNCTION_BODY {
                    *expected.entry(inner.into()).or_default() += times * count;
                }
            } else if count > 0 {
                *expected.entry(op.clone()).or_default() += count;
            }
        }
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        count(&model.graph, &mut found);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn every_constant_can_be_read() {
    for (name, model, _) in fixtures() {
        for tensor in constants(&model.graph) {
            let bytes = model.data(tensor).unwrap_or_else(|error| panic!("{name}: {error}"));
            let dtype = tensor.element_type.dtype().expect("a supported type");
            let count = tensor.element_count() as usize;
            assert_eq!(Some(bytes.len()), dtype.byte_len(count), "{name}: {}", tensor.name);
        }
    }
}

#[test]
fn declared_dimensions_agree_with_the_data() {
    let mut checked_expressions = 0;
    for (name, model, description) in fixtures() {
        for set in description["data_sets"].as_array().expect("data sets") {
            let mut symbols = BTreeMap::new();
            let inputs = dimensions(model.graph.free_inputs(), &set["inputs"]);
            let outputs = dimensions(model.graph.outputs.iter(), &set["outputs"]);
            assert!(!inputs.is_empty(), "{name}");
            for (value, declared, actual) in &inputs {
                match declared {
                    DimDef::Known(extent) => assert_eq!(extent, actual, "{name}: {value}"),
                    DimDef::Param(_) => {
                        if let Some(DimExpr::Symbol(symbol)) = declared.expression() {
                            let first = symbols.insert(symbol, *actual);
                            assert!(first.is_none_or(|first| first == *actual), "{name}: {value}");
                        }
                    }
                    DimDef::Unknown => {}
                }
            }
            for (value, declared, actual) in inputs.iter().chain(&outputs) {
                let Some(expression) = declared.expression() else { continue };
                if let Some(computed) = evaluate(&expression, &symbols) {
                    assert_eq!(computed, *actual, "{name}: {value}, {expression}");
                    checked_expressions += usize::from(matches!(expression, DimExpr::Add(..)));
                }
            }
        }
    }
    assert!(checked_expressions > 20, "{checked_expressions}");
}

/// Name, model and description of each fixture.
fn fixtures() -> Vec<(String, Model, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&root)
        .unwrap_or_else(|error| panic!("{}: {error}", root.display()))
        .map(|entry| entry.expect("a folder entry").path())
        .collect();
    folders.sort();
    assert!(folders.len() >= 30, "fixtures are missing from {}", root.display());
    let fixture = |folder: PathBuf| {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let model = Model::load(folder.join("model.onnx"))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = std::fs::read(folder.join("meta.json")).expect("a description");
        (name, model, serde_json::from_slice(&text).expect("JSON"))
    };
    folders.into_iter().map(fixture).collect()
}

fn count(graph: &GraphDef, counts: &mut BTreeMap<String, u64>) {
    for node in &graph.nodes {
        let op = if node.domain.is_empty() {
            node.op_type.clone()
        } else {
            format!("{}::{}", node.domain, node.op_type)
        };
        *counts.entry(op).or_default() += 1;
        for subgraph in node.attributes.values().flat_map(AttributeValue::graphs) {
            count(subgraph, counts);
        }
    }
}

fn constants(graph: &GraphDef) -> Vec<&TensorDef> {
    let mut found: Vec<_> = graph.initializers.iter().collect();
    for value in graph.nodes.iter().flat_map(|node| node.attributes.values()) {
        if let AttributeValue::Tensor(tensor) = value {
            found.push(tensor);
        }
        found.extend(value.graphs().iter().flat_map(constants));
    }
    found
}

/// Value name, declared dimension and actual extent of every dimension of the values.
fn dimensions<'a>(
    values: impl Iterator<Item = &'a ValueInfo>,
    shapes: &Value,
) -> Vec<(&'a str, &'a DimDef, i64)> {
    let mut all = Vec::new();
    for value in values {
        let ValueType::Tensor { dims: Some(dims), .. } = &value.value_type else { continue };
        let Some(shape) = shapes[&value.name][1].as_array() else {
            panic!("no shape of `{}`", value.name);
        };
        assert_eq!(dims.len(), shape.len(), "{}", value.name);
        for (declared, actual) in dims.iter().zip(shape) {
            all.push((value.name.as_str(), declared, actual.as_i64().expect("an extent")));
        }
    }
    all
}

fn evaluate(expression: &DimExpr, symbols: &BTreeMap<String, i64>) -> Option<i64> {
    let value = |operand: &DimExpr| evaluate(operand, symbols);
    Some(match expression {
        DimExpr::Integer(value) => *value,
        DimExpr::Symbol(name) => *symbols.get(name)?,
        DimExpr::Add(a, b) => value(a)? + value(b)?,
        DimExpr::Sub(a, b) => value(a)? - value(b)?,
        DimExpr::Mul(a, b) => value(a)? * value(b)?,
        DimExpr::FloorDiv(a, b) => value(a)?.div_euclid(value(b)?),
        DimExpr::Mod(a, b) => value(a)?.rem_euclid(value(b)?),
        DimExpr::Min(a, b) => value(a)?.min(value(b)?),
        DimExpr::Max(a, b) => value(a)?.max(value(b)?),
    })
}
