//! Graph bundles: a folder of a manifest, a program for each target and the weights; must never
//! trust what a folder says before it checked it.

mod folder;
mod manifest;
mod read;
mod safetensors;
mod sparse;
#[cfg(test)]
mod tests;
mod write;

pub use manifest::{
    FileEntry, Manifest, PassEntry, StateEntry, TargetEntry, ValueEntry, WeightEntry,
};
pub use write::write;

use crate::weights::WeightError;
use membar_ir::graph::Graph;
use std::path::{Path, PathBuf};

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// An opened bundle: checked, its program parsed. Weights stay in their file.
#[derive(Debug)]
pub struct Bundle {
    folder: PathBuf,
    manifest: Manifest,
    graph: Graph,
}

/// Why a bundle cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file or folder cannot be read.
    #[error("cannot read `{}`: {error}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
    /// A file or folder cannot be written.
    #[error("cannot write `{}`: {error}", .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
    /// The folder has no manifest.
    #[error("`{}` is not a bundle: it has no manifest.json", .0.display())]
    NotABundle(PathBuf),
    /// Writing would destroy something else.
    #[error("`{}` exists and is not a bundle; name another folder, or remove it", .0.display())]
    Occupied(PathBuf),
    /// The bundle is of a newer format.
    #[error(
        "bundle `{}` has format {found}, this version reads up to {FORMAT}; \
         use the version that wrote it ({producer})",
        .path.display()
    )]
    Newer {
        /// The bundle.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// What wrote it.
        producer: String,
    },
    /// The bundle is not as it was written, or was written wrongly.
    #[error("bundle file `{}`: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The graph is not ready to be written.
    #[error("graph `{name}` is at stage {stage}; a bundle holds a scheduled one")]
    Stage {
        /// The graph.
        name: String,
        /// Its stage.
        stage: &'static str,
    },
    /// A weight cannot be made.
    #[error(transparent)]
    Weight(#[from] WeightError),
}

impl Bundle {
    /// Opens a bundle and checks every byte of it against its hashes.
    ///
    /// # Errors
    /// The folder is not a bundle, is damaged or of a newer format, or its program is not valid.
    pub fn open(folder: &Path) -> Result<Bundle, BundleError> {
        read::open(folder, true)
    }

    /// Opens a bundle without reading its weights, whose hashes stay unchecked: for large bundles
    /// that were checked before.
    ///
    /// # Errors
    /// As [`Bundle::open`], as far as the rest goes.
    pub fn open_unchecked_weights(folder: &Path) -> Result<Bundle, BundleError> {
        read::open(folder, false)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the bundle says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The CPU's program. Its weights are parts of [`WEIGHTS`](Bundle::WEIGHTS) in the folder.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The name of the file with the weights.
    pub const WEIGHTS: &'static str = "weights.safetensors";
}
