//! Kernels that move elements and compute nothing: strided copies by the width of an element,
//! whatever its type; must never convert an element.

use crate::cpu::program::{Call, Run, Selected, Shapes};
use crate::cpu::view::{Extents, View, Walk, row_major};
use bytemuck::Pod;
use membar_ir::dtype::DType;
use membar_ir::op::EvalError;
use membar_ir::ops::{Append, Broadcast, Concat, Slice, Transpose};
use membar_ir::tensor::Tensor;
use membar_ir::types::TensorType;
use rayon::prelude::*;
use smallvec::SmallVec;

/// Below this many bytes a copy runs on one thread.
const PARALLEL_BYTES: usize = 256 << 10;

/// Whether the elements have addresses of their own; 4-bit elements don't.
pub(crate) fn is_addressable(types: &[TensorType]) -> bool {
    types.iter().all(|ty| ty.dtype.bits() >= 8)
}

/// `transpose`.
pub(crate) fn transpose(op: &Transpose) -> Selected {
    let perm: Vec<usize> = op.perm.iter().map(|axis| axis.index()).collect();
    Selected::new("transpose", 1, move |shapes| {
        let strides = perm.iter().map(|axis| shapes.operands[0].strides[*axis]).collect();
        Ok(copy(shapes, 0, strides))
    })
}

/// `broadcast`.
pub(crate) fn broadcast(_: &Broadcast) -> Selected {
    Selected::new("broadcast", 1, |shapes| {
        let strides = shapes.operands[0].broadcast(&shapes.outputs[0].shape);
        Ok(copy(shapes, 0, strides))
    })
}

/// `slice` with steps that are positive.
pub(crate) fn slice(op: &Slice) -> Option<Selected> {
    if op.steps.iter().any(|step| *step < 1) {
        return None;
    }
    let op = op.clone();
    Some(Selected::new("slice", 1, move |shapes| {
        let view = &shapes.operands[0];
        let mut first = 0usize;
        let mut strides: Extents = SmallVec::new();
        for axis in 0..view.rank() {
            let start = op.starts[axis].as_constant().and_then(|start| usize::try_from(start).ok());
            let step = op.steps[axis] as usize;
            let taken = shapes.outputs[0].shape[axis];
            let last = start
                .and_then(|start| taken.saturating_sub(1).checked_mul(step)?.checked_add(start));
            match (start, last) {
                (Some(_), Some(_)) if taken == 0 => {}
                (Some(start), Some(last)) if last < view.shape[axis] => {
                    first += start * view.strides[axis];
                }
                _ => {
                    return Err(EvalError::Invalid(format!(
                        "elements {} and on of dimension {axis}, which has {}",
                        op.starts[axis], view.shape[axis]
                    )));
                }
            }
            strides.push(view.strides[axis].saturating_mul(step));
        }
        Ok(copy(shapes, first, strides))
    }))
}

/// The output from elements of operand 0, beginning at element `first`, at `strides`.
fn copy(shapes: &Shapes<'_>, first: usize, strides: Extents) -> Run {
    let (dtype, shape) = (shapes.outputs[0].dtype, shapes.outputs[0].shape.clone());
    let size = dtype.bits() as usize / 8;
    let elements: usize = shape.iter().product();
    let walk = Walk::new(&shape, &[strides]);
    Box::new(move |call: &mut Call<'_, '_>| {
        if elements == 0 {
            return Ok(());
        }
        let bytes = &call.bytes(0)?[first * size..];
        let out = &mut call.output::<u8>(0)?[..elements * size];
        copy_walk(&walk, bytes, out, size)
    })
}

/// Fills `out` with the elements that list 0 of a walk reaches in `bytes`.
fn copy_walk(walk: &Walk, bytes: &[u8], out: &mut [u8], size: usize) -> Result<(), EvalError> {
    match size {
        1 => copy_elements::<u8>(walk, bytes, out),
        2 => copy_elements::<u16>(walk, bytes, out),
        4 => copy_elements::<u32>(walk, bytes, out),
        _ => copy_elements::<u64>(walk, bytes, out),
    }
}

