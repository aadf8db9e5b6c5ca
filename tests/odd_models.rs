//! Models that are odd but legal: empty tensors, rank 0, outputs that are inputs, constants or each
//! other, nothing to compute. Every run is compared with the reference interpreter on the imported
//! graph, and with a compilation for exactly its sizes; never with another run of the same program.

#[path = "support/onnx.rs"]
mod onnx;
mod support;

use bytes::Bytes;
use membar::ir::interp::Interpreter;
use membar::{CompileOptions, Graph, Range, Session, Symbol, Tensor};
use onnx::*;
use std::collections::BTreeMap;

type Tensors = BTreeMap<String, Tensor>;

fn import(model: &Message) -> Graph {
    let bytes = Bytes::copy_from_slice(model.as_ref());
    let model = membar::onnx::Model::from_bytes(bytes, None).unwrap();
    membar::onnx::import_model(&model, &Default::default()).unwrap()
}

fn session(graph: &Graph, dims: &[(&str, i64, i64)]) -> Session {
    let mut options = CompileOptions { verify: true, ..Default::default() };
    for (name, lo, hi) in dims {
        options.dims.insert(Symbol::new(name), Range::new(*lo, *hi));
    }
    membar::compile(graph.clone(), &options).unwrap().session().unwrap()
}

fn named(tensors: &[(&str, Tensor)]) -> Tensors {
    tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect()
}

/// Different everywhere, neither zero nor an integer.
fn ramp(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let elements: Vec<f32> =
        (0..count).map(|index| ((index * 37 + 11) % 64) as f32 * 0.0625 - 1.90625).collect();
    Tensor::from_elements(shape, &elements).unwrap()
}

#[track_caller]
fn same(found: &Tensors, expected: &Tensors) {
    assert!(found.keys().eq(expected.keys()), "{:?} {:?}", found.keys(), expected.keys());
    for (name, tensor) in expected {
        if let Err(error) = support::all_close(&found[name], tensor, 1e-5, 1e-5) {
            panic!("{name}: {error}");
        }
    }
}

