//! Helpers of this crate's tests: random tensors, a plan without reuse, comparison with the
//! interpreter; must never be compiled into the product.

use super::executor::Executor;
use membar_ir::dim::{Bindings, Range, Symbol};
use membar_ir::dtype::{DType, DTypeClass};
use membar_ir::element::Number;
use membar_ir::graph::Graph;
use membar_ir::interp::Interpreter;
use membar_ir::ops::Op;
use membar_ir::tensor::Tensor;
pub(crate) use membar_ir::testing::plan;
use membar_ir::types::{ConcreteType, TensorType};
use std::collections::BTreeMap;

/// A small generator (xorshift), so that a failure repeats.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In -1..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Floats in -2..2, integers in -9..=9 (0..=9 where unsigned), truth values.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let ty = concrete(dtype, shape);
        let count = ty.elements();
        let numbers: Vec<Number> = (0..count)
            .map(|_| match dtype.class() {
                DTypeClass::Float => Number::Float(2.0 * self.unit()),
                DTypeClass::Signed => Number::Signed((self.next() % 19) as i64 - 9),
                DTypeClass::Unsigned => Number::Unsigned(self.next() % 10),
                DTypeClass::Bool => Number::Bool(self.next().is_multiple_of(2)),
            })
            .collect();
        sure(Tensor::from_numbers(ty, numbers))
    }

    /// Indices into a dimension of that extent, negative ones too.
    pub fn indices(&mut self, shape: &[usize], extent: i64) -> Tensor {
        let count = concrete(DType::I64, shape).elements();
        let numbers: Vec<i64> =
            (0..count).map(|_| (self.next() % (2 * extent as u64)) as i64 - extent).collect();
        sure(Tensor::from_elements(shape, &numbers))
    }
}

pub(crate) fn concrete(dtype: DType, shape: &[usize]) -> ConcreteType {
    sure(ConcreteType::new(dtype, shape.to_vec()))
}

/// The value, or a failed test.
pub(crate) fn sure<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Runs a planned graph on poisoned memory and compares every output with the interpreter's.
pub(crate) fn check_graph(graph: &Graph, inputs: &BTreeMap<String, Tensor>, bindings: &Bindings) {
    let expected = sure(Interpreter::default().run(graph, inputs, bindings));
    let weights = sure(crate::weights::Materialiser::default().weights(graph));
    let mut executor = sure(Executor::new(graph.clone(), weights));
    for round in 0..2 {
        sure(executor.poison());
        for value in graph.inputs() {
            let name = graph.value(*value).name.clone().unwrap_or_default();
            sure(executor.write(*value, &inputs[&*name], bindings));
        }
        sure(executor.run(bindings, &BTreeMap::new()));
        for output in graph.outputs() {
            let found = sure(executor.read(output.value, bindings));
            let what = format!("round {round} of {}", graph.name);
            assert_close(&found, &expected[&*output.name], &what);
        }
    }
}

/// Runs one operator on random operands of these types by its kernel, and by the interpreter.
pub(crate) fn check_op(op: impl Into<Op>, operands: &[Tensor]) {
    let op = op.into();
    let mut graph = Graph::new(&op.to_string());
    let mut inputs = BTreeMap::new();
    let mut values = Vec::new();
    for (index, tensor) in operands.iter().enumerate() {
        let name = format!("x{index}");
        values.push(graph.add_input(&name, membar_ir::interp::static_type(tensor.ty())));
        inputs.insert(name, tensor.clone());
    }
    let node = sure(graph.add_op(op.clone(), &values));
    let outputs = graph.node(node).outputs().to_vec();
    graph.set_outputs(outputs.into_iter().enumerate().map(|(i, v)| (format!("y{i}"), v)));
    let kernel = super::library::select(
        &op,
        &values.iter().map(|v| graph.ty(*v).clone()).collect::<Vec<_>>(),
        &graph.outputs().iter().map(|o| graph.ty(o.value).clone()).collect::<Vec<TensorType>>(),
    );
    assert!(kernel.is_some(), "no kernel for {op}");
    check_graph(&plan(graph), &inputs, &Bindings::new());
}

/// Compares within the tolerance of the element type: elementwise, and in norm.
pub(crate) fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.ty(), expected.ty(), "{what}");
    let tolerance = match found.dtype() {
        DType::F64 => 1e-12,
        DType::F32 => 2e-6,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        DType::F8E4m3fn | DType::F8E5m2 => 0.25,
        _ => 0.0,
    };
    let (mut difference, mut norm) = (0.0, 0.0);
    for (index, (a, b)) in found.numbers().zip(expected.numbers()).enumerate() {
        let (x, y) = (a.to_float(), b.to_float());
        if a == b || (x.is_nan() && y.is_nan()) || x == y {
            continue;
        }
        let bound = 16.0 * tolerance * (1.0 + y.abs());
        assert!(
            y.is_finite() && (x - y).abs() <= bound,
            "{what}: element {index} is {a:?}, expected {b:?}"
        );
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    let error = difference.sqrt() / norm.sqrt().max(1e-30);
    assert!(difference == 0.0 || error <= 4.0 * tolerance, "{what}: relative error {error:e}");
}

/// A range for a symbol.
pub(crate) fn declare(graph: &mut Graph, symbol: &str, lo: i64, hi: i64) {
    graph.declare(Symbol::new(symbol), Range::new(lo, hi));
}
