//! Operators whose every result element is a function of its position: elementwise functions and
//! movements. [`at`] writes that function; [`emit`] is the loop around it. Must never hold a kernel
//! in which threads talk to each other.

use super::EmitError;
use super::dims::{compute_type, storage_type};
use super::group::Memory;
use super::index::Index;
use super::inline::{graph_at, inlinable_meaning};
use super::kernel::{Emitted, Geometry, KernelBuilder, StepContext};
use super::loops;
use super::movement;
use super::scalar;
use membar_ir::dtype::DType;
use membar_ir::op::Meaning;
use membar_ir::ops::Op;
use membar_ir::types::TensorType;

/// Where the function of a position gets its operands from.
pub(crate) trait Reads {
    /// The operand's element at a position, as an expression in the compute type. The lines that it
    /// needs go before what is written next.
    fn read(
        &mut self,
        kernel: &mut KernelBuilder<'_>,
        operand: usize,
        index: &Index,
    ) -> Result<String, EmitError>;
}

/// An operator on operands of these types.
pub(crate) struct Applied<'a> {
    pub op: &'a Op,
    pub operands: &'a [TensorType],
    pub output: &'a TensorType,
}

/// Whether the operator is one of these.
pub(crate) fn is_pointwise(op: &Op, operands: &[TensorType]) -> bool {
    match op {
        Op::Scalar(_) => matches!(op.meaning(operands), Meaning::Scalar(_)),
        op => movement::is_movement(op) || inlinable_meaning(op, operands).is_some(),
    }
}

/// The result's element at `index`, as an expression in the compute type of the result.
pub(crate) fn at(
    applied: &Applied<'_>,
    index: &Index,
    kernel: &mut KernelBuilder<'_>,
    reads: &mut dyn Reads,
) -> Result<String, EmitError> {
    if let Op::Scalar(_) = applied.op
        && let Meaning::Scalar(meaning) = applied.op.meaning(applied.operands)
    {
        let mut values = Vec::with_capacity(applied.operands.len());
        for (operand, ty) in applied.operands.iter().enumerate() {
            let value = reads.read(kernel, operand, &index.broadcast_to(ty))?;
            values.push(kernel.bind(compute_type(ty.dtype), "v", value));
        }
        let dtypes: Vec<DType> = applied.operands.iter().map(|ty| ty.dtype).collect();
        return Ok(scalar::scalar(&meaning, &values, &dtypes));
    }
    if loops::is_loop(applied.op) {
        return loops::at(applied, index, kernel, reads);
    }
    match inlinable_meaning(applied.op, applied.operands) {
        Some(meaning) if !movement::is_movement(applied.op) => {
            graph_at(&meaning, index, kernel, reads)
        }
        _ => movement::at(applied, index, kernel, reads),
    }
}

/// Reads of a step's own operands: from memory, or, where an operand has the result's positions,
/// from what the loop has loaded already.
struct Loaded {
    /// By operand: whether the loop has loaded it.
    loaded: Vec<bool>,
    /// By operand: whether it was asked for at the result's own position.
    linear: Vec<bool>,
    result: Vec<membar_ir::dim::Dim>,
}

impl Reads for Loaded {
    fn read(
        &mut self,
        kernel: &mut KernelBuilder<'_>,
        operand: usize,
        index: &Index,
    ) -> Result<String, EmitError> {
        let tensor = &kernel.step.operands[operand];
        let own = index.linear.as_deref() == Some("i")
            && tensor.ty.shape == self.result
            && tensor.is_contiguous();
        if own && self.loaded[operand] {
            self.linear[operand] = true;
            kernel.operand(operand);
            return Ok(format!("a{operand}"));
        }
        Memory.read(kernel, operand, index)
    }
}

const THREADS: u32 = 256;

/// The kernels of an operator, one for each output.
pub(crate) fn emit(step: &StepContext<'_>) -> Result<Vec<Emitted>, EmitError> {
    (0..step.outputs.len()).map(|output| emit_output(step, output)).collect()
}

fn emit_output(step: &StepContext<'_>, output: usize) -> Result<Emitted, EmitError> {
    let mut kernel = KernelBuilder::new(step);
    let width = vector_width(step, output);
    write_loop(&mut kernel, output, width)?;
    let elements = step.greatest_product(&step.outputs[output].ty.shape);
    let geometry = Geometry {
        blocks: blocks(step, elements.div_ceil(u64::from(width)), THREADS),
        threads: THREADS,
        shared_bytes: 0,
    };
    Ok(kernel.finish(step.op.mnemonic(), geometry))
}

/// How many blocks fill the device, but no more than there is work for.
pub(crate) fn blocks(step: &StepContext<'_>, threads: u64, block: u32) -> u32 {
    let wanted = threads.div_ceil(u64::from(block)).max(1);
    wanted.min(u64::from(step.units) * 8) as u32
}

