//! What can go wrong, one variant a part of Membar; never a message of its own where the part has
//! one.

use crate::compile::CompileError;
use membar_ir::text::SyntaxError;
use membar_onnx::ImportError;
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
            Error::UnknownFormat(_)
            | Error::Read { .. }
            | Error::Syntax { .. }
            | Error::Compile(_)
            | Error::Bundle(_)
            | Error::Session(_) => None,
        }
    }
}
