//! Weights in memory: follows a graph's recipes, each source mapped once and never copied where
//! the recipe is a plain part of a file; must never change a recipe.

use crate::cpu::kernels;
use bytes::Bytes;
use membar_ir::graph::{Graph, NodeKind, ValueId};
use membar_ir::interp::{InterpError, Interpreter};
use membar_ir::mapping::map_file;
use membar_ir::op::EvalError;
use membar_ir::ops::Op;
use membar_ir::recipe::{Recipe, RecipeNode, Source};
use membar_ir::tensor::{Tensor, TensorError};
use membar_ir::types::{ConcreteType, ShapeError};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a weight cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// Its file cannot be read.
    #[error("weight file `{}`: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
    /// Its bytes are not in the file.
    #[error(
        "weight file `{}` has {length} bytes, but a weight {ty} lies at offset {offset}",
        .path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        length: usize,
        /// Where the weight begins.
        offset: u64,
        /// The weight's type.
        ty: ConcreteType,
    },
    /// An operator of its recipe failed.
    #[error("{operator}: {error}")]
    Operator {
        /// The operator with its attributes.
        operator: String,
        /// What went wrong.
        error: EvalError,
    },
    /// Its shape is impossible.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Its bytes are not what its type asks for.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Its recipe cannot be evaluated.
    #[error(transparent)]
    Interp(#[from] InterpError),
}

/// Follows recipes. Files stay mapped as long as it or one of its tensors lives.
#[derive(Default)]
pub struct Materialiser {
    base: Option<PathBuf>,
    files: BTreeMap<Arc<str>, Bytes>,
    made: HashMap<Recipe, Tensor>,
}

impl Materialiser {
    /// Relative paths of files count from `base`.
    pub fn from_folder(base: &Path) -> Materialiser {
        Materialiser { base: Some(base.to_path_buf()), ..Materialiser::default() }
    }

    /// Every weight of a graph.
    ///
    /// # Errors
    /// A file cannot be read or is too short, or an operator of a recipe fails.
    pub fn weights(&mut self, graph: &Graph) -> Result<BTreeMap<ValueId, Tensor>, WeightError> {
        let mut weights = BTreeMap::new();
        for id in graph.nodes() {
            let node = graph.node(id);
            if let NodeKind::Weight(recipe) = &node.kind {
                for value in node.outputs() {
                    weights.insert(*value, self.weight(recipe)?);
                }
            }
        }
        self.made.clear();
        Ok(weights)
    }

    /// One weight. Equal recipes share their tensor until [`Materialiser::weights`] is done.
    fn weight(&mut self, recipe: &Recipe) -> Result<Tensor, WeightError> {
        if let Some(tensor) = self.made.get(recipe) {
            return Ok(tensor.clone());
        }
        let tensor = self.materialise(recipe)?;
        self.made.insert(recipe.clone(), tensor.clone());
        Ok(tensor)
    }

    /// Follows a recipe.
    ///
    /// # Errors
    /// As [`Materialiser::weights`].
    pub fn materialise(&mut self, recipe: &Recipe) -> Result<Tensor, WeightError> {
        match recipe.node() {
            RecipeNode::Apply { op, operands, .. } => {
                let operands: Vec<Tensor> =
                    operands.iter().map(|r| self.materialise(r)).collect::<Result<_, _>>()?;
                apply(op, &operands)
            }
            RecipeNode::Source { ty, source } => match source {
                Source::Literal(literal) => Ok(literal.0.clone()),
                Source::Random { .. } => Ok(Interpreter::default().materialise(recipe)?),
                Source::File { path, offset } => {
                    let ty = ty.concrete(&Default::default())?;
                    let bytes = self.file(path, *offset, &ty)?;
                    Ok(Tensor::from_shared(ty, bytes)?)
                }
            },
        }
    }

    /// The bytes of a weight in a file.
    pub(crate) fn file(
        &mut self,
        path: &Arc<str>,
        offset: u64,
        ty: &ConcreteType,
    ) -> Result<Bytes, WeightError> {
        let full = match &self.base {
            Some(base) => base.join(path.as_ref()),
            None => PathBuf::from(path.as_ref()),
        };
        if !self.files.contains_key(path) {
            let bytes =
                map_file(&full).map_err(|error| WeightError::File { path: full.clone(), error })?;
            self.files.insert(path.clone(), bytes);
        }
        let bytes = &self.files[path];
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(ty.byte_len()));
        match start.zip(end) {
            Some((start, end)) if end <= bytes.len() => Ok(bytes.slice(start..end)),
            _ => Err(WeightError::Truncated {
                path: full,
                length: bytes.len(),
                offset,
                ty: ty.clone(),
            }),
        }
    }
}

/// One operator of a recipe: by a kernel where that gives the same bits on every machine, which
/// copies and conversions do, else by the reference evaluation.
pub(crate) fn apply(op: &Op, operands: &[Tensor]) -> Result<Tensor, WeightError> {
    let failed = |error: EvalError| WeightError::Operator { operator: op.to_string(), error };
    let results = if moves_only(op) {
        kernels::evaluate(op, operands).map_err(failed)?
    } else {
        Interpreter::default().evaluate(op, operands)?
    };
    let mut results = results.into_iter();
    results.next().ok_or_else(|| failed(EvalError::Invalid("it has no result".to_string())))
}

fn moves_only(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape(_)
            | Op::Bitcast(_)
            | Op::Transpose(_)
            | Op::Broadcast(_)
            | Op::Slice(_)
            | Op::Concat(_)
    )
}
