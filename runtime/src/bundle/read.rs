//! Opens bundles: manifest, sizes, hashes, then the program; must never follow a path out of the
//! folder, or use a part before it is checked.

use super::folder::MANIFEST;
use super::launches::Launches;
use super::manifest::{FileEntry, Manifest, TargetEntry};
use super::{Bundle, BundleError, CPU, FORMAT, OLDEST, Target, TargetCode};
use bytes::Bytes;
use membar_ir::architecture::Architecture;
use membar_ir::dim::Bindings;
use membar_ir::graph::{Graph, NodeKind, Stage};
use membar_ir::mapping::map_file;
use membar_ir::recipe::{Recipe, RecipeNode, Source};
use membar_ir::text::parse_with_topology;
use membar_ir::topology::Topology;
use membar_ir::verify::{Depth, verify, verify_program};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A manifest or program larger than this is not one.
const TEXT_LIMIT: u64 = 256 << 20;

/// Opens a bundle; `weights`: whether the weights' bytes are checked too.
pub(super) fn open(folder: &Path, weights: bool) -> Result<Bundle, BundleError> {
    let manifest = read_manifest(folder)?;
    let mut files = BTreeMap::new();
    for (name, entry) in &manifest.files {
        // The weights have hashes of their own, which name the tensor that is damaged.
        let hashed = name != Bundle::WEIGHTS;
        files.insert(name.as_str(), checked_file(folder, name, entry, hashed)?);
    }
    check_weights(folder, &manifest, &files, weights)?;
    let mut targets = BTreeMap::new();
    for (name, entry) in &manifest.targets {
        let target = read_target(folder, &manifest, &files, name, entry)?;
        targets.insert(name.clone(), target);
    }
    let shown = targets.get_key_value(CPU).or_else(|| targets.first_key_value());
    let Some(shown) = shown.map(|(name, _)| name.clone()) else {
        return Err(damaged(folder.join(MANIFEST), "there is no target"));
    };
    Ok(Bundle { folder: folder.to_path_buf(), manifest, shown, targets })
}

fn damaged(path: PathBuf, reason: impl ToString) -> BundleError {
    BundleError::Damaged { path, reason: reason.to_string() }
}

fn read_manifest(folder: &Path) -> Result<Manifest, BundleError> {
    let path = folder.join(MANIFEST);
    let reading = |error| BundleError::Read { path: path.clone(), error };
    if !fs::metadata(folder)
        .map_err(|error| BundleError::Read { path: folder.to_path_buf(), error })?
        .is_dir()
        || !path.is_file()
    {
        return Err(BundleError::NotABundle(folder.to_path_buf()));
    }
    let length = fs::metadata(&path).map_err(reading)?.len();
    if length > TEXT_LIMIT {
        return Err(damaged(path, format!("{length} bytes are too many")));
    }
    let bytes = fs::read(&path).map_err(reading)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| damaged(path.clone(), format!("it is not UTF-8: {error}")))?;
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| damaged(path.clone(), format!("it is not JSON: {error}")))?;
    // A newer format may have any fields, so this comes first.
    if let Some(found) = value["format"].as_u64()
        && found > u64::from(FORMAT)
    {
        let producer = value["producer"].as_str().unwrap_or("unknown").to_string();
        return Err(BundleError::Newer { path: folder.to_path_buf(), found, producer });
    }
    let manifest: Manifest = serde_json::from_value(value)
        .map_err(|error| damaged(path.clone(), format!("it is not a manifest: {error}")))?;
    let sealed = manifest.sealed().map_err(|error| damaged(path.clone(), error))?;
    if manifest.format < OLDEST || sealed != text {
        return Err(damaged(path, "it was changed after it was written"));
    }
    Ok(manifest)
}

/// A file's bytes, mapped, of the size and (if `hashed`) with the hash that the manifest says.
fn checked_file(
    folder: &Path,
    name: &str,
    entry: &FileEntry,
    hashed: bool,
) -> Result<Bytes, BundleError> {
    let path = inside(folder, name)?;
    let bytes = map_file(&path).map_err(|error| BundleError::Read { path: path.clone(), error })?;
    if bytes.len() as u64 != entry.bytes {
        let reason = format!("it has {} bytes, the manifest says {}", bytes.len(), entry.bytes);
        return Err(damaged(path, reason));
    }
    if hashed {
        check_hash(&path, &bytes, &entry.blake3, "its")?;
    }
    Ok(bytes)
}

