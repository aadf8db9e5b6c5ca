//! The CPU's kernels by operator: the only table of them; must never hold a kernel's code.

use super::kernels::{conv, elementwise, gather, matmul, movement, reduce, reference, rows};
use super::program::{Run, Selected, Shapes};
use membar_ir::kernel::{InPlace, KernelLibrary, KernelSpec};
use membar_ir::op::Meaning;
use membar_ir::ops::Op;
use membar_ir::types::TensorType;

/// The kernels of the CPU executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuLibrary;

impl KernelLibrary for CpuLibrary {
    fn kernel(
        &self,
        op: &Op,
        operands: &[TensorType],
        outputs: &[TensorType],
    ) -> Option<KernelSpec> {
        select(op, operands, outputs).map(|selected| selected.spec)
    }

    fn has_groups(&self) -> bool {
        false
    }
}

/// The kernel for an operator on these types. `None`: the operator runs as its composite meaning.
pub(crate) fn select(op: &Op, operands: &[TensorType], outputs: &[TensorType]) -> Option<Selected> {
    match op {
        Op::Reshape(_) => Some(alias("reshape", operands.len())),
        Op::Bitcast(_) => Some(alias("bitcast", operands.len())),
        Op::Scalar(_) => scalar(op, operands, outputs),
        Op::Transpose(_) | Op::Broadcast(_) | Op::Slice(_) | Op::Concat(_) | Op::Append(_)
            if !movement::is_addressable(operands) =>
        {
            by_meaning(op, operands)
        }
        Op::Transpose(op) => Some(movement::transpose(op)),
        Op::Broadcast(op) => Some(movement::broadcast(op)),
        Op::Slice(slice) => movement::slice(slice).or_else(|| by_meaning(op, operands)),
        Op::Concat(op) => Some(movement::concat(op, operands.len())),
        Op::Append(op) => Some(movement::append(op)),
        Op::Gather(gather) => gather::select(gather, operands).or_else(|| by_meaning(op, operands)),
        Op::Matmul(matmul) => matmul::select(matmul, operands).or_else(|| by_meaning(op, operands)),
        Op::Reduce(reduce) => reduce::select(reduce, operands).or_else(|| by_meaning(op, operands)),
        Op::Conv(conv) => conv::select(conv, operands).or_else(|| by_meaning(op, operands)),
        Op::Softmax(op) => rows::softmax(op, operands),
        Op::LogSoftmax(op) => rows::log_softmax(op, operands),
        Op::LayerNorm(op) => rows::layer_norm(op, operands),
        Op::RmsNorm(op) => rows::rms_norm(op, operands),
        Op::Iota(_)
        | Op::Dims(_)
        | Op::Pad(_)
        | Op::GatherElements(_)
        | Op::GatherNd(_)
        | Op::ScatterElements(_)
        | Op::ScatterNd(_)
        | Op::TensorScatter(_)
        | Op::ArgReduce(_)
        | Op::Cumulative(_)
        | Op::TopK(_)
        | Op::GroupNorm(_)
        | Op::BatchNorm(_)
        | Op::LocalResponseNorm(_)
        | Op::Attention(_)
        | Op::RotaryEmbedding(_)
        | Op::Quantize(_)
        | Op::Dequantize(_)
        | Op::ConvTranspose(_)
        | Op::Pool(_)
        | Op::Resize(_)
        | Op::GridSample(_) => by_meaning(op, operands),
        // A group runs as its parts.
        Op::Fused(_) => None,
    }
}

/// Elementwise functions; an operand of the result's type may be overwritten.
fn scalar(op: &Op, operands: &[TensorType], outputs: &[TensorType]) -> Option<Selected> {
    let compiled = match op.meaning(operands) {
        Meaning::Scalar(meaning) => elementwise::select(&meaning, operands),
        Meaning::Composite(_) | Meaning::Primitive(_) => None,
    };
    compiled.or_else(|| by_meaning(op, operands)).map(|selected| {
        let same = |(_, ty): &(usize, &TensorType)| outputs.first() == Some(*ty);
        let operands = operands.iter().enumerate().filter(same);
        operands.fold(selected, |selected, (index, _)| selected.in_place(index, 0))
    })
}

/// Operators without a kernel of their own: the reference evaluation, unless they are made of
/// simpler operators.
fn by_meaning(op: &Op, operands: &[TensorType]) -> Option<Selected> {
    match op.meaning(operands) {
        Meaning::Scalar(_) | Meaning::Primitive(_) => Some(reference::select(op, operands.len())),
        Meaning::Composite(_) => None,
    }
}

/// The operand's bytes under another type: nothing runs where they share a region, else a copy.
fn alias(name: &str, operands: usize) -> Selected {
    let mut selected = Selected::new(name, operands, |shapes| Ok(copy(shapes)));
    selected.spec.alias = Some(InPlace { operand: 0, output: 0 });
    selected.in_place(0, 0)
}

fn copy(shapes: &Shapes<'_>) -> Run {
    let view = shapes.operands[0].clone();
    Box::new(move |call| {
        if call.is_in_place(0) {
            return Ok(());
        }
        let bytes = call.bytes(0)?;
        let out = call.output::<u8>(0)?;
        if view.is_contiguous() {
            let length = view.ty().byte_len();
            out[..length].copy_from_slice(&bytes[..length]);
            return Ok(());
        }
        movement::gather_bytes(&view, bytes, out)
    })
}
