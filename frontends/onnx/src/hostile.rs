//! Tests that damaged and hostile files give errors: loading must never panic, hang, or allocate
//! much more than the file's own size.

use crate::proto::{AttributeProto, ModelProto, NodeProto, TensorProto};
use crate::testing::*;
use crate::{ImportError, Model};
use bytes::Bytes;
use prost::Message;

/// A small model with something of every kind: functions, subgraphs, all kinds of constants.
fn varied() -> ModelProto {
    let raw = TensorProto {
        raw_data: Some((0..24).collect::<Vec<u8>>().into()),
        ..tensor("w", 1, &[2, 3])
    };
    let typed = TensorProto { int64_data: vec![1, -1], ..tensor("shape", 7, &[2]) };
    let packed = TensorProto { int32_data: vec![0x21, 0x3], ..tensor("q", 22, &[3]) };
    let branch = |name: &str| graph(&[], vec![node("n", "Neg", &["h"], &[name])], &[name]);
    let square = function(
        "Square",
        &["a", "b"],
        vec![
            node("m", "Mul", &["a", "b"], &["t"]).with(reference("k", "k")),
            node("i", "If", &["t"], &["r"]).with(subgraph("then_branch", {
                graph(&[], vec![node("m", "Abs", &["t"], &["u"])], &["u"])
            })),
        ],
        &["r"],
    );
    let ints = AttributeProto { ints: vec![0, 1], ..int("perm", 0) };
    let nodes = vec![
        node("c", "Transpose", &["x"], &["h"]).with(AttributeProto { r#type: Some(7), ..ints }),
        node("s", "Square", &["h", "w"], &["g"]).of("local").with(int("k", 2)),
        node("if", "If", &["g"], &["y"])
            .with(subgraph("then_branch", branch("p")))
            .with(subgraph("else_branch", branch("o"))),
    ];
    let mut main = graph(&["x"], nodes, &["y"]);
    main.initializer = vec![raw, typed, packed];
    main.value_info = vec![value("h")];
    let mut model = model(main);
    model.functions = vec![square];
    model.opset_import.push(opset("local", 1));
    model
}

/// Loads and then reads everything that loading described.
fn exercise(bytes: Vec<u8>) -> Result<(), ImportError> {
    let model = Model::from_bytes(Bytes::from(bytes), None)?;
    for tensor in &model.graph.initializers {
        if let Ok(data) = model.data(tensor) {
            assert!(tensor.element_count() <= data.len() as u64 * 2);
        }
    }
    for node in &model.graph.nodes {
        assert!(!node.name.is_empty());
    }
    for info in model.graph.inputs.iter().chain(&model.graph.value_infos) {
        if let crate::ValueType::Tensor { dims: Some(dims), .. } = &info.value_type {
            dims.iter().for_each(|dim| drop(dim.expression()));
        }
    }
    Ok(())
}

#[test]
fn every_truncation_is_an_error_or_a_smaller_model() {
    let bytes = varied().encode_to_vec();
    exercise(bytes.clone()).unwrap();
    let loaded = (0..bytes.len()).filter(|&length| exercise(bytes[..length].to_vec()).is_ok());
    // Cutting at the end of a field leaves a valid message; there are few such places.
    assert!(loaded.count() < 10);
}

#[test]
fn flipped_bits_never_panic() {
    let bytes = varied().encode_to_vec();
    let mut refused = 0;
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            refused += usize::from(exercise(damaged).is_err());
        }
    }
    assert!(refused > bytes.len(), "{refused} of {} refused", bytes.len() * 8);
}

#[test]
fn random_damage_never_panics() {
    let bytes = varied().encode_to_vec();
    let mut random = random();
    for _ in 0..4000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + random(8) {
            let position = random(damaged.len());
            match random(3) {
                0 => damaged[position] = random(256) as u8,
                1 => drop(damaged.drain(position..(position + random(16)).min(damaged.len()))),
                _ => {
                    let end = (position + random(16)).min(damaged.len());
                    let copy = damaged[position..end].to_vec();
                    let target = random(damaged.len());
                    damaged.splice(target..target, copy);
                }
            }
            if damaged.is_empty() {
                break;
            }
        }
        drop(exercise(damaged));
    }
}

