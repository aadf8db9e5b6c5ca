//! Bundles with targets for GPUs: written, read, forged; no GPU is needed, and no cubin is real.

use super::{Scratch, contents, forge, graph, inputs, passes};
use crate::bundle::{Bundle, BundleError, FileEntry, TargetSource, write_targets};
use crate::cpu::testing::sure;
use crate::session::Session;
use membar_ir::architecture::Architecture;
use membar_ir::graph::Graph;
use membar_ir::kernel::Promise;
use membar_ir::program::{Argument, DeviceProgram, Kernel, KernelId, Launch, Step, TensorMap};
use membar_ir::schedule::{Mechanism, Order, Reason};
use membar_ir::topology::Topology;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The graph as one of a GPU, in the order of its schedule.
fn on_gpu(scratch: &Scratch, topology: &str) -> Graph {
    let mut graph = graph(scratch);
    graph.topology = Topology::builtin(topology).map(Arc::new);
    let is_op = |id: &&membar_ir::NodeId| graph.node(**id).op().is_some();
    let ops: Vec<membar_ir::NodeId> = graph.schedule.iter().filter(is_op).copied().collect();
    for id in &ops {
        graph.node_mut(*id).step = Some(Promise::default());
    }
    for pair in ops.windows(2) {
        graph.orders.push(Order {
            before: pair[0],
            after: pair[1],
            reason: Reason::Linearise,
            mechanism: Mechanism::Edge,
        });
    }
    graph
}

fn program(graph: &Graph, target: &str) -> DeviceProgram {
    let is_op = |(_, id): &(usize, &membar_ir::NodeId)| graph.node(**id).op().is_some();
    let step = |(position, _): (usize, &membar_ir::NodeId)| Step {
        position: position as u32,
        launches: vec![Launch {
            kernel: KernelId(0),
            grid: [108, 1, 1],
            block: [128, 1, 1],
            cluster: 1,
            shared_bytes: 0,
            arguments: vec![Argument::Dims, Argument::Output(0), Argument::U32(7)],
        }],
    };
    let kernel = |name: &str| Kernel { name: name.into(), source: "// source".into() };
    DeviceProgram {
        target: target.to_string(),
        symbols: graph.symbols.keys().cloned().collect(),
        kernels: vec![kernel("first"), kernel("second")],
        steps: graph.schedule.iter().enumerate().filter(is_op).map(step).collect(),
    }
}

/// A bundle for the CPU, an A100 and an H200.
fn write(scratch: &Scratch, folder: &Path) {
    let (cpu, a100, h200) = (graph(scratch), on_gpu(scratch, "a100"), on_gpu(scratch, "h200"));
    let cubins: Vec<Arc<[u8]>> = [&b"\x7fELF first"[..], b"\x7fELF second"].map(Arc::from).into();
    let programs = [program(&a100, "sm_80"), program(&h200, "sm_90a")];
    let targets = [
        TargetSource { name: "cpu", graph: &cpu, code: None },
        TargetSource { name: "sm_80", graph: &a100, code: Some((&programs[0], &cubins)) },
        TargetSource { name: "sm_90a", graph: &h200, code: Some((&programs[1], &cubins)) },
    ];
    sure(write_targets(folder, &targets, &passes()));
}

#[test]
fn every_target_comes_back_and_shares_the_weights() {
    let scratch = Scratch::new();
    let folders = [scratch.join("a"), scratch.join("b")];
    for folder in &folders {
        write(&scratch, folder);
    }
    let [a, b] = folders.each_ref().map(|folder| contents(folder));
    assert!(a.values().eq(b.values()));
    let bundle = sure(Bundle::open(&folders[0]));
    assert_eq!(bundle.manifest().weights.len(), 5);
    let expected = program(&bundle.targets()["sm_90a"].graph, "sm_90a");
    let code = bundle.targets()["sm_90a"].code.as_ref();
    assert_eq!(code.map(|code| &code.program.steps), Some(&expected.steps));
    assert_eq!(code.map(|code| &code.program.symbols), Some(&expected.symbols));
    assert_eq!(code.map(|code| code.cubins[1].as_ref()), Some(&b"\x7fELF second"[..]));
    // The CPU's program is that of a bundle without GPUs.
    sure(sure(Session::new(&bundle)).run(&inputs()));
}

#[test]
fn devices_get_the_best_target_that_they_run() {
    let scratch = Scratch::new();
    let folder = scratch.join("model");
    write(&scratch, &folder);
    let bundle = sure(Bundle::open(&folder));
    let best = |capability| -> Option<Architecture> {
        Some(bundle.target_for(capability)?.code.as_ref()?.architecture)
    };
    let named = |name: &str| name.parse().ok();
    assert_eq!(best((9, 0)), named("sm_90a"));
    assert_eq!(best((8, 0)), named("sm_80"));
    assert_eq!(best((8, 9)), named("sm_80"));
    assert_eq!(best((10, 0)), None);
    assert_eq!(best((7, 5)), None);
}

