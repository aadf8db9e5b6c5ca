//! The kernel of `gather`: rows copied by index; must never touch memory for an index out of range.

use super::reference::tensor;
use crate::cpu::program::{Call, Run, Selected, Shapes, cast};
use crate::cpu::view::View;
use membar_ir::dtype::DType;
use membar_ir::op::EvalError;
use membar_ir::ops::Gather;
use membar_ir::types::TensorType;
use rayon::prelude::*;

/// `gather` with `i64` or `i32` indices; `None` for others.
pub(crate) fn select(op: &Gather, operands: &[TensorType]) -> Option<Selected> {
    if operands[0].dtype.bits() < 8 || !matches!(operands[1].dtype, DType::I64 | DType::I32) {
        return None;
    }
    let axis = op.axis.index();
    Some(Selected::new("gather", 2, move |shapes| Ok(prepare(axis, shapes))))
}

fn prepare(axis: usize, shapes: &Shapes<'_>) -> Run {
    let (data, indices) = (shapes.operands[0].clone(), shapes.operands[1].clone());
    let size = data.dtype.bits() as usize / 8;
    let extent = data.shape[axis];
    let outer: usize = data.shape[..axis].iter().product();
    let row: usize = data.shape[axis + 1..].iter().product::<usize>() * size;
    Box::new(move |call: &mut Call<'_, '_>| {
        let resolved = resolve(&indices, call.bytes(1)?, extent)?;
        let bytes = call.bytes(0)?;
        let packed;
        let bytes = if data.is_contiguous() {
            bytes
        } else {
            packed = tensor(&data, bytes)?;
            packed.bytes()
        };
        let out = &mut call.output::<u8>(0)?[..outer * resolved.len() * row];
        if out.is_empty() {
            return Ok(());
        }
        let fill = |(position, out): (usize, &mut [u8])| {
            let (block, index) = (position / resolved.len(), resolved[position % resolved.len()]);
            let start = (block * extent + index) * row;
            out.copy_from_slice(&bytes[start..start + row]);
        };
        if out.len() < (256 << 10) || row < 1024 {
            out.chunks_mut(row).enumerate().for_each(fill);
        } else {
            out.par_chunks_mut(row).enumerate().for_each(fill);
        }
        Ok(())
    })
}

/// Indices in `0..extent`; negative ones count from the end.
fn resolve(view: &View, bytes: &[u8], extent: usize) -> Result<Vec<usize>, EvalError> {
    let packed;
    let bytes = if view.is_contiguous() {
        &bytes[..view.ty().byte_len()]
    } else {
        packed = tensor(view, bytes)?;
        packed.bytes()
    };
    let one = |index: i64| {
        let limit = extent as i64;
        let counted = if index < 0 { index.saturating_add(limit) } else { index };
        if (0..limit).contains(&counted) {
            Ok(counted as usize)
        } else {
            Err(EvalError::Index { index, extent })
        }
    };
    match view.dtype {
        DType::I32 => cast::<i32>(bytes)?.iter().map(|index| one(i64::from(*index))).collect(),
        _ => cast::<i64>(bytes)?.iter().map(|index| one(*index)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::evaluate;
    use crate::cpu::testing::{Random, check_op, sure};
    use membar_ir::tensor::Tensor;
    use membar_ir::types::Axis;

    #[test]
    fn rows_are_taken_as_the_reference_does() {
        let mut random = Random::new(6);
        for dtype in [DType::F32, DType::Bf16, DType::Bool] {
            let data = random.tensor(dtype, &[7, 5, 3]);
            for (axis, extent) in [(0, 7), (1, 5), (2, 3)] {
                let op = Gather { axis: Axis(axis) };
                let indices = random.indices(&[2, 4], extent);
                check_op(op.clone(), &[data.clone(), indices]);
                check_op(op, &[data.clone(), sure(Tensor::from_elements(&[], &[-1i32]))]);
            }
        }
        let table = random.tensor(DType::F32, &[11, 513]);
        check_op(Gather { axis: Axis(0) }, &[table, random.indices(&[3, 100], 11)]);
    }

    #[test]
    fn indices_out_of_range_are_named() {
        let data = Random::new(1).tensor(DType::F32, &[3, 2]);
        for index in [3i64, -4, i64::MIN] {
            let indices = sure(Tensor::from_elements(&[1], &[index]));
            let result = evaluate(&Gather { axis: Axis(0) }.into(), &[data.clone(), indices]);
            assert_eq!(result, Err(EvalError::Index { index, extent: 3 }));
        }
    }
}
