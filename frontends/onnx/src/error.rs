//! What can be wrong with a model, each with its place, what was found and what was expected.
//! Nothing here is ever raised for a fault of Membar itself.

use crate::element::ElementType;
use crate::import::{Unsupported, listed};
use membar_ir::DType;
use std::io;
use std::path::PathBuf;

/// Why a model cannot be loaded or a part of it cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Any other error, in a given file.
    #[error("{}: {cause}", path.display())]
    InFile {
        /// The model file.
        path: PathBuf,
        /// What is wrong in it.
        cause: Box<ImportError>,
    },
    /// A file that cannot be opened or mapped.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The model or data file.
        path: PathBuf,
        /// What the system reports.
        cause: io::Error,
    },
    /// Bytes that are not a serialised `ModelProto`.
    #[error("not an ONNX model, or a damaged one: {reason}")]
    Decode {
        /// What the protobuf decoder reports.
        reason: String,
    },
    /// A model without a graph.
    #[error("the model has no graph")]
    NoGraph,
    /// An operator set outside the supported range.
    #[error("{place} imports version {version} of the operator set `{}`; supported: {supported}", shown_domain(.domain))]
    UnsupportedOpset {
        /// "the model" or the function.
        place: String,
        /// Normalised domain.
        domain: String,
        /// Version found.
        version: i64,
        /// Versions that are supported, as text.
        supported: String,
    },
    /// Two imports of one domain with different versions.
    #[error("{place} imports both version {first} and version {second} of the operator set `{}`", shown_domain(.domain))]
    ConflictingOpsets {
        /// "the model" or the function.
        place: String,
        /// Normalised domain.
        domain: String,
        /// The first version.
        first: i64,
        /// The second, different version.
        second: i64,
    },
    /// A node of a domain that nothing imports.
    #[error("node `{node}`: {op} is in the domain `{}`, which the model does not import", shown_domain(.domain))]
    MissingOpset {
        /// Node name.
        node: String,
        /// Operator type.
        op: String,
        /// Normalised domain.
        domain: String,
    },
    /// A tensor whose description or data is wrong.
    #[error("tensor `{tensor}`: {problem}")]
    Tensor {
        /// Tensor name; of an attribute, `node/attribute`.
        tensor: String,
        /// What is wrong.
        problem: TensorProblem,
    },
    /// A sparse initializer, which Membar does not take.
    #[error("initializer `{tensor}` is a sparse tensor, which is not supported")]
    SparseInitializer {
        /// Name of the tensor of values.
        tensor: String,
    },
    /// An attribute that is absent, of the wrong type, or malformed.
    #[error("node `{node}` ({op}): attribute `{attribute}` {problem}")]
    Attribute {
        /// Node name.
        node: String,
        /// Operator type.
        op: String,
        /// Attribute name.
        attribute: String,
        /// What is wrong.
        problem: AttributeProblem,
    },
    /// Attributes that an operator does not define.
    #[error("node `{node}` ({op}): unknown attributes {}; known: {}", quoted(.unknown), quoted(.known))]
    UnknownAttributes {
        /// Node name.
        node: String,
        /// Operator type.
        op: String,
        /// Names found but not defined.
        unknown: Vec<String>,
        /// Names that the operator defines.
        known: Vec<String>,
    },
    /// A value that is defined twice in one graph.
    #[error("value `{value}` is defined twice in {place}: by {first} and by {second}")]
    DuplicateValue {
        /// The graph or function.
        place: String,
        /// Value name.
        value: String,
        /// What defines it first.
        first: String,
        /// What defines it again.
        second: String,
    },
    /// A node that reads a value which nothing defines.
    #[error("node `{node}` ({op}) reads `{value}`, which nothing in scope defines")]
    UndefinedValue {
        /// Node name.
        node: String,
        /// Operator type.
        op: String,
        /// Value name.
        value: String,
    },
    /// A graph or function output that nothing defines.
    #[error("output `{value}` of {place} is not defined by anything in it")]
    UndefinedOutput {
        /// The graph or function.
        place: String,
        /// Value name.
        value: String,
    },
    /// Nodes that depend on each other.
    #[error("the nodes {} form a cycle", quoted(.nodes))]
    Cycle {
        /// Node names; each reads from the one before it, the first from the last.
        nodes: Vec<String>,
    },
    /// Model-local functions that call each other.
    #[error("the model's functions call each other in a cycle: {}", .functions.join(" -> "))]
    FunctionCycle {
        /// `domain::name` of each, the first again at the end.
        functions: Vec<String>,
    },
    /// Two model-local functions of the same identity.
    #[error("the model defines the function `{function}` twice")]
    DuplicateFunction {
        /// `domain::name`, and the overload if any.
        function: String,
    },
    /// A call that gives a function more operands or results than it declares.
    #[error("node `{node}` calls `{function}` with {found} {what}, which declares {expected}")]
    FunctionArity {
        /// Node name.
        node: String,
        /// `domain::name`.
        function: String,
        /// "inputs" or "outputs".
        what: &'static str,
        /// How many the call has.
        found: usize,
        /// How many the function has.
        expected: usize,
    },
    /// Functions or subgraphs nested too deeply.
    #[error("functions and subgraphs are nested more than {limit} deep at {place}")]
    TooDeep {
        /// The graph, node or function where the limit was reached.
        place: String,
        /// The limit.
        limit: usize,
    },
    /// A constant whose elements cannot be used.
    #[error("constant `{tensor}`: {error}")]
    Constant {
        /// Tensor name.
        tensor: String,
        /// What is wrong.
        error: String,
    },
    /// A binding of something that is no input.
    #[error("`{name}` is no input of the model; its inputs are {}", quoted(.inputs))]
    UnknownBinding {
        /// The name.
        name: String,
        /// The names of the inputs.
        inputs: Vec<String>,
    },
    /// Everything in the model that Membar cannot import.
    #[error("the model cannot be imported:{}", listed(.faults))]
    Unsupported {
        /// All of it, in the model's order.
        faults: Vec<Unsupported>,
    },
    /// Functions whose expansion is too large.
    #[error("expanding the model's functions gives more than {limit} bytes of nodes and names")]
    ExpansionTooLarge {
        /// The limit.
        limit: u64,
    },
}