fn copy_elements<T: Pod + Send + Sync>(
    walk: &Walk,
    bytes: &[u8],
    out: &mut [u8],
) -> Result<(), EvalError> {
    let misaligned = |_| EvalError::Invalid("its bytes are not aligned".to_string());
    let data: &[T] = bytemuck::try_cast_slice(bytes).map_err(misaligned)?;
    let out: &mut [T] = bytemuck::try_cast_slice_mut(out).map_err(misaligned)?;
    let part = |from: usize, out: &mut [T]| {
        walk.runs(0, from, out.len(), |offset, start, length, stride| {
            let to = &mut out[start..start + length];
            match stride {
                0 => to.fill(data[offset]),
                1 => to.copy_from_slice(&data[offset..offset + length]),
                _ => {
                    for (to, from) in to.iter_mut().zip(data[offset..].iter().step_by(stride)) {
                        *to = *from;
                    }
                }
            }
        });
    };
    if size_of_val(out) < PARALLEL_BYTES {
        part(0, out);
    } else {
        let chunk = out.len().div_ceil(4 * rayon::current_num_threads());
        let chunks = out.par_chunks_mut(chunk).enumerate();
        chunks.for_each(|(index, out)| part(index * chunk, out));
    }
    Ok(())
}

/// `concat`.
pub(crate) fn concat(op: &Concat, operands: usize) -> Selected {
    let axis = op.axis.index();
    Selected::new("concat", operands, move |shapes| Ok(prepare_concat(axis, shapes)))
}

fn prepare_concat(axis: usize, shapes: &Shapes<'_>) -> Run {
    let size = shapes.outputs[0].dtype.bits() as usize / 8;
    let output = shapes.outputs[0].shape.clone();
    // A row is all that lies behind one index of the outer dimensions.
    let row: usize = output[axis..].iter().product();
    let rows: usize = output[..axis].iter().product();
    let parts: Vec<(Walk, usize)> = shapes
        .operands
        .iter()
        .map(|view| {
            let walk = Walk::new(&view.shape, std::slice::from_ref(&view.strides));
            (walk, view.shape[axis..].iter().product())
        })
        .collect();
    Box::new(move |call: &mut Call<'_, '_>| {
        if row * rows == 0 {
            return Ok(());
        }
        let mut sources = Vec::with_capacity(parts.len());
        for index in 0..parts.len() {
            sources.push(call.bytes(index)?);
        }
        let out = &mut call.output::<u8>(0)?[..rows * row * size];
        let fill = |(index, out): (usize, &mut [u8])| {
            let mut first = 0;
            for ((walk, length), bytes) in parts.iter().zip(&sources) {
                let out = &mut out[first * size..(first + length) * size];
                first += length;
                walk.runs(0, index * length, *length, |offset, start, count, stride| {
                    copy_run(bytes, offset, stride, &mut out[start * size..], count, size);
                });
            }
        };
        if rows > 1 && out.len() >= PARALLEL_BYTES {
            out.par_chunks_mut(row * size).enumerate().for_each(fill);
        } else {
            out.chunks_mut(row * size).enumerate().for_each(fill);
        }
        Ok(())
    })
}

fn copy_run(bytes: &[u8], offset: usize, stride: usize, out: &mut [u8], count: usize, size: usize) {
    if stride == 1 {
        out[..count * size].copy_from_slice(&bytes[offset * size..(offset + count) * size]);
        return;
    }
    for (i, to) in out.chunks_exact_mut(size).take(count).enumerate() {
        let at = (offset + i * stride) * size;
        to.copy_from_slice(&bytes[at..at + size]);
    }
}

/// `append`: in place only the new rows are written.
pub(crate) fn append(op: &Append) -> Selected {
    let axis = op.axis.index();
    let mut selected =
        Selected::new("append", 2, move |shapes| Ok(prepare_append(axis, shapes))).in_place(0, 0);
    selected.strided_outputs = true;
    selected
}

