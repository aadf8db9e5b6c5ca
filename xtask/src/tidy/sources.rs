//! The text files of the repository, read once. Binary files, generated ones and files from others
//! never reach a rule.

use super::rust_text;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Folders that hold nothing of ours, wherever they stand.
const SKIPPED_FOLDERS: &[&str] = &[".git", "target", "__pycache__"];

/// Files from others that stay byte for byte as they came, and where `THIRD-PARTY.md` says whose
/// they are. A path that ends with `/` is a folder.
const FROM_OTHERS: &[&str] = &[
    "LICENSE-APACHE",
    "frontends/onnx/src/proto/onnx.proto",
    "frontends/onnx/src/proto/LICENSE",
    "tests/fixtures/tokenizer/vocab.txt",
];

/// Endings of the files that rules read; all else is taken as binary.
const TEXT_ENDINGS: &[&str] =
    &["rs", "md", "toml", "py", "sh", "json", "ir", "cuh", "cu", "txt", "yml", "snap"];

/// Text files without an ending.
const TEXT_NAMES: &[&str] = &[".gitignore", ".gitattributes", "LICENSE-MIT", ".ci/run"];

/// A text file.
pub struct Source {
    /// From the repository's root, with `/` between the parts.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// Rust alone: the text with comments, strings and character literals blanked, lines kept.
    pub code: String,
    /// Rust alone: the text with all but comments blanked, lines kept.
    pub comments: String,
}

impl Source {
    /// A file of that path and text.
    pub fn new(path: &str, text: &str) -> Self {
        let (code, comments) =
            if path.ends_with(".rs") { rust_text::split(text) } else { Default::default() };
        Self { path: path.to_owned(), text: text.to_owned(), code, comments }
    }

    /// Whether the file has one of these endings.
    pub fn has_ending(&self, endings: &[&str]) -> bool {
        ending(&self.path).is_some_and(|ending| endings.contains(&ending))
    }
}

/// All files.
pub struct Tree {
    /// The text files that are ours, by path.
    pub sources: Vec<Source>,
    /// Every file and folder, binary and foreign ones too.
    paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the repository that has its root there.
    ///
    /// # Errors
    /// When a file cannot be read, or a text file is not UTF-8.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self { sources: Vec::new(), paths: BTreeSet::from([String::new()]) };
        tree.add_folder(root, "")?;
        tree.sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// A tree for tests of rules: these paths and no sources.
    #[cfg(test)]
    pub fn of_paths(paths: &[&str]) -> Self {
        let paths = paths.iter().map(|&path| path.to_owned()).collect();
        Self { sources: Vec::new(), paths }
    }

    /// Whether a file or folder stands there.
    pub fn contains(&self, path: &str) -> bool {
        self.paths.contains(path.trim_end_matches('/'))
    }

    fn add_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let unreadable = || format!("cannot read {}", folder.display());
        for entry in fs::read_dir(folder).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().with_context(unreadable)?;
            if kind.is_dir() {
                if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                    self.add_folder(&entry.path(), &format!("{path}/"))?;
                    self.paths.insert(path);
                }
                continue;
            }
            if kind.is_file() && is_our_text(&path) {
                let text = fs::read_to_string(entry.path())
                    .with_context(|| format!("cannot read {path} as UTF-8 text"))?;
                self.sources.push(Source::new(&path, &text));
            }
            self.paths.insert(path);
        }
        Ok(())
    }
}

fn is_our_text(path: &str) -> bool {
    let is_text = TEXT_NAMES.contains(&path)
        || ending(path).is_some_and(|ending| TEXT_ENDINGS.contains(&ending));
    is_text && !FROM_OTHERS.iter().any(|foreign| is_at(path, foreign))
}

/// Whether `path` is `place`, or inside it where `place` ends with `/`.
pub fn is_at(path: &str, place: &str) -> bool {
    if place.ends_with('/') { path.starts_with(place) } else { path == place }
}

fn ending(path: &str) -> Option<&str> {
    path.rsplit_once('.').map(|(_, ending)| ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_and_binary_files_are_left_out() {
        assert!(is_our_text("ir/src/lib.rs"));
        assert!(is_our_text(".ci/run"));
        assert!(!is_our_text("frontends/onnx/src/proto/onnx.proto"));
        assert!(!is_our_text("tests/fixtures/tokenizer/vocab.txt"));
        assert!(!is_our_text("tests/fixtures/models/vit_dynamo/model.onnx"));
    }

    #[test]
    fn files_from_others_exist_and_are_attributed() {
        let root = crate::repository::root();
        let tree = Tree::read(&root).expect("the sources can be read");
        let attributions = fs::read_to_string(root.join("THIRD-PARTY.md")).expect("attributions");
        for place in FROM_OTHERS {
            assert!(tree.contains(place), "{place} is not there");
            assert!(attributions.contains(place), "THIRD-PARTY.md does not name {place}");
        }
    }

    #[test]
    fn a_place_is_a_file_or_a_folder() {
        assert!(is_at("runtime/src/cuda/graph.rs", "runtime/src/cuda/"));
        assert!(is_at("ir/src/mapping.rs", "ir/src/mapping.rs"));
        assert!(!is_at("ir/src/mapping.rs.rs", "ir/src/mapping.rs"));
    }
}
