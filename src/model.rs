//! Model files by their format; never what is in them.

use crate::error::Error;
use membar_ir::Graph;
use membar_onnx::ImportOptions;
use std::path::Path;

/// The format of a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFormat {
    /// An ONNX model.
    Onnx,
    /// Membar's own text form, at any stage.
    Ir,
}

impl ModelFormat {
    /// The format that a file's ending names.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`] if it names none.
    pub fn of(path: &Path) -> Result<ModelFormat, Error> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("onnx") => Ok(ModelFormat::Onnx),
            Some("ir") => Ok(ModelFormat::Ir),
            _ => Err(Error::UnknownFormat(path.to_path_buf())),
        }
    }
}

/// Loads a model: an ONNX file, or a graph in IR text at any stage. The options matter for ONNX
/// files alone.
///
/// Weights stay in their files, which must not change while the graph is used.
///
/// # Errors
/// The file cannot be read, is damaged, or holds something that is not supported; for ONNX files
/// all that is not supported is reported at once.
pub fn load_model(path: &Path, options: &ImportOptions) -> Result<Graph, Error> {
    match ModelFormat::of(path)? {
        ModelFormat::Onnx => Ok(membar_onnx::import(path, options)?),
        ModelFormat::Ir => {
            let failed = |error| Error::Read { path: path.to_path_buf(), error };
            let text = std::fs::read_to_string(path).map_err(failed)?;
            Graph::parse(&text).map_err(|error| Error::Syntax { path: path.to_path_buf(), error })
        }
    }
}
