//! onnxruntime's operators around attention: activations with a bias, normalisations of sums,
//! embeddings, products with transposed operands. Facts are those of its ContribOperators page
//! and of its CPU kernels. Never attention itself (see `microsoft_attention`).

use super::matmul::{product, transposed};
use super::scalar::convert;
use super::shape::reshaped;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::attribute::Float;
use membar_ir::ops::{
    Broadcast, Gather, GeluForm, LayerNorm, Reduce, ReduceKind, RmsNorm, Scalar, Slice, Transpose,
};
use membar_ir::{Axis, DType, Dim, ValueId};

type Outcome = Result<(), NodeError>;

/// The default of onnxruntime's normalisations.
const EPSILON: f32 = 1e-12;

/// `BiasGelu`, `FastGelu`, `Gelu`: the function of operand 0, with operand 1 added if it is there.
pub(crate) fn biased(cx: &mut NodeContext<'_, '_>, form: GeluForm) -> Outcome {
    let mut x = cx.operand(0)?;
    if let Some(bias) = cx.optional(1)? {
        x = cx.emit(Scalar::Add, &[x, bias])?;
    }
    let result = cx.emit(Scalar::Gelu { form }, &[x])?;
    cx.output(0, result)
}

/// `QuickGelu`: `x sigmoid(alpha x)`.
pub(crate) fn quick_gelu(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let usual = 1.702_f32;
    let alpha = cx.attribute_or("alpha", usual)?;
    let op = if alpha == usual {
        Scalar::Gelu { form: GeluForm::Quick }
    } else {
        Scalar::Swish { beta: alpha.into() }
    };
    let x = cx.operand(0)?;
    let result = cx.emit(op, &[x])?;
    cx.output(0, result)
}

/// `FusedMatMul`: operands transposed, in the batch too, and a factor.
pub(crate) fn fused_matmul(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let left = arranged(cx, 0, "transBatchA", "transA")?;
    let right = arranged(cx, 1, "transBatchB", "transB")?;
    let mut result = product(cx, left, right)?;
    let alpha = cx.attribute_or("alpha", 1.0_f32)?;
    if alpha != 1.0 {
        let dtype = cx.type_of(result).dtype;
        let alpha = cx.scalar(dtype, alpha.into())?;
        result = cx.emit(Scalar::Mul, &[result, alpha])?;
    }
    cx.output(0, result)
}

/// An operand of [`fused_matmul`]. Transposing the batch moves dimension 0 behind the others but
/// the last.
fn arranged(
    cx: &mut NodeContext<'_, '_>,
    index: usize,
    batch: &str,
    inner: &str,
) -> Result<ValueId, NodeError> {
    let mut value = cx.operand(index)?;
    let rank = cx.type_of(value).rank();
    if rank < 2 {
        return Err(NodeError::new(format!("operand {index} of rank {rank}; 2 is the least")));
    }
    if cx.flag(batch, false)? {
        let perm = (1..rank - 1).chain([0, rank - 1]).map(Axis::from).collect();
        value = cx.emit(Transpose { perm }, &[value])?;
    }
    if cx.flag(inner, false)? {
        value = transposed(cx, value)?;
    }
    Ok(value)
}

/// `SkipLayerNormalization`: layer normalisation of a sum, which is result 3.
pub(crate) fn skip_layer_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let sum = skipped(cx, 4)?;
    let (rank, dtype) = {
        let ty = cx.type_of(sum);
        (ty.rank(), ty.dtype)
    };
    let axis = cx.axis(-1, rank)?;
    let epsilon = Float::from(cx.attribute_or("epsilon", EPSILON)?);
    let statistics = cx.wants(1) || cx.wants(2);
    let mut operands = vec![sum, cx.norm_scale(2)?];
    operands.extend(cx.optional(3)?);
    let bias = operands.len() == 3;
    let results = cx.emit_all(LayerNorm { axis, epsilon, bias, statistics }, &operands)?;
    for (index, result) in results.into_iter().enumerate() {
        let result = if index == 0 { convert(cx, result, dtype, true)? } else { result };
        cx.output(index, result)?;
    }
    cx.output(3, sum)
}

/// `SkipSimplifiedLayerNormalization`: root-mean-square normalisation of a sum, which is result 3.
pub(crate) fn skip_rms_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    if cx.wants(1) || cx.wants(2) {
        return Err(NodeError::new("the statistics (results 1 and 2)"));
    }
    let sum = skipped(cx, 3)?;
    let rank = cx.type_of(sum).rank();
    let axis = cx.axis(-1, rank)?;
    let epsilon = Float::from(cx.attribute_or("epsilon", EPSILON)?);
    let operands = [sum, cx.norm_scale(2)?];
    let result = cx.emit(RmsNorm { axis, epsilon }, &operands)?;
    cx.output(0, result)?;
    cx.output(3, sum)
}

