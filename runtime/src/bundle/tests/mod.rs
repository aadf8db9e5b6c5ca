//! Bundles written, read back, damaged and misused; must never write outside a temporary folder.

mod gpu;

use super::{Bundle, BundleError, PassEntry, write};
use crate::cpu::testing::{Random, assert_close, declare, plan, sure};
use crate::session::Session;
use membar_ir::dim::{Bindings, Dim, Symbol};
use membar_ir::dtype::DType;
use membar_ir::graph::{Graph, NodeKind};
use membar_ir::interp::{Interpreter, static_type};
use membar_ir::ops::{Concat, Op, Reshape, Scalar, Transpose};
use membar_ir::recipe::{Recipe, RecipeNode, Source};
use membar_ir::tensor::Tensor;
use membar_ir::topology::Topology;
use membar_ir::types::{Axis, TensorType};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("membar-bundle-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        sure(fs::create_dir_all(&path));
        Scratch(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn apply(op: impl Into<Op>, operands: &[Recipe]) -> Recipe {
    let op = op.into();
    let types: Vec<TensorType> = operands.iter().map(|r| r.ty().clone()).collect();
    let ty = sure(op.infer(&types)).remove(0);
    Recipe::apply(ty, op, operands.to_vec())
}

/// `y = x + (sum of several kinds of weights)`, `x` of `[B, 6]`.
fn graph(scratch: &Scratch) -> Graph {
    let mut random = Random::new(21);
    let source = random.tensor(DType::F32, &[6, 35]);
    let path = scratch.join("source.bin");
    let mut bytes = vec![7u8; 12];
    bytes.extend_from_slice(source.bytes());
    sure(fs::write(&path, &bytes));
    let path: Arc<str> = path.to_string_lossy().into();
    let file = Source::File { path, offset: 12 };
    let file = Recipe::source(static_type(source.ty()), file);
    let perm = vec![Axis(1), Axis(0)];
    let turned = apply(Transpose { perm }, &[file]);
    let half = Scalar::Cast { to: DType::F16, saturate: true };
    let back = Scalar::Cast { to: DType::F32, saturate: true };
    let rounded = apply(back.clone(), &[apply(half, std::slice::from_ref(&turned))]);
    let large = Recipe::literal(random.tensor(DType::F32, &[35, 6]));
    let joined = apply(Concat { axis: Axis(0) }, &[turned.clone(), large]);
    let flat = apply(Reshape { shape: vec![Dim::from(70), Dim::from(6)] }, &[joined]);
    let seed = Source::Random {
        seed: 3,
        stream: 1,
        distribution: membar_ir::recipe::Distribution::Normal(membar_ir::attribute::Float(0.5)),
    };
    let seeded = Recipe::source(TensorType::fixed(DType::F32, &[70, 6]), seed);
    let small = Recipe::literal(random.tensor(DType::F32, &[6]));
    let bytes = Recipe::literal(random.tensor(DType::U8, &[301, 6]));
    let packed = Recipe::literal(random.tensor(DType::I4, &[101, 6]));

    let mut graph = Graph::new("weights");
    declare(&mut graph, "B", 1, 4);
    let x = graph.add_input("x", TensorType::new(DType::F32, vec![Dim::symbol("B"), Dim::from(6)]));
    let mut y = x;
    let add = |graph: &mut Graph, y, recipe: &Recipe, name: Option<&str>| {
        let weight = graph.add_weight(name, recipe.clone());
        let float = match recipe.ty().dtype {
            DType::F32 => weight,
            _ => sure(graph.apply(back.clone(), &[weight])),
        };
        let kind = membar_ir::ops::ReduceKind::Sum;
        let reduce = membar_ir::ops::Reduce { kind, axes: vec![Axis(0)], keep: false };
        let total =
            if recipe.ty().rank() == 1 { float } else { sure(graph.apply(reduce, &[float])) };
        sure(graph.apply(Scalar::Add, &[y, total]))
    };
    for (recipe, name) in [
        (&bytes, Some("bytes")),
        (&turned, Some("turned")),
        (&rounded, Some("turned")),
        (&turned, Some("tied")),
        (&flat, None),
        (&seeded, Some("seeded")),
        (&small, Some("small")),
        (&packed, Some("packed")),
    ] {
        y = add(&mut graph, y, recipe, name);
    }
    graph.set_outputs([("y", y)]);
    let mut graph = plan(graph);
    graph.topology = Topology::builtin("cpu").map(Arc::new);
    place(&mut graph);
    graph
}

fn place(graph: &mut Graph) {
    use membar_ir::topology::{DeviceId, MemoryId};
    for id in graph.nodes().collect::<Vec<_>>() {
        graph.node_mut(id).device = Some(DeviceId(0));
    }
    for id in graph.values().collect::<Vec<_>>() {
        graph.value_mut(id).memory = Some(MemoryId(0));
    }
}

fn inputs() -> BTreeMap<String, Tensor> {
    [("x".to_string(), Random::new(5).tensor(DType::F32, &[3, 6]))].into()
}

fn passes() -> Vec<PassEntry> {
    vec![PassEntry { name: "place".to_string(), changed: true, nodes_before: 9, nodes_after: 9 }]
}

/// Every file of a folder with its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        for entry in sure(fs::read_dir(&current)) {
            let path = sure(entry).path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.clone(), sure(fs::read(&path)));
            }
        }
    }
    files
}