fn check_hash(path: &Path, bytes: &[u8], expected: &str, whose: &str) -> Result<(), BundleError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_rayon(bytes);
    let found = hasher.finalize().to_hex();
    if found.as_str() == expected {
        return Ok(());
    }
    let reason = format!("{whose} BLAKE3 hash is {found}, the manifest says {expected}");
    Err(damaged(path.to_path_buf(), reason))
}

/// The path of a file in the folder; one that leaves it, through a link too, is refused.
fn inside(folder: &Path, name: &str) -> Result<PathBuf, BundleError> {
    let path = folder.join(name);
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !plain {
        return Err(damaged(folder.join(MANIFEST), format!("path `{name}` leaves the folder")));
    }
    let resolve = |path: &Path| {
        let reading = |error| BundleError::Read { path: path.to_path_buf(), error };
        fs::canonicalize(path).map_err(reading)
    };
    if !resolve(&path)?.starts_with(resolve(folder)?) {
        return Err(damaged(path, "it is a link that leaves the folder"));
    }
    Ok(path)
}

/// Every weight lies in its file; with `hashed`, the file's bytes are those that were written.
fn check_weights(
    folder: &Path,
    manifest: &Manifest,
    files: &BTreeMap<&str, Bytes>,
    hashed: bool,
) -> Result<(), BundleError> {
    let path = folder.join(Bundle::WEIGHTS);
    let mut parts = Vec::with_capacity(manifest.weights.len());
    for weight in &manifest.weights {
        let range = usize::try_from(weight.offset)
            .ok()
            .zip(usize::try_from(weight.bytes).ok())
            .and_then(|(start, length)| Some(start..start.checked_add(length)?));
        let bytes = files.get(Bundle::WEIGHTS).zip(range).and_then(|(file, r)| file.get(r));
        let Some(bytes) = bytes else {
            let reason = format!("weight `{}` does not lie in it", weight.name);
            return Err(damaged(path, reason));
        };
        parts.push((weight, bytes));
    }
    let file = files.get(Bundle::WEIGHTS).zip(manifest.files.get(Bundle::WEIGHTS));
    let Some((bytes, entry)) = file.filter(|_| hashed) else {
        return Ok(());
    };
    let Err(error) = check_hash(&path, bytes, &entry.blake3, "its") else {
        return Ok(());
    };
    for (weight, bytes) in parts {
        check_hash(&path, bytes, &weight.blake3, &format!("weight `{}`'s", weight.name))?;
    }
    // The damage lies in the header.
    Err(error)
}

/// The text of a file that the manifest lists.
fn text<'a>(
    folder: &Path,
    files: &BTreeMap<&str, &'a Bytes>,
    name: &str,
) -> Result<&'a str, BundleError> {
    let bytes = listed(folder, files, name)?;
    let path = || folder.join(name);
    if bytes.len() as u64 > TEXT_LIMIT {
        return Err(damaged(path(), format!("{} bytes are too many", bytes.len())));
    }
    std::str::from_utf8(bytes).map_err(|error| damaged(path(), format!("it is not UTF-8: {error}")))
}

fn listed<'a>(
    folder: &Path,
    files: &BTreeMap<&str, &'a Bytes>,
    name: &str,
) -> Result<&'a Bytes, BundleError> {
    let missing = || damaged(folder.join(name), "the manifest lists no such file");
    files.get(name).copied().ok_or_else(missing)
}

