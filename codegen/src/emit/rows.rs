//! Kernels in which a group of threads works on one row: reductions, softmax, norms, the greatest
//! elements. A row is the operand along the axes that are combined; a group is one thread where
//! neighbouring rows are neighbours in memory, else a warp or a block. Must never depend on how
//! many rows a run has.

use super::EmitError;
use super::dims::{compute_type, storage_type};
use super::index::Index;
use super::kernel::{Emitted, Geometry, KernelBuilder, StepContext, TensorRef};
use super::scalar::{convert, literal};
use membar_ir::dim::Dim;
use membar_ir::dtype::{DType, DTypeClass};
use membar_ir::element::Number;
use membar_ir::ops::{
    ArgKind, ArgReduce, Cumulative, CumulativeKind, GroupNorm, LayerNorm, Op, Reduce, ReduceKind,
    RmsNorm, TopK,
};
use membar_ir::scalar::limit;
use membar_ir::types::Axis;

/// Threads of a block whose groups are smaller.
const THREADS: u32 = 128;
/// Elements of a row that a thread keeps in registers at most.
const MOST_KEPT: u64 = 16;

/// Whether there is a kernel of this family for the operator.
pub(crate) fn is_row(op: &Op) -> bool {
    matches!(
        op,
        Op::Reduce(_)
            | Op::ArgReduce(_)
            | Op::TopK(_)
            | Op::Cumulative(_)
            | Op::Softmax(_)
            | Op::LogSoftmax(_)
            | Op::LayerNorm(_)
            | Op::RmsNorm(_)
            | Op::GroupNorm(_)
    )
}

/// The kernel of a step.
pub(crate) fn emit(step: &StepContext<'_>) -> Result<Vec<Emitted>, EmitError> {
    let x = &step.operands[0];
    let rank = x.ty.rank();
    let one = |axis: Axis| vec![axis.index()];
    let emitted = match step.op {
        Op::Reduce(op) => {
            let axes = op.axes.iter().map(|axis| axis.index()).collect();
            reduce(op, RowKernel::new(step, x.ty.shape.clone(), axes))
        }
        Op::ArgReduce(op) => arg_reduce(op, RowKernel::new(step, x.ty.shape.clone(), one(op.axis))),
        Op::TopK(op) => top_k(op, RowKernel::new(step, x.ty.shape.clone(), one(op.axis))),
        Op::Cumulative(op) => {
            let rows = RowKernel::with_group(step, x.ty.shape.clone(), one(op.axis), 1);
            cumulative(op, rows)
        }
        Op::Softmax(op) => softmax(RowKernel::new(step, x.ty.shape.clone(), one(op.axis)), false),
        Op::LogSoftmax(op) => softmax(RowKernel::new(step, x.ty.shape.clone(), one(op.axis)), true),
        Op::LayerNorm(op) => {
            let axes = (op.axis.index()..rank).collect();
            layer_norm(op, RowKernel::new(step, x.ty.shape.clone(), axes))
        }
        Op::RmsNorm(op) => {
            let axes = (op.axis.index()..rank).collect();
            rms_norm(op, RowKernel::new(step, x.ty.shape.clone(), axes))
        }
        Op::GroupNorm(op) => group_norm(op, step)?,
        op => return Err(EmitError::NoKernel { operator: op.to_string() }),
    };
    Ok(vec![emitted])
}

/// A kernel over the rows of operand 0.
struct RowKernel<'a> {
    kernel: KernelBuilder<'a>,
    shape: Vec<Dim>,
    /// The axes along which a row runs, ascending.
    axes: Vec<usize>,
    /// Threads that share a row.
    group: u32,
    /// How many elements each thread keeps in registers; 0: it reads them again.
    kept: u64,
    rows: Dim,
    length: Dim,
    /// Whether a row lies in one piece.
    whole: bool,
}

