//! Small random graphs, legal at every size of their symbols, for property tests; never a graph
//! that depends on anything but the seed.

use super::Random;
use crate::dim::{Bindings, Dim, Range, Symbol};
use crate::dtype::DType;
use crate::graph::{Graph, ValueId};
use crate::ops::*;
use crate::recipe::Recipe;
use crate::tensor::Tensor;
use crate::types::{Axis, TensorType};
use std::collections::BTreeMap;

/// Most elements of a value, at the upper ends of all ranges.
const ELEMENTS: i64 = 4096;

/// A graph of about `operators` operators over `f32` inputs of symbolic shapes, with weights,
/// movements that cancel, operators that occur twice, and ones that nobody reads.
pub fn random_graph(seed: u64, operators: usize) -> Graph {
    let mut random = Random::new(seed);
    let mut graph = Graph::new("random");
    for (name, lo, hi) in [("B", 1, 3), ("S", 1, 5)] {
        graph.declare(Symbol::new(name), Range::new(lo, hi));
    }
    let (batch, rows) = (Dim::symbol("B"), Dim::symbol("S"));
    let mut values = vec![
        graph.add_input("x", float(vec![batch.clone(), rows.clone(), Dim::from(6)])),
        graph.add_input("y", float(vec![rows.clone(), Dim::from(6)])),
        graph.add_input("z", float(vec![batch, Dim::from(1), Dim::from(4)])),
    ];
    for shape in [&[6usize][..], &[6, 4], &[1], &[2, 3, 4]] {
        let tensor = random.tensor(DType::F32, shape);
        values.push(graph.add_weight(None, Recipe::literal(tensor)));
    }
    for constant in [1f32, 0.0, -0.0] {
        let tensor = super::tensor(&[1], &[constant]);
        values.push(graph.add_weight(None, Recipe::literal(tensor)));
    }
    let mut made = 0;
    for _ in 0..operators * 8 {
        let (op, operands) = candidate(&mut random, &graph, &values);
        let types: Vec<TensorType> = operands.iter().map(|v| graph.ty(*v).clone()).collect();
        // What does not fit is not added; the next candidate may.
        let Ok(results) = op.infer(&types) else { continue };
        let small = |ty: &TensorType| {
            ty.elements().bounds(&graph.symbols).hi.is_some_and(|hi| hi <= ELEMENTS)
        };
        if results.iter().any(|ty| ty.dtype != DType::F32 || !small(ty)) {
            continue;
        }
        if let Ok(value) = graph.apply(op, &operands) {
            values.push(value);
            made += 1;
        }
        if made == operators {
            break;
        }
    }
    let outputs: Vec<(String, ValueId)> =
        values.iter().rev().take(4).enumerate().map(|(i, v)| (format!("out{i}"), *v)).collect();
    graph.set_outputs(outputs);
    graph
}

/// Random values of the graph's symbols within their ranges, and inputs of these sizes.
pub fn random_inputs(seed: u64, graph: &Graph) -> (Bindings, BTreeMap<String, Tensor>) {
    let mut random = Random::new(seed);
    let mut bindings = Bindings::new();
    for (symbol, range) in &graph.symbols {
        bindings.insert(symbol.clone(), random.integer(range.lo, range.hi.unwrap_or(range.lo + 4)));
    }
    let mut inputs = BTreeMap::new();
    for input in graph.inputs() {
        let value = graph.value(*input);
        let name = value.name.as_deref().unwrap_or_default().to_string();
        if let Ok(ty) = value.ty.concrete(&bindings) {
            inputs.insert(name, random.tensor(ty.dtype, &ty.shape));
        }
    }
    (bindings, inputs)
}

fn float(shape: Vec<Dim>) -> TensorType {
    TensorType::new(DType::F32, shape)
}

/// An operator that may or may not fit its operands.
fn candidate(random: &mut Random, graph: &Graph, values: &[ValueId]) -> (Op, Vec<ValueId>) {
    let mut pick = |below: usize| (random.bits() % below as u64) as usize;
    // Recent values are likelier, so that graphs become deep.
    let recent = values.len().min(4);
    let a = match pick(3) {
        0 => values[pick(values.len())],
        _ => values[values.len() - 1 - pick(recent)],
    };
    let b = values[pick(values.len())];
    let shape = graph.ty(a).shape.clone();
    let rank = shape.len();
    let axis = Axis::from(pick(rank.max(1)));
    let axes = |order: Vec<usize>| order.into_iter().map(Axis::from).collect::<Vec<_>>();
    match pick(16) {
        0 => (Scalar::Neg.into(), vec![a]),
        1 => (Scalar::Tanh.into(), vec![a]),
        2 => (Scalar::Add.into(), vec![a, b]),
        3 => (Scalar::Mul.into(), vec![a, b]),
        4 => (Scalar::Sub.into(), vec![a, b]),
        5 => (Scalar::Max.into(), vec![a, b]),
        6 => (Transpose { perm: axes((0..rank).rev().collect()) }.into(), vec![a]),
        7 => {
            let mut order: Vec<usize> = (0..rank).collect();
            order.rotate_left(pick(rank.max(1)));
            (Transpose { perm: axes(order) }.into(), vec![a])
        }
        8 => (Reshape { shape: vec![graph.ty(a).elements()] }.into(), vec![a]),
        9 => {
            let mut shape = shape;
            shape.insert(pick(rank + 1), Dim::ONE);
            (Reshape { shape }.into(), vec![a])
        }
        10 => (Concat { axis }.into(), vec![a, b]),
        11 => {
            let starts = vec![Dim::ZERO; rank];
            (Slice { starts, sizes: shape, steps: vec![1; rank] }.into(), vec![a])
        }
        12 => {
            let kind = [ReduceKind::Sum, ReduceKind::Max][pick(2)];
            (Reduce { kind, axes: vec![axis], keep: pick(2) == 0 }.into(), vec![a])
        }
        13 => (Matmul { acc: DType::F32, result: DType::F32 }.into(), vec![a, b]),
        14 => (Softmax { axis }.into(), vec![a]),
        _ => {
            let mut shape = shape;
            shape.insert(0, Dim::from(2));
            (Broadcast { shape }.into(), vec![a])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::Interpreter;

    #[test]
    fn random_graphs_can_be_evaluated() {
        for seed in 0..20 {
            let graph = random_graph(seed, 12);
            let operators = graph.nodes().filter(|id| graph.node(*id).op().is_some()).count();
            assert!(operators >= 8, "seed {seed}: {operators} operators");
            let (bindings, inputs) = random_inputs(seed, &graph);
            let results = Interpreter::default().run(&graph, &inputs, &bindings);
            assert!(results.is_ok_and(|results| !results.is_empty()), "seed {seed}");
        }
    }
}
