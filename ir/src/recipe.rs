//! Weights as recipes: a source, then pure operators; never the bytes of a large weight.

use crate::attribute::Float;
use crate::ops::Op;
use crate::tensor::Tensor;
use crate::types::TensorType;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// How to make a weight. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recipe(Arc<RecipeNode>);

/// One step of a recipe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecipeNode {
    /// Where the data comes from.
    Source {
        /// Fully known type.
        ty: TensorType,
        /// The data.
        source: Source,
    },
    /// A pure operator with one output over other recipes.
    Apply {
        /// Fully known type of the result.
        ty: TensorType,
        /// The operator.
        op: Op,
        /// Its operands.
        operands: Vec<Recipe>,
    },
}

/// Where a weight's data comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Packed little-endian bytes in a file.
    File {
        /// Path of the file.
        path: Arc<str>,
        /// First byte.
        offset: u64,
    },
    /// The values themselves; for small tensors.
    Literal(Literal),
    /// Pseudo-random values, the same on every machine.
    Random {
        /// What the values derive from, with the weight's own stream number.
        seed: u64,
        /// Distinguishes weights of one seed.
        stream: u64,
        /// The distribution.
        distribution: Distribution,
    },
}

/// How random weights are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Normal with mean 0 and that standard deviation.
    Normal(Float),
    /// All elements that value.
    Constant(Float),
}

/// A tensor inside a recipe, equal and hashed by its bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal(pub Tensor);

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.ty().hash(state);
        self.0.bytes().hash(state);
    }
}

impl Recipe {
    /// A recipe that is just a source.
    pub fn source(ty: TensorType, source: Source) -> Recipe {
        Recipe(Arc::new(RecipeNode::Source { ty, source }))
    }

    /// The values themselves.
    pub fn literal(tensor: Tensor) -> Recipe {
        let shape: Vec<_> =
            tensor.shape().iter().map(|d| crate::dim::Dim::from(*d as i64)).collect();
        let ty = TensorType::new(tensor.dtype(), shape);
        Recipe::source(ty, Source::Literal(Literal(tensor)))
    }

    /// A pure operator over recipes. `ty` is what the operator infers, and fully known.
    pub fn apply(ty: TensorType, op: Op, operands: Vec<Recipe>) -> Recipe {
        Recipe(Arc::new(RecipeNode::Apply { ty, op, operands }))
    }

    /// The last step.
    pub fn node(&self) -> &RecipeNode {
        &self.0
    }

    /// The type of the weight; every dimension is known.
    pub fn ty(&self) -> &TensorType {
        match self.node() {
            RecipeNode::Source { ty, .. } | RecipeNode::Apply { ty, .. } => ty,
        }
    }

    /// The tensor, if the recipe is just a literal.
    pub fn as_literal(&self) -> Option<&Tensor> {
        match self.node() {
            RecipeNode::Source { source: Source::Literal(literal), .. } => Some(&literal.0),
            RecipeNode::Source { .. } | RecipeNode::Apply { .. } => None,
        }
    }
}