impl<'a> RowKernel<'a> {
    fn new(step: &'a StepContext<'a>, shape: Vec<Dim>, axes: Vec<usize>) -> RowKernel<'a> {
        let suffix = axes.iter().rev().enumerate().all(|(i, axis)| axis + i + 1 == shape.len());
        let longest = greatest_length(step, &shape, &axes);
        let group = match longest {
            // Neighbouring threads read neighbouring elements of different rows.
            _ if !suffix => 1,
            0..=4 => 1,
            5..=512 => 32,
            513..=1024 => 128,
            1025..=4096 => 256,
            _ => 512,
        };
        RowKernel::with_group(step, shape, axes, group)
    }

    fn with_group(
        step: &'a StepContext<'a>,
        shape: Vec<Dim>,
        axes: Vec<usize>,
        group: u32,
    ) -> RowKernel<'a> {
        let suffix = axes.iter().rev().enumerate().all(|(i, axis)| axis + i + 1 == shape.len());
        let per_thread = greatest_length(step, &shape, &axes).div_ceil(u64::from(group));
        let of = |inside: bool| -> Dim {
            let dims = shape.iter().enumerate();
            dims.filter(|(axis, _)| axes.contains(axis) == inside)
                .fold(Dim::ONE, |product, (_, dim)| product * dim.clone())
        };
        RowKernel {
            rows: of(false),
            length: of(true),
            kernel: KernelBuilder::new(step),
            whole: suffix && step.operands[0].is_contiguous(),
            shape,
            axes,
            group,
            kept: if per_thread <= MOST_KEPT && group > 1 { per_thread } else { 0 },
        }
    }

    /// Opens the loop over the rows of a group of threads and declares the row's coordinates.
    fn open(&mut self) -> Vec<String> {
        let (group, threads) = (self.group, self.threads());
        let rows = self.kernel.dim(&self.rows);
        let length = self.kernel.dim(&self.length);
        let kernel = &mut self.kernel;
        kernel.line(format!("const idx rows = {rows};"));
        kernel.line(format!("const idx length = {length};"));
        kernel.line(format!("const int lane = threadIdx.x % {group};"));
        let step = threads / group;
        kernel.open(format!(
            "for (idx row = idx(blockIdx.x) * {step} + threadIdx.x / {group}; row < rows; \
             row += idx(gridDim.x) * {step})"
        ));
        let outer: Vec<Dim> = (0..self.shape.len())
            .filter(|axis| !self.axes.contains(axis))
            .map(|axis| self.shape[axis].clone())
            .collect();
        Index::unravel(kernel, "row", &outer).axes
    }

    /// The position of element `j` of the row with these coordinates.
    fn index(&mut self, row: &[String], j: &str) -> Index {
        let inner: Vec<Dim> = self.axes.iter().map(|axis| self.shape[*axis].clone()).collect();
        let inner = Index::unravel(&mut self.kernel, j, &inner).axes;
        let (mut row, mut inner) = (row.iter(), inner.iter());
        let axes = (0..self.shape.len()).filter_map(|axis| {
            if self.axes.contains(&axis) { inner.next() } else { row.next() }.cloned()
        });
        let mut index = Index::at(&self.shape, axes.collect());
        if self.whole {
            index.linear = Some(format!("(row * length + {j})"));
        }
        index
    }

    /// A loop over the row's elements; `body` gets the element's number and, where elements are
    /// kept, its place among those.
    fn pass(&mut self, mut body: impl FnMut(&mut Self, &str, &str)) {
        let group = self.group;
        let kernel = &mut self.kernel;
        let (j, c) = (kernel.name("j"), kernel.name("c"));
        if self.kept > 0 {
            kernel.line("#pragma unroll");
            kernel.open(format!("for (int {c} = 0; {c} < {}; ++{c})", self.kept));
            kernel.line(format!("const idx {j} = lane + {c} * {group};"));
            kernel.open(format!("if ({j} < length)"));
            body(self, &j, &c);
            self.kernel.close();
        } else {
            kernel.open(format!("for (idx {j} = lane; {j} < length; {j} += {group})"));
            body(self, &j, &c);
        }
        self.kernel.close();
    }

    /// The value of element `j` of operand 0, in its compute type.
    fn load(&mut self, row: &[String], j: &str) -> String {
        let index = self.index(row, j);
        let x = self.kernel.operand(0);
        let offset = index.offset(&self.kernel, &self.kernel.step.operands[0]);
        format!("load({x}, {offset})")
    }

    /// Declares room for the elements that threads keep.
    fn keep(&mut self, ty: &str) {
        if self.kept > 0 {
            let kept = self.kept;
            self.kernel.line(format!("{ty} kept[{kept}];"));
        }
    }

    /// The first read of an element: keeps it where elements are kept.
    fn first(&mut self, row: &[String], j: &str, c: &str, ty: &str) -> String {
        let value = self.load(row, j);
        let value = self.kernel.bind(ty, "x", value);
        if self.kept > 0 {
            self.kernel.line(format!("kept[{c}] = {value};"));
        }
        value
    }

    /// A later read of an element.
    fn again(&mut self, row: &[String], j: &str, c: &str, ty: &str) -> String {
        if self.kept > 0 {
            return format!("kept[{c}]");
        }
        let value = self.load(row, j);
        self.kernel.bind(ty, "x", value)
    }

    /// Combines a variable of every thread of the group.
    fn combine(&mut self, variable: &str, ty: &str, combined: &str) {
        let lambda = format!("[](const {ty}& a, const {ty}& b) -> {ty} {{ return {combined}; }}");
        match self.group {
            1 => {}
            32 => self.kernel.line(format!("{variable} = warp_reduce({variable}, {lambda});")),
            _ => {
                let scratch = self.kernel.name("scratch");
                self.kernel.line(format!("__shared__ {ty} {scratch}[32];"));
                self.kernel
                    .line(format!("{variable} = block_reduce({variable}, {lambda}, {scratch});"));
            }
        }
    }

    fn threads(&self) -> u32 {
        if self.group > 32 { self.group } else { THREADS }
    }

    /// Stores to output `output` at a position.
    fn store(&mut self, output: usize, index: &Index, value: &str) {
        let y = self.kernel.output(output);
        let tensor: &TensorRef = &self.kernel.step.outputs[output];
        let offset = index.offset(&self.kernel, tensor);
        let element = storage_type(tensor.ty.dtype);
        self.kernel.line(format!("{y}[{offset}] = Element<{element}>::of({value});"));
    }

    fn finish(mut self, family: &str) -> Emitted {
        self.kernel.close();
        let threads = self.threads();
        let step = self.kernel.step;
        let rows = step.greatest(&self.rows).unwrap_or(u64::MAX);
        let wanted = rows.div_ceil(u64::from(threads / self.group)).max(1);
        let blocks = wanted.min(u64::from(step.units) * 16) as u32;
        self.kernel.finish(family, Geometry { blocks, threads, shared_bytes: 0 })
    }
}

