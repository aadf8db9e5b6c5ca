//! What an operator is: inference, meaning and cost; never a list of operators (see `ops`).

use crate::attribute::Attributes;
use crate::dim::{Bindings, Dim};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::scalar::Expr;
use crate::tensor::{Tensor, TensorError};
use crate::types::{ConcreteType, ShapeError, TensorType};
use std::fmt;
use std::sync::Arc;

/// The definition of an operator: a struct whose fields are its attributes, and this.
pub trait OpDef: Attributes + Clone + Eq + Send + Sync + 'static {
    /// The name in IR text.
    const MNEMONIC: &'static str;

    /// The types of the outputs.
    ///
    /// # Errors
    /// The operands are too few or too many, or their types do not fit.
    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError>;

    /// What the operator computes, for operands that [`OpDef::infer`] accepts.
    fn meaning(&self, operands: &[TensorType]) -> Meaning;

    /// Arithmetic operations for one evaluation, as a polynomial of the symbols; movements are 0.
    fn operations(&self, _operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        outputs.iter().map(TensorType::elements).sum()
    }
}

/// What an operator computes.
#[derive(Clone)]
pub enum Meaning {
    /// One scalar expression for each element of the result, over operands that broadcast.
    Scalar(ScalarMeaning),
    /// A graph of simpler operators with the same inputs and outputs. Acyclic: a meaning never
    /// leads back to its own operator.
    Composite(Box<Graph>),
    /// A reference evaluation.
    Primitive(Reference),
}

/// The meaning of an elementwise operator.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarMeaning {
    /// The expression.
    pub expr: Expr,
    /// Element type of the result.
    pub result: DType,
}

/// A reference evaluation: simple enough to trust, whatever its speed.
pub type Reference =
    Arc<dyn Fn(&Evaluation<'_>) -> Result<Vec<Tensor>, EvalError> + Send + Sync + 'static>;

/// The arguments of a reference evaluation. The operator's own attributes are bound: every
/// dimension among them is a constant.
pub struct Evaluation<'a> {
    /// The operands.
    pub operands: &'a [Tensor],
    /// The types of the outputs.
    pub outputs: &'a [ConcreteType],
}

impl Evaluation<'_> {
    /// The value of a dimension that is an attribute.
    pub fn dim(&self, dim: &Dim) -> Result<i64, EvalError> {
        Ok(dim.evaluate(&Bindings::new()).map_err(ShapeError::from)?)
    }

    /// The value of a dimension that counts something.
    pub fn extent(&self, dim: &Dim) -> Result<usize, EvalError> {
        let value = self.dim(dim)?;
        let negative = || ShapeError::Negative(dim.clone(), value);
        Ok(usize::try_from(value).map_err(|_| negative())?)
    }
}

impl Meaning {
    /// A primitive meaning from an operator and a function that evaluates it.
    pub fn primitive<O: OpDef>(
        op: &O,
        evaluate: fn(&O, &Evaluation<'_>) -> Result<Vec<Tensor>, EvalError>,
    ) -> Meaning {
        let op = op.clone();
        Meaning::Primitive(Arc::new(move |evaluation| evaluate(&op, evaluation)))
    }

    /// A composite meaning from a function that builds the graph. `build` gets a graph whose
    /// inputs have the operands' types, and returns the outputs.
    ///
    /// A failure to build is a defect of the operator; it becomes a primitive that reports it.
    pub fn composite(
        operands: &[TensorType],
        build: impl FnOnce(
            &mut Graph,
            &[crate::graph::ValueId],
        ) -> Result<Vec<crate::graph::ValueId>, TypeError>,
    ) -> Meaning {
        let mut graph = Graph::new("meaning");
        let inputs: Vec<_> = operands
            .iter()
            .enumerate()
            .map(|(i, ty)| graph.add_input(&format!("operand{i}"), ty.clone()))
            .collect();
        match build(&mut graph, &inputs) {
            Ok(outputs) => {
                graph.set_outputs(
                    outputs.into_iter().enumerate().map(|(i, v)| (format!("result{i}"), v)),
                );
                Meaning::Composite(Box::new(graph))
            }
            Err(error) => Meaning::Primitive(Arc::new(move |_| {
                Err(EvalError::Invalid(format!("the operator's own definition: {error}")))
            })),
        }
    }
}

impl fmt::Debug for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meaning::Scalar(scalar) => write!(f, "Scalar({scalar:?})"),
            Meaning::Composite(_) => f.write_str("Composite"),
            Meaning::Primitive(_) => f.write_str("Primitive"),
        }
    }
}

