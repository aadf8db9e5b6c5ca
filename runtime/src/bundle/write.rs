//! Writes bundles: weights streamed from their recipes, then the program that refers to them, then
//! the manifest; the same graph gives the same bytes. Must never hold a large weight in memory.

use super::folder::{Draft, MANIFEST, writing};
use super::launches::Launches;
use super::manifest::{FileEntry, Manifest, PassEntry, TargetEntry, WeightEntry};
use super::safetensors;
use super::sparse::SparseFile;
use super::{Bundle, BundleError, CPU};
use crate::weights::Materialiser;
use membar_ir::dim::Bindings;
use membar_ir::graph::{Graph, NodeId, NodeKind, Stage};
use membar_ir::program::DeviceProgram;
use membar_ir::recipe::{Recipe, RecipeNode, Source};
use membar_ir::types::ConcreteType;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// Tensors of at most so many bytes stay in the program's text.
const INLINE_BYTES: usize = 256;

/// A target that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct TargetSource<'a> {
    /// Its name: `cpu`, or an architecture.
    pub name: &'a str,
    /// The scheduled graph.
    pub graph: &'a Graph,
    /// What a GPU runs, with a cubin for each kernel.
    pub code: Option<(&'a DeviceProgram, &'a [Arc<[u8]>])>,
}

/// Writes a scheduled graph as a bundle for the CPU; see [`write_targets`].
///
/// # Errors
/// As [`write_targets`].
pub fn write(folder: &Path, graph: &Graph, passes: &[PassEntry]) -> Result<(), BundleError> {
    write_targets(folder, &[TargetSource { name: CPU, graph, code: None }], passes)
}

/// Writes scheduled graphs of one model as a bundle, atomically: the folder appears whole or not at
/// all, and replaces nothing but a bundle. Weights of equal recipes are stored once.
///
/// # Errors
/// A graph is not scheduled, a weight cannot be made, the folder is occupied or cannot be written.
pub fn write_targets(
    folder: &Path,
    targets: &[TargetSource<'_>],
    passes: &[PassEntry],
) -> Result<(), BundleError> {
    let first = targets.first().ok_or(BundleError::NoTarget)?;
    if let Some(early) = targets.iter().find(|target| target.graph.stage != Stage::Scheduled) {
        let (name, stage) = (early.graph.name.clone(), early.graph.stage.word());
        return Err(BundleError::Stage { name, stage });
    }
    let whole = |target: &&TargetSource<'_>| {
        target.code.is_none_or(|(program, cubins)| program.kernels.len() == cubins.len())
    };
    if let Some(incomplete) = targets.iter().find(|target| !whole(target)) {
        return Err(BundleError::Incomplete(incomplete.name.to_string()));
    }
    let draft = Draft::new(folder)?;
    let mut manifest = Manifest::of(first.graph, passes);
    let mut graphs: Vec<Graph> = targets.iter().map(|target| target.graph.clone()).collect();
    let weights = collect(&graphs)?;
    if !weights.tensors.is_empty() {
        let (entries, file) = write_weights(draft.folder(), &weights)?;
        let path: Arc<str> = Bundle::WEIGHTS.into();
        for (graph, node, index) in &weights.nodes {
            let source = Source::File { path: path.clone(), offset: entries[*index].offset };
            let ty = weights.recipes[*index].ty().clone();
            graphs[*graph].node_mut(*node).kind = NodeKind::Weight(Recipe::source(ty, source));
        }
        let mut entries: Vec<WeightEntry> = entries;
        entries.sort_by_key(|entry| entry.offset);
        manifest.weights = entries;
        manifest.files.insert(Bundle::WEIGHTS.to_string(), file);
    }
    for (target, graph) in targets.iter().zip(&graphs) {
        write_target(draft.folder(), target, graph, &mut manifest)?;
    }
    let text = manifest.sealed().map_err(|error| unwritable(folder, error))?;
    write_file(draft.folder(), MANIFEST, text.as_bytes())?;
    draft.publish()
}

/// Writes a target's folder; `graph` is the target's, its weights parts of the bundle's file.
fn write_target(
    folder: &Path,
    target: &TargetSource<'_>,
    graph: &Graph,
    manifest: &mut Manifest,
) -> Result<(), BundleError> {
    let prefix = format!("targets/{}", target.name);
    let path = folder.join(&prefix);
    let kernels = path.join("kernels");
    let created = if target.code.is_some() { &kernels } else { &path };
    fs::create_dir_all(created).map_err(writing(created))?;
    let mut put = |name: &str, bytes: &[u8]| -> Result<String, BundleError> {
        let file = format!("{prefix}/{name}");
        manifest.files.insert(file.clone(), write_file(folder, &file, bytes)?);
        Ok(file)
    };
    let mut entry = TargetEntry {
        program: put("program.ir", graph.to_string().as_bytes())?,
        topology: None,
        launches: None,
        kernels: Vec::new(),
    };
    if let Some(topology) = &graph.topology {
        let text = topology.to_toml().map_err(|error| unwritable(&path, error))?;
        entry.topology = Some(put("topology.toml", text.as_bytes())?);
    }
    if let Some((program, cubins)) = target.code {
        let text = serde_json::to_string(&Launches::of(program));
        let text = text.map_err(|error| unwritable(&path, error))? + "\n";
        entry.launches = Some(put("launches.json", text.as_bytes())?);
        for (kernel, cubin) in program.kernels.iter().zip(cubins) {
            entry.kernels.push(put(&format!("kernels/{}.cubin", kernel.name), cubin)?);
        }
    }
    manifest.targets.insert(target.name.to_string(), entry);
    Ok(())
}