fn greatest_length(step: &StepContext<'_>, shape: &[Dim], axes: &[usize]) -> u64 {
    let dims: Vec<Dim> = axes.iter().map(|axis| shape[*axis].clone()).collect();
    step.greatest_product(&dims)
}

/// The type in which elements of a type are combined, and its C++ name.
fn accumulator(dtype: DType) -> DType {
    match dtype.class() {
        DTypeClass::Float => dtype.compute(),
        DTypeClass::Signed => DType::I64,
        DTypeClass::Unsigned => DType::U64,
        DTypeClass::Bool => DType::I32,
    }
}

fn reduce(op: &Reduce, mut rows: RowKernel<'_>) -> Emitted {
    let dtype = rows.kernel.step.operands[0].ty.dtype;
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
        let value = rows.load(&row, j);
        rows.kernel.line(format!("const {ty} a = result, b = {ty}({value});"));
        rows.kernel.line(format!("result = {combined};"));
    });
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
    // Outside the reduced axes, which are gone or 1, the result is row-major over the rows.
    let mut index = Index::at(&rows.kernel.step.outputs[0].ty.shape.clone(), Vec::new());
    index.linear = Some("row".to_string());
    rows.store(0, &index, &result);
    rows.kernel.close();
    rows.finish("reduce")
}