/// Why operands do not fit an operator.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TypeError {
    /// Too few or too many operands.
    #[error("{found} operands, expected {expected}")]
    Arity {
        /// How many the operator takes, in words.
        expected: String,
        /// How many there were.
        found: usize,
    },
    /// An operand's element type.
    #[error("operand {operand} has element type {found}, expected {expected}")]
    DType {
        /// Which operand, from 0.
        operand: usize,
        /// What the operator takes, in words.
        expected: String,
        /// What it was.
        found: DType,
    },
    /// An operand's rank.
    #[error("operand {operand} has rank {found}, expected {expected}")]
    Rank {
        /// Which operand, from 0.
        operand: usize,
        /// What the operator takes, in words.
        expected: String,
        /// What it was.
        found: usize,
    },
    /// Two dimensions that must be equal (or broadcast) and, for all that is known, are not. The
    /// importer reacts to this one: two symbols may be the same dimension under two names.
    #[error("dimensions `{left}` and `{right}` differ ({what})")]
    Mismatch {
        /// The first.
        left: Dim,
        /// The second.
        right: Dim,
        /// What they are, in words: "broadcast dimension 2", "inner dimension of matmul".
        what: String,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Invalid(String),
}

impl TypeError {
    /// [`TypeError::Invalid`] from words.
    pub fn invalid(message: impl Into<String>) -> TypeError {
        TypeError::Invalid(message.into())
    }
}

/// Why an evaluation failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvalError {
    /// A shape has no numbers.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A tensor is not what it should be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// An index out of range.
    #[error("index {index} is out of range for a dimension of {extent}")]
    Index {
        /// The index, as given.
        index: i64,
        /// The dimension.
        extent: usize,
    },
    /// A tensor larger than the limit set for evaluation.
    #[error("a result of {bytes} bytes, more than the limit of {limit}")]
    Limit {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Invalid(String),
}

/// Checks on operands that many operators share.
pub mod check {
    use super::*;

    /// Exactly `N` operands.
    pub fn arity<const N: usize>(operands: &[TensorType]) -> Result<&[TensorType; N], TypeError> {
        operands
            .try_into()
            .map_err(|_| TypeError::Arity { expected: N.to_string(), found: operands.len() })
    }

    /// Exactly `expected` operands, where attributes decide how many.
    pub fn count(operands: &[TensorType], expected: usize) -> Result<(), TypeError> {
        if operands.len() == expected {
            return Ok(());
        }
        Err(TypeError::Arity { expected: expected.to_string(), found: operands.len() })
    }

    /// At least `least` operands.
    pub fn at_least(operands: &[TensorType], least: usize) -> Result<(), TypeError> {
        if operands.len() >= least {
            return Ok(());
        }
        Err(TypeError::Arity { expected: format!("at least {least}"), found: operands.len() })
    }

    /// Operand `index` has an element type for which `accepts` holds.
    pub fn dtype(
        operands: &[TensorType],
        index: usize,
        expected: &str,
        accepts: impl Fn(DType) -> bool,
    ) -> Result<DType, TypeError> {
        let found = operands[index].dtype;
        if accepts(found) {
            return Ok(found);
        }
        Err(TypeError::DType { operand: index, expected: expected.to_string(), found })
    }

    /// Operand `index` has exactly that element type.
    pub fn dtype_is(
        operands: &[TensorType],
        index: usize,
        expected: DType,
    ) -> Result<(), TypeError> {
        dtype(operands, index, expected.name(), |found| found == expected).map(|_| ())
    }

    /// Operand `index` has exactly that rank.
    pub fn rank(operands: &[TensorType], index: usize, expected: usize) -> Result<(), TypeError> {
        let found = operands[index].rank();
        if found == expected {
            return Ok(());
        }
        Err(TypeError::Rank { operand: index, expected: expected.to_string(), found })
    }

    /// Operand `index` has at least that rank.
    pub fn rank_at_least(
        operands: &[TensorType],
        index: usize,
        least: usize,
    ) -> Result<(), TypeError> {
        let found = operands[index].rank();
        if found >= least {
            return Ok(());
        }
        Err(TypeError::Rank { operand: index, expected: format!("at least {least}"), found })
    }

    /// The axis exists in a shape of that rank.
    pub fn axis(axis: crate::types::Axis, rank: usize) -> Result<(), TypeError> {
        if axis.index() < rank {
            return Ok(());
        }
        Err(TypeError::invalid(format!("axis {axis} of a tensor of rank {rank}")))
    }

