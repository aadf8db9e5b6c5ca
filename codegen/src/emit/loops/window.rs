//! Windows over spatial dimensions: convolutions and pooling, one thread an element of the result.
//! Must never know how operands lie in memory.

use crate::emit::EmitError;
use crate::emit::dims::compute_type;
use crate::emit::index::{Index, ravel};
use crate::emit::kernel::KernelBuilder;
use crate::emit::pointwise::{Applied, Reads};
use crate::emit::scalar::{convert, literal};
use membar_ir::dim::Dim;
use membar_ir::dtype::{DType, DTypeClass};
use membar_ir::ops::{Conv, ConvTranspose, Pool, PoolKind};
use membar_ir::scalar::limit;

/// Opens a loop over a dimension.
fn open_loop(kernel: &mut KernelBuilder<'_>, prefix: &str, extent: &str) -> String {
    let name = kernel.name(prefix);
    kernel.open(format!("for (idx {name} = 0; {name} < {extent}; ++{name})"));
    name
}

fn close(kernel: &mut KernelBuilder<'_>, blocks: usize) {
    for _ in 0..blocks {
        kernel.close();
    }
}

/// The type in which products add up.
fn accumulator(dtype: DType) -> DType {
    if dtype.is_float() { dtype.compute() } else { DType::I64 }
}

/// The first value of the sum: the channel's bias, or 0.
fn begin(
    kernel: &mut KernelBuilder<'_>,
    applied: &Applied<'_>,
    (bias, channel): (bool, &str),
    acc: DType,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let ty = compute_type(acc);
    let start = if bias {
        let index = Index::at(&applied.operands[2].shape, vec![channel.to_string()]);
        reads.read(kernel, 2, &index)?
    } else {
        "0".to_string()
    };
    let sum = kernel.name("sum");
    kernel.line(format!("{ty} {sum} = {ty}({start});"));
    Ok(sum)
}

/// The elements of operand and weights that one product of a window takes, and when they exist.
struct Taps {
    conditions: Vec<String>,
    at: Vec<String>,
    tap: Vec<String>,
}

/// Adds a product to the sum, and closes the loops over channels and taps.
fn add_product(
    kernel: &mut KernelBuilder<'_>,
    applied: &Applied<'_>,
    (sum, acc): (&str, DType),
    taps: Taps,
    reads: &mut dyn Reads,
) -> Result<(), EmitError> {
    let Taps { conditions, at, tap } = taps;
    kernel.open(format!("if ({})", conditions.join(" && ")));
    let value = reads.read(kernel, 0, &Index::at(&applied.operands[0].shape, at))?;
    let weight = reads.read(kernel, 1, &Index::at(&applied.operands[1].shape, tap))?;
    let ty = compute_type(acc);
    kernel.line(format!("{sum} += {ty}({value}) * {ty}({weight});"));
    close(kernel, 2 + conditions.len());
    Ok(())
}

pub(super) fn conv(
    op: &Conv,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let (x, weights) = (&applied.operands[0], &applied.operands[1]);
    let acc = accumulator(applied.output.dtype);
    let (batch, feature) = (index.axes[0].clone(), index.axes[1].clone());
    let sum = begin(kernel, applied, (op.bias, &feature), acc, reads)?;
    let features = kernel.dim(&weights.shape[0]);
    let group = if op.groups == 1 {
        "0".to_string()
    } else {
        kernel.bind("idx", "g", format!("{feature} / ({features} / {})", op.groups))
    };
    let group_channels = kernel.dim(&weights.shape[1]);
    let channel = open_loop(kernel, "c", &group_channels);
    let mut conditions = Vec::new();
    let mut at = vec![batch, format!("({group} * {group_channels} + {channel})")];
    let mut tap = vec![feature, channel];
    for (axis, size) in weights.shape[2..].iter().enumerate() {
        let size = kernel.dim(size);
        let k = open_loop(kernel, "k", &size);
        let place = &index.axes[2 + axis];
        let (stride, dilation, before) = (op.strides[axis], op.dilations[axis], op.before[axis]);
        let place =
            kernel.bind("idx", "p", format!("{place} * {stride} + {k} * {dilation} - {before}"));
        let extent = kernel.dim(&x.shape[2 + axis]);
        conditions.push(format!("{place} >= 0 && {place} < {extent}"));
        at.push(place);
        tap.push(k);
    }
    let taps = Taps { conditions, at, tap };
    add_product(kernel, applied, (&sum, acc), taps, reads)?;
    Ok(convert(&sum, acc, applied.output.dtype, true))
}

pub(super) fn conv_transpose(
    op: &ConvTranspose,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    let (x, weights) = (&applied.operands[0], &applied.operands[1]);
    let acc = accumulator(applied.output.dtype);
    let (batch, feature) = (index.axes[0].clone(), index.axes[1].clone());
    let sum = begin(kernel, applied, (op.bias, &feature), acc, reads)?;
    let group_features = kernel.dim(&weights.shape[1]);
    let group = kernel.bind("idx", "g", format!("{feature} / {group_features}"));
    let group_channels = format!("({} / {})", kernel.dim(&x.shape[1]), op.groups);
    let channel = open_loop(kernel, "c", &group_channels);
    let channel = kernel.bind("idx", "c", format!("{group} * {group_channels} + {channel}"));
    let mut conditions = Vec::new();
    let mut at = vec![batch, channel.clone()];
    let mut tap = vec![channel, format!("({feature} % {group_features})")];
    for (axis, size) in weights.shape[2..].iter().enumerate() {
        let size = kernel.dim(size);
        let k = open_loop(kernel, "k", &size);
        let place = &index.axes[2 + axis];
        let (stride, dilation, before) = (op.strides[axis], op.dilations[axis], op.before[axis]);
        let reach = kernel.bind("idx", "q", format!("{place} + ({before}) - {k} * {dilation}"));
        let extent = kernel.dim(&x.shape[2 + axis]);
        conditions.push(format!(
            "{reach} >= 0 && {reach} % {stride} == 0 && {reach} / {stride} < {extent}"
        ));
        at.push(format!("({reach} / {stride})"));
        tap.push(k);
    }
    let taps = Taps { conditions, at, tap };
    add_product(kernel, applied, (&sum, acc), taps, reads)?;
    Ok(convert(&sum, acc, applied.output.dtype, true))
}

