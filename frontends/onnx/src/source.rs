//! The files that a model's data comes from: the model itself and its external data. Nothing
//! outside the model's folder is ever opened.

use crate::error::{ImportError, TensorProblem};
use bytes::Bytes;
use membar_ir::mapping::map_file;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Memory maps of a model and of the data files that it names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    /// Absolute path of the model, where it is a file.
    model: Option<PathBuf>,
    /// Absolute path of the folder that external data must stay in.
    folder: Option<PathBuf>,
    bytes: Bytes,
    files: BTreeMap<PathBuf, Bytes>,
    locations: BTreeMap<String, Located>,
}

/// Where an external location leads.
#[derive(Debug, Clone)]
pub(crate) enum Located {
    /// A mapped file: absolute path and length.
    File(PathBuf, u64),
    /// No file: the path where it was looked for.
    Missing(PathBuf),
}

impl Source {
    /// Maps the model file.
    pub(crate) fn open(path: &Path) -> Result<Self, ImportError> {
        let read = |cause| ImportError::Read { path: path.to_owned(), cause };
        let model = path.canonicalize().map_err(read)?;
        let bytes = map_regular(&model).map_err(read)?;
        // External data is looked for beside the path as given: where a cache keeps models as
        // links, the data file has its link beside the model's.
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let folder = parent.canonicalize().map_err(read)?;
        Ok(Self { model: Some(model), folder: Some(folder), bytes, ..Self::default() })
    }

    /// A model in memory; `folder` is where its external data is looked for.
    pub(crate) fn memory(bytes: Bytes, folder: Option<&Path>) -> Result<Self, ImportError> {
        let folder = folder
            .map(|folder| {
                folder
                    .canonicalize()
                    .map_err(|cause| ImportError::Read { path: folder.to_owned(), cause })
            })
            .transpose()?;
        Ok(Self { folder, bytes, ..Self::default() })
    }

    pub(crate) fn model(&self) -> Option<&Path> {
        self.model.as_deref()
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// A region of the model or of a data file, by absolute path; `None` where the file is not
    /// one of this model's or is shorter.
    pub(crate) fn region(&self, path: &Path, offset: u64, length: u64) -> Option<Bytes> {
        let file = self.file(path)?;
        let start = usize::try_from(offset).ok()?;
        let end = usize::try_from(offset.checked_add(length)?).ok()?;
        (end <= file.len()).then(|| file.slice(start..end))
    }

    fn file(&self, path: &Path) -> Option<&Bytes> {
        if self.model.as_deref() == Some(path) { Some(&self.bytes) } else { self.files.get(path) }
    }

    /// Where `part` lies in the model file; `None` where it is not a part of the file's map.
    pub(crate) fn offset_in_model(&self, part: &Bytes) -> Option<(PathBuf, u64)> {
        let model = self.model.as_ref()?;
        let start = (part.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        let end = start.checked_add(part.len())?;
        let inside = !part.is_empty() && end <= self.bytes.len();
        inside.then(|| (model.clone(), start as u64))
    }

    /// Resolves the location of external data and maps the file there.
    pub(crate) fn locate(&mut self, location: &str) -> Result<Located, TensorProblem> {
        if let Some(located) = self.locations.get(location) {
            return Ok(located.clone());
        }
        let located = self.resolve(location)?;
        self.locations.insert(location.to_owned(), located.clone());
        Ok(located)
    }

    fn resolve(&mut self, location: &str) -> Result<Located, TensorProblem> {
        let Some(folder) = &self.folder else {
            return Err(TensorProblem::NoFolder { location: location.to_owned() });
        };
        let outside = || TensorProblem::OutsideFolder { location: location.to_owned() };
        let relative = Path::new(location);
        let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if location.contains('\0') || !relative.components().all(plain) {
            return Err(outside());
        }
        let path = folder.join(relative);
        let unreadable = |cause| TensorProblem::UnreadableFile { path: path.clone(), cause };
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Ok(Located::Missing(path));
            }
            Err(cause) => return Err(unreadable(cause)),
        };
        if !target.starts_with(folder) {
            return Err(outside());
        }
        if let Some(bytes) = self.file(&target) {
            return Ok(Located::File(target.clone(), bytes.len() as u64));
        }
        let bytes = map_regular(&target).map_err(unreadable)?;
        let length = bytes.len() as u64;
        self.files.insert(target.clone(), bytes);
        Ok(Located::File(target, length))
    }
}

/// Opening a named pipe would wait for a writer, so the kind of file is looked at first.
fn map_regular(path: &Path) -> io::Result<Bytes> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    map_file(path)
}
