//! Elements of rows by rank: `arg_reduce` and `top_k`. Must never sort a row: what is asked for is a
//! few elements.

use super::RowKernel;
use crate::emit::EmitError;
use crate::emit::headers::ORDER;
use crate::emit::index::Index;
use crate::emit::kernel::Emitted;
use membar_ir::dtype::{DType, DTypeClass};
use membar_ir::ops::{ArgKind, ArgReduce, TopK};

/// The order of elements as unsigned integers; `nan` is that of NaN.
fn order_key(dtype: DType, value: &str, nan: &str) -> String {
    match dtype.class() {
        DTypeClass::Float => format!("order_key(f64({value}), {nan})"),
        DTypeClass::Signed => format!("(u64(i64({value})) ^ 0x8000000000000000ULL)"),
        DTypeClass::Unsigned | DTypeClass::Bool => format!("u64({value})"),
    }
}

pub(super) fn arg_reduce(op: &ArgReduce, mut rows: RowKernel<'_>) -> Result<Emitted, EmitError> {
    let dtype = rows.dtype();
    rows.kernel.header(ORDER);
    rows.kept = 0;
    let row = rows.open();
    let invert = if op.kind == ArgKind::Min { "~" } else { "" };
    let nan = if op.kind == ArgKind::Min { "0ULL" } else { "~0ULL" };
    // Of equal keys the least place wins: the index, or its complement where the last counts.
    let place = |j: &str| if op.last { format!("~u64({j})") } else { format!("u64({j})") };
    rows.kernel.line("Ranked best = {0ULL, ~0ULL};");
    rows.pass(|rows, j, _| {
        let value = rows.load(&row, j)?;
        let key = format!("{invert}{}", order_key(dtype, &value, nan));
        rows.kernel.line(format!("best = first_of(best, Ranked{{{key}, {}}});", place(j)));
        Ok(())
    })?;
    combine_ranked(&mut rows);
    rows.kernel.open("if (lane == 0)");
    let index = rows.row_index(0, &row);
    let result = if op.last { "i64(~best.place)" } else { "i64(best.place)" };
    rows.store(0, &index, result)?;
    rows.kernel.close();
    rows.finish("arg_reduce")
}

fn combine_ranked(rows: &mut RowKernel<'_>) {
    match rows.share {
        1 => {}
        32 => rows.kernel.line("best = warp_first(best);"),
        _ => {
            rows.kernel.line("__shared__ Ranked ranks[32];");
            rows.kernel.line("best = block_first(best, ranks);");
        }
    }
}

pub(super) fn top_k(op: &TopK, mut rows: RowKernel<'_>) -> Result<Emitted, EmitError> {
    let dtype = rows.dtype();
    let axis = op.axis.index();
    rows.kernel.header(ORDER);
    rows.kept = 0;
    let row = rows.open();
    let k = rows.kernel.dim(&op.k);
    let invert = if op.largest { "" } else { "~" };
    rows.kernel.line("Ranked last = {~0ULL, 0ULL};");
    rows.kernel.line("bool begun = false;");
    rows.kernel.open(format!("for (idx rank = 0; rank < {k}; ++rank)"));
    rows.kernel.line("Ranked best = {0ULL, ~0ULL};");
    rows.pass(|rows, j, _| {
        let value = rows.load(&row, j)?;
        let key = format!("{invert}{}", order_key(dtype, &value, "~0ULL"));
        rows.kernel.line(format!("const Ranked next = {{{key}, u64({j})}};"));
        // What was taken before stays out.
        rows.kernel.line("if (!begun || comes_before(last, next)) best = first_of(best, next);");
        Ok(())
    })?;
    combine_ranked(&mut rows);
    rows.kernel.line("last = best;");
    rows.kernel.line("begun = true;");
    rows.kernel.open("if (lane == 0)");
    let shape = rows.anchor.outputs[0].shape.clone();
    let mut axes = row.clone();
    axes.insert(axis, "rank".to_string());
    let index = Index::at(&shape, axes);
    let value = rows.load(&row, "idx(best.place)")?;
    rows.store(0, &index, &value)?;
    rows.store(1, &index, "i64(best.place)")?;
    rows.kernel.close();
    rows.kernel.close();
    rows.finish("top_k")
}