#[test]
fn a_bundle_computes_what_its_graph_does() {
    let scratch = Scratch::new();
    let graph = graph(&scratch);
    let folder = scratch.join("model");
    sure(write(&folder, &graph, &passes()));
    // The source is not needed any more.
    let bindings: Bindings = [(Symbol::new("B"), 3)].into();
    let expected = sure(Interpreter::default().run(&graph, &inputs(), &bindings));
    sure(fs::remove_file(scratch.join("source.bin")));
    let bundle = sure(Bundle::open(&folder));
    assert_eq!(bundle.manifest().passes, passes());
    let mut session = sure(Session::new(&bundle));
    let found = sure(session.run(&inputs()));
    assert_close(&found["y"], &expected["y"], "y");
    // Tied weights are stored once, small and random ones not at all.
    let names: Vec<&str> =
        bundle.manifest().weights.iter().map(|weight| weight.name.as_str()).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    let remains = contents(&scratch.0);
    assert!(remains.keys().all(|path| path.starts_with(&folder)), "{remains:?}");
}

#[test]
fn the_same_graph_gives_the_same_bytes_and_survives_a_second_trip() {
    let scratch = Scratch::new();
    let graph = graph(&scratch);
    let folders = [scratch.join("a"), scratch.join("b")];
    for folder in &folders {
        sure(write(folder, &graph, &passes()));
    }
    let [a, b] = folders.each_ref().map(|folder| contents(folder));
    assert!(a.len() >= 4 && a.values().eq(b.values()));
    // A bundle may be replaced, even by one made of itself.
    sure(write(&folders[1], &graph, &[]));
    let [a, b] = folders.each_ref().map(|folder| contents(folder));
    assert!(!a.values().eq(b.values()));
}

#[test]
fn weights_are_aligned_and_shared_with_the_file() {
    let scratch = Scratch::new();
    let folder = scratch.join("model");
    sure(write(&folder, &graph(&scratch), &[]));
    let bundle = sure(Bundle::open(&folder));
    for weight in &bundle.manifest().weights {
        let size = u64::from(weight.dtype.bits() / 8).max(1);
        assert_eq!(weight.offset % size, 0, "{weight:?}");
    }
    let files = bundle.graph().nodes().filter(|id| match &bundle.graph().node(*id).kind {
        NodeKind::Weight(recipe) => {
            matches!(recipe.node(), RecipeNode::Source { source: Source::File { .. }, .. })
        }
        _ => false,
    });
    assert_eq!(files.count(), 6);
}

#[test]
fn every_damage_is_found() {
    let scratch = Scratch::new();
    let folder = scratch.join("model");
    sure(write(&folder, &graph(&scratch), &passes()));
    for (path, bytes) in contents(&folder) {
        let mut random = Random::new(bytes.len() as u64);
        for _ in 0..40 {
            let mut changed = bytes.clone();
            let at = random.next() as usize % changed.len();
            changed[at] ^= 1 << (random.next() % 8);
            sure(fs::write(&path, &changed));
            let result = Bundle::open(&folder);
            assert!(result.is_err(), "byte {at} of {} changed", path.display());
        }
        for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            sure(fs::write(&path, &bytes[..length]));
            assert!(Bundle::open(&folder).is_err(), "{} cut to {length}", path.display());
        }
        sure(fs::remove_file(&path));
        assert!(Bundle::open(&folder).is_err(), "{} removed", path.display());
        sure(fs::write(&path, &bytes));
        sure(Bundle::open(&folder));
    }
}