/// Elements that a thread handles at once: 16 bytes of the widest tensor that is read in the
/// result's order, fewer where that would leave the device empty.
fn vector_width(step: &StepContext<'_>, output: usize) -> u32 {
    let output = &step.outputs[output];
    if matches!(output.ty.dtype, DType::I4 | DType::U4) {
        // Two threads may not write one byte.
        return 2;
    }
    if !output.is_contiguous() || output.ty.rank() == 0 || loops::is_loop(step.op) {
        return 1;
    }
    let linear = step.operands.iter().filter(|operand| operand.ty.shape == output.ty.shape);
    let widest = linear.chain([output]).map(|tensor| tensor.ty.dtype.bits()).max().unwrap_or(8);
    let mut width = (128 / widest.max(16)).max(1);
    let elements = step.greatest_product(&output.ty.shape);
    while width > 1 && elements / u64::from(width * THREADS) < u64::from(step.units) {
        width /= 2;
    }
    width
}

fn write_loop(kernel: &mut KernelBuilder<'_>, number: usize, width: u32) -> Result<(), EmitError> {
    let step = kernel.step;
    let output = &step.outputs[number];
    let operand_types = step.operand_types();
    let applied = Applied { op: step.op, operands: &operand_types, output: &output.ty };
    let count = step.operands.len();
    let nibbles = matches!(output.ty.dtype, DType::I4 | DType::U4);
    let whole = |operand: usize| {
        let bits = step.operands[operand].ty.dtype.bits();
        bits >= 8 && step.operands[operand].ty.shape == output.ty.shape
    };
    let mut memory = Loaded {
        loaded: (0..count).map(|operand| width > 1 && !nibbles && whole(operand)).collect(),
        linear: vec![false; count],
        result: output.ty.shape.clone(),
    };
    let y = kernel.output(number);
    let (value, lines) = kernel.aside(|kernel| {
        let index = Index::unravel(kernel, "i", &output.ty.shape);
        match number {
            0 => at(&applied, &index, kernel, &mut memory),
            _ => loops::second_at(&applied, &index, kernel, &mut memory),
        }
    });
    let value = value?;
    let result = compute_type(output.ty.dtype);
    let n = kernel.product(&output.ty.shape);
    kernel.line(format!("const idx n = {n};"));
    let linear: Vec<usize> = (0..count).filter(|operand| memory.linear[*operand]).collect();
    let parameters: String = linear
        .iter()
        .map(|k| format!(", {} a{k}", compute_type(step.operands[*k].ty.dtype)))
        .collect();
    kernel.open(format!("auto element = [&](idx i{parameters}) -> {result}"));
    kernel.put(lines.into_iter().map(|line| format!("    {line}")).collect());
    kernel.line(format!("return {value};"));
    kernel.close_with("};");
    let stride = "idx(gridDim.x * blockDim.x)";
    let start = "idx(blockIdx.x * blockDim.x + threadIdx.x)";
    let loads: String = linear.iter().map(|k| format!(", load(x{k}, i)")).collect();
    let element = storage_type(output.ty.dtype);
    if nibbles {
        kernel.open(format!("for (idx i = {start} * 2; i < n; i += {stride} * 2)"));
        kernel.line(format!("const u8 low = u8(element(i{loads})) & 15;"));
        kernel.line("const u8 high = i + 1 < n ? u8(element(i + 1)) & 15 : 0;");
        kernel.line(format!("{y}[i >> 1].bits = u8(low | (high << 4));"));
        kernel.close();
        return Ok(());
    }
    if width == 1 {
        kernel.open(format!("for (idx i = {start}; i < n; i += {stride})"));
        let offset = if output.is_contiguous() {
            "i".to_string()
        } else {
            Index::unravel(kernel, "i", &output.ty.shape).offset(kernel, output)
        };
        kernel.line(format!("{y}[{offset}] = Element<{element}>::of(element(i{loads}));"));
        kernel.close();
        return Ok(());
    }
    kernel.open(format!(
        "for (idx first = {start} * {width}; first < n; first += {stride} * {width})"
    ));
    kernel.open(format!("if (first + {width} <= n)"));
    for k in &linear {
        let ty = storage_type(step.operands[*k].ty.dtype);
        kernel.line(format!(
            "const Pack<{ty}, {width}> p{k} = *(const Pack<{ty}, {width}>*)(x{k} + first);"
        ));
    }
    kernel.line(format!("Pack<{element}, {width}> result;"));
    kernel.line("#pragma unroll");
    kernel.open(format!("for (int j = 0; j < {width}; ++j)"));
    let values: String = linear.iter().map(|k| format!(", value_of(p{k}.at[j])")).collect();
    kernel.line(format!("result.at[j] = Element<{element}>::of(element(first + j{values}));"));
    kernel.close();
    kernel.line(format!("*(Pack<{element}, {width}>*)({y} + first) = result;"));
    kernel.close_with("} else {");
    kernel.open_again();
    kernel.open("for (idx i = first; i < n; ++i)");
    kernel.line(format!("{y}[i] = Element<{element}>::of(element(i{loads}));"));
    kernel.close();
    kernel.close();
    kernel.close();
    Ok(())
}
