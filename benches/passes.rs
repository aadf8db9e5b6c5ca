//! How long a large model takes from an ONNX file to a schedule: the 8-billion-parameter Llama 3,
//! 2,910 nodes, without its weights. Must never touch a weight.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use membar::compile::passes;
use membar::ir::Stage;
use membar::{CompileOptions, Graph, ImportOptions, RandomWeights, Range, Symbol};
use std::hint::black_box;
use std::path::Path;

/// Upper ends for the model's open dimensions.
const DIMS: [(&str, i64); 4] = [("batch", 8), ("seq", 512), ("past", 2048), ("s53", 2560)];

fn import() -> Graph {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/graphs/llama-3-8b-op20.onnx");
    let random_weights = Some(RandomWeights { seed: 1, all: false });
    let options = ImportOptions { random_weights, ..ImportOptions::default() };
    membar::load_model(&path, &options).expect("the fixture is a model that imports")
}

fn options() -> CompileOptions {
    let mut options = CompileOptions::default();
    for (name, hi) in DIMS {
        options.dims.insert(Symbol::new(name), Range::new(1, hi));
    }
    options
}

fn compile(graph: Graph, options: &CompileOptions) -> Graph {
    membar::compile(graph, options).expect("the fixture compiles").graph
}

fn llama(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("llama-3-8b");
    group.sample_size(20);
    group.bench_function("import", |bench| bench.iter(|| black_box(import())));

    let tensor = passes().filter(|pass| pass.after == Stage::Tensor).last();
    let stop_after = tensor.map(|pass| pass.name.to_string());
    let tensor_passes = CompileOptions { stop_after, ..options() };
    let imported = import();
    group.bench_function("tensor-passes", |bench| {
        let graph = || imported.clone();
        bench.iter_batched(graph, |graph| compile(graph, &tensor_passes), BatchSize::LargeInput);
    });

    // The e-graph alone, for a GPU, whose kernels let it find the most.
    let target = "sm_90a".parse().expect("a target");
    let before =
        CompileOptions { target, stop_after: Some("convert-precision".to_string()), ..options() };
    let rewritten = CompileOptions {
        target,
        stop_after: Some("rewrite".to_string()),
        skip: passes().map(|pass| pass.name.to_string()).filter(|name| name != "rewrite").collect(),
        ..CompileOptions::default()
    };
    let ready = compile(imported.clone(), &before);
    group.bench_function("rewrite", |bench| {
        let graph = || ready.clone();
        bench.iter_batched(graph, |graph| compile(graph, &rewritten), BatchSize::LargeInput);
    });

    let all = options();
    group.bench_function("import-and-all-passes", |bench| {
        bench.iter(|| black_box(compile(import(), &all)));
    });
    group.finish();
}

criterion_group!(benches, llama);
criterion_main!(benches);
