//! Results that lie, or may lie, where an operand lies: aliases and appends to states. Must never
//! decide where that is.

use super::EmitError;
use super::dims::storage_type;
use super::index::Index;
use super::kernel::{Emitted, Geometry, KernelBuilder, StepContext};
use super::pointwise;
use membar_ir::ops::Op;

const THREADS: u32 = 256;

/// A copy: one that lies where its operand lies is no step.
pub(crate) fn alias(step: &StepContext<'_>) -> Result<Vec<Emitted>, EmitError> {
    match step.op {
        Op::Bitcast(_) => copy_bytes(step),
        _ => pointwise::emit(step),
    }
}

fn copy_bytes(step: &StepContext<'_>) -> Result<Vec<Emitted>, EmitError> {
    let mut kernel = KernelBuilder::new(step);
    let (x, y) = (kernel.operand(0), kernel.output(0));
    let count = step.outputs[0].ty.bytes();
    let n = kernel.dim(&count);
    kernel.line(format!("const i64 n = i64({n});"));
    let start = "i64(blockIdx.x) * blockDim.x + threadIdx.x";
    kernel.open(format!("for (i64 i = {start}; i < n; i += i64(gridDim.x) * blockDim.x)"));
    kernel.line(format!("((u8*){y})[i] = ((const u8*){x})[i];"));
    kernel.close();
    let greatest = step.greatest(&count).unwrap_or(u64::MAX);
    let blocks = pointwise::blocks(step, greatest, THREADS);
    let geometry = Geometry { blocks, threads: THREADS, shared_bytes: 0 };
    Ok(vec![kernel.finish("copy_bytes", geometry)])
}

/// In place only the new rows are written, else all.
pub(crate) fn append(step: &StepContext<'_>) -> Result<Vec<Emitted>, EmitError> {
    let (state, rows, output) = (&step.operands[0], &step.operands[1], &step.outputs[0]);
    let stays =
        state.place.is_some() && state.place == output.place && state.strides() == output.strides();
    let Op::Append(op) = step.op else {
        return Err(EmitError::NoKernel { operator: step.op.to_string() });
    };
    if !stays || matches!(output.ty.dtype.bits(), 4) {
        return pointwise::emit(step);
    }
    let axis = op.axis.index();
    let mut kernel = KernelBuilder::new(step);
    let n = kernel.product(&rows.ty.shape);
    kernel.line(format!("const idx n = {n};"));
    let start = "idx(blockIdx.x * blockDim.x + threadIdx.x)";
    kernel.open(format!("for (idx i = {start}; i < n; i += idx(gridDim.x * blockDim.x))"));
    let from = Index::unravel(&mut kernel, "i", &rows.ty.shape);
    let behind = kernel.dim(&state.ty.shape[axis]);
    let to = from.with_axis(&output.ty.shape, axis, format!("({behind} + {})", from.axes[axis]));
    let (source, target) = (from.offset(&kernel, rows), to.offset(&kernel, output));
    let (x, y) = (kernel.operand(1), kernel.output(0));
    let element = storage_type(output.ty.dtype);
    kernel.line(format!("{y}[{target}] = Element<{element}>::of(load({x}, {source}));"));
    kernel.close();
    let blocks = pointwise::blocks(step, step.greatest_product(&rows.ty.shape), THREADS);
    let geometry = Geometry { blocks, threads: THREADS, shared_bytes: 0 };
    Ok(vec![kernel.finish("append", geometry)])
}
