//! Kernels in which threads share a row: reductions, softmax, norms, the greatest elements. A row is
//! the operand along the axes that are combined; it has one thread where neighbouring rows are
//! neighbours in memory, else a warp or a block. Must never depend on how many rows a run has.

mod norms;
mod ranks;
mod sums;

use super::EmitError;
use super::group::{Anchor, Group};
use super::index::Index;
use super::kernel::{Emitted, Geometry, KernelBuilder, StepContext};
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::Op;
use membar_ir::types::Axis;

/// Threads of a block in which rows have a warp or a thread each.
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

/// Whether the operator may be the anchor of a group: it writes each result once, and has one.
pub(crate) fn is_anchor(op: &Op) -> bool {
    match op {
        Op::Reduce(_) | Op::Softmax(_) | Op::LogSoftmax(_) | Op::RmsNorm(_) | Op::GroupNorm(_) => {
            true
        }
        Op::LayerNorm(op) => !op.statistics,
        _ => false,
    }
}

/// The kernel of a step, or of the anchor of its group.
pub(crate) fn emit(
    step: &StepContext<'_>,
    group: Option<&Group>,
) -> Result<Vec<Emitted>, EmitError> {
    let anchor = Anchor::of(step, group);
    let rank = anchor.operands[0].rank();
    let from = |axis: Axis| (axis.index()..rank).collect();
    let one = |axis: Axis| vec![axis.index()];
    let op = anchor.op;
    let emitted = match op {
        Op::Reduce(op) => {
            let axes = op.axes.iter().map(|axis| axis.index()).collect();
            sums::reduce(op, RowKernel::new(step, anchor, axes))
        }
        Op::Cumulative(op) => {
            sums::cumulative(op, RowKernel::with_share(step, anchor, one(op.axis), 1))
        }
        Op::ArgReduce(op) => ranks::arg_reduce(op, RowKernel::new(step, anchor, one(op.axis))),
        Op::TopK(op) => ranks::top_k(op, RowKernel::new(step, anchor, one(op.axis))),
        Op::Softmax(op) => norms::softmax(RowKernel::new(step, anchor, one(op.axis)), false),
        Op::LogSoftmax(op) => norms::softmax(RowKernel::new(step, anchor, one(op.axis)), true),
        Op::LayerNorm(op) => norms::layer_norm(op, RowKernel::new(step, anchor, from(op.axis))),
        Op::RmsNorm(op) => norms::rms_norm(op, RowKernel::new(step, anchor, from(op.axis))),
        Op::GroupNorm(op) => norms::group_norm(op, step, anchor),
        op => Err(EmitError::NoKernel { operator: op.to_string() }),
    };
    Ok(vec![emitted?])
}

/// A kernel over the rows of operand 0.
struct RowKernel<'a> {
    kernel: KernelBuilder<'a>,
    anchor: Anchor<'a>,
    shape: Vec<Dim>,
    /// The axes along which a row runs, ascending.
    axes: Vec<usize>,
    /// Threads that share a row.
    share: u32,
    /// How many elements each thread keeps in registers; 0: it reads them again.
    kept: u64,
    rows: Dim,
    length: Dim,
    /// Whether a row is one piece of the operand.
    whole: bool,
    /// Axes 1 and 2 are one of the operand: channels in groups.
    split: Option<Dim>,
}

impl<'a> RowKernel<'a> {
    fn new(step: &'a StepContext<'a>, anchor: Anchor<'a>, axes: Vec<usize>) -> RowKernel<'a> {
        let share = share(step, &anchor.operands[0].shape, &axes);
        RowKernel::with_share(step, anchor, axes, share)
    }

    fn with_share(
        step: &'a StepContext<'a>,
        anchor: Anchor<'a>,
        axes: Vec<usize>,
        share: u32,
    ) -> RowKernel<'a> {
        let shape = anchor.operands[0].shape.clone();
        RowKernel::over(step, anchor, shape, axes, share)
    }

