//! Weights in memory: follows a graph's recipes, each source mapped once and never copied where
//! the recipe is a plain part of a file; must never change a recipe.

use crate::cpu::kernels;
use bytes::Bytes;
use membar_ir::dim::Bindings;
use membar_ir::graph::{Graph, NodeKind, ValueId};
use membar_ir::interp::{InterpError, Interpreter};
use membar_ir::mapping::map_file;
use membar_ir::op::EvalError;
use membar_ir::ops::{Op, Scalar};
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
    /// An operator of its recipe failed on a part.
    #[error(transparent)]
    Evaluation(#[from] EvalError),
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
    whole: HashMap<Recipe, Tensor>,
}

/// How many bytes of a weight are made at a time.
const CHUNK_BYTES: usize = 16 << 20;

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
                    let ty = ty.concrete(&Bindings::new())?;
                    let bytes = self.file(path, *offset, &ty)?;
                    Ok(Tensor::from_shared(ty, bytes)?)
                }
            },
        }
    }

    /// Calls `sink` with the bytes of a weight, in order, without holding a large one in memory
    /// where its recipe is made of parts of files, transposes, conversions and the like.
    ///
    /// # Errors
    /// As [`Materialiser::weights`], or what `sink` reports.
    pub fn stream<E: From<WeightError>>(
        &mut self,
        recipe: &Recipe,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let ty = recipe.ty().concrete(&Bindings::new()).map_err(WeightError::from)?;
        let bits = ty.dtype.bits() as usize;
        // A multiple of 2, so that packed elements begin at a byte.
        let chunk = CHUNK_BYTES * 8 / bits;
        let elements = ty.elements();
        for from in (0..elements).step_by(chunk) {
            let part = self.part(recipe, from, chunk.min(elements - from))?;
            sink(part.bytes())?;
        }
        self.whole.clear();
        Ok(())
    }

    /// Elements `from..from + count` of a weight in row-major order, as a vector. Both are even, or
    /// reach to the end.
    fn part(&mut self, recipe: &Recipe, from: usize, count: usize) -> Result<Tensor, WeightError> {
        let ty = recipe.ty().concrete(&Bindings::new())?;
        let part = ConcreteType::new(ty.dtype, vec![count])?;
        if let RecipeNode::Apply { op, operands, .. } = recipe.node()
            && ty.dtype.bits() >= 8
        {
            let whole = |operand: &Recipe| operand.ty().concrete(&Bindings::new());
            match op {
                Op::Reshape(_) => return self.part(&operands[0], from, count),
                Op::Scalar(Scalar::Cast { .. }) => {
                    let values = self.part(&operands[0], from, count)?;
                    return apply(op, &[values]);
                }
                Op::Transpose(transpose) => {
                    let operand = self.whole(&operands[0])?;
                    let mut result = Tensor::zeros(part);
                    kernels::movement::transpose_part(transpose, &operand, from, &mut result)?;
                    return Ok(result);
                }
                Op::Concat(concat)
                    if ty.shape[..concat.axis.index()].iter().all(|extent| *extent == 1) =>
                {
                    let mut result = Tensor::zeros(part);
                    let size = ty.dtype.bits() as usize / 8;
                    let mut first = 0;
                    for operand in operands {
                        let length = whole(operand)?.elements();
                        let begin = from.max(first);
                        let end = (from + count).min(first + length);
                        if begin < end {
                            let piece = self.part(operand, begin - first, end - begin)?;
                            let at = (begin - from) * size..(end - from) * size;
                            result.bytes_mut()[at].copy_from_slice(piece.bytes());
                        }
                        first += length;
                    }
                    return Ok(result);
                }
                _ => {}
            }
        }
        let tensor = self.whole(recipe)?;
        let bits = ty.dtype.bits() as usize;
        let first = from * bits / 8;
        let bytes = &tensor.bytes()[first..first + part.byte_len()];
        Ok(Tensor::from_bytes(part, bytes)?)
    }

    /// A whole weight; one that had to be computed stays until its stream ends.
    fn whole(&mut self, recipe: &Recipe) -> Result<Tensor, WeightError> {
        if let Some(tensor) = self.whole.get(recipe) {
            return Ok(tensor.clone());
        }
        let tensor = self.materialise(recipe)?;
        if matches!(recipe.node(), RecipeNode::Apply { .. }) {
            self.whole.insert(recipe.clone(), tensor.clone());
        }
        Ok(tensor)
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
