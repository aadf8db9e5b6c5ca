//! Graph bundles: a folder of a manifest, a program for each target and the weights; must never
//! trust what a folder says before it checked it.

mod folder;
mod launches;
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
pub use write::{TargetSource, write, write_targets};

use crate::weights::WeightError;
use bytes::Bytes;
use membar_ir::architecture::Architecture;
use membar_ir::graph::Graph;
use membar_ir::program::DeviceProgram;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 2;

/// The oldest format that this version reads: one without targets for GPUs.
const OLDEST: u32 = 1;

/// The name of the target that every machine runs.
pub const CPU: &str = "cpu";

/// An opened bundle: checked, its programs parsed. Weights stay in their file.
#[derive(Debug)]
pub struct Bundle {
    folder: PathBuf,
    manifest: Manifest,
    /// The target that [`Bundle::graph`] shows.
    shown: String,
    targets: BTreeMap<String, Target>,
}

/// A target of an opened bundle.
#[derive(Clone, Debug)]
pub struct Target {
    /// The scheduled graph. Its weights are parts of [`Bundle::WEIGHTS`] in the folder.
    pub graph: Graph,
    /// What a GPU runs; `None` for the CPU.
    pub code: Option<TargetCode>,
}

/// What a GPU runs: launches that were checked against the graph, and native code that was not.
#[derive(Clone, Debug)]
pub struct TargetCode {
    /// The architecture.
    pub architecture: Architecture,
    /// The launches. The kernels have no sources.
    pub program: DeviceProgram,
    /// One a kernel, in order.
    pub cubins: Vec<Bytes>,
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
    /// There is nothing to write.
    #[error("a bundle needs a target")]
    NoTarget,
    /// The graph is not ready to be written.
    #[error("graph `{name}` is at stage {stage}; a bundle holds a scheduled one")]
    Stage {
        /// The graph.
        name: String,
        /// Its stage.
        stage: &'static str,
    },
    /// The kernels were not compiled.
    #[error("target `{0}` has kernels without code")]
    Incomplete(String),
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

    /// The CPU's program, or that of the first target in a bundle without one. Its weights are parts
    /// of [`WEIGHTS`](Bundle::WEIGHTS) in the folder.
    pub fn graph(&self) -> &Graph {
        &self.targets[&self.shown].graph
    }

    /// The targets by name.
    pub fn targets(&self) -> &BTreeMap<String, Target> {
        &self.targets
    }

    /// The best target for a GPU of that compute capability; `None` if no target runs there.
    pub fn target_for(&self, capability: (u32, u32)) -> Option<&Target> {
        let architecture = |target: &&Target| target.code.as_ref().map(|code| code.architecture);
        let runs = |target: &&Target| architecture(target).is_some_and(|a| a.runs_on(capability));
        self.targets.values().filter(runs).max_by_key(architecture)
    }

    /// The name of the file with the weights.
    pub const WEIGHTS: &'static str = "weights.safetensors";
}
