//! The language of the e-graph and what is known of its classes; never a rule.

use egg::{Analysis, DidMerge, EGraph, Id, Language};
use membar_ir::attribute::Float;
use membar_ir::dim::Ranges;
use membar_ir::dtype::DType;
use membar_ir::ops::{Op, Scalar};
use membar_ir::types::TensorType;
use smallvec::{SmallVec, smallvec};
use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

/// A term: an operator over classes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ENode {
    /// A value that the region reads, by its position among these.
    Leaf(u32),
    /// A scalar that a rule made.
    Constant(DType, Float),
    /// An operator. The class of one with several results stands for all of them; what reads one of
    /// them reads a [`ENode::Result`].
    Op(Arc<Op>, SmallVec<[Id; 4]>),
    /// One of several results of an operator.
    Result(u32, [Id; 1]),
}

/// Which terms could be alike, whatever their attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Leaf,
    Constant,
    Result,
    Op(Discriminant<Op>),
    Scalar(Discriminant<Scalar>),
}

impl Language for ENode {
    type Discriminant = Kind;

    fn discriminant(&self) -> Kind {
        match self {
            ENode::Leaf(_) => Kind::Leaf,
            ENode::Constant(..) => Kind::Constant,
            ENode::Result(..) => Kind::Result,
            ENode::Op(op, _) => match &**op {
                Op::Scalar(scalar) => Kind::Scalar(discriminant(scalar)),
                op => Kind::Op(discriminant(op)),
            },
        }
    }

    fn matches(&self, other: &ENode) -> bool {
        match (self, other) {
            (ENode::Leaf(a), ENode::Leaf(b)) => a == b,
            (ENode::Constant(a, x), ENode::Constant(b, y)) => (a, x) == (b, y),
            (ENode::Result(a, _), ENode::Result(b, _)) => a == b,
            (ENode::Op(a, x), ENode::Op(b, y)) => x.len() == y.len() && a == b,
            _ => false,
        }
    }

    fn children(&self) -> &[Id] {
        match self {
            ENode::Leaf(_) | ENode::Constant(..) => &[],
            ENode::Op(_, operands) => operands,
            ENode::Result(_, of) => of,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            ENode::Leaf(_) | ENode::Constant(..) => &mut [],
            ENode::Op(_, operands) => operands,
            ENode::Result(_, of) => of,
        }
    }
}

/// The types of an operator's results.
pub(super) type Types = SmallVec<[TensorType; 1]>;

/// What is known of a class.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// The types of the results; of a value, its own.
    pub types: Types,
    /// The number that every element is, if that is known.
    pub uniform: Option<Float>,
    /// What two terms of the class say that cannot both be true.
    pub conflict: Option<Conflict>,
}

/// Two facts that exclude each other: some rule united what is not equal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Conflict {
    /// Of two types.
    Types(Types, Types),
    /// Of two constants.
    Constants(Float, Float),
    /// An operator does not take its operands.
    Operands(String),
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |types: &Types| types.iter().map(TensorType::to_string).collect::<Vec<_>>();
        match self {
            Conflict::Types(a, b) => {
                write!(f, "types {} and {}", list(a).join(", "), list(b).join(", "))
            }
            Conflict::Constants(a, b) => write!(f, "constants {} and {}", a.0, b.0),
            Conflict::Operands(message) => f.write_str(message),
        }
    }
}

/// A value that a region reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leaf {
    pub ty: TensorType,
    /// The number that every element is; of small constants alone.
    pub uniform: Option<Float>,
    /// Whether it is a weight, so that operators over it cost nothing at run time.
    pub weight: bool,
}

/// Types and constants, from the leaves up.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    pub leaves: Vec<Leaf>,
    /// Ranges of the symbols in types and attributes.
    pub symbols: Arc<Ranges>,
}

impl Analysis<ENode> for Knowledge {
    type Data = Facts;

    fn make(graph: &mut EGraph<ENode, Knowledge>, node: &ENode, _: Id) -> Facts {
        let known = |types: Types, uniform| Facts { types, uniform, conflict: None };
        match node {
            ENode::Leaf(index) => match graph.analysis.leaves.get(*index as usize) {
                Some(leaf) => known(smallvec![leaf.ty.clone()], leaf.uniform),
                None => unknown(format!("there is no leaf {index}")),
            },
            ENode::Constant(dtype, value) => {
                known(smallvec![TensorType::new(*dtype, Vec::new())], Some(*value))
            }
            ENode::Result(index, [of]) => match graph[*of].data.types.get(*index as usize) {
                Some(ty) => known(smallvec![ty.clone()], None),
                None => unknown(format!("there is no result {index}")),
            },
            ENode::Op(op, operands) => {
                let mut types = Vec::with_capacity(operands.len());
                for operand in operands {
                    match graph[*operand].data.types.as_slice() {
                        [ty] => types.push(ty.clone()),
                        _ => return unknown(format!("{} reads several values", op.mnemonic())),
                    }
                }
                match op.infer(&types) {
                    Ok(types) => known(types.into(), None),
                    Err(error) => unknown(format!("{}: {error}", op.mnemonic())),
                }
            }
        }
    }

    fn merge(&mut self, to: &mut Facts, from: Facts) -> DidMerge {
        let before = to.clone();
        if to.conflict.is_none() {
            to.conflict.clone_from(&from.conflict);
        }
        if to.conflict.is_none() && to.types != from.types {
            to.conflict = Some(Conflict::Types(to.types.clone(), from.types.clone()));
        }
        match (to.uniform, from.uniform) {
            (Some(a), Some(b)) if a != b && to.conflict.is_none() => {
                to.conflict = Some(Conflict::Constants(a, b));
            }
            (None, Some(b)) => to.uniform = Some(b),
            _ => {}
        }
        DidMerge(*to != before, *to != from)
    }
}

fn unknown(message: String) -> Facts {
    Facts { types: Types::new(), uniform: None, conflict: Some(Conflict::Operands(message)) }
}
