//! Imports of whole models; numbers are compared elsewhere.

use super::*;
use std::path::PathBuf;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// Fixtures that use operators which the table does not have yet.
const WAITING: &[&str] = &[
    "bert_int8_dynamic",
    "bert_ortopt",
    "llama3_genai_fp32",
    "llama3_genai_int4",
    "llama3_hfexp_ortcpu",
    "mobilenet_v2_dynamo",
    "ms_gqa_packed_rotary",
    "ms_matmulnbits_sym",
    "ms_mha_bias_mask",
    "ms_skip_rmsnorm",
    "op21_dequant_int4_blocked_matmul",
    "resnet50ish_dynamo",
    "unet_dynamo",
    "vit_dynamo",
    "whisper_encoder_dynamo",
];

#[test]
fn all_fixtures_import() {
    let mut surprises = Vec::new();
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
        match (result, WAITING.contains(&name)) {
            (Ok(graph), false) => check_graph(&graph, name),
            (Ok(_), true) => surprises.push(format!("{name} imports, but is listed as waiting")),
            (Err(_), true) => {}
            (Err(error), false) => surprises.push(format!("{name}: {error}")),
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
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
