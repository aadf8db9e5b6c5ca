//! Tests of the mathematical operators against values derived by hand or by a direct formula;
//! never against another implementation of the project.

mod attention;
mod norms;
mod products;
mod quantisation;
mod reductions;
mod scalars;

use membar_ir::interp::Interpreter;
use membar_ir::op::TypeError;
use membar_ir::testing::{evaluate, symbolic};
use membar_ir::{Bindings, DType, Meaning, Op, Symbol, Tensor, TensorType};
use std::collections::BTreeMap;

/// Evaluates an operator and checks that symbolic types lead to the same: `types` are the
/// operands' types as words, and `bindings` make them those of `operands`.
#[track_caller]
fn check_symbolic(
    op: impl Into<Op>,
    types: &[&[&str]],
    bindings: &[(&str, i64)],
    operands: &[Tensor],
) -> Vec<Tensor> {
    let op = op.into();
    let bindings: Bindings = bindings.iter().map(|(s, v)| (Symbol::new(s), *v)).collect();
    let types: Vec<TensorType> =
        types.iter().zip(operands).map(|(dims, t)| symbolic(t.dtype(), dims)).collect();
    let inferred = op.infer(&types).unwrap_or_else(|error| panic!("{op}: {error}"));
    let bound = op.bind(&bindings).unwrap_or_else(|error| panic!("{op}: {error}"));
    let results = evaluate(bound, operands);
    assert_eq!(results.len(), inferred.len(), "{op}");
    for (result, ty) in results.iter().zip(&inferred) {
        assert_eq!(ty.concrete(&bindings).as_ref(), Ok(result.ty()), "{op}");
    }
    match op.meaning(&types) {
        Meaning::Composite(graph) => {
            let built: Vec<_> = graph.outputs().iter().map(|o| graph.ty(o.value).clone()).collect();
            assert_eq!(built, inferred, "{op}");
            let inputs: BTreeMap<String, Tensor> = operands
                .iter()
                .enumerate()
                .map(|(i, t)| (format!("operand{i}"), t.clone()))
                .collect();
            let outputs = Interpreter::default().run(&graph, &inputs, &bindings);
            let outputs = outputs.unwrap_or_else(|error| panic!("{op}: {error}"));
            for (i, result) in results.iter().enumerate() {
                assert_eq!(&outputs[&format!("result{i}")], result, "{op}");
            }
        }
        Meaning::Scalar(_) | Meaning::Primitive(_) => {}
    }
    results
}

/// Checks that inference refuses these types, given as words.
#[track_caller]
fn refuse(op: impl Into<Op>, types: &[(DType, &[&str])]) -> TypeError {
    let types: Vec<TensorType> = types.iter().map(|(d, dims)| symbolic(*d, dims)).collect();
    let op = op.into();
    match op.infer(&types) {
        Ok(inferred) => panic!("{op} was accepted: {inferred:?}"),
        Err(error) => error,
    }
}
