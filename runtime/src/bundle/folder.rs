//! A folder that appears whole or not at all: written beside its place, then renamed; must never
//! leave a part behind, or replace what is not a bundle.

use super::BundleError;
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the manifest in a bundle.
pub(super) const MANIFEST: &str = "manifest.json";

/// A folder being written. Dropped before [`Draft::publish`], it is removed.
pub(super) struct Draft {
    target: PathBuf,
    folder: PathBuf,
}

impl Draft {
    /// An empty folder beside `target`.
    pub fn new(target: &Path) -> Result<Draft, BundleError> {
        check_replaceable(target)?;
        let folder = beside(target, "partial")?;
        // A draft of this name can only be left from a process that was killed.
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(writing(&folder))?;
        }
        // The name of the draft would tell the user nothing.
        fs::create_dir(&folder).map_err(writing(target))?;
        Ok(Draft { target: target.to_path_buf(), folder })
    }

    /// The folder to write into.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves the folder to its place; a bundle that was there is replaced.
    pub fn publish(self) -> Result<(), BundleError> {
        check_replaceable(&self.target)?;
        if !self.target.exists() {
            return fs::rename(&self.folder, &self.target).map_err(writing(&self.target));
        }
        let old = beside(&self.target, "replaced")?;
        fs::rename(&self.target, &old).map_err(writing(&self.target))?;
        if let Err(error) = fs::rename(&self.folder, &self.target) {
            // The old bundle goes back; if even that fails, the first error tells more.
            let _ = fs::rename(&old, &self.target);
            return Err(writing(&self.target)(error));
        }
        fs::remove_dir_all(&old).map_err(writing(&old))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After `publish` there is nothing to remove; while an error unwinds, that error counts.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Nothing, an empty folder or a bundle may be replaced.
fn check_replaceable(target: &Path) -> Result<(), BundleError> {
    let Ok(metadata) = fs::symlink_metadata(target) else {
        return Ok(());
    };
    let occupied = || BundleError::Occupied(target.to_path_buf());
    if !metadata.is_dir() {
        return Err(occupied());
    }
    let mut entries = fs::read_dir(target).map_err(writing(target))?;
    if entries.next().is_none() || is_bundle(target) { Ok(()) } else { Err(occupied()) }
}

/// Whether a folder's manifest is one of ours, of whatever version.
fn is_bundle(folder: &Path) -> bool {
    let Ok(text) = fs::read_to_string(folder.join(MANIFEST)) else {
        return false;
    };
    let Ok(manifest) = serde_json::from_str::<serde_json::Value>(&text) else {
        return false;
    };
    manifest["format"].is_u64() && manifest["targets"].is_object()
}

/// A hidden name in the same folder, of this process.
fn beside(target: &Path, what: &str) -> Result<PathBuf, BundleError> {
    let name = target.file_name().ok_or_else(|| BundleError::Occupied(target.to_path_buf()))?;
    let name = format!(".{}.{what}-{}", name.to_string_lossy(), std::process::id());
    Ok(target.with_file_name(name))
}

/// Names the path in an error of writing it.
pub(super) fn writing(path: &Path) -> impl Fn(std::io::Error) -> BundleError + '_ {
    move |error| BundleError::Write { path: path.to_path_buf(), error }
}
