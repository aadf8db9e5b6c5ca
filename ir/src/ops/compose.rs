//! Building the graphs that define operators by simpler ones; never an operator's own formula.

use super::{Dims, Op, Reduce, ReduceKind, Reshape, Scalar, Slice};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Number;
use crate::graph::{Graph, ValueId};
use crate::op::TypeError;
use crate::recipe::Recipe;
use crate::tensor::Tensor;
use crate::types::{Axis, ConcreteType, TensorType};

/// A graph under construction. Scalar functions broadcast, so nothing here does.
pub(super) struct Compose<'a>(pub(super) &'a mut Graph);

type Built = Result<ValueId, TypeError>;

impl Compose<'_> {
    pub(super) fn ty(&self, value: ValueId) -> &TensorType {
        self.0.ty(value)
    }

    pub(super) fn shape(&self, value: ValueId) -> Vec<Dim> {
        self.ty(value).shape.clone()
    }

    /// An operator's first result.
    pub(super) fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Built {
        self.0.apply(op, operands)
    }

    /// A conversion, unless the type is that already; 8-bit floats saturate.
    pub(super) fn cast(&mut self, value: ValueId, to: DType) -> Built {
        if self.ty(value).dtype == to {
            return Ok(value);
        }
        self.op(Scalar::Cast { to, saturate: true }, &[value])
    }

    /// A scalar.
    pub(super) fn constant(&mut self, dtype: DType, value: f64) -> ValueId {
        let mut tensor = Tensor::zeros(ConcreteType { dtype, shape: Vec::new() });
        tensor.set(0, Number::Float(value));
        self.0.add_weight(None, Recipe::literal(tensor))
    }

    /// A dimension as data, `i64[1]`.
    pub(super) fn dim(&mut self, dim: Dim) -> Built {
        self.op(Dims { values: vec![dim] }, &[])
    }

    pub(super) fn add(&mut self, a: ValueId, b: ValueId) -> Built {
        self.op(Scalar::Add, &[a, b])
    }

    pub(super) fn sub(&mut self, a: ValueId, b: ValueId) -> Built {
        self.op(Scalar::Sub, &[a, b])
    }

    pub(super) fn mul(&mut self, a: ValueId, b: ValueId) -> Built {
        self.op(Scalar::Mul, &[a, b])
    }

    pub(super) fn div(&mut self, a: ValueId, b: ValueId) -> Built {
        self.op(Scalar::Div, &[a, b])
    }

    /// A reduction whose axes stay, as dimensions of 1.
    pub(super) fn reduce(
        &mut self,
        kind: ReduceKind,
        value: ValueId,
        axes: impl IntoIterator<Item = usize>,
    ) -> Built {
        let axes = axes.into_iter().map(Axis::from).collect();
        self.op(Reduce { kind, axes, keep: true }, &[value])
    }

    pub(super) fn reshape(&mut self, value: ValueId, shape: Vec<Dim>) -> Built {
        if self.ty(value).shape == shape {
            return Ok(value);
        }
        self.op(Reshape { shape }, &[value])
    }

    /// A vector under a shape in which its dimension is `axis` of `rank` and all others are 1.
    pub(super) fn along(&mut self, vector: ValueId, axis: usize, rank: usize) -> Built {
        let mut shape = vec![Dim::ONE; rank];
        shape[axis] = self.ty(vector).elements();
        self.reshape(vector, shape)
    }

    /// `size` elements along an axis, from `start` on, `step` apart.
    pub(super) fn part(
        &mut self,
        value: ValueId,
        axis: usize,
        (start, size, step): (Dim, Dim, i64),
    ) -> Built {
        let mut sizes = self.shape(value);
        let mut starts = vec![Dim::ZERO; sizes.len()];
        let mut steps = vec![1; sizes.len()];
        (starts[axis], sizes[axis], steps[axis]) = (start, size, step);
        self.op(Slice { starts, sizes, steps }, &[value])
    }

    /// `x - mean` and `1 / √(variance + epsilon)` over the given axes, which stay; `x` in its
    /// compute type.
    pub(super) fn standardise(
        &mut self,
        x: ValueId,
        axes: std::ops::Range<usize>,
        epsilon: f64,
    ) -> Result<Standardised, TypeError> {
        let dtype = self.ty(x).dtype;
        let mean = self.reduce(ReduceKind::Mean, x, axes.clone())?;
        let centred = self.sub(x, mean)?;
        let square = self.mul(centred, centred)?;
        let variance = self.reduce(ReduceKind::Mean, square, axes)?;
        let epsilon = self.constant(dtype, epsilon);
        let sum = self.add(variance, epsilon)?;
        let factor = self.op(Scalar::Rsqrt, &[sum])?;
        let normal = self.mul(centred, factor)?;
        Ok(Standardised { mean, factor, normal })
    }
}

/// See [`Compose::standardise`].
pub(super) struct Standardised {
    pub(super) mean: ValueId,
    /// `1 / √(variance + epsilon)`.
    pub(super) factor: ValueId,
    /// `(x - mean) * factor`.
    pub(super) normal: ValueId,
}