fn softmax(mut rows: RowKernel<'_>, logarithm: bool) -> Emitted {
    let dtype = rows.kernel.step.operands[0].ty.dtype;
    let ty = compute_type(dtype);
    let suffix = if ty == "f32" { "f" } else { "" };
    let row = rows.open();
    rows.keep(ty);
    let least = literal(Number::Float(f64::NEG_INFINITY), dtype.compute());
    rows.kernel.line(format!("{ty} greatest = {least};"));
    rows.pass(|rows, j, c| {
        let x = rows.first(&row, j, c, ty);
        rows.kernel.line(format!("greatest = float_max(greatest, {x});"));
    });
    rows.combine("greatest", ty, "float_max(a, b)");
    rows.kernel.line(format!("{ty} sum = 0;"));
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty);
        let power = rows.kernel.bind(ty, "e", format!("exp{suffix}({x} - greatest)"));
        if rows.kept > 0 && !logarithm {
            rows.kernel.line(format!("kept[{c}] = {power};"));
        }
        rows.kernel.line(format!("sum += {power};"));
    });
    rows.combine("sum", ty, "a + b");
    if logarithm {
        rows.kernel.line(format!("const {ty} log_sum = log{suffix}(sum);"));
    }
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty);
        let value = match (logarithm, rows.kept > 0) {
            (true, _) => format!("{x} - greatest - log_sum"),
            (false, true) => format!("{x} / sum"),
            (false, false) => format!("exp{suffix}({x} - greatest) / sum"),
        };
        let index = rows.index(&row, j);
        rows.store(0, &index, &value);
    });
    rows.finish(if logarithm { "log_softmax" } else { "softmax" })
}

/// Mean and `1 / sqrt(variance + epsilon)` of a row, declared as `mean` and `factor`.
fn statistics(rows: &mut RowKernel<'_>, row: &[String], epsilon: f64, dtype: DType) {
    let ty = compute_type(dtype);
    let root = if ty == "f32" { "sqrtf" } else { "sqrt" };
    let epsilon = literal(Number::Float(epsilon), dtype.compute());
    rows.keep(ty);
    rows.kernel.line(format!("{ty} mean = 0;"));
    rows.pass(|rows, j, c| {
        let x = rows.first(row, j, c, ty);
        rows.kernel.line(format!("mean += {x};"));
    });
    rows.combine("mean", ty, "a + b");
    rows.kernel.line(format!("mean /= {ty}(length);"));
    rows.kernel.line(format!("{ty} square = 0;"));
    rows.pass(|rows, j, c| {
        let x = rows.again(row, j, c, ty);
        rows.kernel.line(format!("square += ({x} - mean) * ({x} - mean);"));
    });
    rows.combine("square", ty, "a + b");
    rows.kernel
        .line(format!("const {ty} factor = {ty}(1) / {root}(square / {ty}(length) + {epsilon});"));
}

/// The element of operand `operand` that belongs to a position, in `dtype`'s compute type.
fn parameter(rows: &mut RowKernel<'_>, operand: usize, index: &Index, dtype: DType) -> String {
    let tensor = &rows.kernel.step.operands[operand];
    let index = index.broadcast_to(&tensor.ty);
    let pointer = rows.kernel.operand(operand);
    let offset = index.offset(&rows.kernel, tensor);
    let value = format!("load({pointer}, {offset})");
    convert(&value, tensor.ty.dtype.compute(), dtype.compute(), true)
}

