//! Elementwise kernels: one compiled program for any scalar expression, run block by block over
//! operands that broadcast; must never know which operator an expression came from.

mod compile;
mod execute;
pub(crate) mod math;
#[cfg(test)]
mod tests;

use crate::cpu::arena::Source;
use crate::cpu::program::{Call, Run, Selected, Shapes};
use crate::cpu::view::{View, Walk};
use compile::{Program, Register};
use execute::{BLOCK, Elements, Registers};
use membar_ir::dtype::DType;
use membar_ir::op::{EvalError, ScalarMeaning};
use membar_ir::types::TensorType;
use rayon::prelude::*;
use std::sync::Arc;

/// Below this many simple operations a kernel runs on one thread.
const PARALLEL_COST: usize = 64 << 10;

/// The kernel of a scalar expression; `None` if programs cannot compute it.
pub(crate) fn select(meaning: &ScalarMeaning, operands: &[TensorType]) -> Option<Selected> {
    let dtypes: Vec<DType> = operands.iter().map(|ty| ty.dtype).collect();
    let program = Arc::new(compile::compile(meaning, &dtypes)?);
    let prepare = move |shapes: &Shapes<'_>| Ok(prepare(&program, shapes));
    Some(Selected::new("elementwise", operands.len(), prepare))
}

/// An operand as the blocks read it.
struct Load {
    operand: usize,
    register: Register,
    dtype: DType,
    /// The list of strides in the walk.
    list: usize,
    /// Whether it is one element for all.
    single: bool,
}

struct Prepared {
    program: Arc<Program>,
    loads: Vec<Load>,
    walk: Walk,
    dtype: DType,
    elements: usize,
    /// Elements a task.
    task: usize,
}

fn prepare(program: &Arc<Program>, shapes: &Shapes<'_>) -> Run {
    let output = &shapes.outputs[0];
    let elements = output.elements();
    let mut strides = Vec::new();
    let mut loads = Vec::new();
    for (operand, register) in &program.operands {
        let view: &View = &shapes.operands[*operand];
        loads.push(Load {
            operand: *operand,
            register: *register,
            dtype: view.dtype,
            list: strides.len(),
            single: view.elements() == 1,
        });
        strides.push(view.broadcast(&output.shape));
    }
    let cost = elements.saturating_mul(program.cost + program.operands.len() + 1);
    let tasks = if cost < PARALLEL_COST {
        1
    } else {
        // More tasks than threads even out what other work takes from them.
        (2 * rayon::current_num_threads()).min(cost / (PARALLEL_COST / 2)).max(1)
    };
    let prepared = Prepared {
        program: program.clone(),
        loads,
        walk: Walk::new(&output.shape, &strides),
        dtype: output.dtype,
        elements,
        task: elements.div_ceil(tasks).next_multiple_of(BLOCK),
    };
    Box::new(move |call: &mut Call<'_, '_>| prepared.run(call))
}

impl Prepared {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), EvalError> {
        if self.elements == 0 {
            return Ok(());
        }
        let size = self.dtype.bits() as usize / 8;
        let sources = call.sources;
        let out = &mut call.output::<u8>(0)?[..self.elements * size];
        if out.len() <= self.task * size {
            self.task(sources, out, 0);
        } else {
            out.par_chunks_mut(self.task * size)
                .enumerate()
                .for_each(|(index, out)| self.task(sources, out, index * self.task));
        }
        Ok(())
    }

    /// Elements from `first` on, as many as `out` holds.
    fn task(&self, sources: &[Source<'_>], out: &mut [u8], first: usize) {
        pulp::Arch::new().dispatch(Task { prepared: self, sources, out, first });
    }
}

struct Task<'a, 'b> {
    prepared: &'a Prepared,
    sources: &'a [Source<'b>],
    out: &'a mut [u8],
    first: usize,
}

impl pulp::NullaryFnOnce for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Task { prepared, sources, out, first } = self;
        let Prepared { program, loads, walk, dtype, .. } = prepared;
        let mut registers = Registers::new(program);
        for load in loads.iter().filter(|load| load.single) {
            if let Source::Shared(bytes) = sources[load.operand] {
                let Load { dtype, register, .. } = *load;
                let from = Elements { dtype, bytes, offset: 0, stride: 0, count: BLOCK };
                execute::load(from, register, 0, &mut registers);
            }
        }
        let Some(result) = program.result else { return };
        let size = dtype.bits() as usize / 8;
        for (index, block) in out.chunks_mut(BLOCK * size).enumerate() {
            let from = first + index * BLOCK;
            let count = block.len() / size;
            for load in loads {
                let Load { dtype, register, list, .. } = *load;
                match sources[load.operand] {
                    // In place, an element lies where its result will.
                    Source::InPlace(_) => {
                        let bytes: &[u8] = block;
                        let from = Elements { dtype, bytes, offset: 0, stride: 1, count };
                        execute::load(from, register, 0, &mut registers);
                    }
                    Source::Shared(_) if load.single => {}
                    Source::Shared(bytes) => {
                        walk.runs(list, from, count, |offset, at, length, stride| {
                            let count = length;
                            let from = Elements { dtype, bytes, offset, stride, count };
                            execute::load(from, register, at, &mut registers);
                        });
                    }
                }
            }
            execute::run(program, &mut registers, count);
            execute::store(*dtype, result, &registers, block);
        }
    }
}
