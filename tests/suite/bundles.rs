//! Bundles of real models: what was written and opened again runs as what was compiled, and equal
//! compilations write equal files; never a damaged bundle (the runtime's tests have those).

use crate::fixture::{self, Fixture};
use membar::{Bundle, Session};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn run_as_the_compiled_graph_and_are_reproducible() {
    let names: Vec<String> = fixture::names().into_iter().step_by(3).collect();
    fixture::each(&names, check);
}

fn check(fixture: &Fixture) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let options = fixture.options();
    let paths = ["first.bundle", "second.bundle"].map(|name| folder.path().join(name));
    for path in &paths {
        let compiled =
            membar::compile(fixture.graph.clone(), &options).map_err(|e| e.to_string())?;
        compiled.write_bundle(path).map_err(|e| e.to_string())?;
    }
    let [first, second] = paths.map(|path| files(&path));
    if first.keys().ne(second.keys()) {
        return Err(format!("files {:?} and {:?}", first.keys(), second.keys()));
    }
    if let Some((name, _)) = first.iter().find(|(name, bytes)| second[*name] != **bytes) {
        return Err(format!("`{name}` differs between two compilations"));
    }
    let bundle = Bundle::open(&folder.path().join("first.bundle")).map_err(|e| e.to_string())?;
    let mut opened = Session::new(&bundle).map_err(|e| e.to_string())?;
    let mut direct = fixture.session(&options)?;
    for inputs in &fixture.data_sets {
        let found = opened.run(inputs).map_err(|e| e.to_string())?;
        if found != direct.run(inputs).map_err(|e| e.to_string())? {
            return Err("the bundle's outputs differ from the graph's".into());
        }
    }
    Ok(())
}

/// All files below a folder, by path.
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below it").display().to_string();
                found.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    assert!(found.len() >= 3, "{:?}", found.keys());
    found
}