/// Writes a file anew, and its entry in the manifest.
fn replace(folder: &Path, name: &str, change: impl FnOnce(&str) -> String) {
    let text = sure(fs::read_to_string(folder.join(name)));
    let changed = change(&text);
    assert_ne!(text, changed, "{name} did not change");
    sure(fs::write(folder.join(name), &changed));
    forge(folder, |manifest| {
        manifest.files.insert(name.to_string(), FileEntry::of(changed.as_bytes()));
    });
}

fn sure_entry(manifest: &mut crate::bundle::Manifest) -> &mut crate::bundle::TargetEntry {
    manifest.targets.get_mut("sm_90a").unwrap_or_else(|| panic!("there is no such target"))
}

#[test]
fn forged_targets_are_refused() {
    const TABLE: &str = "targets/sm_90a/launches.json";
    type Change = fn(&Path);
    let changes: &[(Change, &str)] = &[
        (|f| replace(f, TABLE, |t| t.replace("sm_90a", "sm_80")), "it is for sm_80"),
        (|f| replace(f, TABLE, |t| t.replacen("\"kernel\":0", "\"kernel\":2", 1)), "no kernel 2"),
        (|f| replace(f, TABLE, |t| t.replacen("\"Output\":0", "\"Output\":9", 1)), "none at 9"),
        (|f| replace(f, TABLE, |t| t.replacen("108", "0", 1)), "not possible"),
        (|f| replace(f, TABLE, |t| t.replacen("128", "99999999999", 1)), "not a launch table"),
        (|f| replace(f, TABLE, |t| t.replacen("\"first\"", "\"../x\"", 1)), "name of a function"),
        (|f| replace(f, TABLE, |t| t.replacen("[\"B\"]", "[\"B\", \"C\"]", 1)), "no symbol"),
        (|f| replace(f, TABLE, |t| t.replacen("{", "{\"more\":1,", 1)), "not a launch table"),
        (|f| replace(f, TABLE, |t| "[".repeat(t.len())), "not a launch table"),
        (
            |f| {
                replace(f, TABLE, |t| {
                    let start = t.find("\"position\":").unwrap_or(0);
                    t.replacen(&t[start..start + 13], "\"position\":0,", 1)
                })
            },
            "no operator",
        ),
        (
            |f| replace(f, "targets/sm_90a/kernels/first.cubin", |t| t.replace("ELF", "elf")),
            "not a cubin",
        ),
        (
            |f| replace(f, "targets/sm_90a/program.ir", |t| t.replace("B in 1..=4", "B in 1..=3")),
            "not those of the manifest",
        ),
        (|f| forge(f, |m| sure_entry(m).kernels.clear()), "2 kernels, the manifest 0"),
        (|f| forge(f, |m| sure_entry(m).launches = None), "has no launches"),
        (|f| forge(f, |m| sure_entry(m).kernels[1] = "../x".into()), "lists no such file"),
        (
            |f| {
                forge(f, |m| {
                    let entry = m.targets["sm_90a"].clone();
                    m.targets.insert("../sm_90a".into(), entry);
                })
            },
            "not an architecture",
        ),
        (
            |f| {
                forge(f, |m| {
                    let entry = m.targets["sm_90a"].clone();
                    m.targets.insert("cpu".into(), entry);
                })
            },
            "has kernels",
        ),
    ];
    for (change, reason) in changes {
        let scratch = Scratch::new();
        let folder = scratch.join("model");
        write(&scratch, &folder);
        change(&folder);
        let Err(error) = Bundle::open(&folder) else { panic!("{reason}: taken") };
        assert!(matches!(error, BundleError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
}

#[test]
fn tensor_maps_beyond_their_tensor_are_refused() {
    let scratch = Scratch::new();
    let folder = scratch.join("model");
    let gpu = on_gpu(&scratch, "h200");
    let mut program = program(&gpu, "sm_90a");
    let map = TensorMap {
        base: Box::new(Argument::Output(0)),
        dtype: membar_ir::DType::F32,
        extents: vec![1 << 30],
        strides: Vec::new(),
        box_extents: vec![64],
        swizzle: 0,
    };
    program.steps[0].launches[0].arguments.push(Argument::TensorMap(map));
    let cubins: Vec<Arc<[u8]>> = vec![Arc::from(&b"\x7fELF"[..]); 2];
    let target = TargetSource { name: "sm_90a", graph: &gpu, code: Some((&program, &cubins)) };
    sure(write_targets(&folder, &[target], &[]));
    let Err(error) = Bundle::open(&folder) else { panic!("taken") };
    assert!(error.to_string().contains("leaves its tensor"), "{error}");
}