/// The weights that go to the file.
#[derive(Default)]
struct Weights {
    /// Names and types, one a distinct recipe.
    tensors: Vec<(String, ConcreteType)>,
    recipes: Vec<Recipe>,
    /// Nodes with their graph's position, and the position of their tensor.
    nodes: Vec<(usize, NodeId, usize)>,
}

fn collect(graphs: &[Graph]) -> Result<Weights, BundleError> {
    let mut weights = Weights::default();
    let mut known: HashMap<Recipe, usize> = HashMap::new();
    let mut names = BTreeSet::new();
    let nodes =
        |(index, graph): (usize, &Graph)| graph.nodes().map(|id| (index, id)).collect::<Vec<_>>();
    for (position, id) in graphs.iter().enumerate().flat_map(nodes) {
        let graph = &graphs[position];
        let NodeKind::Weight(recipe) = &graph.node(id).kind else { continue };
        let ty =
            recipe.ty().concrete(&Bindings::new()).map_err(crate::weights::WeightError::from)?;
        let small = recipe.as_literal().is_some_and(|tensor| tensor.bytes().len() <= INLINE_BYTES);
        if small || is_random(recipe) {
            continue;
        }
        let index = match known.get(recipe) {
            Some(index) => *index,
            None => {
                let index = weights.recipes.len();
                let value = graph.node(id).outputs().first();
                let name = value.and_then(|value| graph.value(*value).name.clone());
                let name = unique(name.as_deref(), index, &mut names);
                weights.tensors.push((name, ty));
                weights.recipes.push(recipe.clone());
                known.insert(recipe.clone(), index);
                index
            }
        };
        weights.nodes.push((position, id, index));
    }
    Ok(weights)
}

/// Random weights need no bytes: their seed is enough.
fn is_random(recipe: &Recipe) -> bool {
    match recipe.node() {
        RecipeNode::Source { source: Source::Random { .. }, .. } => true,
        RecipeNode::Source { source: Source::Literal(literal), .. } => {
            literal.0.bytes().len() <= INLINE_BYTES
        }
        RecipeNode::Source { source: Source::File { .. }, .. } => false,
        RecipeNode::Apply { operands, .. } => operands.iter().all(is_random),
    }
}

fn unique(name: Option<&str>, index: usize, names: &mut BTreeSet<String>) -> String {
    let wanted = match name {
        // The format keeps this name for itself.
        None | Some("" | "__metadata__") => format!("weight.{index}"),
        Some(name) => name.to_string(),
    };
    let mut candidate = wanted.clone();
    let mut count = 1;
    while !names.insert(candidate.clone()) {
        candidate = format!("{wanted}#{count}");
        count += 1;
    }
    candidate
}

/// Streams every weight to the file; the entries in the order of the recipes.
fn write_weights(
    folder: &Path,
    weights: &Weights,
) -> Result<(Vec<WeightEntry>, FileEntry), BundleError> {
    let path = folder.join(Bundle::WEIGHTS);
    let header = safetensors::layout(&weights.tensors).map_err(|error| unwritable(&path, error))?;
    let positions: BTreeMap<&str, usize> =
        weights.tensors.iter().enumerate().map(|(i, (name, _))| (name.as_str(), i)).collect();
    let mut file = SparseFile::new(File::create(&path).map_err(writing(&path))?);
    let mut whole = blake3::Hasher::new();
    file.append(&header.bytes).map_err(writing(&path))?;
    whole.update(&header.bytes);
    let mut entries: BTreeMap<usize, WeightEntry> = BTreeMap::new();
    let mut materialiser = Materialiser::default();
    for entry in &header.entries {
        let position = positions[entry.name.as_str()];
        let mut hasher = blake3::Hasher::new();
        let mut bytes = 0u64;
        materialiser.stream(&weights.recipes[position], |chunk| {
            hasher.update_rayon(chunk);
            whole.update_rayon(chunk);
            bytes += chunk.len() as u64;
            file.append(chunk).map_err(writing(&path))
        })?;
        entries.insert(
            position,
            WeightEntry {
                name: entry.name.clone(),
                dtype: entry.ty.dtype,
                shape: entry.ty.shape.clone(),
                offset: entry.offset,
                bytes,
                blake3: hasher.finalize().to_hex().to_string(),
            },
        );
    }
    let written = file.finish().map_err(writing(&path))?;
    let blake3 = whole.finalize().to_hex().to_string();
    Ok((entries.into_values().collect(), FileEntry { bytes: written, blake3 }))
}

fn write_file(folder: &Path, name: &str, bytes: &[u8]) -> Result<FileEntry, BundleError> {
    let path = folder.join(name);
    fs::write(&path, bytes).map_err(writing(&path))?;
    Ok(FileEntry::of(bytes))
}

/// Something of ours that a format cannot express.
fn unwritable(path: &Path, error: impl std::fmt::Display) -> BundleError {
    let error = std::io::Error::other(error.to_string());
    BundleError::Write { path: path.to_path_buf(), error }
}