    /// Rows of operand 0 under another shape.
    fn over(
        step: &'a StepContext<'a>,
        anchor: Anchor<'a>,
        shape: Vec<Dim>,
        axes: Vec<usize>,
        share: u32,
    ) -> RowKernel<'a> {
        let per_thread = greatest_length(step, &shape, &axes).div_ceil(u64::from(share));
        let of = |inside: bool| -> Dim {
            let dims = shape.iter().enumerate();
            dims.filter(|(axis, _)| axes.contains(axis) == inside)
                .fold(Dim::ONE, |product, (_, dim)| product * dim.clone())
        };
        RowKernel {
            rows: of(false),
            length: of(true),
            kernel: KernelBuilder::new(step),
            whole: is_suffix(&shape, &axes),
            anchor,
            shape,
            axes,
            share,
            kept: if per_thread <= MOST_KEPT && share > 1 { per_thread } else { 0 },
            split: None,
        }
    }

    /// The element type of operand 0.
    fn dtype(&self) -> DType {
        self.anchor.operands[0].dtype
    }

    /// Opens the loop over the rows and declares the row's coordinates.
    fn open(&mut self) -> Vec<String> {
        let (share, threads) = (self.share, self.threads());
        let rows = self.kernel.dim(&self.rows);
        let length = self.kernel.dim(&self.length);
        let kernel = &mut self.kernel;
        kernel.line(format!("const idx rows = {rows};"));
        kernel.line(format!("const idx length = {length};"));
        kernel.line(format!("const int lane = threadIdx.x % {share};"));
        let step = threads / share;
        kernel.open(format!(
            "for (idx row = idx(blockIdx.x) * {step} + threadIdx.x / {share}; row < rows; \
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
        let mut axes: Vec<String> = axes.collect();
        if let Some(inside) = &self.split {
            let inside = self.kernel.dim(inside);
            let channel = format!("{} * {inside} + {}", axes[1], axes[2]);
            axes[1] = self.kernel.bind("idx", "channel", channel);
            axes.remove(2);
        }
        let mut index = Index::at(&self.anchor.operands[0].shape, axes);
        if self.whole {
            index.linear = Some(self.kernel.bind("idx", "n", format!("row * length + {j}")));
        }
        index
    }

    /// The position of a row's only result.
    fn row_index(&self, output: usize, row: &[String]) -> Index {
        let shape = &self.anchor.outputs[output].shape;
        let mut row = row.to_vec();
        if shape.len() != row.len() {
            for axis in &self.axes {
                row.insert(*axis, "0".to_string());
            }
        }
        let mut index = Index::at(shape, row);
        // Outside the combined axes, which are gone or 1, the result is row-major over the rows.
        index.linear = Some("row".to_string());
        index
    }

    /// A loop over the row's elements; `body` gets the element's number and, where elements are
    /// kept, its place among those.
    fn pass(
        &mut self,
        mut body: impl FnMut(&mut Self, &str, &str) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let share = self.share;
        let kernel = &mut self.kernel;
        let (j, c) = (kernel.name("j"), kernel.name("c"));
        if self.kept > 0 {
            kernel.line("#pragma unroll");
            kernel.open(format!("for (int {c} = 0; {c} < {}; ++{c})", self.kept));
            kernel.line(format!("const idx {j} = lane + {c} * {share};"));
            kernel.open(format!("if ({j} < length)"));
            body(self, &j, &c)?;
            self.kernel.close();
        } else {
            kernel.open(format!("for (idx {j} = lane; {j} < length; {j} += {share})"));
            body(self, &j, &c)?;
        }
        self.kernel.close();
        Ok(())
    }

    /// The value of element `j` of operand 0, in its compute type.
    fn load(&mut self, row: &[String], j: &str) -> Result<String, EmitError> {
        let index = self.index(row, j);
        self.anchor.read(&mut self.kernel, 0, &index)
    }

    /// Declares room for the elements that threads keep.
    fn keep(&mut self, ty: &str) {
        if self.kept > 0 {
            let kept = self.kept;
            self.kernel.line(format!("{ty} kept[{kept}];"));
        }
    }

    /// The first read of an element: keeps it where elements are kept.
    fn first(&mut self, row: &[String], j: &str, c: &str, ty: &str) -> Result<String, EmitError> {
        let value = self.load(row, j)?;
        let value = self.kernel.bind(ty, "x", value);
        if self.kept > 0 {
            self.kernel.line(format!("kept[{c}] = {value};"));
        }
        Ok(value)
    }

    /// A later read of an element.
    fn again(&mut self, row: &[String], j: &str, c: &str, ty: &str) -> Result<String, EmitError> {
        if self.kept > 0 {
            return Ok(format!("kept[{c}]"));
        }
        let value = self.load(row, j)?;
        Ok(self.kernel.bind(ty, "x", value))
    }

    /// Combines a variable of every thread that shares the row.
    fn combine(&mut self, variable: &str, ty: &str, combined: &str) {
        let lambda = format!("[](const {ty}& a, const {ty}& b) -> {ty} {{ return {combined}; }}");
        match self.share {
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
        if self.share > 32 { self.share } else { THREADS }
    }

    /// Stores an element of an output.
    fn store(&mut self, output: usize, index: &Index, value: &str) -> Result<(), EmitError> {
        self.anchor.write(&mut self.kernel, output, index, value)
    }

    fn finish(mut self, family: &str) -> Result<Emitted, EmitError> {
        self.kernel.close();
        let threads = self.threads();
        let step = self.kernel.step;
        let rows = step.greatest(&self.rows).unwrap_or(u64::MAX);
        let wanted = rows.div_ceil(u64::from(threads / self.share)).max(1);
        let blocks = wanted.min(u64::from(step.units) * 16) as u32;
        Ok(self.kernel.finish(family, Geometry { blocks, threads, shared_bytes: 0 }))
    }
}

/// How many threads share a row.
fn share(step: &StepContext<'_>, shape: &[Dim], axes: &[usize]) -> u32 {
    match greatest_length(step, shape, axes) {
        // Neighbouring threads read neighbouring elements of different rows.
        _ if !is_suffix(shape, axes) => 1,
        0..=4 => 1,
        5..=512 => 32,
        513..=1024 => 128,
        1025..=4096 => 256,
        _ => 512,
    }
}

/// Whether the axes are the innermost ones.
fn is_suffix(shape: &[Dim], axes: &[usize]) -> bool {
    axes.iter().rev().enumerate().all(|(i, axis)| axis + i + 1 == shape.len())
}

fn greatest_length(step: &StepContext<'_>, shape: &[Dim], axes: &[usize]) -> u64 {
    let dims: Vec<Dim> = axes.iter().map(|axis| shape[*axis].clone()).collect();
    step.greatest_product(&dims)
}
