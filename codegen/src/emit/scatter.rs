//! Writes at places that data names. The order of updates of one element counts, so a thread does
//! all updates that may meet. Must never write outside the result.

use super::EmitError;
use super::dims::{compute_type, storage_type};
use super::index::Index;
use super::kernel::{Emitted, Geometry, KernelBuilder, StepContext};
use super::movement::resolve;
use super::pointwise::blocks;
use membar_ir::dim::Dim;
use membar_ir::dtype::DTypeClass;
use membar_ir::ops::{Op, ScatterReduction};

const THREADS: u32 = 128;

/// Copies the data unless the result lies in its place, then writes the updates.
pub(crate) fn emit(step: &StepContext<'_>) -> Result<Vec<Emitted>, EmitError> {
    let (data, output) = (&step.operands[0], &step.outputs[0]);
    let mut emitted = Vec::new();
    if data.place.is_none() || data.place != output.place {
        emitted.push(copy(step));
    }
    emitted.push(match step.op {
        Op::ScatterElements(op) => elements(step, op.axis.index(), op.reduction),
        Op::ScatterNd(op) => tuples(step, op.reduction),
        op => return Err(EmitError::NoKernel { operator: op.to_string() }),
    });
    Ok(emitted)
}

fn geometry(step: &StepContext<'_>, dims: &[Dim]) -> Geometry {
    let threads = step.greatest_product(dims);
    Geometry { blocks: blocks(step, threads, THREADS), threads: THREADS, shared_bytes: 0 }
}

/// Opens a loop over the elements of a shape.
fn open(kernel: &mut KernelBuilder<'_>, shape: &[Dim]) -> Index {
    let n = kernel.product(shape);
    kernel.line(format!("const idx n = {n};"));
    kernel.open(
        "for (idx i = idx(blockIdx.x * blockDim.x + threadIdx.x); i < n; \
         i += idx(gridDim.x * blockDim.x))",
    );
    Index::unravel(kernel, "i", shape)
}

fn copy(step: &StepContext<'_>) -> Emitted {
    let mut kernel = KernelBuilder::new(step);
    let shape = step.outputs[0].ty.shape.clone();
    let index = open(&mut kernel, &shape);
    let (x, y) = (kernel.operand(0), kernel.output(0));
    let from = index.offset(&kernel, &step.operands[0]);
    let to = index.offset(&kernel, &step.outputs[0]);
    kernel.line(format!("{y}[{to}] = {x}[{from}];"));
    kernel.close();
    kernel.finish("copy", geometry(step, &shape))
}

/// Combines the element at `target` with update `source`.
fn update(
    kernel: &mut KernelBuilder<'_>,
    reduction: ScatterReduction,
    target: &Index,
    source: &Index,
) {
    let step = kernel.step;
    let (updates, output) = (&step.operands[2], &step.outputs[0]);
    let (u, y) = (kernel.operand(2), kernel.output(0));
    let from = source.offset(kernel, updates);
    let to = target.offset(kernel, output);
    let dtype = output.ty.dtype;
    let (ty, element) = (compute_type(dtype), storage_type(dtype));
    let to = kernel.bind("i64", "to", format!("i64({to})"));
    let new = kernel.bind(ty, "new_value", format!("load({u}, {from})"));
    let old = format!("load({y}, {to})");
    let old = kernel.bind(ty, "old_value", old);
    let float = dtype.class() == DTypeClass::Float;
    let value = match reduction {
        ScatterReduction::Replace => new,
        ScatterReduction::Add => format!("{ty}({old} + {new})"),
        ScatterReduction::Mul => format!("{ty}({old} * {new})"),
        ScatterReduction::Max if float => format!("float_max({old}, {new})"),
        ScatterReduction::Min if float => format!("float_min({old}, {new})"),
        ScatterReduction::Max => format!("({old} > {new} ? {old} : {new})"),
        ScatterReduction::Min => format!("({old} < {new} ? {old} : {new})"),
    };
    kernel.line(format!("{y}[{to}] = Element<{element}>::of({value});"));
}

/// Updates meet only along the axis: a thread does one line of the indices.
fn elements(step: &StepContext<'_>, axis: usize, reduction: ScatterReduction) -> Emitted {
    let (data, indices) = (&step.operands[0], &step.operands[1]);
    let mut kernel = KernelBuilder::new(step);
    let mut lines = indices.ty.shape.clone();
    lines[axis] = Dim::ONE;
    let line = open(&mut kernel, &lines);
    let length = kernel.dim(&indices.ty.shape[axis]);
    kernel.open(format!("for (idx j = 0; j < {length}; ++j)"));
    let source = line.with_axis(&indices.ty.shape, axis, "j".to_string());
    let pointer = kernel.operand(1);
    let offset = source.offset(&kernel, indices);
    let given = format!("load({pointer}, {offset})");
    let found = resolve(&mut kernel, &given, &data.ty.shape[axis]);
    kernel.open(format!("if ({})", found.condition));
    let target = line.with_axis(&data.ty.shape, axis, found.coordinate);
    update(&mut kernel, reduction, &target, &source);
    kernel.close();
    kernel.close();
    kernel.close();
    kernel.finish("scatter_elements", geometry(step, &lines))
}

/// Any two tuples may meet: a thread does all updates of one place in the slices.
fn tuples(step: &StepContext<'_>, reduction: ScatterReduction) -> Emitted {
    let (data, indices, updates) = (&step.operands[0], &step.operands[1], &step.operands[2]);
    let mut kernel = KernelBuilder::new(step);
    let outer = indices.ty.rank() - 1;
    let length = indices.ty.shape[outer].as_constant().unwrap_or(0) as usize;
    let slice = data.ty.shape[length..].to_vec();
    let inside = open(&mut kernel, &slice);
    let count = kernel.product(&indices.ty.shape[..outer]);
    kernel.open(format!("for (idx tuple = 0; tuple < {count}; ++tuple)"));
    let at = Index::unravel(&mut kernel, "tuple", &indices.ty.shape[..outer]);
    let mut target = Vec::with_capacity(data.ty.rank());
    let mut conditions = vec!["true".to_string()];
    for item in 0..length {
        let mut place = at.axes.clone();
        place.push(item.to_string());
        let pointer = kernel.operand(1);
        let offset = Index::at(&indices.ty.shape, place).offset(&kernel, indices);
        let given = format!("load({pointer}, {offset})");
        let found = resolve(&mut kernel, &given, &data.ty.shape[item]);
        target.push(found.coordinate);
        conditions.push(found.condition);
    }
    target.extend(inside.axes.iter().cloned());
    let mut source = at.axes.clone();
    source.extend(inside.axes.iter().cloned());
    kernel.open(format!("if ({})", conditions.join(" && ")));
    let (target, source) =
        (Index::at(&data.ty.shape, target), Index::at(&updates.ty.shape, source));
    update(&mut kernel, reduction, &target, &source);
    kernel.close();
    kernel.close();
    kernel.close();
    kernel.finish("scatter_nd", geometry(step, &slice))
}
