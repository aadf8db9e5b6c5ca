//! The disk cache of cubins: private to the user, written by renaming, hashed again on every read.
//! Must never give a cubin that is not the one that was stored.

use super::{Cubin, private_folder};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a cubin is made of: the BLAKE3 of source, options and the compiler's version.
pub(super) type Key = [u8; 32];

/// The folder inside the one that the user names; a change of the entries' form changes it.
const FOLDER: &str = "kernels-1";

/// Bytes of the hash in front of an entry's cubin.
const HASH: usize = 32;

/// An opened cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
}

/// The cache's folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("kernel cache `{}`: {error}", .path.display())]
pub struct CacheError {
    /// The folder.
    pub path: PathBuf,
    /// Why.
    pub error: std::io::Error,
}

impl CacheError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let path = self.path.display();
        Some(format!("remove `{path}`, or name another folder: cubins are code that will run"))
    }
}

/// The key of a source for a target under a version of the compiler.
pub(super) fn key(source: &str, target: &str, version: (i32, i32)) -> Key {
    let mut hasher = blake3::Hasher::new_derive_key("membar kernel cache 1");
    let version = format!("nvrtc {}.{}", version.0, version.1);
    let options = crate::nvrtc::options(target);
    let parts = options.iter().map(String::as_str).chain([version.as_str(), source]);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

impl Cache {
    /// Opens the cache in a folder, which is created where it is missing.
    ///
    /// # Errors
    /// The folder cannot be created, or others may write to it.
    pub fn open(folder: &Path) -> Result<Cache, CacheError> {
        let path = folder.join(FOLDER);
        let open = || {
            fs::create_dir_all(folder)?;
            private_folder(&path)
        };
        open().map_err(|error| CacheError { path: path.clone(), error })?;
        Ok(Cache { folder: path })
    }

    /// The cubin of that key; `None` if there is none, or if its entry is damaged.
    pub(super) fn get(&self, key: &Key) -> Option<Cubin> {
        let bytes = fs::read(self.path(key)).ok()?;
        let (hash, cubin) = bytes.split_at_checked(HASH)?;
        let found = hash_of(key, cubin);
        (found.as_bytes().as_slice() == hash).then(|| Cubin::from(cubin))
    }

    /// Stores a cubin. A cache that cannot be written to costs time later and nothing else.
    pub(super) fn put(&self, key: &Key, cubin: &[u8]) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let draft = self.folder.join(format!(".{}-{count}", std::process::id()));
        let mut bytes = hash_of(key, cubin).as_bytes().to_vec();
        bytes.extend_from_slice(cubin);
        let stored = fs::write(&draft, &bytes).and_then(|()| fs::rename(&draft, self.path(key)));
        if stored.is_err() {
            let _ = fs::remove_file(&draft);
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{}.cubin", blake3::Hash::from(*key).to_hex()))
    }
}

/// The hash of an entry: of its key too, so that an entry under another's name is damaged.
fn hash_of(key: &Key, cubin: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(key, cubin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let name = format!("membar-cache-{name}-{}", std::process::id());
            Scratch(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn keys_tell_sources_options_and_versions_apart() {
        let keys = [
            key("a", "sm_80", (13, 0)),
            key("b", "sm_80", (13, 0)),
            key("a", "sm_90a", (13, 0)),
            key("a", "sm_80", (13, 1)),
        ];
        for (index, first) in keys.iter().enumerate() {
            assert!(!keys[index + 1..].contains(first), "{index}");
        }
    }

    #[test]
    fn damaged_entries_are_misses() -> Result<(), Box<dyn std::error::Error>> {
        let scratch = Scratch::new("damage");
        let cache = Cache::open(&scratch.0)?;
        let (first, second) = (key("a", "sm_80", (13, 0)), key("b", "sm_80", (13, 0)));
        assert_eq!(cache.get(&first), None);
        cache.put(&first, b"cubin");
        assert_eq!(cache.get(&first).as_deref(), Some(b"cubin".as_slice()));
        let bytes = fs::read(cache.path(&first))?;
        // Under another key it is not that key's.
        fs::write(cache.path(&second), &bytes)?;
        assert_eq!(cache.get(&second), None);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(cache.path(&first), &changed)?;
            assert_eq!(cache.get(&first), None, "byte {at}");
            fs::write(cache.path(&first), &bytes[..at])?;
            assert_eq!(cache.get(&first), None, "{at} bytes");
        }
        cache.put(&first, b"cubin");
        assert!(cache.get(&first).is_some());
        Ok(())
    }

    #[test]
    fn the_folder_is_private() -> Result<(), Box<dyn std::error::Error>> {
        let scratch = Scratch::new("private");
        let cache = Cache::open(&scratch.0)?;
        let mode = fs::metadata(&cache.folder)?.permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(Cache::open(&scratch.0).is_ok());
        fs::set_permissions(&cache.folder, fs::Permissions::from_mode(0o755))?;
        let Err(error) = Cache::open(&scratch.0) else { return Err("taken".into()) };
        assert!(error.hint().is_some_and(|hint| hint.contains("remove")), "{error}");
        Ok(())
    }
}
