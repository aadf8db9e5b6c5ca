//! What a bundle says of itself, as JSON; must never hold what is not checked when it is read.

use super::FORMAT;
use membar_ir::dtype::DType;
use membar_ir::graph::{Graph, ValueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// The program that wrote the bundle.
    pub producer: String,
    /// The graph's name.
    pub name: String,
    /// Inputs, in order.
    pub inputs: Vec<ValueEntry>,
    /// Outputs, in order.
    pub outputs: Vec<ValueEntry>,
    /// Pairs of input and output that are one state.
    pub states: Vec<StateEntry>,
    /// Ranges of symbolic dimensions: least and greatest value.
    pub symbols: BTreeMap<String, (i64, Option<i64>)>,
    /// Programs by target.
    pub targets: BTreeMap<String, TargetEntry>,
    /// Tensors of the weights' file, in the order of their bytes.
    pub weights: Vec<WeightEntry>,
    /// What the compiler did for the first target that was asked for.
    pub passes: Vec<PassEntry>,
    /// Every other file by its path in the folder.
    pub files: BTreeMap<String, FileEntry>,
    /// BLAKE3 of this file with this field empty.
    pub digest: String,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueEntry {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, as IR text writes them.
    pub shape: Vec<String>,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateEntry {
    /// The input's name.
    pub input: String,
    /// The output's name.
    pub output: String,
    /// The greatest length, for a state that grows.
    pub capacity: Option<i64>,
}

/// A target's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetEntry {
    /// The scheduled graph.
    pub program: String,
    /// The machine that it is for.
    pub topology: Option<String>,
    /// The launches of a GPU's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launches: Option<String>,
    /// The cubins of a GPU's kernels, in the order of their numbers in the launches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
}

/// A tensor of the weights' file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightEntry {
    /// Its name in the file.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// First byte in the file.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 of the bytes.
    pub blake3: String,
}

/// What a pass did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassEntry {
    /// Its name.
    pub name: String,
    /// Whether it changed the graph.
    pub changed: bool,
    /// Nodes before it.
    pub nodes_before: usize,
    /// Nodes after it.
    pub nodes_after: usize,
}

/// A file's size and hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 of the whole file.
    pub blake3: String,
}

impl FileEntry {
    /// The entry of a file with these bytes.
    pub fn of(bytes: &[u8]) -> FileEntry {
        FileEntry { bytes: bytes.len() as u64, blake3: blake3::hash(bytes).to_hex().to_string() }
    }
}

impl Manifest {
    /// The manifest of a graph, without weights, files and digest.
    pub(super) fn of(graph: &Graph, passes: &[PassEntry]) -> Manifest {
        let entry = |name: &str, value: ValueId| {
            let ty = graph.ty(value);
            let shape = ty.shape.iter().map(ToString::to_string).collect();
            ValueEntry { name: name.to_string(), dtype: ty.dtype, shape }
        };
        let name = |value: ValueId| graph.value(value).name.as_deref().unwrap_or_default();
        let range = |(symbol, range): (&membar_ir::dim::Symbol, &membar_ir::dim::Range)| {
            (symbol.name().to_string(), (range.lo, range.hi))
        };
        Manifest {
            format: FORMAT,
            producer: format!("membar {}", env!("CARGO_PKG_VERSION")),
            name: graph.name.clone(),
            inputs: graph.inputs().iter().map(|value| entry(name(*value), *value)).collect(),
            outputs: graph.outputs().iter().map(|o| entry(&o.name, o.value)).collect(),
            states: graph
                .states
                .iter()
                .map(|state| StateEntry {
                    input: name(state.input).to_string(),
                    output: state.output.to_string(),
                    capacity: state.growth.as_ref().map(|growth| growth.capacity),
                })
                .collect(),
            symbols: graph.symbols.iter().map(range).collect(),
            targets: BTreeMap::new(),
            weights: Vec::new(),
            passes: passes.to_vec(),
            files: BTreeMap::new(),
            digest: String::new(),
        }
    }

    /// Whether it says of inputs, outputs, states and dimensions what another does.
    pub(super) fn agrees_with(&self, other: &Manifest) -> bool {
        self.inputs == other.inputs
            && self.outputs == other.outputs
            && self.states == other.states
            && self.symbols == other.symbols
    }

    /// The file's text with the digest filled in.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn sealed(&self) -> Result<String, serde_json::Error> {
        let mut manifest = self.clone();
        manifest.digest = String::new();
        manifest.digest = blake3::hash(text(&manifest)?.as_bytes()).to_hex().to_string();
        text(&manifest)
    }
}

fn text(manifest: &Manifest) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(manifest).map(|text| text + "\n")
}
