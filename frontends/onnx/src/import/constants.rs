//! Constants of the model as tensors and as weight recipes. Large ones are described, never read.

use super::RandomWeights;
use crate::error::{ImportError, TensorProblem};
use crate::model::Model;
use crate::tensors::{DataLocation, TensorDef};
use membar_ir::attribute::Float;
use membar_ir::recipe::{Distribution, Source};
use membar_ir::{ConcreteType, Dim, Recipe, Tensor, TensorType};

/// Constants of at most so many bytes stand in the graph itself, and what is computed from them
/// alone is computed during import.
pub(crate) const LITERAL_LIMIT: usize = 1024;

/// Standard deviation of random weights.
const RANDOM_DEVIATION: f64 = 0.02;

/// The type of a constant; an unsupported element type is an error.
pub(crate) fn tensor_type(tensor: &TensorDef) -> Result<TensorType, ImportError> {
    let Some(dtype) = tensor.element_type.dtype() else {
        let found = tensor.element_type;
        return Err(tensor.error(TensorProblem::UnsupportedElementType { found }));
    };
    let shape: Vec<Dim> = tensor
        .shape
        .iter()
        .map(|extent| Dim::from(i64::try_from(*extent).unwrap_or(i64::MAX)))
        .collect();
    Ok(TensorType::new(dtype, shape))
}

/// The elements of a constant.
pub(crate) fn read(
    source: &crate::source::Source,
    tensor: &TensorDef,
) -> Result<Tensor, ImportError> {
    let failed = |error: String| ImportError::Constant { tensor: tensor.name.clone(), error };
    let ty = tensor_type(tensor)?;
    let ty: ConcreteType =
        ty.concrete(&Default::default()).map_err(|error| failed(error.to_string()))?;
    let bytes = tensor.bytes(source)?;
    if ty.byte_len() <= LITERAL_LIMIT {
        return Tensor::from_bytes(ty, &bytes).map_err(|error| failed(error.to_string()));
    }
    Tensor::from_shared(ty, bytes).map_err(|error| failed(error.to_string()))
}

/// Whether a constant is small enough to be part of the graph, and its data is there.
fn is_small(tensor: &TensorDef) -> bool {
    match &tensor.data {
        DataLocation::File { length, .. } => *length <= LITERAL_LIMIT as u64,
        DataLocation::Inline(_) => true,
        DataLocation::Missing { .. } | DataLocation::Unsupported => false,
    }
}

/// What a random weight stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightRole {
    /// A factor of a normalisation: 1 where weights are random.
    NormScale,
    /// Anything else.
    Other,
}

/// The recipe of a constant that is used as a tensor. `stream` tells random weights apart.
pub(crate) fn recipe(
    model: &Model,
    tensor: &TensorDef,
    random: Option<RandomWeights>,
    role: WeightRole,
    stream: u64,
) -> Result<Recipe, ImportError> {
    let ty = tensor_type(tensor)?;
    if let Some(RandomWeights { seed, all }) = random {
        let missing = matches!(tensor.data, DataLocation::Missing { .. });
        if (missing || all) && ty.dtype.is_float() {
            let distribution = match role {
                WeightRole::NormScale => Distribution::Constant(Float(1.0)),
                WeightRole::Other => Distribution::Normal(Float(RANDOM_DEVIATION)),
            };
            return Ok(Recipe::source(ty, Source::Random { seed, stream, distribution }));
        }
        if missing {
            // A random integer is no useful index, scale or packed weight, but keeps in range.
            let distribution = Distribution::Constant(Float(0.0));
            return Ok(Recipe::source(ty, Source::Random { seed, stream, distribution }));
        }
    }
    tensor.require_data()?;
    match &tensor.data {
        DataLocation::File { path, offset, .. } if !is_small(tensor) => {
            let Some(path) = path.to_str() else {
                let error = format!("the path {} is not valid UTF-8", path.display());
                return Err(ImportError::Constant { tensor: tensor.name.clone(), error });
            };
            Ok(Recipe::source(ty, Source::File { path: path.into(), offset: *offset }))
        }
        _ => Ok(Recipe::literal(read(&model.source, tensor)?)),
    }
}

/// Whether a name alone suggests the factor of a normalisation. Used for random weights only, and
/// only where the model writes the normalisation out in elementary operators.
pub(crate) fn named_like_norm_scale(tensor: &TensorDef) -> bool {
    let name = tensor.name.to_ascii_lowercase();
    let scale = ["weight", "scale", "gamma"].iter().any(|word| name.ends_with(word));
    let norm = ["norm", "ln_", "ln.", "ln1", "ln2"].iter().any(|word| name.contains(word));
    tensor.shape.len() == 1 && scale && norm
}