/// The taps of a window that lie over the operand: `first..end` along one axis.
struct Covered {
    start: String,
    first: String,
    end: String,
}

/// Which elements of the window along `axis` have coordinates in `least..limit`.
fn covered(
    kernel: &mut KernelBuilder<'_>,
    op: &Pool,
    (axis, place): (usize, &str),
    (least, limit): (&str, &str),
) -> Covered {
    let (stride, dilation, before) = (op.strides[axis], op.dilations[axis], op.before[axis]);
    let start = kernel.bind("i64", "s", format!("i64({place}) * {stride} - {before}"));
    let reach = |bound: &str| {
        format!("dim_div(i64({bound}) - {start} + {}, i64({dilation}))", dilation - 1)
    };
    let first = kernel.bind("i64", "f", format!("max({}, 0LL)", reach(least)));
    let end = kernel.bind("i64", "l", format!("min({}, {}LL)", reach(limit), op.kernel[axis]));
    Covered { start, first, end }
}

pub(super) fn pool(
    op: &Pool,
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<Pooled, EmitError> {
    let x = &applied.operands[0];
    let spatial = x.rank() - 2;
    let mut windows = Vec::with_capacity(spatial);
    for axis in 0..spatial {
        let extent = kernel.dim(&x.shape[2 + axis]);
        let place = index.axes[2 + axis].clone();
        windows.push(covered(kernel, op, (axis, &place), ("0", &extent)));
    }
    let acc = x.dtype.compute();
    let ty = compute_type(acc);
    let result = kernel.name("result");
    let winner = kernel.name("winner");
    let start = match op.kind {
        PoolKind::Max => literal(limit(x.dtype, false), acc),
        PoolKind::Average | PoolKind::Lp => "0".to_string(),
    };
    kernel.line(format!("{ty} {result} = {start};"));
    kernel.line(format!("i64 {winner} = -1;"));
    let mut at = index.axes[..2].to_vec();
    for (axis, window) in windows.iter().enumerate() {
        let k = kernel.name("k");
        let Covered { start, first, end } = window;
        kernel.open(format!("for (i64 {k} = {first}; {k} < {end}; ++{k})"));
        at.push(format!("idx({start} + {k} * {})", op.dilations[axis]));
    }
    let source = Index::at(&x.shape, at.clone());
    let value = reads.read(kernel, 0, &source)?;
    let value = kernel.bind(ty, "v", value);
    let suffix = if ty == "f32" { "f" } else { "" };
    match op.kind {
        PoolKind::Max => {
            let better = if acc.class() == DTypeClass::Float {
                format!(
                    "{winner} < 0 || {value} > {result} || (is_nan({value}) && !is_nan({result}))"
                )
            } else {
                format!("{winner} < 0 || {value} > {result}")
            };
            kernel.open(format!("if ({better})"));
            kernel.line(format!("{result} = {value};"));
            let place = if op.column_major {
                column_major(kernel, &at, &x.shape)
            } else {
                ravel(kernel, &at, &x.shape)
            };
            kernel.line(format!("{winner} = i64({place});"));
            kernel.close();
        }
        PoolKind::Average => kernel.line(format!("{result} += {value};")),
        PoolKind::Lp => {
            let power = op.power;
            kernel.line(format!("{result} += pow{suffix}(fabs{suffix}({value}), {ty}({power}));"));
        }
    }
    close(kernel, spatial);
    match op.kind {
        PoolKind::Max => {}
        PoolKind::Average => {
            let counts: Vec<String> = if op.count_padding {
                (0..spatial)
                    .map(|axis| {
                        let extent = kernel.dim(&x.shape[2 + axis]);
                        let least = format!("({})", -op.before[axis]);
                        let limit = format!("({extent} + {})", op.after[axis]);
                        let place = index.axes[2 + axis].clone();
                        let Covered { first, end, .. } =
                            covered(kernel, op, (axis, &place), (&least, &limit));
                        format!("max({end} - {first}, 0LL)")
                    })
                    .collect()
            } else {
                windows.iter().map(|w| format!("max({} - {}, 0LL)", w.end, w.first)).collect()
            };
            kernel.line(format!("{result} /= {ty}(max({}, 1LL));", counts.join(" * ")));
        }
        PoolKind::Lp => {
            kernel.line(format!("{result} = pow{suffix}({result}, {ty}(1) / {ty}({}));", op.power));
        }
    }
    Ok(Pooled { value: result, winner })
}

/// What a window became, and where its greatest element is.
pub(super) struct Pooled {
    pub value: String,
    pub winner: String,
}

/// The number of an element with the first spatial dimension innermost.
fn column_major(kernel: &KernelBuilder<'_>, at: &[String], shape: &[Dim]) -> String {
    let spatial = 2..shape.len();
    let mut order: Vec<usize> = vec![0, 1];
    order.extend(spatial.rev());
    let axes: Vec<String> = order.iter().map(|axis| at[*axis].clone()).collect();
    let shape: Vec<Dim> = order.iter().map(|axis| shape[*axis].clone()).collect();
    ravel(kernel, &axes, &shape)
}
