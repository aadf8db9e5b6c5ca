//! Matrix products: which matrices are multiplied, and by which of the products in this folder;
//! must never compute an element itself.

mod float;
mod integer;
mod vector;

pub(crate) use vector::Widen;

use crate::cpu::program::{Call, Run, Selected, Shapes};
use crate::cpu::view::{Extents, View, Walk};
use membar_ir::dtype::DType;
use membar_ir::op::EvalError;
use membar_ir::ops::Matmul;
use membar_ir::types::TensorType;
use std::ops::Range;

/// The kernel of `matmul`; `None` for types that it has no product for.
pub(crate) fn select(op: &Matmul, operands: &[TensorType]) -> Option<Selected> {
    let [left, right] = [operands[0].dtype, operands[1].dtype];
    let narrow = |dtype: DType| dtype.compute() == DType::F32 && dtype.bits() >= 16;
    let prepare: fn(Products) -> Run = match (left, right) {
        (DType::F32, DType::F32) if narrow(op.acc) && narrow(op.result) => float::f32_run,
        (DType::F16, DType::F16) if narrow(op.acc) && narrow(op.result) => float::f16_run,
        (DType::Bf16, DType::Bf16) if narrow(op.acc) && narrow(op.result) => float::bf16_run,
        (DType::F64, DType::F64) if op.acc == DType::F64 && op.result == DType::F64 => {
            float::f64_run
        }
        _ if op.acc == DType::I32 && op.result == DType::I32 => integer::select(left, right)?,
        _ => return None,
    };
    Some(Selected::new("matmul", 2, move |shapes| Ok(prepare(Products::of(shapes)))))
}

/// The products of one call: the same sizes and strides, at several offsets.
#[derive(Clone, Debug)]
pub(super) struct Products {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub left: Strides,
    pub right: Strides,
    /// The first element of left and right, for each product; results lie one after another.
    pub offsets: Vec<(usize, usize)>,
    /// Element type of the result.
    pub result: DType,
}

/// Elements from a row, and from a column, to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strides {
    pub row: usize,
    pub column: usize,
}

impl Products {
    fn of(shapes: &Shapes<'_>) -> Products {
        let [left, right] = [&shapes.operands[0], &shapes.operands[1]];
        let out = &shapes.outputs[0];
        let outer = out.rank() - 2;
        let (m, n) = (out.shape[outer], out.shape[outer + 1]);
        let k = left.shape[left.rank() - 1];
        let strides = |view: &View| {
            let [.., row, column] = view.strides.as_slice() else {
                return Strides { row: 0, column: 0 };
            };
            Strides { row: *row, column: *column }
        };
        let batch = |view: &View| -> Extents {
            let batch = View {
                dtype: view.dtype,
                shape: Extents::from_slice(&view.shape[..view.rank() - 2]),
                strides: Extents::from_slice(&view.strides[..view.rank() - 2]),
            };
            batch.broadcast(&out.shape[..outer])
        };
        let (left_batch, right_batch) = (batch(left), batch(right));
        let mut products = Products {
            m,
            n,
            k,
            left: strides(left),
            right: strides(right),
            offsets: Vec::new(),
            result: out.dtype,
        };
        // One matrix on the right for all rows on the left: a single product.
        if right_batch.iter().zip(&out.shape).all(|(stride, extent)| *stride == 0 || *extent == 1) {
            let mut rows = left_batch.clone();
            rows.push(products.left.row);
            let walk = Walk::new(&out.shape[..outer + 1], &[rows]);
            if walk.shape.len() == 1 {
                products.m = walk.shape[0];
                products.left.row = walk.strides[0][0];
                products.offsets.push((0, 0));
                return products;
            }
        }
        let shape = &out.shape[..outer];
        let count: usize = shape.iter().product();
        let walk = Walk::new(shape, &[left_batch, right_batch]);
        let innermost = walk.shape.len() - 1;
        products.offsets.reserve(count);
        if count > 0 {
            walk.rows(|offsets, length| {
                for i in 0..length {
                    let at = |list: usize| offsets[list] + i * walk.strides[list][innermost];
                    products.offsets.push((at(0), at(1)));
                }
            });
        }
        products
    }

    /// Elements of one result.
    fn size(&self) -> usize {
        self.m * self.n
    }

    /// Whether there is nothing to compute.
    fn is_empty(&self) -> bool {
        self.size() * self.offsets.len() == 0
    }

