//! The pipeline as a whole: options, resuming, dumps, and the size of arenas on real graphs; never
//! numbers (other tests compare those).

use membar::compile::{CompileError, CompileOptions, compile, passes};
use membar::ir::dim::Range;
use membar::ir::graph::{Graph, Stage};
use membar::ir::pass::StateOption;
use membar::ir::text::parse_with_topology;
use std::path::Path;

/// A graph as PyTorch's exporter writes it: shape arithmetic, a cache, masks.
fn llama(options: &mut CompileOptions) -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/models/llama3_past_dynamo/model.onnx");
    let graph = membar::onnx::import(&path, &membar::onnx::ImportOptions::default());
    let graph = graph.unwrap_or_else(|error| panic!("{error}"));
    for symbol in graph.symbols.keys() {
        options.dims.insert(symbol.clone(), Range::new(1, 8));
    }
    graph
}

#[test]
fn a_dump_of_any_pass_goes_on_to_the_same_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = CompileOptions {
        states: StateOption::Auto,
        dump_ir: Some(folder.path().to_path_buf()),
        ..CompileOptions::default()
    };
    let graph = llama(&mut options);
    let compiled = compile(graph, &options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(compiled.graph.stage, Stage::Scheduled);
    assert_eq!(compiled.graph.states.len(), 4);
    let expected = compiled.graph.to_string();
    let mut dumps: Vec<_> = std::fs::read_dir(folder.path())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    dumps.sort();
    assert!(dumps.len() >= 6, "{dumps:?}");
    for path in dumps {
        let text = std::fs::read_to_string(&path).expect("a dump");
        let topology = compiled.graph.topology.as_ref();
        let graph = parse_with_topology(&text, topology).unwrap_or_else(|e| panic!("{e}"));
        let tensor = graph.stage == Stage::Tensor;
        let specialised = tensor && !path.ends_with("00-input.ir");
        let again = CompileOptions {
            dims: if tensor && !specialised { options.dims.clone() } else { Default::default() },
            states: if tensor { options.states.clone() } else { StateOption::None },
            ..CompileOptions::default()
        };
        let resumed = compile(graph, &again).unwrap_or_else(|error| panic!("{error}"));
        assert!(resumed.graph.to_string() == expected, "{} ends otherwise", path.display());
    }
}

#[test]
fn options_choose_the_passes() {
    let mut options = CompileOptions {
        stop_after: Some("dead-code".into()),
        skip: vec!["simplify".into()],
        ..CompileOptions::default()
    };
    let graph = llama(&mut options);
    let compiled = compile(graph.clone(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(compiled.graph.stage, Stage::Tensor);
    let names: Vec<&str> = compiled.passes.iter().map(|report| report.name).collect();
    let expected: Vec<&str> = passes()
        .map(|pass| pass.name)
        .take_while(|name| *name != "place")
        .filter(|name| *name != "simplify")
        .collect();
    assert_eq!(names, expected);
    for report in &compiled.passes {
        assert!(report.changed || report.nodes_before == report.nodes_after, "{report:?}");
    }

    options.skip = vec!["tidy-up".into()];
    let error = compile(graph.clone(), &options).map(|_| ()).map_err(|error| error.to_string());
    assert!(error.is_err_and(|m| m.contains("no pass `tidy-up`") && m.contains("`plan-memory`")));

    options.skip = vec!["place".into()];
    options.stop_after = None;
    let error = compile(graph, &options).map(|_| ());
    assert!(matches!(error, Err(CompileError::Stage { pass: "fuse", .. })), "{error:?}");

    let placed = CompileOptions { stop_after: Some("place".into()), ..CompileOptions::default() };
    let late = compile(compiled.graph, &placed).and_then(|placed| compile(placed.graph, &options));
    assert!(matches!(late.map(|_| ()), Err(CompileError::TooLate { option: "--dim", .. })));
}

#[test]
fn an_unbounded_dimension_is_refused_by_name() {
    let mut options = CompileOptions::default();
    let graph = llama(&mut options);
    let (name, _) = options.dims.pop_first().expect("a dimension");
    let error = compile(graph, &options).map(|_| ()).map_err(|error| error.to_string());
    let hint = format!("`--dim {}=LO..HI`", name.name());
    assert!(error.as_ref().is_err_and(|m| m.starts_with("plan-memory") && m.contains(&hint)));
}
