//! Families of kernels: the only table from operators to what writes their kernels. Must never write
//! one itself.

use super::EmitError;
use super::group::Group;
use super::kernel::{Emitted, StepContext};
use super::{attention, loops, matmul, pointwise, rows, scatter, state};
use membar_ir::kernel::{InPlace, KernelSpec};
use membar_ir::ops::Op;
use membar_ir::types::TensorType;

/// A way to write the kernels of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// The operand's bytes under another type.
    Alias,
    /// Rows behind those of a state.
    Append,
    /// A function of the result's position.
    Pointwise,
    /// Tiles of a matrix product.
    Matmul,
    /// Tiles of queries that walk over all keys.
    Attention,
    /// A function of the result's position that loops over what it combines.
    Loop,
    /// Groups of threads that share a row.
    Rows,
    /// Writes at places that data names.
    Scatter,
}

impl Family {
    /// The family of an operator on these types; `None`: it runs as what it is made of.
    pub fn of(op: &Op, operands: &[TensorType], outputs: &[TensorType]) -> Option<Family> {
        match op {
            Op::Reshape(_) | Op::Bitcast(_) => Some(Family::Alias),
            Op::Append(_) => Some(Family::Append),
            // Two threads may not write one byte.
            op if outputs.iter().any(|ty| ty.dtype.bits() == 4)
                && !pointwise::is_pointwise(op, operands) =>
            {
                None
            }
            Op::GroupNorm(op) if operands[0].shape[1].exact_div(&op.groups.into()).is_none() => {
                None
            }
            Op::ScatterElements(_) | Op::ScatterNd(_) => Some(Family::Scatter),
            op if rows::is_row(op) => Some(Family::Rows),
            Op::Matmul(_) => Some(Family::Matmul),
            Op::Attention(op) => attention::takes(op, operands).then_some(Family::Attention),
            op if loops::is_loop(op) => Some(Family::Loop),
            op if pointwise::is_pointwise(op, operands) => Some(Family::Pointwise),
            op => Family::of_group(&Group::of(op, operands)?),
        }
    }

    /// The family of a group's anchor.
    fn of_group(group: &Group) -> Option<Family> {
        match group.anchor_op()? {
            op if rows::is_anchor(op) => Some(Family::Rows),
            Op::Matmul(op) => {
                let types = group.anchor_operands();
                let takes = matmul::takes(op, [types[0].dtype, types[1].dtype]);
                takes.then_some(Family::Matmul)
            }
            Op::Attention(op) => {
                attention::takes(op, &group.anchor_operands()).then_some(Family::Attention)
            }
            _ => None,
        }
        .filter(|family| family.has_views(group))
    }

    /// The first so many operands of the operator are read where they lie, whatever stands between
    /// them and the step's operands.
    fn viewed(self) -> usize {
        match self {
            Family::Matmul => 2,
            Family::Attention => 3,
            _ => 0,
        }
    }

    fn has_views(self, group: &Group) -> bool {
        (0..self.viewed()).all(|operand| group.contiguous_view(operand).is_some())
    }

    /// What passes must know of the kernel.
    pub fn spec(self, op: &Op, operands: &[TensorType], outputs: &[TensorType]) -> KernelSpec {
        let first = InPlace { operand: 0, output: 0 };
        let same_as_output = |(_, ty): &(usize, &TensorType)| outputs.first() == Some(*ty);
        let in_place = match (self, op) {
            (Family::Alias | Family::Append | Family::Scatter, _) => vec![first],
            // Each element is read before the same thread writes it.
            (Family::Pointwise, op) if is_elementwise(op) => operands
                .iter()
                .enumerate()
                .filter(same_as_output)
                .map(|(operand, _)| InPlace { operand: operand as u32, output: 0 })
                .collect(),
            _ => Vec::new(),
        };
        let mut strided_operands: Vec<u32> = (0..operands.len() as u32).collect();
        let mut async_operands = Vec::new();
        if self.viewed() > 0 {
            let group = Group::of(op, operands);
            let places: Vec<usize> = (0..self.viewed())
                .filter_map(|operand| match &group {
                    Some(group) => {
                        let view = group.contiguous_view(operand)?;
                        let is_whole = |other: &u32| view.whole && *other == view.operand as u32;
                        strided_operands.retain(|other| !is_whole(other));
                        Some(view.operand)
                    }
                    None => Some(operand),
                })
                .collect();
            if places.iter().all(|place| matmul::may_use_maps(operands[*place].dtype)) {
                async_operands = places.into_iter().map(|operand| operand as u32).collect();
                async_operands.sort_unstable();
                async_operands.dedup();
            }
        }
        KernelSpec {
            name: op.mnemonic().to_string(),
            in_place,
            alias: (self == Family::Alias).then_some(first),
            strided_operands,
            waits: true,
            async_fence: !async_operands.is_empty(),
            async_operands,
            ..KernelSpec::default()
        }
    }

    /// The kernels of a step, one after another.
    pub fn emit(self, step: &StepContext<'_>) -> Result<Vec<Emitted>, EmitError> {
        let group = || Group::of(step.op, &step.operand_types());
        match self {
            Family::Alias => state::alias(step),
            Family::Append => state::append(step),
            Family::Pointwise | Family::Loop => pointwise::emit(step),
            Family::Matmul => matmul::emit(step, group().as_ref()),
            Family::Attention => attention::emit(step, group().as_ref()),
            Family::Rows => rows::emit(step, group().as_ref()),
            Family::Scatter => scatter::emit(step),
        }
    }
}

/// Whether each result is a function of the operands' elements at its own position.
fn is_elementwise(op: &Op) -> bool {
    match op {
        Op::Scalar(_) => true,
        Op::Fused(group) => group.body.iter().all(|part| is_elementwise(&part.op)),
        _ => false,
    }
}
