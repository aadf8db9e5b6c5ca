//! The reference interpreter: evaluates operators, graphs and recipes by their meanings alone;
//! never by a kernel, and never fast at the price of doubt.

use crate::dim::{Bindings, DimError};
use crate::element::Number;
use crate::elementwise::elementwise;
use crate::graph::{Graph, NodeKind, ValueId};
use crate::mapping::map_file;
use crate::op::{EvalError, Evaluation, Meaning, TypeError};
use crate::ops::Op;
use crate::recipe::{Distribution, Recipe, RecipeNode, Source};
use crate::tensor::{Tensor, TensorError};
use crate::types::{ConcreteType, ShapeError, TensorType};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Why the interpreter gave up, and at which node.
#[derive(Debug, thiserror::Error)]
pub enum InterpError {
    /// An operator failed.
    #[error("{operator}: {error}")]
    Operator {
        /// The operator with its attributes.
        operator: String,
        /// What went wrong.
        error: EvalError,
    },
    /// An operator's operands do not fit it.
    #[error("{operator}: {error}")]
    Type {
        /// The operator with its attributes.
        operator: String,
        /// What does not fit.
        error: TypeError,
    },
    /// A graph input that was not given.
    #[error("input `{0}` has no value")]
    MissingInput(String),
    /// A graph input of another type than declared.
    #[error("input `{name}` is {found}, expected {expected}")]
    InputType {
        /// The input.
        name: String,
        /// Declared.
        expected: TensorType,
        /// Given.
        found: ConcreteType,
    },
    /// A shape has no numbers.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A weight's file cannot be read.
    #[error("weight file `{path}`: {error}")]
    File {
        /// The file.
        path: Arc<str>,
        /// What went wrong.
        error: std::io::Error,
    },
    /// A weight's bytes are not in the file.
    #[error("weight file `{path}` has {length} bytes, but a weight {ty} lies at offset {offset}")]
    Truncated {
        /// The file.
        path: Arc<str>,
        /// Its length.
        length: usize,
        /// Where the weight begins.
        offset: u64,
        /// The weight's type.
        ty: TensorType,
    },
    /// A tensor is not what it should be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl From<DimError> for InterpError {
    fn from(error: DimError) -> InterpError {
        InterpError::Shape(error.into())
    }
}

/// The interpreter with its limits and open files.
pub struct Interpreter {
    /// No tensor may be larger than this, in bytes.
    pub limit: usize,
    files: BTreeMap<Arc<str>, Bytes>,
}

impl Default for Interpreter {
    fn default() -> Interpreter {
        Interpreter { limit: 16 << 30, files: BTreeMap::new() }
    }
}

impl Interpreter {
    /// An interpreter whose tensors have at most `limit` bytes.
    pub fn with_limit(limit: usize) -> Interpreter {
        Interpreter { limit, ..Interpreter::default() }
    }

    /// Evaluates a graph: inputs by name, outputs by name.
    ///
    /// # Errors
    /// An input is missing or of another type, a weight cannot be read, or an operator fails.
    pub fn run(
        &mut self,
        graph: &Graph,
        inputs: &BTreeMap<String, Tensor>,
        bindings: &Bindings,
    ) -> Result<BTreeMap<String, Tensor>, InterpError> {
        let mut values: BTreeMap<ValueId, Tensor> = BTreeMap::new();
        for input in graph.inputs() {
            let value = graph.value(*input);
            let name = value.name.as_deref().unwrap_or_default();
            let tensor =
                inputs.get(name).ok_or_else(|| InterpError::MissingInput(name.to_string()))?;
            if value.ty.concrete(bindings)? != *tensor.ty() {
                return Err(InterpError::InputType {
                    name: name.to_string(),
                    expected: value.ty.clone(),
                    found: tensor.ty().clone(),
                });
            }
            values.insert(*input, tensor.clone());
        }
        let results = self.run_from(graph, values, bindings)?;
        let names = graph.outputs().iter().map(|output| output.name.to_string());
        Ok(names.zip(results).collect())
    }

    /// Evaluates a graph from the values of its inputs; the results in the order of the outputs.
    fn run_from(
        &mut self,
        graph: &Graph,
        mut values: BTreeMap<ValueId, Tensor>,
        bindings: &Bindings,
    ) -> Result<Vec<Tensor>, InterpError> {
        let order = graph.order();
        let mut uses: BTreeMap<ValueId, usize> = BTreeMap::new();
        let read = order.iter().flat_map(|id| graph.node(*id).operands());
        for value in read.chain(graph.outputs().iter().map(|output| &output.value)) {
            *uses.entry(*value).or_insert(0) += 1;
        }
        for id in order {
            let node = graph.node(id);
            let results = match &node.kind {
                NodeKind::Input => continue,
                NodeKind::Weight(recipe) => vec![self.materialise(recipe)?],
                NodeKind::Op(op) => {
                    let operands: Vec<Tensor> =
                        node.operands().iter().map(|v| values[v].clone()).collect();
                    self.evaluate(&op.bind(bindings)?, &operands)?
                }
            };
            for (value, tensor) in node.outputs().iter().zip(results) {
                values.insert(*value, tensor);
            }
            for operand in node.operands() {
                if let Some(count) = uses.get_mut(operand) {
                    *count -= 1;
                    if *count == 0 {
                        values.remove(operand);
                    }
                }
            }
        }
        Ok(graph.outputs().iter().map(|output| values[&output.value].clone()).collect())
    }

