//! The right side of a rule: terms over classes that exist, and their construction; never a choice.

use crate::rewrite::language::ENode;
use crate::rewrite::saturate::RegionGraph;
use egg::Id;
use membar_ir::attribute::Float;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::{Op, Reshape, Scalar, Transpose};
use membar_ir::types::{Axis, TensorType};
use std::sync::Arc;

/// A term that a rule builds. Its operators have one result.
#[derive(Clone, Debug)]
pub(in crate::rewrite) enum Term {
    /// A class that there is.
    Class(Id),
    /// A scalar.
    Constant(DType, f64),
    /// An operator over terms.
    Op(Op, Vec<Term>),
}

impl Term {
    /// An operator over terms.
    pub fn op(op: impl Into<Op>, operands: impl Into<Vec<Term>>) -> Term {
        Term::Op(op.into(), operands.into())
    }

    /// The same elements under another shape.
    pub fn reshape(self, shape: Vec<Dim>) -> Term {
        Term::op(Reshape { shape }, [self])
    }

    /// Permuted dimensions.
    pub fn transpose(self, perm: &[usize]) -> Term {
        let perm = perm.iter().map(|axis| Axis::from(*axis)).collect();
        Term::op(Transpose { perm }, [self])
    }

    /// Adds the term to a graph; `made` is told of each operator. `None` if an operator does not take
    /// its operands.
    pub fn build(&self, graph: &mut RegionGraph, made: &mut dyn FnMut(&ENode)) -> Option<Id> {
        match self {
            Term::Class(id) => Some(graph.find(*id)),
            Term::Constant(dtype, value) => Some(graph.add(ENode::Constant(*dtype, Float(*value)))),
            Term::Op(op, operands) => {
                let operands: Vec<Id> =
                    operands.iter().map(|term| term.build(graph, made)).collect::<Option<_>>()?;
                let types: Vec<TensorType> = operands
                    .iter()
                    .map(|id| graph[*id].data.types.first().cloned())
                    .collect::<Option<_>>()?;
                let outputs = op.infer(&types).ok()?;
                let ([_], false) = (outputs.as_slice(), is_identity(op, &types, &outputs)) else {
                    return operands.first().copied().filter(|_| outputs.len() == 1);
                };
                let node = ENode::Op(Arc::new(op.clone()), operands.into());
                let id = graph.add(node.clone());
                made(&node);
                Some(id)
            }
        }
    }
}

/// Whether a movement or conversion that rules build gives back its operand.
fn is_identity(op: &Op, operands: &[TensorType], outputs: &[TensorType]) -> bool {
    match op {
        Op::Reshape(_) | Op::Scalar(Scalar::Cast { .. }) => operands == outputs,
        Op::Transpose(op) => op.perm.iter().enumerate().all(|(i, axis)| axis.index() == i),
        _ => false,
    }
}
