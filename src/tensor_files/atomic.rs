//! Writes a file completely or not at all. It must never leave a part of a file under the name that
//! was asked for.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Lets `body` write a temporary file beside `path`, then gives it that name.
///
/// # Errors
/// What `body` gives, or what the file system does: a folder that cannot be written to, or a `path`
/// that is there and no regular file.
pub fn write(
    path: &Path,
    body: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> io::Result<()> {
    let target = target(path)?;
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let file = builder().tempfile_in(folder)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file.as_file());
    body(&mut writer)?;
    writer.flush()?;
    drop(writer);
    file.as_file().sync_all()?;
    file.persist(&target).map_err(|error| error.error)?;
    Ok(())
}

/// Links are followed, so that a link stays one; devices and folders are not replaced.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(target) if target.is_file() => Ok(target),
        Ok(_) => Err(io::Error::other("it is there and is not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

/// Temporary files are private by default; this one becomes an ordinary file.
fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".membar-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The process's mask applies.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("out.npz");
        write(&path, |file| file.write_all(b"old")).expect("first write");
        let result = write(&path, |file| {
            file.write_all(b"new")?;
            Err(io::Error::other("disk on fire"))
        });
        assert!(result.is_err());
        assert_eq!(fs::read(&path).expect("old file"), b"old");
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1);
    }

    #[test]
    fn a_folder_is_not_replaced_and_a_missing_one_not_made() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert!(write(folder.path(), |_| Ok(())).is_err());
        assert!(write(&folder.path().join("missing/out.npz"), |_| Ok(())).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (link, real) = (folder.path().join("link.npz"), folder.path().join("real.npz"));
        fs::write(&real, b"old").expect("write");
        std::os::unix::fs::symlink(&real, &link).expect("link");
        write(&link, |file| file.write_all(b"new")).expect("write through the link");
        assert_eq!(fs::read(&real).expect("file"), b"new");
        assert!(fs::symlink_metadata(&link).expect("link").file_type().is_symlink());
    }
}
