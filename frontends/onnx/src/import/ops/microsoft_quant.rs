//! onnxruntime's operators over weights of few bits: `MatMulNBits`, `GatherBlockQuantized`. Packed
//! bytes become 4-bit elements here; never their arithmetic.

use super::matmul::{product, transposed};
use super::scalar::convert;
use super::shape::reshaped;
use super::slice::section;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::ops::{
    Bitcast, Broadcast, Dequantize, Gather, Pad, PadMode, Quantize, Reduce, ReduceKind, Scalar,
};
use membar_ir::{Axis, DType, Dim, Number, ValueId};

type Outcome = Result<(), NodeError>;

/// The element type of weights of so many bits, without a sign.
fn unsigned(bits: i64) -> Result<DType, NodeError> {
    match bits {
        4 => Ok(DType::U4),
        8 => Ok(DType::U8),
        other => Err(NodeError::new(format!("weights of {other} bits; 4 and 8 are supported"))),
    }
}

/// Bytes as packed elements, the low half of a byte first: the last dimension doubles.
fn unpacked(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    dtype: DType,
) -> Result<ValueId, NodeError> {
    let ty = cx.type_of(value);
    if ty.dtype != DType::U8 {
        return Err(NodeError::new(format!("packed weights of {}; u8 is expected", ty.dtype)));
    }
    if dtype == DType::U8 {
        return Ok(value);
    }
    let mut shape = ty.shape;
    if let Some(last) = shape.last_mut() {
        *last = last.clone() * Dim::from(2);
    }
    cx.emit(Bitcast { dtype, shape }, &[value])
}

/// Operands of `MatMulNBits`.
mod operand {
    pub(super) const WEIGHTS: usize = 1;
    pub(super) const SCALES: usize = 2;
    pub(super) const ZERO_POINTS: usize = 3;
    pub(super) const ORDER: usize = 4;
    pub(super) const BIAS: usize = 5;
}

/// `MatMulNBits`: a product with the transpose of weights `[N, K]` that share a scale, and perhaps
/// a zero point, in each row's blocks.
pub(crate) fn matmul_n_bits(cx: &mut NodeContext<'_, '_>) -> Outcome {
    if cx.has(operand::ORDER) {
        return Err(NodeError::new("an order of the columns (g_idx)"));
    }
    let rows = Dim::from(cx.required::<i64>("N")?);
    let columns = cx.required::<i64>("K")?;
    let block = cx.required::<i64>("block_size")?;
    if columns < 1 || !(1..=1 << 20).contains(&block) {
        return Err(NodeError::new(format!("K = {columns} with block_size = {block}")));
    }
    let bits = cx.attribute_or("bits", 4)?;
    if let prepacked @ 1.. = cx.attribute_or("weight_prepacked", 0)? {
        return Err(NodeError::new(format!("weight_prepacked = {prepacked}")));
    }
    let dtype = unsigned(bits)?;
    let blocks = Dim::from((columns - 1) / block + 1);

    let weights = cx.operand(operand::WEIGHTS)?;
    let weights = unpacked(cx, weights, dtype)?;
    let padded = blocks.clone() * Dim::from(block);
    let weights = reshaped(cx, weights, vec![rows.clone(), padded])?;
    let scales = cx.operand(operand::SCALES)?;
    let scales = reshaped(cx, scales, vec![rows.clone(), blocks.clone()])?;

    let result = cx.ty(0)?.dtype;
    let floats = cx.has(operand::ZERO_POINTS) && cx.ty(operand::ZERO_POINTS)?.dtype.is_float();
    let weights = if floats {
        let zero = cx.operand(operand::ZERO_POINTS)?;
        let column = vec![rows.clone(), blocks.clone(), Dim::ONE];
        let zero = reshaped(cx, zero, column.clone())?;
        let scales = reshaped(cx, scales, column)?;
        let compute = result.compute();
        let each = vec![rows.clone(), blocks.clone(), Dim::from(block)];
        let weights = reshaped(cx, weights, each)?;
        let [weights, zero, scales] = [
            convert(cx, weights, compute, true)?,
            convert(cx, zero, compute, true)?,
            convert(cx, scales, compute, true)?,
        ];
        let centred = cx.emit(Scalar::Sub, &[weights, zero])?;
        let weights = cx.emit(Scalar::Mul, &[centred, scales])?;
        let weights = convert(cx, weights, result, true)?;
        reshaped(cx, weights, vec![rows.clone(), blocks.clone() * Dim::from(block)])?
    } else {
        let zero = zero_points(cx, dtype, &rows, &blocks)?;
        let op =
            Dequantize { dtype: result, axis: Some(Axis(1)), block: Some(block), zero_point: true };
        cx.emit(op, &[weights, scales, zero])?
    };
    // The last block may reach over the end.
    let weights = if columns % block == 0 {
        weights
    } else {
        section(cx, weights, Axis(1), Dim::ZERO, Dim::from(columns))?
    };
    let weights = transposed(cx, weights)?;
    let mut x = cx.operand(0)?;
    // Level 4 asks for 8-bit operands, and so onnxruntime computes; floats as zero points it does
    // not combine with them.
    let level = cx.attribute_or("accuracy_level", 0)?;
    if level == 4 && result == DType::F32 && !floats {
        x = rounded_in_blocks(cx, x, columns, block)?;
    }
    let mut result = product(cx, x, weights)?;
    if let Some(bias) = cx.optional(operand::BIAS)? {
        result = cx.emit(Scalar::Add, &[result, bias])?;
    }
    cx.output(0, result)
}