fn prepare_append(axis: usize, shapes: &Shapes<'_>) -> Run {
    let output = &shapes.outputs[0];
    let size = output.dtype.bits() as usize / 8;
    let walks = [0, 1].map(|operand: usize| {
        let view = &shapes.operands[operand];
        Walk::new(&view.shape, &[view.strides.clone(), output.strides.clone()])
    });
    let first = shapes.operands[0].shape[axis] * output.strides[axis];
    let counts = [shapes.operands[0].elements(), shapes.operands[1].elements()];
    Box::new(move |call: &mut Call<'_, '_>| {
        for (operand, walk) in walks.iter().enumerate() {
            let stays = operand == 0 && call.is_in_place(0);
            if stays || counts[operand] == 0 {
                continue;
            }
            let bytes = call.bytes(operand)?;
            let out = &mut call.output::<u8>(0)?[operand * first * size..];
            copy_both(walk, bytes, out, size);
        }
        Ok(())
    })
}

/// Copies elements from where list 0 of a walk finds them to where list 1 puts them.
fn copy_both(walk: &Walk, bytes: &[u8], out: &mut [u8], size: usize) {
    let innermost = walk.shape.len() - 1;
    let [from, to] = [0, 1].map(|list: usize| walk.strides[list][innermost]);
    walk.rows(|offsets, length| {
        if from == 1 && to == 1 {
            let source = &bytes[offsets[0] * size..(offsets[0] + length) * size];
            out[offsets[1] * size..(offsets[1] + length) * size].copy_from_slice(source);
            return;
        }
        for i in 0..length {
            let (a, b) = ((offsets[0] + i * from) * size, (offsets[1] + i * to) * size);
            out[b..b + size].copy_from_slice(&bytes[a..a + size]);
        }
    });
}

/// Fills a vector with the elements of a transposed tensor from element `from` on.
pub(crate) fn transpose_part(
    op: &Transpose,
    operand: &Tensor,
    from: usize,
    out: &mut Tensor,
) -> Result<(), EvalError> {
    let size = element_size(operand.dtype())?;
    let view = View::contiguous(operand.ty());
    let shape: Extents = op.perm.iter().map(|axis| view.shape[axis.index()]).collect();
    let strides = op.perm.iter().map(|axis| view.strides[axis.index()]).collect();
    let (walk, count) = (Walk::new(&shape, &[strides]), out.elements());
    let (bytes, out) = (operand.bytes(), out.bytes_mut());
    walk.runs(0, from, count, |offset, start, length, stride| {
        copy_run(bytes, offset, stride, &mut out[start * size..], length, size);
    });
    Ok(())
}

/// Copies the elements of a view into contiguous bytes.
pub(crate) fn gather_bytes(view: &View, bytes: &[u8], out: &mut [u8]) -> Result<(), EvalError> {
    let size = element_size(view.dtype)?;
    if view.elements() == 0 {
        return Ok(());
    }
    let walk = Walk::new(&view.shape, std::slice::from_ref(&view.strides));
    copy_walk(&walk, bytes, &mut out[..view.elements() * size], size)
}

/// Copies contiguous elements to where a view says they lie.
pub(crate) fn scatter_bytes(view: &View, bytes: &[u8], out: &mut [u8]) -> Result<(), EvalError> {
    let size = element_size(view.dtype)?;
    let walk = Walk::new(&view.shape, &[row_major(&view.shape), view.strides.clone()]);
    copy_both(&walk, bytes, out, size);
    Ok(())
}

