//! Operands as matrices: where their elements lie, and the vectors in which they can be read and
//! results written. Must never choose a kernel.

use super::group::Anchor;
use super::kernel::StepContext;
use crate::select::Side;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;

/// An operand of a product: `[…, M, K]` or `[…, K, N]`; one of attention: `[B, H, S, D]`.
#[derive(Clone, Debug)]
pub(super) struct Factor {
    /// Its position among the step's operands.
    pub operand: usize,
    pub dtype: DType,
    pub shape: Vec<Dim>,
    /// Elements from one to the next in each dimension, in any order.
    pub strides: Vec<Dim>,
    /// Bytes that the first element's address is a multiple of.
    pub alignment: u64,
}

impl Factor {
    pub fn of(step: &StepContext<'_>, anchor: &Anchor<'_>, operand: usize) -> Option<Factor> {
        let view = anchor.view(step, operand)?;
        let tensor = &step.operands[view.operand];
        Some(Factor {
            operand: view.operand,
            dtype: tensor.ty.dtype,
            shape: view.shape,
            strides: view.strides,
            alignment: alignment(tensor.place),
        })
    }
}

/// Buffers begin at multiples of 256 bytes, and so do weights.
pub(super) fn alignment(place: Option<(u32, u64)>) -> u64 {
    let offset = place.map_or(0, |(_, offset)| offset);
    256 >> (8 - offset.trailing_zeros().min(8))
}

/// The direction and width of the vectors in which an operand can be read.
pub(super) fn lie(
    factor: &Factor,
    (mn, mn_extent): (&Dim, &Dim),
    k: &Dim,
    batches: &[&Dim],
) -> Side {
    let dtype = factor.dtype;
    let along_k = k.is(1) && (!mn.is(1) || mn_extent.is(1)) || !mn.is(1);
    let (own, other) = if along_k { (k, mn) } else { (mn, k) };
    let strides: Vec<&Dim> = batches.iter().chain([&other]).copied().collect();
    let vector = if own.is(1) { vector(dtype, factor.alignment, &strides) } else { 1 };
    Side { along_k, vector: vector as u32, dtype }
}

fn divides(dim: &Dim, divisor: u64) -> bool {
    dim.is(0) || dim.exact_div(&Dim::from(divisor as i64)).is_some()
}

/// The longest vector that `mma.sync` kernels read from an operand: copies have 4 bytes at least.
pub(super) fn copied(side: Side) -> u32 {
    if side.vector * side.dtype.bits() < 32 { 1 } else { 16 }
}

/// The most elements of which base and strides are multiples, up to 16 bytes.
pub(super) fn vector(dtype: DType, alignment: u64, strides: &[&Dim]) -> u64 {
    let size = u64::from(dtype.bits() / 8);
    let mut vector = 16 / size;
    let fits = |vector: u64| {
        alignment.is_multiple_of(vector * size)
            && strides.iter().all(|stride| divides(stride, vector))
    };
    while vector > 1 && !fits(vector) {
        vector /= 2;
    }
    vector
}
