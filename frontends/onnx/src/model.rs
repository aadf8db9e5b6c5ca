//! A loaded model as plain data: what the file says, checked and normalised, before any of it
//! becomes an operator. No protobuf type appears here.

use crate::attributes::AttributeValue;
use crate::convert;
use crate::dims::DimDef;
use crate::element::ElementType;
use crate::error::ImportError;
use crate::functions::Reference;
use crate::source::Source;
use crate::tensors::TensorDef;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;

/// A loaded ONNX model.
///
/// What holds once loading succeeds:
/// - The opset of `ai.onnx` is in 7..=28, that of `com.microsoft` is 1.
/// - Calls of model-local functions are replaced by the functions' nodes.
/// - In every graph, each value is defined once, each name that a node reads is defined in the
///   graph or one around it, and `nodes` is in topological order (file order where it already was).
/// - Node names are not empty and are unique in the whole model.
/// - The data of every tensor of a supported type is as long as type and shape say.
///
/// Training information, quantisation annotations and device configurations are not kept.
#[derive(Debug, Clone)]
pub struct Model {
    /// Version of the file format.
    pub ir_version: i64,
    /// Name and version of the program that wrote the model; may be empty.
    pub producer: String,
    /// Imported operator sets by normalised domain.
    pub opsets: BTreeMap<String, i64>,
    /// The model's free metadata.
    pub metadata: BTreeMap<String, String>,
    /// The main graph.
    pub graph: GraphDef,
    pub(crate) source: Source,
}

/// A graph: the main one, or a branch or body of `If`, `Loop` and `Scan`.
///
/// A node of a subgraph may read values of the graphs around it, and so may a subgraph's output.
/// A subgraph may define a name that a graph around it defines too; inside, its own counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GraphDef {
    /// Name; may be empty.
    pub name: String,
    /// Nodes in topological order; a captured value of a subgraph counts as a node's input.
    pub nodes: Vec<NodeDef>,
    /// Inputs as written: one that has an initializer of the same name is a constant that a
    /// caller could override. [`GraphDef::free_inputs`] leaves these out.
    pub inputs: Vec<ValueInfo>,
    /// Outputs.
    pub outputs: Vec<ValueInfo>,
    /// Constants in file order.
    pub initializers: Vec<TensorDef>,
    /// Types of some of the other values; hints, not checked.
    pub value_infos: Vec<ValueInfo>,
}

/// An operator with its operands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeDef {
    /// Name; `MatMul_12` (operator and position) where the file has none.
    pub name: String,
    /// Operator type.
    pub op_type: String,
    /// Domain; empty for `ai.onnx`.
    pub domain: String,
    /// Version of the domain's operator set that is in force where the node stands.
    pub opset: i64,
    /// Input values; `None` for an optional one that is left out. The last is never `None`.
    pub inputs: Vec<Option<String>>,
    /// Output values; `None` for one that is not wanted. The last is never `None`.
    pub outputs: Vec<Option<String>>,
    /// Attributes by name; read them with [`NodeDef::attribute`] and [`NodeDef::required`].
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Tells functions of the same name apart; used up by inlining.
    pub(crate) overload: String,
    /// Attributes of a function body that stand for the call's; used up by inlining.
    pub(crate) references: BTreeMap<String, Reference>,
}

/// A named value and what the file says of its type.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueInfo {
    /// Value name.
    pub name: String,
    /// Its type.
    pub value_type: ValueType,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueType {
    /// A tensor.
    Tensor {
        /// Type of the elements.
        element_type: ElementType,
        /// Dimensions; `None` where even the rank is not said.
        dims: Option<Vec<DimDef>>,
    },
    /// A value that is no tensor, by its kind (`a sequence`, …).
    Other(&'static str),
    /// Nothing is said.
    Unknown,
}

impl Model {
    /// Loads a model file and describes its external data. The file is memory-mapped; weights are
    /// not copied, and it must not change while the model or bytes from it are in use.
    ///
    /// # Errors
    /// [`ImportError`], for whatever is wrong with the file; a missing data file is not an error
    /// here (see [`crate::DataLocation::Missing`]).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ImportError> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        convert::model(source)
            .map_err(|cause| ImportError::InFile { path: path.to_owned(), cause: Box::new(cause) })
    }

    /// Loads a model from memory; external data is looked for in `folder`.
    ///
    /// # Errors
    /// As for [`Model::load`]; external data without a folder is an error.
    pub fn from_bytes(bytes: Bytes, folder: Option<&Path>) -> Result<Self, ImportError> {
        convert::model(Source::memory(bytes, folder)?)
    }

    /// Absolute path of the model file; `None` for a model from memory.
    pub fn path(&self) -> Option<&Path> {
        self.source.model()
    }

    /// The bytes of a tensor of this model, without copying: row-major, little-endian, and
    /// possibly unaligned.
    ///
    /// # Errors
    /// [`ImportError::Tensor`] where the data file is missing or the element type unsupported, or
    /// where the tensor belongs to another model.
    pub fn data(&self, tensor: &TensorDef) -> Result<Bytes, ImportError> {
        tensor.bytes(&self.source)
    }
}

impl GraphDef {
    /// The inputs that a caller must give: those without an initializer.
    pub fn free_inputs(&self) -> impl Iterator<Item = &ValueInfo> {
        let constants: std::collections::BTreeSet<&str> =
            self.initializers.iter().map(|tensor| tensor.name.as_str()).collect();
        self.inputs.iter().filter(move |input| !constants.contains(input.name.as_str()))
    }
}
