//! The kernels of the CPU, a file for each concern; must never be reached but through `library`.

pub(crate) mod conv;
pub(crate) mod elementwise;
pub(crate) mod gather;
pub(crate) mod matmul;
pub(crate) mod movement;
pub(crate) mod reduce;
pub(crate) mod reference;
pub(crate) mod rows;

use super::arena::Source;
use super::library;
use super::program::{Call, Shapes};
use super::view::View;
use membar_ir::dim::Bindings;
use membar_ir::interp::static_type;
use membar_ir::op::EvalError;
use membar_ir::ops::Op;
use membar_ir::tensor::Tensor;
use membar_ir::types::TensorType;

/// Evaluates an operator whose attributes are bound, by its kernel, on tensors.
///
/// # Errors
/// The operands do not fit, the operator has no kernel, or the kernel fails.
pub(crate) fn evaluate(op: &Op, operands: &[Tensor]) -> Result<Vec<Tensor>, EvalError> {
    let types: Vec<TensorType> = operands.iter().map(|t| static_type(t.ty())).collect();
    let inferred = op.infer(&types).map_err(|error| EvalError::Invalid(error.to_string()))?;
    let mut results = Vec::with_capacity(inferred.len());
    for ty in &inferred {
        results.push(Tensor::try_zeros(ty.concrete(&Bindings::new())?)?);
    }
    let selected = library::select(op, &types, &inferred)
        .ok_or_else(|| EvalError::Invalid(format!("the CPU has no kernel for {op}")))?;
    let views = |tensors: &[Tensor]| -> Vec<View> {
        tensors.iter().map(|tensor| View::contiguous(tensor.ty())).collect()
    };
    let (operand_views, output_views) = (views(operands), views(&results));
    let shapes = Shapes { operands: &operand_views, outputs: &output_views };
    let run = (selected.prepare)(&shapes)?;
    let sources: Vec<Source<'_>> =
        operands.iter().map(|tensor| Source::Shared(tensor.bytes())).collect();
    let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Tensor::bytes_mut).collect();
    run(&mut Call { sources: &sources, outputs: &mut outputs })?;
    Ok(results)
}