    /// Multiplications of one product.
    fn work(&self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k)
    }

    /// Runs `one(index, out, parallel)` for each product's result: side by side if there are
    /// enough of them, else one after another, each on all threads if it is worth that.
    fn each<T: Send>(&self, out: &mut [T], one: impl Fn((usize, usize), &mut [T], bool) + Sync) {
        use rayon::prelude::*;
        /// Multiplications below which threads cost more than they save.
        const PARALLEL_WORK: usize = 64 << 10;
        let count = self.offsets.len();
        let total = self.work().saturating_mul(count);
        let out = &mut out[..self.size() * count];
        if count >= 2 * rayon::current_num_threads() && total >= PARALLEL_WORK {
            let least = (PARALLEL_WORK / 4).div_ceil(self.work().max(1));
            out.par_chunks_mut(self.size())
                .zip(&self.offsets)
                .with_min_len(least)
                .for_each(|(out, offsets)| one(*offsets, out, false));
        } else {
            let parallel = self.work() >= PARALLEL_WORK;
            for (out, offsets) in out.chunks_mut(self.size()).zip(&self.offsets) {
                one(*offsets, out, parallel);
            }
        }
    }
}

impl Strides {
    /// The elements of a matrix of that size which begins at `first`.
    fn range(self, first: usize, rows: usize, columns: usize) -> Range<usize> {
        if rows == 0 || columns == 0 {
            return first..first;
        }
        first..first + (rows - 1) * self.row + (columns - 1) * self.column + 1
    }
}

/// The elements of an operand.
fn elements<'a, T: bytemuck::Pod>(call: &Call<'_, 'a>, index: usize) -> Result<&'a [T], EvalError> {
    call.operand(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Random, check_graph, check_op, plan, sure};
    use membar_ir::dim::{Bindings, Dim};
    use membar_ir::graph::Graph;
    use membar_ir::interp::static_type;
    use membar_ir::schedule::{Buffer, BufferId, Layout, Region};

    fn matmul(acc: DType, result: DType) -> Matmul {
        Matmul { acc, result }
    }

    #[test]
    fn products_agree_with_the_reference() {
        let shapes: &[(&[usize], &[usize])] = &[
            (&[5, 7], &[7, 9]),
            (&[1, 33], &[33, 70]),
            (&[3, 5, 7], &[7, 9]),
            (&[3, 1, 5, 7], &[2, 7, 3]),
            (&[2, 9, 1, 16], &[2, 9, 16, 13]),
            (&[1, 4, 6], &[8, 6, 1]),
            (&[4, 0], &[0, 3]),
            (&[0, 4], &[4, 3]),
            (&[67, 129], &[129, 65]),
        ];
        let floats = [
            (DType::F32, DType::F32, DType::F32),
            (DType::F64, DType::F64, DType::F64),
            (DType::F16, DType::F32, DType::F16),
            (DType::Bf16, DType::F32, DType::F32),
            (DType::F32, DType::F64, DType::F32),
        ];
        let mut random = Random::new(31);
        for (a, b) in shapes {
            for (dtype, acc, result) in floats {
                let operands = [random.tensor(dtype, a), random.tensor(dtype, b)];
                check_op(matmul(acc, result), &operands);
            }
            for left in [DType::I8, DType::U8, DType::I32] {
                for right in [DType::I8, DType::U8, DType::I32] {
                    let operands = [random.tensor(left, a), random.tensor(right, b)];
                    check_op(matmul(DType::I32, DType::I32), &operands);
                }
            }
        }
    }

    #[test]
    fn long_rows_are_split_between_threads() {
        let mut random = Random::new(32);
        for dtype in [DType::F32, DType::Bf16] {
            let operands = [random.tensor(dtype, &[1, 300]), random.tensor(dtype, &[300, 1301])];
            check_op(matmul(DType::F32, DType::F32), &operands);
            let operands = [random.tensor(dtype, &[70, 300]), random.tensor(dtype, &[300, 301])];
            check_op(matmul(DType::F32, dtype), &operands);
        }
    }

    /// The right operand lies in the corner of a larger one, as a cache of keys does, and is read
    /// as it lies.
    #[test]
    fn operands_may_have_gaps() {
        for (dtype, rows) in [(DType::F32, 3), (DType::F32, 1), (DType::Bf16, 5), (DType::I8, 2)] {
            let mut random = Random::new(33);
            let x = random.tensor(dtype, &[2, rows, 4]);
            let y = random.tensor(dtype, &[2, 4, 5]);
            let mut graph = Graph::new("gaps");
            let a = graph.add_input("a", static_type(x.ty()));
            let b = graph.add_input("b", static_type(y.ty()));
            let acc = if dtype.is_float() { DType::F32 } else { DType::I32 };
            let product = sure(graph.apply(matmul(acc, acc), &[a, b]));
            graph.set_outputs([("product", product)]);
            let value = graph.value_mut(b);
            value.layout = Layout::Capacity([2i64, 7, 6].map(Dim::from).to_vec());
            value.region = Some(Region::contiguous(BufferId(0), 0, 2 * 7 * 6 * 4));
            let memory = membar_ir::topology::MemoryId(0);
            graph.buffers.insert(BufferId(0), Buffer { bytes: 512, memory });
            let inputs = [("a".to_string(), x), ("b".to_string(), y)].into();
            check_graph(&plan(graph), &inputs, &Bindings::new());
        }
    }
}
