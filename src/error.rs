//! What can go wrong, one variant a part of Membar; never a message of its own where the part has
//! one.

use crate::compile::CompileError;
use membar_ir::text::SyntaxError;
use membar_onnx::ImportError;
use membar_runtime::cuda::CudaError;
use membar_runtime::{BundleError, SessionError};
use std::path::PathBuf;

/// Why a model cannot be loaded, compiled or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ONNX file is damaged, or holds something that is not supported.
    #[error(transparent)]
    Import(Box<ImportError>),
    /// The file's ending names no format of a model.
    #[error("`{}` is not a model: expected a file ending in .onnx or .ir", .0.display())]
    UnknownFormat(PathBuf),
    /// A file cannot be read.
    #[error("cannot read `{}`: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
    /// An IR file is not well formed.
    #[error("{}:{error}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        error: SyntaxError,
    },
    /// A pass refused the graph, or an option does not fit it.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A bundle cannot be written or read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A GPU cannot be used.
    #[error(transparent)]
    Gpu(#[from] CudaError),
    /// Nothing was compiled for a GPU that was asked for.
    #[error(
        "nothing here was compiled for GPU {device}, which has compute capability {}.{}; \
         there is code for {}",
        .capability.0, .capability.1, .found.join(", ")
    )]
    NoTarget {
        /// The GPU's number.
        device: i32,
        /// Its compute capability.
        capability: (u32, u32),
        /// What there is code for.
        found: Vec<String>,
    },
    /// Nothing was compiled for the CPU.
    #[error("nothing here was compiled for the CPU; there is code for {}", .0.join(", "))]
    NoCpuTarget(Vec<String>),
    /// The session cannot start, or a run failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<ImportError> for Error {
    fn from(error: ImportError) -> Error {
        Error::Import(Box::new(error))
    }
}

impl Error {
    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Import(error) => error.hint(),
            Error::Compile(error) => error.hint(),
            Error::Gpu(CudaError::NoDriver | CudaError::OldDriver { .. }) => Some(
                "install NVIDIA's driver 580 or newer, on Ubuntu with \
                 `sudo apt-get install nvidia-driver-580`; or use --device cpu"
                    .to_string(),
            ),
            Error::NoTarget { capability: (major, minor), .. } => {
                let target = membar_ir::architecture::Architecture::of_device(*major, *minor);
                Some(format!("compile the model with --target {target}"))
            }
            Error::NoCpuTarget(_) => Some("compile the model with --target cpu".to_string()),
            Error::Gpu(_)
            | Error::UnknownFormat(_)
            | Error::Read { .. }
            | Error::Syntax { .. }
            | Error::Bundle(_)
            | Error::Session(_) => None,
        }
    }
}