impl ImportError {
    /// What to do about it, where something general can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::InFile { cause, .. } => cause.hint(),
            Self::Decode { .. } => {
                Some("check that the file is complete, and not a Git LFS pointer".into())
            }
            Self::UnsupportedOpset { domain, .. } if domain.is_empty() => {
                Some("convert the model with `onnx.version_converter.convert_version`".into())
            }
            Self::SparseInitializer { .. } => {
                Some("export the model with dense initializers".into())
            }
            Self::Tensor { problem, .. } => problem.hint(),
            _ => None,
        }
    }
}

/// What is wrong with a tensor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorProblem {
    /// An element type that Membar has no equivalent of, in a tensor that is used.
    #[error("has elements of type {found}, which is not supported")]
    UnsupportedElementType {
        /// The type found.
        found: ElementType,
    },
    /// A negative dimension.
    #[error("dimension {axis} is {extent}, which is negative")]
    NegativeDimension {
        /// Which dimension.
        axis: usize,
        /// What it is.
        extent: i64,
    },
    /// A size that does not fit 63 bits.
    #[error("the size of shape {shape:?} overflows")]
    SizeOverflow {
        /// The shape.
        shape: Vec<i64>,
    },
    /// Data whose length does not match type and shape.
    #[error(
        "has {found} {unit} of data in {field}, but its type {element_type} and shape {shape:?} need {expected}"
    )]
    WrongLength {
        /// Length found.
        found: u64,
        /// Length that type and shape need.
        expected: u64,
        /// "bytes" or "elements".
        unit: &'static str,
        /// Where the data stands.
        field: &'static str,
        /// Type of the elements.
        element_type: ElementType,
        /// The shape.
        shape: Vec<u64>,
    },
    /// Data in more than one place.
    #[error("has data both in {first} and in {second}")]
    TwoSources {
        /// One place.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// An element that does not fit its type.
    #[error("element {index} is {value}, which is not a value of {dtype}")]
    ElementOutOfRange {
        /// Which element, in row-major order.
        index: usize,
        /// Its value.
        value: i128,
        /// The type.
        dtype: DType,
    },
    /// A tensor stored in segments.
    #[error("is stored in segments, which is not supported")]
    Segmented,
    /// An unknown storage location.
    #[error("has the unknown data location {found}")]
    UnknownLocation {
        /// The number found.
        found: i32,
    },
    /// External data without the name of a file, or with malformed numbers.
    #[error("external data: {key} is {found}, expected {expected}")]
    MalformedExternal {
        /// Key in `external_data`.
        key: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// External data outside the model's folder.
    #[error("external data: the location `{location}` is outside the model's folder")]
    OutsideFolder {
        /// The location as written in the model.
        location: String,
    },
    /// External data of a model that was not loaded from a file.
    #[error("external data: the model has no folder in which `{location}` could be looked for")]
    NoFolder {
        /// The location as written in the model.
        location: String,
    },
    /// A region past the end of the data file.
    #[error("external data: {length} bytes from byte {offset} on go past the end of {}, which has {file_length}", path.display())]
    PastEnd {
        /// The data file.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Size of the file.
        file_length: u64,
    },
    /// A data file that exists but cannot be read.
    #[error("external data: cannot read {}: {cause}", path.display())]
    UnreadableFile {
        /// The data file.
        path: PathBuf,
        /// What the system reports.
        cause: io::Error,
    },
    /// A tensor whose file is not one of the model that was asked for its bytes.
    #[error("belongs to another model")]
    OfAnotherModel,
    /// A data file that does not exist, for a tensor whose data is needed.
    #[error("external data: {} does not exist", path.display())]
    MissingFile {
        /// The data file.
        path: PathBuf,
    },
}

impl TensorProblem {
    fn hint(&self) -> Option<String> {
        match self {
            Self::OutsideFolder { .. } => {
                Some("copy the data file into the folder of the model".into())
            }
            Self::MissingFile { .. } => Some(
                "put the data file beside the model, or use `--random-weights SEED` to go without"
                    .into(),
            ),
            _ => None,
        }
    }
}

/// What is wrong with an attribute.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeProblem {
    /// The attribute is required.
    #[error("is missing; expected {expected}")]
    Missing {
        /// Type expected.
        expected: &'static str,
    },
    /// The attribute has another type.
    #[error("is {found}; expected {expected}")]
    WrongType {
        /// Type found.
        found: &'static str,
        /// Type expected.
        expected: &'static str,
    },
    /// The attribute's type number is unknown or its value is absent.
    #[error("has no value of its declared type {declared}")]
    Malformed {
        /// The type number.
        declared: i32,
    },
    /// The attribute stands twice at one node.
    #[error("is given twice")]
    Duplicate,
    /// A string that is not UTF-8.
    #[error("is not valid UTF-8")]
    NotUtf8,
    /// A reference to a function's attribute outside any function.
    #[error("refers to the function attribute `{target}`, but is not in a function")]
    ReferenceOutsideFunction {
        /// The attribute referred to.
        target: String,
    },
}

/// The default domain is written as an empty string in models, which reads badly in messages.
pub(crate) fn shown_domain(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

fn quoted(names: &[String]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
