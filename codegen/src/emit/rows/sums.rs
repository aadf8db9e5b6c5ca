//! Sums and their kin along rows: `reduce` and `cumulative`. Must never keep a row.

use super::RowKernel;
use crate::emit::EmitError;
use crate::emit::dims::compute_type;
use crate::emit::kernel::Emitted;
use crate::emit::scalar::{convert, literal};
use membar_ir::dtype::{DType, DTypeClass};
use membar_ir::element::Number;
use membar_ir::ops::{Cumulative, CumulativeKind, Reduce, ReduceKind};
use membar_ir::scalar::limit;

/// The type in which elements of a type are combined, and its C++ name.
fn accumulator(dtype: DType) -> DType {
    match dtype.class() {
        DTypeClass::Float => dtype.compute(),
        DTypeClass::Signed => DType::I64,
        DTypeClass::Unsigned => DType::U64,
        DTypeClass::Bool => DType::I32,
    }
}

pub(super) fn reduce(op: &Reduce, mut rows: RowKernel<'_>) -> Result<Emitted, EmitError> {
    let dtype = rows.dtype();
    let acc = accumulator(dtype);
    let ty = compute_type(acc);
    rows.kept = 0;
    let row = rows.open();
    let number = |greatest| limit(dtype, greatest);
    let (start, combined) = match op.kind {
        ReduceKind::Sum | ReduceKind::Mean => (Number::Signed(0), "a + b"),
        ReduceKind::Prod => (Number::Signed(1), "a * b"),
        ReduceKind::Max if acc.is_float() => (number(false), "float_max(a, b)"),
        ReduceKind::Min if acc.is_float() => (number(true), "float_min(a, b)"),
        ReduceKind::Max => (number(false), "a > b ? a : b"),
        ReduceKind::Min => (number(true), "a < b ? a : b"),
    };
    rows.kernel.line(format!("{ty} result = {};", literal(start, acc)));
    rows.pass(|rows, j, _| {
        let value = rows.load(&row, j)?;
        rows.kernel.line(format!("const {ty} a = result, b = {ty}({value});"));
        rows.kernel.line(format!("result = {combined};"));
        Ok(())
    })?;
    rows.combine("result", ty, combined);
    if op.kind == ReduceKind::Mean {
        if acc.is_float() {
            rows.kernel.line(format!("result /= {ty}(length);"));
        } else {
            rows.kernel.line(format!("result = int_div(result, {ty}(length));"));
        }
    }
    rows.kernel.open("if (lane == 0)");
    let result = convert("result", acc, dtype, true);
    let index = rows.row_index(0, &row);
    rows.store(0, &index, &result)?;
    rows.kernel.close();
    rows.finish("reduce")
}

pub(super) fn cumulative(op: &Cumulative, mut rows: RowKernel<'_>) -> Result<Emitted, EmitError> {
    let dtype = rows.dtype();
    let acc = accumulator(dtype);
    let ty = compute_type(acc);
    let row = rows.open();
    let (start, operator) = match op.kind {
        CumulativeKind::Sum => ("0", "+"),
        CumulativeKind::Prod => ("1", "*"),
    };
    rows.kernel.line(format!("{ty} running = {start};"));
    rows.pass(|rows, j, _| {
        let place = if op.reverse { format!("(length - 1 - {j})") } else { j.to_string() };
        let place = rows.kernel.bind("idx", "at", place);
        let value = rows.load(&row, &place)?;
        rows.kernel.line(format!("const {ty} next = running {operator} {ty}({value});"));
        let result = if op.exclusive { "running" } else { "next" };
        let result = convert(result, acc, dtype, true);
        let index = rows.index(&row, &place);
        rows.store(0, &index, &result)?;
        rows.kernel.line("running = next;");
        Ok(())
    })?;
    rows.finish("cumulative")
}
