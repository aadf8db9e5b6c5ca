//! Sessions over small programs with states; must never compile a program.

use super::*;
use crate::cpu::testing::{Random, assert_close, declare, plan, sure};
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::graph::{Growth, State};
use membar_ir::ops::{Append, Scalar, Slice};
use membar_ir::schedule::{Buffer, BufferId, Layout, Region};
use membar_ir::topology::MemoryId;
use membar_ir::types::TensorType;

/// `present = past ++ -x` along axis 1 at a capacity of 6, `y` a copy of it; `sum = total + x` of
/// the first row.
fn cache(shared: bool) -> Graph {
    let mut graph = Graph::new("cache");
    declare(&mut graph, "B", 1, 2);
    declare(&mut graph, "P", 0, 5);
    declare(&mut graph, "S", 1, 4);
    let shape = |length: Dim| vec![Dim::symbol("B"), length, Dim::from(3)];
    let input = |graph: &mut Graph, name: &str, length: Dim| {
        graph.add_input(name, TensorType::new(DType::F32, shape(length)))
    };
    let past = input(&mut graph, "past", Dim::symbol("P"));
    let x = input(&mut graph, "x", Dim::symbol("S"));
    let total = graph.add_input("total", TensorType::fixed(DType::F32, &[1]));
    let rows = sure(graph.apply(Scalar::Neg, &[x]));
    let present = sure(graph.apply(Append { axis: Axis(1) }, &[past, rows]));
    let whole = Slice {
        starts: vec![Dim::ZERO; 3],
        sizes: shape(Dim::symbol("P") + Dim::symbol("S")),
        steps: vec![1; 3],
    };
    let y = sure(graph.apply(whole, &[present]));
    let next = sure(graph.apply(Scalar::Abs, &[total]));
    let one = Tensor::scalar(1f32);
    let one = graph.add_weight(None, membar_ir::recipe::Recipe::literal(one));
    let next = sure(graph.apply(Scalar::Add, &[next, one]));
    graph.set_outputs([("present", present), ("y", y), ("next", next)]);
    graph.states = vec![
        State {
            input: past,
            output: "present".into(),
            growth: Some(Growth { axis: Axis(1), length: Symbol::new("P"), capacity: 6 }),
        },
        State { input: total, output: "next".into(), growth: None },
    ];
    if shared {
        for value in [past, present] {
            let value = graph.value_mut(value);
            value.region = Some(Region::contiguous(BufferId(0), 0, 2 * 6 * 3 * 4));
            value.layout = Layout::Capacity([2i64, 6, 3].map(Dim::from).to_vec());
        }
        graph.buffers.insert(BufferId(0), Buffer { bytes: 144, memory: MemoryId(0) });
    }
    plan(graph)
}

fn tensors<const N: usize>(list: [(&str, Tensor); N]) -> BTreeMap<String, Tensor> {
    list.into_iter().map(|(name, tensor)| (name.to_string(), tensor)).collect()
}

fn negated(parts: &[&Tensor]) -> Vec<f32> {
    parts.iter().flat_map(|part| part.numbers().map(|x| -x.to_float() as f32)).collect()
}

#[test]
fn states_go_on_from_run_to_run() {
    for shared in [true, false] {
        let mut session = sure(Session::from_graph(cache(shared)));
        let mut random = Random::new(61);
        let [a, b] = [2, 3].map(|length| random.tensor(DType::F32, &[1, length, 3]));
        for _ in 0..2 {
            let outputs = sure(session.run(&tensors([("x", a.clone())])));
            assert_eq!(outputs.keys().collect::<Vec<_>>(), ["y"]);
            let options = RunOptions { states: true };
            let outputs = sure(session.run_with(&tensors([("x", b.clone())]), &options));
            let expected = sure(Tensor::from_elements(&[1, 5, 3], &negated(&[&a, &b])));
            assert_close(&outputs["y"], &expected, "y");
            assert_close(&outputs["present"], &expected, "present");
            assert_eq!(outputs["next"], sure(Tensor::from_elements(&[1], &[2f32])));
            session.reset();
        }
    }
}

#[test]
fn a_state_can_be_given() {
    let mut session = sure(Session::from_graph(cache(true)));
    let mut random = Random::new(62);
    let past = random.tensor(DType::F32, &[2, 4, 3]);
    let x = random.tensor(DType::F32, &[2, 1, 3]);
    let total = sure(Tensor::from_elements(&[1], &[-7f32]));
    let given = tensors([("past", past.clone()), ("x", x.clone()), ("total", total)]);
    let options = RunOptions { states: true };
    let outputs = sure(session.run_with(&given, &options));
    assert_eq!(outputs["next"], sure(Tensor::from_elements(&[1], &[8f32])));
    assert_eq!(outputs["y"].shape(), [2, 5, 3]);
    // One more row fits; the batch cannot change meanwhile.
    let other = random.tensor(DType::F32, &[1, 1, 3]);
    let Err(SessionError::Inputs(faults)) = session.run(&tensors([("x", other)])) else {
        panic!("taken")
    };
    assert!(matches!(faults[..], [InputFault::Dimension { .. }]), "{faults:?}");
    assert_eq!(sure(session.run(&tensors([("x", x.clone())])))["y"].shape(), [2, 6, 3]);
    let Err(error) = session.run(&tensors([("x", x)])) else { panic!("taken") };
    let SessionError::Inputs(faults) = &error else { panic!("{error}") };
    let full = |fault: &InputFault| matches!(fault, InputFault::Capacity { length: 7, .. });
    assert!(faults.iter().any(full), "{error}");
}

#[test]
fn all_that_is_wrong_with_inputs_is_said_at_once() {
    let mut session = sure(Session::from_graph(cache(true)));
    let mut random = Random::new(63);
    let given = tensors([
        ("X", random.tensor(DType::F32, &[1])),
        ("past", random.tensor(DType::F64, &[1, 2, 3])),
        ("total", random.tensor(DType::F32, &[1, 1])),
    ]);
    let Err(error) = session.run(&given) else { panic!("taken") };
    let text = error.to_string();
    for part in ["no input `X`", "`x` (f32[B, S, 3]) is missing", "f64, expected f32", "[1, 1]"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (shape, part) in [([1, 5, 3], "outside its range 1..4"), ([1, 2, 4], "is 4, expected 3")] {
        let given = tensors([("x", random.tensor(DType::F32, &shape))]);
        let Err(error) = session.run(&given) else { panic!("taken") };
        assert!(error.to_string().contains(part), "{error}");
    }
}