/// Runs one program for the whole range, and one of a model that declares each size; all must agree
/// with the interpreter. A size below its range, 0 say, has only the program of its own.
#[track_caller]
fn check(
    dims: &[(&'static str, i64, i64)],
    build: impl Fn(&[Extent]) -> Message,
    runs: &[(&[i64], Tensors)],
) {
    let names: Vec<Extent> = dims.iter().map(|(name, ..)| Named(name)).collect();
    let mut ranged = session(&import(&build(&names)), dims);
    for (sizes, inputs) in runs {
        let extents: Vec<Extent> = sizes.iter().map(|size| Is(*size)).collect();
        let fixed = import(&build(&extents));
        let expected = Interpreter::default().run(&fixed, inputs, &BTreeMap::new()).unwrap();
        same(&session(&fixed, &[]).run(inputs).unwrap(), &expected);
        if dims.iter().zip(*sizes).all(|((_, lo, _), size)| lo <= size) {
            same(&ranged.run(inputs).unwrap(), &expected);
        } else {
            let error = ranged.run(inputs).unwrap_err().to_string();
            assert!(error.contains("outside its range"), "{error}");
        }
    }
}

const ROWS: &[(&str, i64, i64)] = &[("rows", 1, 4)];

/// Runs a model of `x: f32[rows, 4]` with 4, 0, 1 and 3 rows.
#[track_caller]
fn check_rows(constants: &[Message], nodes: &[Message], outputs: &[&str]) {
    let outputs: Vec<Message> = outputs.iter().map(|name| untyped(name)).collect();
    let build = |extents: &[Extent]| {
        let inputs = [value("x", FLOAT, &[extents[0], Is(4)])];
        model(&graph(&inputs, constants, nodes, &outputs))
    };
    let run = |rows: i64| named(&[("x", ramp(&[rows as usize, 4]))]);
    let sizes = [[4], [0], [1], [3], [4]];
    let runs: Vec<(&[i64], Tensors)> =
        sizes.iter().map(|sizes| (&sizes[..], run(sizes[0]))).collect();
    check(ROWS, build, &runs);
}

#[test]
fn empty_tensors_pass_through_elementwise_operators() {
    check_rows(
        &[floats("c", &[4], &[0.5, -1.0, 2.0, 0.25])],
        &[
            node("Add", &["x", "c"], &["a"]),
            node("Sigmoid", &["a"], &["b"]),
            node("Mul", &["a", "b"], &["y"]),
        ],
        &["y"],
    );
}

#[test]
fn empty_tensors_pass_through_products() {
    let w = floats("w", &[4, 3], &std::array::from_fn::<f32, 12, _>(|i| i as f32 * 0.5 - 2.25));
    check_rows(
        &[w, floats("b", &[3], &[1.0, 2.0, 3.0])],
        &[
            node("MatMul", &["x", "w"], &["y"]),
            node("Gemm", &["x", "w", "b"], &["z"]),
            node("Transpose", &["x"], &["t"]),
            node("MatMul", &["t", "x"], &["inner"]),
            node("MatMul", &["x", "t"], &["outer"]),
        ],
        &["y", "z", "t", "inner", "outer"],
    );
}

#[test]
fn empty_tensors_pass_through_rows_and_reductions() {
    let axes = integers("axes", &[0]);
    check_rows(
        &[axes, floats("s", &[4], &[1.0, 0.5, 2.0, -1.0]), floats("b", &[4], &[0.5; 4])],
        &[
            node("Softmax", &["x"], &["soft"]).attribute("axis", -1),
            node("LayerNormalization", &["x", "s", "b"], &["norm"]),
            node("ReduceSum", &["x", "axes"], &["sum"]),
            node("ReduceSum", &["x"], &["all"]).attribute("keepdims", 0),
            node("ReduceProd", &["x", "axes"], &["product"]),
            node("LogSoftmax", &["x"], &["log"]).attribute("axis", 1),
            node("CumSum", &["x", "zero"], &["running"]),
        ]
        .into_iter()
        .chain([node("Constant", &[], &["zero"]).attribute("value_int", 0)])
        .collect::<Vec<_>>(),
        &["soft", "norm", "sum", "all", "product", "log", "running"],
    );
}

#[test]
fn empty_tensors_pass_through_movements() {
    check_rows(
        &[integers("s", &[-1, 2]), integers("n", &[2, 1]), integers("i", &[3, 0, 0])],
        &[
            node("Concat", &["x", "x"], &["both"]).attribute("axis", 0),
            node("Concat", &["x", "x"], &["side"]).attribute("axis", 1),
            node("Tile", &["x", "n"], &["tiled"]),
            node("Gather", &["x", "i"], &["picked"]).attribute("axis", 1),
            node("Reshape", &["both", "s"], &["halves"]),
            node("Split", &["x"], &["left", "right"])
                .attribute("axis", 1)
                .attribute("num_outputs", 2),
            node("Expand", &["wide", "e"], &["expanded"]),
            node("Unsqueeze", &["x", "a"], &["wide"]),
            node("Constant", &[], &["e"]).attributes("value_ints", &[2, 1, 4]),
            node("Constant", &[], &["a"]).attributes("value_ints", &[0]),
        ],
        &["both", "side", "tiled", "picked", "halves", "left", "right", "expanded"],
    );
}

#[test]
fn a_window_over_an_empty_batch_gives_an_empty_batch() {
    let weights: Vec<f32> = (0..3 * 2 * 9).map(|index| index as f32 * 0.125 - 3.0).collect();
    let build = |rows: &[Extent]| {
        model(&graph(
            &[value("x", FLOAT, &[rows[0], Is(2), Is(5), Is(5)])],
            &[floats("w", &[3, 2, 3, 3], &weights)],
            &[
                node("Conv", &["x", "w"], &["c"]).attributes("pads", &[1, 1, 1, 1]),
                node("MaxPool", &["c"], &["y"]).attributes("kernel_shape", &[2, 2]),
                node("GlobalAveragePool", &["c"], &["z"]),
            ],
            &[untyped("y"), untyped("z")],
        ))
    };
    let run = |rows: usize| named(&[("x", ramp(&[rows, 2, 5, 5]))]);
    check(ROWS, build, &[(&[2], run(2)), (&[0], run(0)), (&[4], run(4))]);
}

#[test]
fn an_empty_inner_dimension_sums_to_zero() {
    let build = |k: &[Extent]| {
        model(&graph(
            &[value("a", FLOAT, &[Is(3), k[0]]), value("b", FLOAT, &[k[0], Is(2)])],
            &[],
            &[node("MatMul", &["a", "b"], &["y"])],
            &[value("y", FLOAT, &[Is(3), Is(2)])],
        ))
    };
    let run = |k: usize| named(&[("a", ramp(&[3, k])), ("b", ramp(&[k, 2]))]);
    check(&[("k", 1, 9)], build, &[(&[9], run(9)), (&[0], run(0)), (&[5], run(5))]);
}

#[test]
fn attention_over_no_queries_or_several_lengths() {
    let dims = |length| [Is(1), Is(2), length, Is(8)];
    let build = |lengths: &[Extent]| {
        model(&graph(
            &[
                value("q", FLOAT, &dims(lengths[0])),
                value("k", FLOAT, &dims(lengths[1])),
                value("v", FLOAT, &dims(lengths[1])),
            ],
            &[],
            &[
                node("Transpose", &["k"], &["t"]).attributes("perm", &[0, 1, 3, 2]),
                node("MatMul", &["q", "t"], &["scores"]),
                node("Softmax", &["scores"], &["weights"]).attribute("axis", -1),
                node("MatMul", &["weights", "v"], &["y"]),
            ],
            &[untyped("y")],
        ))
    };
    let run = |q: usize, k: usize| {
        let keys = ramp(&[1, 2, k, 8]);
        named(&[("q", ramp(&[1, 2, q, 8])), ("k", keys.clone()), ("v", keys)])
    };
    check(
        &[("queries", 1, 5), ("keys", 1, 7)],
        build,
        &[(&[5, 7], run(5, 7)), (&[0, 3], run(0, 3)), (&[1, 1], run(1, 1)), (&[5, 2], run(5, 2))],
    );
}

#[test]
fn rank_zero_inputs_and_outputs_work() {
    let build = |n: &[Extent]| {
        model(&graph(
            &[value("a", FLOAT, &[]), value("b", FLOAT, &[n[0]])],
            &[floats("c", &[], &[0.75])],
            &[
                node("Add", &["a", "c"], &["s"]),
                node("Mul", &["s", "b"], &["y"]),
                node("ReduceMax", &["y"], &["m"]).attribute("keepdims", 0),
            ],
            &[untyped("s"), untyped("y"), untyped("m")],
        ))
    };
    // A declared shape without dimensions is rank 0, and no missing shape.
    let run = |n: usize| named(&[("a", ramp(&[])), ("b", ramp(&[n]))]);
    check(&[("n", 1, 5)], build, &[(&[5], run(5)), (&[1], run(1))]);
}

#[test]
fn outputs_may_be_inputs_constants_and_each_other() {
    let build = |rows: &[Extent]| {
        model(&graph(
            &[value("x", FLOAT, &[rows[0], Is(4)]), value("unused", INT64, &[Is(2)])],
            &[floats("w", &[2, 2], &[1.0, -2.0, 3.0, -4.0]), floats("big", &[200], &[0.5; 200])],
            &[
                node("Relu", &["x"], &["y"]),
                node("Identity", &["y"], &["again"]),
                node("Identity", &["x"], &["copy"]),
                node("Identity", &["w"], &["constant"]),
            ],
            &["x", "y", "again", "copy", "w", "constant", "big"].map(untyped),
        ))
    };
    let unused = Tensor::from_elements(&[2], &[3i64, -4]).unwrap();
    let run = |rows: usize| named(&[("x", ramp(&[rows, 4])), ("unused", unused.clone())]);
    check(ROWS, build, &[(&[4], run(4)), (&[0], run(0)), (&[2], run(2))]);
}

#[test]
fn a_model_without_nodes_works() {
    let build = |rows: &[Extent]| {
        let through = [value("x", FLOAT, &[rows[0], Is(4)])];
        model(&graph(&through, &[], &[], &through))
    };
    let run = |rows: usize| named(&[("x", ramp(&[rows, 4]))]);
    check(ROWS, build, &[(&[3], run(3)), (&[0], run(0)), (&[4], run(4))]);
}

#[test]
fn a_model_without_inputs_works() {
    let build = |_: &[Extent]| {
        model(&graph(
            &[],
            &[floats("w", &[3], &[1.0, -2.0, 3.0])],
            &[node("Abs", &["w"], &["y"])],
            &[value("y", FLOAT, &[Is(3)])],
        ))
    };
    check(&[], build, &[(&[], Tensors::new())]);
}

#[test]
fn ranks_beyond_any_kernel_work() {
    let dims = [Is(1), Is(2), Is(1), Is(3), Is(1), Is(2), Is(1), Is(2), Is(1), Is(2), Is(3), Is(1)];
    let shape = [1, 2, 1, 3, 1, 2, 1, 2, 1, 2, 3, 1];
    let permutation: Vec<i64> = (0..12).rev().collect();
    let build = |_: &[Extent]| {
        model(&graph(
            &[value("x", FLOAT, &dims)],
            &[],
            &[
                node("Transpose", &["x"], &["t"]).attributes("perm", &permutation),
                node("Softmax", &["t"], &["s"]).attribute("axis", 4),
                node("Neg", &["s"], &["y"]),
            ],
            &[untyped("y")],
        ))
    };
    check(&[], build, &[(&[], named(&[("x", ramp(&shape))]))]);
}

/// A cache that grows by what each run appends, as a decoder's does.
fn cache() -> Graph {
    import(&model(&graph(
        &[
            value("new", FLOAT, &[Is(1), Is(1), Named("step"), Is(2)]),
            value("past", FLOAT, &[Is(1), Is(1), Named("past"), Is(2)]),
        ],
        &[],
        &[
            node("Concat", &["past", "new"], &["present"]).attribute("axis", 2),
            node("ReduceSum", &["present", "axes"], &["sum"]).attribute("keepdims", 0),
            node("Constant", &[], &["axes"]).attributes("value_ints", &[1, 2]),
        ],
        &[untyped("sum"), untyped("present")],
    )))
}

#[test]
fn a_state_grows_to_its_capacity_and_no_further() {
    let graph = cache();
    let mut options = CompileOptions { verify: true, ..Default::default() };
    options.states = membar::StateOption::Pairs(vec![("past".into(), "present".into())]);
    options.dims.insert(Symbol::new("step"), Range::new(1, 3));
    options.dims.insert(Symbol::new("past"), Range::new(0, 5));
    let mut session = membar::compile(graph, &options).unwrap().session().unwrap();
    for round in 0..2 {
        let mut total = [0f32; 2];
        let mut length = 0;
        for step in [3, 1, 2] {
            let new = ramp(&[1, 1, step, 2]);
            for (index, element) in new.numbers().enumerate() {
                total[index % 2] += element.to_float() as f32;
            }
            length += step;
            let outputs = session.run(&named(&[("new", new)])).unwrap();
            let expected = Tensor::from_elements(&[1, 2], &total).unwrap();
            same(&outputs, &named(&[("sum", expected)]));
        }
        assert_eq!(length, 6);
        // How far it may grow depends on the ranges; it must end with a message.
        let mut refused = None;
        for _ in 0..4 {
            match session.run(&named(&[("new", ramp(&[1, 1, 3, 2]))])) {
                Ok(_) => {}
                Err(error) => refused = Some(error.to_string()),
            }
        }
        let error = refused.expect("a capacity");
        assert!(error.contains("past"), "round {round}: {error}");
        // A run that was refused changes nothing; a reset empties the state.
        session.reset();
    }
    let wrong = ramp(&[1, 1, 2, 3]);
    let error = session.run(&named(&[("new", ramp(&[1, 1, 1, 2])), ("past", wrong)])).unwrap_err();
    assert!(error.to_string().contains("`past`"), "{error}");
    let outputs =
        session.run(&named(&[("new", ramp(&[1, 1, 1, 2])), ("past", ramp(&[1, 1, 2, 2]))]));
    let sums: Vec<f64> = outputs.unwrap()["sum"].numbers().map(|n| n.to_float()).collect();
    let expected: Vec<f64> = (0..2)
        .map(|index| {
            let past: Vec<f64> = ramp(&[1, 1, 2, 2]).numbers().map(|n| n.to_float()).collect();
            let new: Vec<f64> = ramp(&[1, 1, 1, 2]).numbers().map(|n| n.to_float()).collect();
            past[index] + past[index + 2] + new[index]
        })
        .collect();
    assert_eq!(sums, expected);
}

#[test]
fn an_output_that_is_named_twice_is_refused() {
    let twice = model(&graph(
        &[value("x", FLOAT, &[Is(3)])],
        &[],
        &[node("Abs", &["x"], &["y"])],
        &[untyped("y"), untyped("y")],
    ));
    let error = membar::compile(import(&twice), &CompileOptions::default()).unwrap_err();
    assert!(error.to_string().contains("two outputs have the name `y`"), "{error}");
}