/// Operands 0 and 1 and the bias, added up. The second may lack the batch.
fn skipped(cx: &mut NodeContext<'_, '_>, bias: usize) -> Result<ValueId, NodeError> {
    let (x, skip) = (cx.operand(0)?, cx.operand(1)?);
    let mut sum = cx.emit(Scalar::Add, &[x, skip])?;
    if let Some(bias) = cx.optional(bias)? {
        sum = cx.emit(Scalar::Add, &[sum, bias])?;
    }
    Ok(sum)
}

/// Operands of `EmbedLayerNormalization`.
mod embed {
    pub(super) const IDS: usize = 0;
    pub(super) const SEGMENTS: usize = 1;
    pub(super) const WORDS: usize = 2;
    pub(super) const POSITIONS: usize = 3;
    pub(super) const SEGMENT_TABLE: usize = 4;
    pub(super) const GAMMA: usize = 5;
    pub(super) const BETA: usize = 6;
    pub(super) const MASK: usize = 7;
    pub(super) const POSITION_IDS: usize = 8;
}

/// `EmbedLayerNormalization`: the sum of word, position and segment embeddings, normalised; how
/// many ones each row of the mask has; the sum.
pub(crate) fn embed_layer_norm(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let ids_type = cx.ty(embed::IDS)?;
    let [batch, sequence] = ids_type.shape.as_slice() else {
        let rank = ids_type.rank();
        return Err(NodeError::new(format!("token ids of rank {rank}; 2 is expected")));
    };
    let lookup = Gather { axis: Axis(0) };
    let operands = [cx.operand(embed::WORDS)?, cx.operand(embed::IDS)?];
    let words = cx.emit(lookup.clone(), &operands)?;
    let table = cx.operand(embed::POSITIONS)?;
    let positions = match cx.optional(embed::POSITION_IDS)? {
        Some(ids) => cx.emit(lookup.clone(), &[table, ids])?,
        None => {
            let mut sizes = cx.type_of(table).shape;
            if sizes.len() != 2 {
                return Err(NodeError::new("a table of positions that is no matrix"));
            }
            sizes[0] = sequence.clone();
            let part = Slice { starts: vec![Dim::ZERO; 2], sizes, steps: vec![1; 2] };
            cx.emit(part, &[table])?
        }
    };
    let mut sum = cx.emit(Scalar::Add, &[words, positions])?;
    if cx.has(embed::SEGMENTS) {
        let operands = [cx.operand(embed::SEGMENT_TABLE)?, cx.operand(embed::SEGMENTS)?];
        let segments = cx.emit(lookup, &operands)?;
        sum = cx.emit(Scalar::Add, &[sum, segments])?;
    }
    let epsilon = Float::from(cx.attribute_or("epsilon", EPSILON)?);
    let operands = [sum, cx.norm_scale(embed::GAMMA)?, cx.operand(embed::BETA)?];
    let op = LayerNorm { axis: Axis(2), epsilon, bias: true, statistics: false };
    let result = cx.emit(op, &operands)?;
    cx.output(0, result)?;
    if cx.wants(1) {
        let count = match cx.optional(embed::MASK)? {
            Some(mask) => ones(cx, mask)?,
            None => {
                let zero = cx.scalar(DType::I32, 0.0)?;
                cx.emit(Broadcast { shape: vec![batch.clone()] }, &[zero])?
            }
        };
        cx.output(1, count)?;
    }
    cx.output(2, sum)
}

/// How many ones each row has, `i32`.
fn ones(cx: &mut NodeContext<'_, '_>, mask: ValueId) -> Result<ValueId, NodeError> {
    let ty = cx.type_of(mask);
    let one = cx.scalar(ty.dtype, 1.0)?;
    let hit = cx.emit(Scalar::Equal, &[mask, one])?;
    let hit = convert(cx, hit, DType::I32, true)?;
    let axes = vec![cx.axis(-1, ty.rank())?];
    let count = cx.emit(Reduce { kind: ReduceKind::Sum, axes, keep: false }, &[hit])?;
    let rows = ty.shape.first().cloned().unwrap_or(Dim::ONE);
    reshaped(cx, count, vec![rows])
}