    /// Two dimensions are equal.
    pub fn equal(left: &Dim, right: &Dim, what: &str) -> Result<(), TypeError> {
        if left == right {
            return Ok(());
        }
        Err(TypeError::Mismatch {
            left: left.clone(),
            right: right.clone(),
            what: what.to_string(),
        })
    }

    /// An attribute's list has one item for each of `expected` dimensions.
    pub fn length(name: &str, found: usize, expected: usize) -> Result<(), TypeError> {
        if found == expected {
            return Ok(());
        }
        Err(TypeError::invalid(format!("`{name}` has {found} items, expected {expected}")))
    }

    /// A dimension is not known to be negative.
    pub fn not_negative(dim: &Dim, what: &str) -> Result<(), TypeError> {
        match dim.as_constant() {
            Some(value) if value < 0 => {
                Err(TypeError::invalid(format!("{what} is {value}, but cannot be negative")))
            }
            _ => Ok(()),
        }
    }

    /// A dimension is not known to be greater than another.
    pub fn at_most(dim: &Dim, limit: &Dim, what: &str) -> Result<(), TypeError> {
        match (dim.clone() - limit.clone()).as_constant() {
            Some(excess) if excess > 0 => {
                Err(TypeError::invalid(format!("{dim} {what}, but at most {limit} fit")))
            }
            _ => Ok(()),
        }
    }

    /// Operand `index` holds indices: i32 or i64.
    pub fn index_dtype(operands: &[TensorType], index: usize) -> Result<DType, TypeError> {
        dtype(operands, index, "i32 or i64", |found| matches!(found, DType::I32 | DType::I64))
    }

    /// Outside the axis, indices that stand for single elements reach no further than the data.
    pub fn indices_fit(
        data: &[Dim],
        indices: &[Dim],
        axis: crate::types::Axis,
    ) -> Result<(), TypeError> {
        for (i, (data, indices)) in data.iter().zip(indices).enumerate() {
            if i != axis.index() {
                at_most(indices, data, &format!("indices in dimension {i}"))?;
            }
        }
        Ok(())
    }

    /// The length of the index tuples in the innermost dimension of operand `indices`, which must
    /// be a constant; with `batch` shared outer dimensions they fit operand `data`.
    pub fn index_tuple(
        operands: &[TensorType],
        data: usize,
        indices: usize,
        batch: usize,
    ) -> Result<usize, TypeError> {
        rank_at_least(operands, data, batch + 1)?;
        rank_at_least(operands, indices, batch + 1)?;
        let limit = operands[data].rank() - batch;
        let tuple = operands[indices].shape.last().cloned().unwrap_or(Dim::ZERO);
        let length = tuple.as_constant().and_then(|tuple| usize::try_from(tuple).ok());
        length.filter(|length| *length <= limit).ok_or_else(|| {
            TypeError::invalid(format!(
                "index tuples have {tuple} items, expected a constant of at most {limit}"
            ))
        })
    }

    /// A shape broadcasts to another, NumPy's way, without stretching that one.
    pub fn broadcasts_to(from: &[Dim], to: &[Dim]) -> Result<(), TypeError> {
        if from.len() > to.len() {
            let (from, to) = (from.len(), to.len());
            return Err(TypeError::invalid(format!("rank {from} does not broadcast to {to}")));
        }
        let inner = &to[to.len() - from.len()..];
        from.iter()
            .zip(inner)
            .enumerate()
            .filter(|(_, (f, _))| !f.is(1))
            .try_for_each(|(i, (f, t))| equal(f, t, &format!("broadcast dimension {i}")))
    }

    /// The shape to which two shapes broadcast, NumPy's way: aligned at the innermost dimension,
    /// and a dimension of 1 stretches.
    pub fn broadcast(left: &[Dim], right: &[Dim]) -> Result<Vec<Dim>, TypeError> {
        let rank = left.len().max(right.len());
        let at = |shape: &[Dim], i: usize| -> Dim {
            (i + shape.len()).checked_sub(rank).map_or(Dim::ONE, |j| shape[j].clone())
        };
        (0..rank)
            .map(|i| {
                let (l, r) = (at(left, i), at(right, i));
                if l == r || r.is(1) {
                    Ok(l)
                } else if l.is(1) {
                    Ok(r)
                } else {
                    let what = format!("broadcast dimension {i}");
                    Err(TypeError::Mismatch { left: l, right: r, what })
                }
            })
            .collect()
    }
}