fn element_size(dtype: DType) -> Result<usize, EvalError> {
    match dtype.bits() {
        4 => Err(EvalError::Invalid(format!("{dtype} elements cannot lie apart"))),
        bits => Ok(bits as usize / 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Random, check_graph, check_op, declare, plan, sure};
    use membar_ir::dim::{Bindings, Dim, Symbol};
    use membar_ir::graph::Graph;
    use membar_ir::schedule::{Buffer, BufferId, Layout, Region};
    use membar_ir::types::Axis;
    use std::collections::BTreeMap;

    const DTYPES: [DType; 4] = [DType::U8, DType::F16, DType::F32, DType::I64];

    fn axes(list: &[u32]) -> Vec<Axis> {
        list.iter().map(|axis| Axis(*axis)).collect()
    }

    fn dims(list: &[i64]) -> Vec<Dim> {
        list.iter().map(|dim| Dim::from(*dim)).collect()
    }

    #[test]
    fn movements_agree_with_the_reference() {
        let mut random = Random::new(4);
        for dtype in DTYPES {
            let x = random.tensor(dtype, &[3, 5, 1, 7]);
            check_op(Transpose { perm: axes(&[3, 1, 0, 2]) }, std::slice::from_ref(&x));
            check_op(Transpose { perm: axes(&[1, 0, 2, 3]) }, std::slice::from_ref(&x));
            check_op(Broadcast { shape: dims(&[2, 3, 5, 4, 7]) }, std::slice::from_ref(&x));
            let steps = vec![1, 2, 1, 3];
            let starts = dims(&[1, 0, 0, 1]);
            check_op(Slice { starts, sizes: dims(&[2, 3, 1, 2]), steps }, std::slice::from_ref(&x));
            let steps = vec![1, -2, 1, 1];
            let starts = dims(&[0, 4, 0, 0]);
            check_op(Slice { starts, sizes: dims(&[3, 2, 1, 7]), steps }, std::slice::from_ref(&x));
            for axis in 0..4 {
                let mut shape = [3, 5, 1, 7];
                shape[axis] = 2;
                let y = random.tensor(dtype, &shape);
                let op = Concat { axis: Axis(axis as u32) };
                check_op(op, &[x.clone(), y.clone(), x.clone()]);
                check_op(Append { axis: Axis(axis as u32) }, &[x.clone(), y]);
            }
        }
        let large = random.tensor(DType::F32, &[301, 3, 129]);
        check_op(Transpose { perm: axes(&[2, 1, 0]) }, std::slice::from_ref(&large));
        check_op(Concat { axis: Axis(1) }, &[large.clone(), large]);
    }

    #[test]
    fn appends_write_behind_a_state_in_place() {
        let mut graph = Graph::new("state");
        declare(&mut graph, "P", 0, 6);
        declare(&mut graph, "S", 1, 3);
        let shape = |length: Dim| vec![Dim::from(2), length, Dim::from(3)];
        let past = TensorType::new(DType::F32, shape(Dim::symbol("P")));
        let past = graph.add_input("past", past);
        let rows = TensorType::new(DType::F32, shape(Dim::symbol("S")));
        let rows = graph.add_input("rows", rows);
        let present = sure(graph.apply(Append { axis: Axis(1) }, &[past, rows]));
        let first = Slice {
            starts: dims(&[0, 0, 0]),
            sizes: shape(Dim::symbol("P") + Dim::symbol("S")),
            steps: vec![1, 1, 1],
        };
        let copy = sure(graph.apply(first, &[present]));
        graph.set_outputs([("present", present), ("copy", copy)]);
        for value in [past, present] {
            let value = graph.value_mut(value);
            value.region = Some(Region::contiguous(BufferId(0), 0, 2 * 9 * 3 * 4));
            value.layout = Layout::Capacity(dims(&[2, 9, 3]));
        }
        let memory = membar_ir::topology::MemoryId(0);
        graph.buffers.insert(BufferId(0), Buffer { bytes: 216, memory });
        let graph = plan(graph);
        let mut random = Random::new(8);
        for (past, rows) in [(0, 3), (5, 2), (6, 3), (1, 1)] {
            let inputs: BTreeMap<_, _> = [
                ("past".to_string(), random.tensor(DType::F32, &[2, past, 3])),
                ("rows".to_string(), random.tensor(DType::F32, &[2, rows, 3])),
            ]
            .into();
            let bindings: Bindings =
                [(Symbol::new("P"), past as i64), (Symbol::new("S"), rows as i64)].into();
            check_graph(&graph, &inputs, &bindings);
        }
    }
}