/// Damaged bytes seldom decode, so this damages messages: names, calls, attributes, shapes.
#[test]
fn rewired_models_never_panic() {
    let mut random = random();
    let mut loaded = 0;
    for _ in 0..4000 {
        let mut model = varied();
        model.functions.push(model.functions[0].clone());
        model.functions[1].name = Some("Other".into());
        for _ in 0..1 + random(4) {
            let function = random(4);
            let nodes = match model.functions.get_mut(function) {
                Some(function) => &mut function.node,
                None => &mut model.graph.get_or_insert_default().node,
            };
            rewire(nodes, &mut random);
        }
        let main = model.graph.get_or_insert_default();
        if random(8) == 0 {
            let position = random(main.initializer.len());
            main.initializer[position].dims = vec![random(8) as i64 - 1, 1 << random(63)];
        }
        loaded += usize::from(exercise(model.encode_to_vec()).is_ok());
    }
    assert!((40..3960).contains(&loaded), "{loaded}");
}

fn rewire(nodes: &mut Vec<NodeProto>, random: &mut impl FnMut(usize) -> usize) {
    const NAMES: [&str; 10] = ["x", "h", "w", "g", "y", "a", "b", "t", "r", ""];
    const OPS: [&str; 3] = ["Square", "Other", "Neg"];
    let position = random(nodes.len());
    let node = &mut nodes[position];
    match random(7) {
        0 => node.input.push(NAMES[random(10)].into()),
        1 => node.output.push(NAMES[random(10)].into()),
        2 => {
            let count = node.input.len();
            if let Some(input) = node.input.get_mut(random(count.max(1))) {
                *input = NAMES[random(10)].into();
            }
        }
        3 => {
            node.op_type = Some(OPS[random(3)].into());
            node.domain = Some("local".into());
        }
        4 => drop(node.input.pop()),
        5 => {
            for attribute in &mut node.attribute {
                if let Some(inner) = &mut attribute.g {
                    return rewire(&mut inner.node, random);
                }
            }
            node.attribute.push(reference("k", "k"));
        }
        _ => {
            let copy = node.clone();
            nodes.push(copy);
        }
    }
}

/// Numbers below the given bound, the same in every run (xorshift64).
fn random() -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    }
}

#[test]
fn files_that_are_no_model_are_refused() {
    let message = |bytes: &'static [u8]| {
        Model::from_bytes(Bytes::from_static(bytes), None).unwrap_err().to_string()
    };
    assert_eq!(message(b""), "the model has no graph");
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
    assert!(message(lfs).starts_with("not an ONNX model, or a damaged one: "));

    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.onnx");
    let error = Model::load(&absent).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read {}: ", absent.display())), "{error}");
    let error = Model::load(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("not a regular file"), "{error}");
    std::fs::write(&absent, b"\xff\xff").unwrap();
    let error = Model::load(&absent).unwrap_err();
    assert!(error.to_string().contains("absent.onnx: not an ONNX model"), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |depth: usize| -> NodeProto {
        let mut inner = node("leaf", "Relu", &["x"], &["v0"]);
        for level in 0..depth {
            let result = format!("v{level}");
            let branch = graph(&[], vec![inner], &[&result]);
            let outer = format!("v{}", level + 1);
            inner = node("", "If", &["x"], &[&outer]).with(subgraph("then_branch", branch));
        }
        inner
    };
    let load_nested =
        |depth: usize| load(&model(graph(&["x"], vec![nested(depth)], &[&format!("v{depth}")])));
    load_nested(20).unwrap();
    let error = load_nested(200).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn claims_of_size_allocate_nothing() {
    let mut model = varied();
    let graph = model.graph.as_mut().unwrap();
    graph.initializer[0].dims = vec![1 << 60];
    assert!(error(&model).contains("need 4611686018427387904"));
}