fn read_target(
    folder: &Path,
    manifest: &Manifest,
    files: &BTreeMap<&str, Bytes>,
    name: &str,
    entry: &TargetEntry,
) -> Result<Target, BundleError> {
    let files: BTreeMap<&str, &Bytes> = files.iter().map(|(name, file)| (*name, file)).collect();
    let topology = match &entry.topology {
        None => None,
        Some(name) => {
            let topology = Topology::from_toml(text(folder, &files, name)?)
                .map_err(|error| damaged(folder.join(name), error))?;
            Some(Arc::new(topology))
        }
    };
    let path = folder.join(&entry.program);
    let graph = parse_with_topology(text(folder, &files, &entry.program)?, topology.as_ref())
        .map_err(|error| damaged(path.clone(), error))?;
    if graph.stage != Stage::Scheduled {
        return Err(damaged(path, format!("its stage is {}", graph.stage.word())));
    }
    // The text is untrusted until every invariant is proved of it again.
    verify(&graph, Depth::Full).map_err(|errors| damaged(path.clone(), errors))?;
    check_sources(&graph, manifest).map_err(|reason| damaged(path.clone(), reason))?;
    if !Manifest::of(&graph, &[]).agrees_with(manifest) {
        let reason = "its inputs, outputs, states or dimensions are not those of the manifest";
        return Err(damaged(path, reason));
    }
    let code = match (name, &entry.launches) {
        (CPU, None) if entry.kernels.is_empty() => None,
        (CPU, _) => return Err(damaged(folder.join(MANIFEST), "target `cpu` has kernels")),
        (_, None) => {
            return Err(damaged(folder.join(MANIFEST), format!("target `{name}` has no launches")));
        }
        (_, Some(launches)) => Some(read_code(folder, &files, name, launches, entry, &graph)?),
    };
    Ok(Target { graph, code })
}

/// The launches and cubins of a GPU's target.
fn read_code(
    folder: &Path,
    files: &BTreeMap<&str, &Bytes>,
    name: &str,
    launches: &str,
    entry: &TargetEntry,
    graph: &Graph,
) -> Result<TargetCode, BundleError> {
    let architecture: Architecture =
        name.parse().map_err(|error| damaged(folder.join(MANIFEST), error))?;
    let path = folder.join(launches);
    let table: Launches = serde_json::from_str(text(folder, files, launches)?)
        .map_err(|error| damaged(path.clone(), format!("it is not a launch table: {error}")))?;
    let program = table.into_program();
    if program.target != name {
        let reason = format!("it is for {}, its target is {name}", program.target);
        return Err(damaged(path, reason));
    }
    let counts = (program.kernels.len(), entry.kernels.len());
    if counts.0 != counts.1 {
        let reason = format!("it has {} kernels, the manifest {} cubins", counts.0, counts.1);
        return Err(damaged(path, reason));
    }
    verify_program(graph, &program).map_err(|faults| damaged(path, faults.join("\n")))?;
    let mut cubins = Vec::with_capacity(entry.kernels.len());
    for name in &entry.kernels {
        let bytes = listed(folder, files, name)?;
        if !bytes.starts_with(b"\x7fELF") {
            return Err(damaged(folder.join(name), "it is not a cubin"));
        }
        cubins.push(bytes.clone());
    }
    Ok(TargetCode { architecture, program, cubins })
}

/// Weights come from the bundle's own file, each at the place of a tensor that it lists.
fn check_sources(graph: &Graph, manifest: &Manifest) -> Result<(), String> {
    for id in graph.nodes() {
        if let NodeKind::Weight(recipe) = &graph.node(id).kind {
            check_source(recipe, manifest)?;
        }
    }
    Ok(())
}

fn check_source(recipe: &Recipe, manifest: &Manifest) -> Result<(), String> {
    match recipe.node() {
        RecipeNode::Apply { operands, .. } => {
            operands.iter().try_for_each(|operand| check_source(operand, manifest))
        }
        RecipeNode::Source { ty, source: Source::File { path, offset } } => {
            if path.as_ref() != Bundle::WEIGHTS {
                return Err(format!("a weight comes from `{path}`, not {}", Bundle::WEIGHTS));
            }
            let ty = ty.concrete(&Bindings::new()).map_err(|error| error.to_string())?;
            let listed = manifest.weights.iter().any(|weight| {
                weight.offset == *offset && weight.dtype == ty.dtype && weight.shape == ty.shape
            });
            if listed { Ok(()) } else { Err(format!("no weight {ty} is listed at {offset}")) }
        }
        RecipeNode::Source { .. } => Ok(()),
    }
}
