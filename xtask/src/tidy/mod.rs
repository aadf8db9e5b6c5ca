//! `cargo xtask tidy`: rules about the sources that compiler and clippy do not know. A rule states
//! what it refuses with an example, and a test proves that it does; no rule may lack one.

mod dependencies;
mod rules;
mod rust_text;
mod sources;

use crate::{process, repository};
use anyhow::{Context, Result, bail};
use rules::RULES;
use sources::Tree;

/// The task: takes no argument.
///
/// # Errors
/// As [`check`].
pub fn run(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        bail!("`cargo xtask tidy` takes no argument, found `{argument}`");
    }
    check()
}

/// Applies every rule to every file and to the dependency graph.
///
/// # Errors
/// When anything breaks a rule; all findings are printed before.
pub fn check() -> Result<()> {
    let findings = findings()?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("the sources break the repository's rules in {count} places"),
    }
}

/// Every Rust file of the repository, from its root.
///
/// # Errors
/// When a file cannot be read.
pub fn rust_files() -> Result<Vec<String>> {
    let tree = Tree::read(&repository::root())?;
    let rust = tree.sources.into_iter().filter(|source| source.has_ending(&["rs"]));
    Ok(rust.map(|source| source.path).collect())
}

fn findings() -> Result<Vec<String>> {
    let root = repository::root();
    let tree = Tree::read(&root)?;
    let mut findings = Vec::new();
    for source in &tree.sources {
        for rule in RULES.iter().filter(|rule| (rule.applies)(source)) {
            for finding in (rule.check)(source, &tree) {
                findings.push(format!(
                    "{}:{}: {} [{}]",
                    source.path, finding.line, finding.message, rule.name
                ));
            }
        }
    }
    let mut metadata = process::cargo();
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(&root);
    let metadata = serde_json::from_str(&process::output(&mut metadata)?)
        .context("cargo metadata wrote no JSON")?;
    findings.extend(dependencies::check(&metadata));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let findings = findings().expect("the sources can be read");
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}
