//! Which crate may depend on which, read from `cargo metadata`. Development and build dependencies
//! count as well: a test that joins two crates belongs to the root package.

use serde_json::Value;
use std::path::Path;

/// A crate of the workspace, and the crates of the workspace that it may use.
const INTERNAL: &[(&str, &[&str])] = &[
    ("membar-ir", &[]),
    ("membar-passes", &["membar-ir"]),
    ("membar-codegen", &["membar-ir"]),
    ("membar-runtime", &["membar-ir"]),
    ("membar-onnx", &["membar-ir"]),
    ("membar", &["membar-ir", "membar-passes", "membar-codegen", "membar-runtime", "membar-onnx"]),
    ("xtask", &[]),
];

/// A crate from outside, and the only crates of the workspace that may use it.
const CONFINED: &[(&str, &[&str])] = &[
    ("cudarc", &["membar-codegen", "membar-runtime"]),
    ("egg", &["membar-passes"]),
    ("memmap2", &["membar-ir"]),
    ("petgraph", &["membar-ir"]),
    ("prost", &["membar-onnx"]),
    ("prost-build", &["membar-onnx"]),
    ("protox", &["membar-onnx"]),
];

/// Checks the output of `cargo metadata --no-deps`; gives one message a violation.
pub fn check(metadata: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    let Some(packages) = metadata["packages"].as_array() else {
        return vec!["cargo metadata lists no packages".to_owned()];
    };
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = INTERNAL.iter().find(|(internal, _)| *internal == name) else {
            findings.push(format!(
                "crate `{name}` has no line in the dependency rule; add it to {}",
                file!()
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let dependency = dependency["name"].as_str().unwrap_or_default();
            let is_internal = INTERNAL.iter().any(|(internal, _)| *internal == dependency);
            // A crate may name itself to turn its own features on in tests.
            if is_internal && dependency != name && !allowed.contains(&dependency) {
                findings.push(format!(
                    "crate `{name}` depends on `{dependency}`; of Membar's crates it may use {}",
                    list(allowed)
                ));
            }
            let confined = CONFINED.iter().find(|(outside, _)| *outside == dependency);
            if let Some((_, users)) = confined
                && !users.contains(&name)
            {
                findings.push(format!(
                    "crate `{name}` depends on `{dependency}`, which belongs in {} alone",
                    list(users)
                ));
            }
        }
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        if !inherits_lints(Path::new(manifest)) {
            findings.push(format!("crate `{name}` lacks `[lints] workspace = true` in {manifest}"));
        }
    }
    findings
}

fn list(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        _ => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    }
}

fn inherits_lints(manifest: &Path) -> bool {
    std::fs::read_to_string(manifest).is_ok_and(|text| text.contains("[lints]\nworkspace = true\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// This crate's manifest, which inherits the lints.
    const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

    fn findings(name: &str, dependencies: &[&str]) -> Vec<String> {
        let dependencies: Vec<_> =
            dependencies.iter().map(|dependency| json!({ "name": dependency })).collect();
        check(&json!({ "packages": [
            { "name": name, "dependencies": dependencies, "manifest_path": MANIFEST },
        ] }))
    }

    #[test]
    fn allowed_dependencies_pass() {
        assert!(findings("membar-passes", &["membar-ir", "egg", "thiserror"]).is_empty());
        assert!(findings("membar", &["membar-ir", "membar-onnx"]).is_empty());
    }

    #[test]
    fn sideways_dependencies_are_refused() {
        let found = findings("membar-passes", &["membar-runtime"]);
        assert_eq!(
            found,
            ["crate `membar-passes` depends on `membar-runtime`; \
              of Membar's crates it may use `membar-ir`"]
        );
        assert_eq!(findings("membar-ir", &["membar"]).len(), 1);
    }

    #[test]
    fn every_confined_crate_is_refused_elsewhere() {
        for (outside, users) in CONFINED {
            assert_eq!(findings("xtask", &[outside]).len(), 1, "{outside}");
            for user in *users {
                assert!(findings(user, &[outside]).is_empty(), "{outside} in {user}");
            }
        }
    }

    #[test]
    fn an_unknown_crate_is_refused() {
        assert_eq!(findings("membar-new", &[]).len(), 1);
    }

    #[test]
    fn a_crate_without_the_lints_is_refused() {
        let packages = json!({ "packages": [
            { "name": "xtask", "dependencies": [], "manifest_path": "/nowhere/Cargo.toml" },
        ] });
        assert_eq!(check(&packages).len(), 1);
    }
}
