//! Random graphs through the whole product, bundle and all, against the interpreter; never a graph
//! that was chosen by hand.

use crate::support;
use membar::ir::interp::Interpreter;
use membar::ir::testing::{random_graph, random_inputs};
use membar::{Bundle, CompileOptions, Session};

const GRAPHS: u64 = 40;

#[test]
fn compile_write_open_and_run_as_they_mean() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in 0..GRAPHS {
        let graph = random_graph(seed, 8 + seed as usize % 25);
        let options = CompileOptions { verify: true, ..CompileOptions::default() };
        let compiled = membar::compile(graph.clone(), &options)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let path = folder.path().join(format!("{seed}.bundle"));
        compiled.write_bundle(&path).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let bundle = Bundle::open(&path).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut session =
            Session::new(&bundle).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for run in 0..3 {
            let (bindings, inputs) = random_inputs(1000 * run + seed, &graph);
            let expected = Interpreter::default().run(&graph, &inputs, &bindings);
            let expected = expected.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{graph}"));
            let found = session.run(&inputs);
            let found = found.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{graph}"));
            assert!(found.keys().eq(expected.keys()));
            for (name, tensor) in &found {
                // Sums cancel: what counts is the error against the largest element.
                let largest =
                    expected[name].to_floats().iter().fold(1.0, |a: f64, b| a.max(b.abs()));
                let close = support::all_close(tensor, &expected[name], 1e-5 * largest, 1e-4);
                if let Err(error) = close {
                    panic!("seed {seed}, {bindings:?}, `{name}`: {error}\n{graph}");
                }
            }
        }
    }
}