/// A float operand quantised to i8 and back: each block of the last dimension has the scale that
/// takes its greatest magnitude to 127.
fn rounded_in_blocks(
    cx: &mut NodeContext<'_, '_>,
    x: ValueId,
    columns: i64,
    block: i64,
) -> Result<ValueId, NodeError> {
    let ty = cx.type_of(x);
    let last = cx.axis(-1, ty.rank())?;
    let mut size = cx.emit(Scalar::Abs, &[x])?;
    let blocks = (columns - 1) / block + 1;
    let missing = blocks * block - columns;
    if missing > 0 {
        let before = vec![Dim::ZERO; ty.rank()];
        let mut after = before.clone();
        after[last.index()] = Dim::from(missing);
        let zero = cx.scalar(ty.dtype, 0.0)?;
        size = cx.emit(Pad { mode: PadMode::Constant, before, after }, &[size, zero])?;
    }
    let mut shape = ty.shape;
    shape[last.index()] = Dim::from(blocks);
    shape.push(Dim::from(block));
    let size = reshaped(cx, size, shape)?;
    let axes = vec![Axis::from(last.index() + 1)];
    let greatest = cx.emit(Reduce { kind: ReduceKind::Max, axes, keep: false }, &[size])?;
    let zero = cx.scalar(ty.dtype, 0.0)?;
    let one = cx.scalar(ty.dtype, 1.0)?;
    let steps = cx.scalar(ty.dtype, 127.0)?;
    let scale = cx.emit(Scalar::Div, &[greatest, steps])?;
    let empty = cx.emit(Scalar::Equal, &[greatest, zero])?;
    let scale = cx.emit(Scalar::Select, &[empty, one, scale])?;
    let (axis, block) = (Some(last), Some(block));
    let op = Quantize { dtype: DType::I8, axis, block, zero_point: false, saturate: true };
    let quantized = cx.emit(op, &[x, scale])?;
    cx.emit(Dequantize { dtype: ty.dtype, axis, block, zero_point: false }, &[quantized, scale])
}

/// A zero point for each block of each row: packed as the weights are, each row on its own; the
/// middle of the range where there are none.
fn zero_points(
    cx: &mut NodeContext<'_, '_>,
    dtype: DType,
    rows: &Dim,
    blocks: &Dim,
) -> Result<ValueId, NodeError> {
    if !cx.has(operand::ZERO_POINTS) {
        let shape = vec![rows.clone(), blocks.clone()];
        return middle(cx, dtype, shape);
    }
    let zero = cx.operand(operand::ZERO_POINTS)?;
    let width = match dtype {
        DType::U4 => blocks.ceil_div(&Dim::from(2)).unwrap_or_default(),
        _ => blocks.clone(),
    };
    let zero = reshaped(cx, zero, vec![rows.clone(), width])?;
    let zero = unpacked(cx, zero, dtype)?;
    if cx.type_of(zero).shape.last() == Some(blocks) {
        return Ok(zero);
    }
    section(cx, zero, Axis(1), Dim::ZERO, blocks.clone())
}

/// Half of the range everywhere.
fn middle(
    cx: &mut NodeContext<'_, '_>,
    dtype: DType,
    shape: Vec<Dim>,
) -> Result<ValueId, NodeError> {
    let middle = 1_u64 << (dtype.bits() - 1);
    let middle = cx.literal(dtype, &[], [Number::Unsigned(middle)])?;
    cx.emit(Broadcast { shape }, &[middle])
}

/// `GatherBlockQuantized`: rows of a quantised table, with the rows of its scales.
pub(crate) fn gather_block_quantized(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let (data_type, indices) = (cx.ty(0)?, cx.ty(1)?);
    let rank = data_type.rank();
    let block = cx.attribute_or("block_size", 128)?;
    let axis = cx.axis(cx.attribute_or("gather_axis", 0)?, rank)?;
    let quantized = cx.axis(cx.attribute_or("quantize_axis", 1)?, rank)?;
    if quantized == axis {
        return Err(NodeError::new("gather_axis and quantize_axis are the same"));
    }
    let packed = data_type.dtype == DType::U8;
    let dtype = if packed { unsigned(cx.attribute_or("bits", 4)?)? } else { data_type.dtype };
    if packed && dtype != DType::U8 && quantized.index() + 1 != rank {
        return Err(NodeError::new("packed bytes with a quantize_axis other than the last"));
    }
    let mut parts = Vec::with_capacity(3);
    for index in [0, 2, 3] {
        if !cx.has(index) {
            continue;
        }
        let operands = [cx.operand(index)?, cx.operand(1)?];
        let mut part = cx.emit(Gather { axis }, &operands)?;
        if index != 2 && packed {
            part = unpacked(cx, part, dtype)?;
        }
        parts.push(part);
    }
    let scales = cx.type_of(parts[1]);
    if let Some(zero) = parts.get(2).copied() {
        // Packed zero points of an odd number of blocks have one too many.
        let last = scales.rank() - 1;
        let blocks = scales.shape[last].clone();
        if cx.type_of(zero).shape[last] != blocks {
            parts[2] = section(cx, zero, Axis::from(last), Dim::ZERO, blocks)?;
        }
    } else if packed {
        parts.push(middle(cx, dtype, scales.shape.clone())?);
    }
    let moved =
        if quantized > axis { quantized.index() + indices.rank() - 1 } else { quantized.index() };
    let op = Dequantize {
        dtype: scales.dtype,
        axis: Some(Axis::from(moved)),
        block: Some(block),
        zero_point: parts.len() == 3,
    };
    let result = cx.emit(op, &parts)?;
    cx.output(0, result)
}
