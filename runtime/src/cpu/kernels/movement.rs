//! Kernels that move elements and compute nothing: strided copies in bytes, whatever the element
//! type; must never convert an element.

use crate::cpu::view::{Extents, View, Walk, row_major};
use membar_ir::op::EvalError;

/// Copies the elements of a view into contiguous bytes.
pub(crate) fn gather_bytes(view: &View, bytes: &[u8], out: &mut [u8]) -> Result<(), EvalError> {
    let size = element_size(view)?;
    let strides = [view.strides.clone()];
    copy_strided(&view.shape, &strides[0], bytes, out, size);
    Ok(())
}

/// Copies contiguous elements to where a view says they lie.
pub(crate) fn scatter_bytes(view: &View, bytes: &[u8], out: &mut [u8]) -> Result<(), EvalError> {
    let size = element_size(view)?;
    let walk = Walk::new(&view.shape, &[view.strides.clone(), row_major(&view.shape)]);
    walk.runs(0, 0, view.elements(), |offset, start, length, stride| {
        let from = &bytes[start * size..(start + length) * size];
        if stride == 1 {
            out[offset * size..(offset + length) * size].copy_from_slice(from);
        } else {
            for (i, element) in from.chunks_exact(size).enumerate() {
                let at = (offset + i * stride) * size;
                out[at..at + size].copy_from_slice(element);
            }
        }
    });
    Ok(())
}

/// The size of an element in bytes; 4-bit elements have none of their own.
pub(crate) fn element_size(view: &View) -> Result<usize, EvalError> {
    match view.dtype.bits() {
        4 => Err(EvalError::Invalid(format!("{} elements cannot be apart", view.dtype))),
        bits => Ok(bits as usize / 8),
    }
}

/// Fills `out`, row-major of `shape`, with elements of `size` bytes read at `strides`.
pub(crate) fn copy_strided(
    shape: &[usize],
    strides: &Extents,
    bytes: &[u8],
    out: &mut [u8],
    size: usize,
) {
    let count: usize = shape.iter().product();
    let walk = Walk::new(shape, &[strides.clone(), row_major(shape)]);
    walk.runs(0, 0, count, |offset, start, length, stride| {
        let to = &mut out[start * size..(start + length) * size];
        if stride == 1 {
            to.copy_from_slice(&bytes[offset * size..(offset + length) * size]);
        } else {
            for (i, element) in to.chunks_exact_mut(size).enumerate() {
                let at = (offset + i * stride) * size;
                element.copy_from_slice(&bytes[at..at + size]);
            }
        }
    });
}