/// Rewrites the manifest with its digest set right.
fn forge(folder: &Path, change: impl FnOnce(&mut super::Manifest)) {
    let path = folder.join("manifest.json");
    let mut manifest: super::Manifest = sure(serde_json::from_slice(&sure(fs::read(&path))));
    change(&mut manifest);
    sure(fs::write(&path, sure(manifest.sealed())));
}

#[test]
fn forged_manifests_are_refused() {
    type Change = fn(&mut super::Manifest);
    let changes: [(Change, &str); 6] = [
        (
            |manifest| {
                let entry = manifest.files["targets/cpu/program.ir"].clone();
                manifest.files.insert("../outside".to_string(), entry);
            },
            "leaves the folder",
        ),
        (
            |manifest| {
                let entry = manifest.files["targets/cpu/program.ir"].clone();
                manifest.files.insert("/etc/hostname".to_string(), entry);
            },
            "leaves the folder",
        ),
        (|manifest| manifest.weights[0].offset = u64::MAX, "does not lie in it"),
        (|manifest| manifest.weights.clear(), "no weight"),
        (|manifest| manifest.targets.clear(), "no target"),
        (|manifest| manifest.format = 0, "changed"),
    ];
    for (change, reason) in changes {
        let scratch = Scratch::new();
        let folder = scratch.join("model");
        sure(write(&folder, &graph(&scratch), &[]));
        forge(&folder, change);
        let Err(error) = Bundle::open(&folder) else { panic!("{reason}: taken") };
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn the_format_before_is_read() {
    let scratch = Scratch::new();
    let folder = scratch.join("model");
    sure(write(&folder, &graph(&scratch), &[]));
    forge(&folder, |manifest| manifest.format = 1);
    let manifest = sure(fs::read_to_string(folder.join("manifest.json")));
    assert!(!manifest.contains("launches") && !manifest.contains("kernels"));
    let bundle = sure(Bundle::open(&folder));
    sure(sure(Session::new(&bundle)).run(&inputs()));
}

#[test]
fn links_out_of_the_folder_are_refused() {
    let scratch = Scratch::new();
    let folder = scratch.join("model");
    sure(write(&folder, &graph(&scratch), &[]));
    let weights = folder.join(Bundle::WEIGHTS);
    sure(fs::rename(&weights, scratch.join("elsewhere")));
    sure(std::os::unix::fs::symlink("../elsewhere", &weights));
    let Err(error) = Bundle::open(&folder) else { panic!("taken") };
    assert!(error.to_string().contains("link"), "{error}");
}

#[test]
fn newer_formats_and_other_folders_are_named() {
    let scratch = Scratch::new();
    let folder = scratch.join("model");
    assert!(matches!(Bundle::open(&folder), Err(BundleError::Read { .. })));
    sure(fs::create_dir(&folder));
    assert!(matches!(Bundle::open(&folder), Err(BundleError::NotABundle(_))));
    let text = r#"{"format": 7, "producer": "membar 9", "anything": []}"#;
    sure(fs::write(folder.join("manifest.json"), text));
    let Err(BundleError::Newer { found: 7, producer, .. }) = Bundle::open(&folder) else {
        panic!("taken")
    };
    assert_eq!(producer, "membar 9");
}

#[test]
fn nothing_but_a_bundle_is_replaced_and_nothing_partial_remains() {
    let scratch = Scratch::new();
    let graph = graph(&scratch);
    let folder = scratch.join("mine");
    sure(fs::create_dir(&folder));
    sure(fs::write(folder.join("letter.txt"), "dear"));
    assert!(matches!(write(&folder, &graph, &[]), Err(BundleError::Occupied(_))));
    let file = scratch.join("file");
    sure(fs::write(&file, "text"));
    assert!(matches!(write(&file, &graph, &[]), Err(BundleError::Occupied(_))));
    // A weight that cannot be read: no folder appears.
    sure(fs::write(scratch.join("source.bin"), "short"));
    let target = scratch.join("model");
    assert!(matches!(write(&target, &graph, &[]), Err(BundleError::Weight(_))));
    let names: Vec<_> = contents(&scratch.0).into_keys().collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(!target.exists());
    let missing = scratch.join("no/such/folder");
    assert!(matches!(write(&missing, &graph, &[]), Err(BundleError::Write { .. })));
}