fn layer_norm(op: &LayerNorm, mut rows: RowKernel<'_>) -> Emitted {
    let dtype = rows.kernel.step.operands[0].ty.dtype;
    let ty = compute_type(dtype);
    let row = rows.open();
    statistics(&mut rows, &row, op.epsilon.0, dtype);
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty);
        let index = rows.index(&row, j);
        let scale = parameter(rows, 1, &index, dtype);
        let mut value = format!("({x} - mean) * factor * {scale}");
        if op.bias {
            let bias = parameter(rows, 2, &index, dtype);
            value = format!("{value} + {bias}");
        }
        rows.store(0, &index, &value);
    });
    if op.statistics {
        rows.kernel.open("if (lane == 0)");
        for (output, name) in [(1, "mean"), (2, "factor")] {
            let mut index =
                Index::at(&rows.kernel.step.outputs[output].ty.shape.clone(), Vec::new());
            index.linear = Some("row".to_string());
            rows.store(output, &index, name);
        }
        rows.kernel.close();
    }
    rows.finish("layer_norm")
}

fn rms_norm(op: &RmsNorm, mut rows: RowKernel<'_>) -> Emitted {
    let dtype = rows.kernel.step.operands[0].ty.dtype;
    let ty = compute_type(dtype);
    let root = if ty == "f32" { "sqrtf" } else { "sqrt" };
    let epsilon = literal(Number::Float(op.epsilon.0), dtype.compute());
    let row = rows.open();
    rows.keep(ty);
    rows.kernel.line(format!("{ty} square = 0;"));
    rows.pass(|rows, j, c| {
        let x = rows.first(&row, j, c, ty);
        rows.kernel.line(format!("square += {x} * {x};"));
    });
    rows.combine("square", ty, "a + b");
    rows.kernel
        .line(format!("const {ty} factor = {ty}(1) / {root}(square / {ty}(length) + {epsilon});"));
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty);
        let index = rows.index(&row, j);
        let scale = parameter(rows, 1, &index, dtype);
        rows.store(0, &index, &format!("{x} * factor * {scale}"));
    });
    rows.finish("rms_norm")
}

/// `[N, C, …]` in groups: a row is a group's channels, `[N, groups, C / groups, …]`.
fn group_norm(op: &GroupNorm, step: &StepContext<'_>) -> Result<Emitted, EmitError> {
    let x = &step.operands[0].ty;
    let groups = Dim::from(op.groups);
    let channels = x.shape[1]
        .exact_div(&groups)
        .ok_or_else(|| EmitError::NoKernel { operator: step.op.to_string() })?;
    let mut shape = vec![x.shape[0].clone(), groups, channels.clone()];
    shape.extend_from_slice(&x.shape[2..]);
    let axes = (2..shape.len()).collect();
    let dtype = x.dtype;
    let ty = compute_type(dtype);
    let mut rows = RowKernel::new(step, shape, axes);
    let row = rows.open();
    statistics(&mut rows, &row, op.epsilon.0, dtype);
    let channels = rows.kernel.dim(&channels);
    rows.pass(|rows, j, c| {
        let x = rows.again(&row, j, c, ty);
        let index = rows.index(&row, j);
        let channel = format!("{} * {channels} + {}", index.axes[1], index.axes[2]);
        let channel = rows.kernel.bind("idx", "channel", channel);
        let [scale, bias] = [1, 2].map(|operand| {
            let tensor = &rows.kernel.step.operands[operand];
            let at = Index::at(&tensor.ty.shape.clone(), vec![channel.clone()]);
            parameter(rows, operand, &at, dtype)
        });
        rows.store(0, &index, &format!("({x} - mean) * factor * {scale} + {bias}"));
    });
    Ok(rows.finish("group_norm"))
}

