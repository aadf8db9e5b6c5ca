//! The kernel of operators that have no faster one: their reference evaluation on copies of the
//! operands; must never be chosen where an operator has a kernel of its own.

use super::movement::gather_bytes;
use crate::cpu::program::{Call, Run, Selected, Shapes};
use crate::cpu::view::View;
use membar_ir::interp::{InterpError, Interpreter};
use membar_ir::op::EvalError;
use membar_ir::ops::Op;
use membar_ir::tensor::Tensor;

/// The reference evaluation as a kernel.
pub(crate) fn select(op: &Op, operands: usize) -> Selected {
    let op = op.clone();
    Selected::new("reference", operands, move |shapes| Ok(prepare(&op, shapes)))
}

fn prepare(op: &Op, shapes: &Shapes<'_>) -> Run {
    let op = op.clone();
    let operands: Vec<View> = shapes.operands.to_vec();
    let outputs: Vec<View> = shapes.outputs.to_vec();
    Box::new(move |call: &mut Call<'_, '_>| {
        let mut tensors = Vec::with_capacity(operands.len());
        for (index, view) in operands.iter().enumerate() {
            tensors.push(tensor(view, call.any_bytes(index))?);
        }
        let results = Interpreter::default().evaluate(&op, &tensors).map_err(unwrap_operator)?;
        for (index, (view, result)) in outputs.iter().zip(results).enumerate() {
            if *result.ty() != view.ty() {
                let message = format!("it gives {}, expected {}", result.ty(), view.ty());
                return Err(EvalError::Invalid(message));
            }
            let bytes = result.bytes();
            call.output::<u8>(index)?[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    })
}

/// A tensor from the elements of a view.
pub(crate) fn tensor(view: &View, bytes: &[u8]) -> Result<Tensor, EvalError> {
    if view.is_contiguous() {
        let ty = view.ty();
        let length = ty.byte_len();
        return Ok(Tensor::from_bytes(ty, &bytes[..length])?);
    }
    let mut result = Tensor::zeros(view.ty());
    gather_bytes(view, bytes, result.bytes_mut())?;
    Ok(result)
}

/// The executor names the step already, so the interpreter's own mention of it is left out.
fn unwrap_operator(error: InterpError) -> EvalError {
    match error {
        InterpError::Operator { error, .. } => error,
        other => EvalError::Invalid(other.to_string()),
    }
}