    /// Evaluates an operator whose attributes are bound.
    ///
    /// # Errors
    /// The operands do not fit, a result exceeds the limit, or the evaluation fails.
    pub fn evaluate(&mut self, op: &Op, operands: &[Tensor]) -> Result<Vec<Tensor>, InterpError> {
        let types: Vec<TensorType> = operands.iter().map(|t| static_type(t.ty())).collect();
        let inferred = op
            .infer(&types)
            .map_err(|error| InterpError::Type { operator: op.to_string(), error })?;
        let failed = |error| InterpError::Operator { operator: op.to_string(), error };
        let mut outputs = Vec::with_capacity(inferred.len());
        for ty in &inferred {
            let ty = ty.concrete(&Bindings::new())?;
            let (bytes, limit) = (ty.byte_len(), self.limit);
            if bytes > limit {
                return Err(failed(EvalError::Limit { bytes, limit }));
            }
            outputs.push(ty);
        }
        match op.meaning(&types) {
            Meaning::Scalar(meaning) => {
                Ok(vec![elementwise(&meaning, operands, outputs.swap_remove(0))?])
            }
            Meaning::Primitive(reference) => {
                let evaluation = Evaluation { operands, outputs: &outputs };
                reference(&evaluation).map_err(failed)
            }
            Meaning::Composite(graph) => {
                let inputs = graph.inputs().iter().copied().zip(operands.iter().cloned());
                self.run_from(&graph, inputs.collect(), &Bindings::new())
            }
        }
    }

    /// Makes a weight.
    ///
    /// # Errors
    /// Its file cannot be read or is too short, or an operator of the recipe fails.
    pub fn materialise(&mut self, recipe: &Recipe) -> Result<Tensor, InterpError> {
        match recipe.node() {
            RecipeNode::Apply { op, operands, .. } => {
                let operands: Vec<Tensor> =
                    operands.iter().map(|r| self.materialise(r)).collect::<Result<_, _>>()?;
                Ok(self.evaluate(op, &operands)?.swap_remove(0))
            }
            RecipeNode::Source { ty, source } => {
                let concrete = ty.concrete(&Bindings::new())?;
                match source {
                    Source::Literal(literal) => Ok(literal.0.clone()),
                    Source::File { path, offset } => {
                        let bytes = self.open(path)?;
                        let start = usize::try_from(*offset).ok();
                        let end = start.and_then(|s| s.checked_add(concrete.byte_len()));
                        match start.zip(end) {
                            Some((start, end)) if end <= bytes.len() => {
                                Ok(Tensor::from_shared(concrete, bytes.slice(start..end))?)
                            }
                            _ => Err(InterpError::Truncated {
                                path: path.clone(),
                                length: bytes.len(),
                                offset: *offset,
                                ty: ty.clone(),
                            }),
                        }
                    }
                    Source::Random { seed, stream, distribution } => {
                        Ok(random(concrete, *seed, *stream, *distribution)?)
                    }
                }
            }
        }
    }

    fn open(&mut self, path: &Arc<str>) -> Result<Bytes, InterpError> {
        if let Some(bytes) = self.files.get(path) {
            return Ok(bytes.clone());
        }
        let failed = |error| InterpError::File { path: path.clone(), error };
        let bytes = map_file(Path::new(path.as_ref())).map_err(failed)?;
        self.files.insert(path.clone(), bytes.clone());
        Ok(bytes)
    }
}

/// The tensor type of a concrete type.
pub fn static_type(ty: &ConcreteType) -> TensorType {
    let shape: Vec<i64> = ty.shape.iter().map(|d| *d as i64).collect();
    TensorType::fixed(ty.dtype, &shape)
}

/// Strides, in elements, with which a contiguous tensor of shape `from` is read as if it had
/// shape `to`: 0 where it repeats. `from` broadcasts to `to`.
pub fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<usize> {
    let mut strides = vec![0; to.len()];
    let mut stride = 1;
    for (axis, extent) in from.iter().enumerate().rev() {
        if *extent != 1 {
            strides[to.len() - from.len() + axis] = stride;
        }
        stride *= extent;
    }
    strides
}

/// Pseudo-random values by a counter-based generator, the same on every machine.
fn random(
    ty: ConcreteType,
    seed: u64,
    stream: u64,
    distribution: Distribution,
) -> Result<Tensor, TensorError> {
    let elements = ty.elements() as u64;
    let deviation = match distribution {
        Distribution::Constant(value) => {
            let value = Number::Float(value.0);
            return Tensor::from_numbers(ty, (0..elements).map(|_| value));
        }
        Distribution::Normal(deviation) => deviation.0,
    };
    let key = mix(seed ^ mix(stream));
    let uniform = |i: u64| (mix(key ^ mix(i)) >> 11) as f64 / (1u64 << 53) as f64;
    let normal = move |i: u64| {
        // Box and Muller; 1 - u keeps the logarithm's argument above 0.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - uniform(2 * i)));
        let angle = 2.0 * std::f64::consts::PI * uniform(2 * i + 1);
        Number::Float(deviation * radius * libm::cos(angle))
    };
    Tensor::from_numbers(ty, (0..elements).map(normal))
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