/// The order of elements as unsigned integers; `nan` is that of NaN.
fn order_key(dtype: DType, value: &str, nan: &str) -> String {
    match dtype.class() {
        DTypeClass::Float => format!("order_key(f64({value}), {nan})"),
        DTypeClass::Signed => format!("(u64(i64({value})) ^ 0x8000000000000000ULL)"),
        DTypeClass::Unsigned | DTypeClass::Bool => format!("u64({value})"),
    }
}

const ORDER: &str = include_str!("../../cuda/order.cuh");

fn arg_reduce(op: &ArgReduce, mut rows: RowKernel<'_>) -> Emitted {
    let dtype = rows.kernel.step.operands[0].ty.dtype;
    rows.kernel.header(ORDER);
    rows.kept = 0;
    let row = rows.open();
    let invert = if op.kind == ArgKind::Min { "~" } else { "" };
    let nan = if op.kind == ArgKind::Min { "0ULL" } else { "~0ULL" };
    // Of equal keys the least place wins: the index, or its complement where the last counts.
    let place = |j: &str| if op.last { format!("~u64({j})") } else { format!("u64({j})") };
    rows.kernel.line("Ranked best = {0ULL, ~0ULL};");
    rows.pass(|rows, j, _| {
        let value = rows.load(&row, j);
        let key = format!("{invert}{}", order_key(dtype, &value, nan));
        rows.kernel.line(format!("best = first_of(best, Ranked{{{key}, {}}});", place(j)));
    });
    combine_ranked(&mut rows);
    rows.kernel.open("if (lane == 0)");
    let mut index = Index::at(&rows.kernel.step.outputs[0].ty.shape.clone(), Vec::new());
    index.linear = Some("row".to_string());
    let result = if op.last { "i64(~best.place)" } else { "i64(best.place)" };
    rows.store(0, &index, result);
    rows.kernel.close();
    rows.finish("arg_reduce")
}

fn combine_ranked(rows: &mut RowKernel<'_>) {
    match rows.group {
        1 => {}
        32 => rows.kernel.line("best = warp_first(best);"),
        _ => {
            rows.kernel.line("__shared__ Ranked ranks[32];");
            rows.kernel.line("best = block_first(best, ranks);");
        }
    }
}

fn top_k(op: &TopK, mut rows: RowKernel<'_>) -> Emitted {
    let dtype = rows.kernel.step.operands[0].ty.dtype;
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
        let value = rows.load(&row, j);
        let key = format!("{invert}{}", order_key(dtype, &value, "~0ULL"));
        rows.kernel.line(format!("const Ranked next = {{{key}, u64({j})}};"));
        // What was taken before stays out.
        rows.kernel.line("if (!begun || comes_before(last, next)) best = first_of(best, next);");
    });
    combine_ranked(&mut rows);
    rows.kernel.line("last = best;");
    rows.kernel.line("begun = true;");
    rows.kernel.open("if (lane == 0)");
    let shape = rows.kernel.step.outputs[0].ty.shape.clone();
    let mut axes = row.clone();
    axes.insert(axis, "rank".to_string());
    let index = Index::at(&shape, axes);
    let value = rows.load(&row, "idx(best.place)");
    rows.store(0, &index, &value);
    rows.store(1, &index, "i64(best.place)");
    rows.kernel.close();
    rows.kernel.close();
    rows.finish("top_k")
}

fn cumulative(op: &Cumulative, mut rows: RowKernel<'_>) -> Emitted {
    let dtype = rows.kernel.step.operands[0].ty.dtype;
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
        let value = rows.load(&row, &place);
        rows.kernel.line(format!("const {ty} next = running {operator} {ty}({value});"));
        let result = if op.exclusive { "running" } else { "next" };
        let result = convert(result, acc, dtype, true);
        let index = rows.index(&row, &place);
        rows.store(0, &index, &result);
        rows.kernel.line("running = next;");
    });
    rows.finish("cumulative")
}
