//! Operators whose result elements each combine many operand elements, one thread an element: right
//! for any shape, fast for none. Faster families take what they can before these.

mod sample;
mod window;

use super::EmitError;
use super::dims::compute_type;
use super::index::Index;
use super::kernel::KernelBuilder;
use super::pointwise::{Applied, Reads};
use super::scalar::convert;
use membar_ir::dtype::DType;
use membar_ir::ops::{Matmul, Op};

/// Whether [`at`] knows the operator.
pub(crate) fn is_loop(op: &Op) -> bool {
    matches!(
        op,
        Op::Matmul(_)
            | Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::Pool(_)
            | Op::Resize(_)
            | Op::GridSample(_)
    )
}

/// The result's element at `index`.
pub(crate) fn at(
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    match applied.op {
        Op::Matmul(op) => matmul(op, applied, index, kernel, reads),
        Op::Conv(op) => window::conv(op, applied, index, kernel, reads),
        Op::ConvTranspose(op) => window::conv_transpose(op, applied, index, kernel, reads),
        Op::Pool(op) => window::pool(op, applied, index, kernel, reads).map(|pooled| pooled.value),
        Op::Resize(op) => sample::resize(op, applied, index, kernel, reads),
        Op::GridSample(op) => sample::grid_sample(op, applied, index, kernel, reads),
        op => Err(EmitError::NoKernel { operator: op.to_string() }),
    }
}

/// The second result's element at `index`: where a window's greatest element is.
pub(crate) fn second_at(
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    match applied.op {
        Op::Pool(op) => window::pool(op, applied, index, kernel, reads).map(|pooled| pooled.winner),
        op => Err(EmitError::NoKernel { operator: op.to_string() }),
    }
}

/// The type in which a product of that accumulator type is summed.
fn accumulator(acc: DType) -> DType {
    acc.compute()
}

fn matmul(
    op: &Matmul,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let (a, b) = (&applied.operands[0], &applied.operands[1]);
    let acc = accumulator(op.acc);
    let ty = compute_type(acc);
    let outer = index.axes.len() - 2;
    let (row, column) = (index.axes[outer].clone(), index.axes[outer + 1].clone());
    let sum = kernel.name("sum");
    let inner = kernel.name("k");
    let extent = kernel.dim(&a.shape[a.rank() - 1]);
    kernel.line(format!("{ty} {sum} = 0;"));
    kernel.open(format!("for (idx {inner} = 0; {inner} < {extent}; ++{inner})"));
    let position = |operand: &membar_ir::types::TensorType, tail: [String; 2]| {
        let skip = outer - (operand.rank() - 2);
        let batch = operand.shape.iter().zip(&index.axes[skip..outer]);
        let batch = batch.map(|(dim, axis)| if dim.is(1) { "0".to_string() } else { axis.clone() });
        Index::at(&operand.shape, batch.chain(tail).collect())
    };
    let x = reads.read(kernel, 0, &position(a, [row, inner.clone()]))?;
    let y = reads.read(kernel, 1, &position(b, [inner, column]))?;
    if acc.is_float() {
        kernel.line(format!("{sum} += {ty}({x}) * {ty}({y});"));
    } else {
        // Wraps: the sum modulo 2^64 is right modulo the accumulator's width too.
        kernel.line(format!("{sum} = {ty}(u64({sum}) + u64(i64({x})) * u64(i64({y})));"));
    }
    kernel.close();
    let sum = convert(&sum, acc, op.acc, true);
    Ok(convert(&sum, op.acc.compute(), op.result, true))
}
