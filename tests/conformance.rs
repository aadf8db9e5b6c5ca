//! The ONNX node tests whose operators and element types Membar takes, each a test of its own, on the
//! CPU or on the device that `MEMBAR_TEST_DEVICE` names. `conformance/not_passing.txt`
//! lists every one that does not pass on the CPU with its reason; a listed one that passes fails, and
//! so does an unlisted one that does not.

mod support;

use anyhow::{Context, bail, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use membar::{CompileOptions, ImportOptions, Session, Tensor};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const NOT_PASSING: &str = include_str!("conformance/not_passing.txt");

/// The operators in scope: what README promises.
const OPERATORS: &str = include_str!("conformance/operators.txt");

/// At least this share of the tests in scope must pass.
const REQUIRED_SHARE: f64 = 0.98;

fn main() -> ExitCode {
    let names = || {
        let listed = listed()?;
        let passes = |case: &Case| !listed.contains_key(case.name.as_str());
        let cases = cases()?.into_iter().filter(passes);
        Ok(cases.map(|case| format!("node::{}", case.name)).collect())
    };
    let run_named = |name: &str| {
        let name = name.strip_prefix("node::").unwrap_or(name);
        run(&folder().join(name))
    };
    if let Some(code) = support::shards::run("conformance", &names, &run_named) {
        return code;
    }
    let arguments = Arguments::from_args();
    match collect() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A node test in scope.
struct Case {
    name: String,
    folder: PathBuf,
}

fn folder() -> PathBuf {
    support::target().join("node-tests").join("node")
}

fn cases() -> anyhow::Result<Vec<Case>> {
    let folder = folder();
    let entries = std::fs::read_dir(&folder)
        .with_context(|| format!("{}: run `cargo xtask setup`", folder.display()))?;
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.is_dir()).collect();
    folders.sort();
    let mut cases = Vec::new();
    for folder in folders {
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if is_in_scope(&name, &folder)? {
            cases.push(Case { name, folder });
        }
    }
    Ok(cases)
}

fn collect() -> anyhow::Result<Vec<Trial>> {
    let listed = listed()?;
    let mut unknown: BTreeSet<&str> = listed.keys().copied().collect();
    let mut in_scope = 0;
    let mut trials = Vec::new();
    for Case { name, folder } in cases()? {
        in_scope += 1;
        unknown.remove(name.as_str());
        let reason = listed.get(name.as_str()).copied();
        trials.push(Trial::test(format!("node::{name}"), move || judge(&folder, reason)));
    }
    ensure!(unknown.is_empty(), "not_passing.txt lists tests that do not exist: {unknown:?}");
    let share = 1.0 - listed.len() as f64 / in_scope as f64;
    eprintln!("{in_scope} node tests in scope, {} of them listed as not passing", listed.len());
    trials.push(Trial::test("required_share", move || {
        if share >= REQUIRED_SHARE {
            return Ok(());
        }
        Err(Failed::from(format!("{:.1} % pass, expected 98 %", 100.0 * share)))
    }));
    Ok(trials)
}

fn listed() -> anyhow::Result<BTreeMap<&'static str, &'static str>> {
    let lines = NOT_PASSING.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(": ").with_context(|| format!("`{line}` has no reason")))
        .collect()
}

/// All operators are in the list, all element types are Membar's, and it is no expansion of
/// another test or a training-mode dropout.
fn is_in_scope(name: &str, case: &Path) -> anyhow::Result<bool> {
    let operators: BTreeSet<&str> = OPERATORS.split_whitespace().collect();
    if name.contains("_expanded") || name.starts_with("test_training_dropout") {
        return Ok(false);
    }
    let model = match membar::onnx::Model::load(case.join("model.onnx")) {
        Ok(model) => model,
        // A damaged or unknown model counts: it must be listed.
        Err(_) => return Ok(true),
    };
    let known = |value: &membar::onnx::ValueInfo| match &value.value_type {
        membar::onnx::ValueType::Tensor { element_type, .. } => {
            matches!(element_type, membar::onnx::ElementType::Supported(_))
        }
        membar::onnx::ValueType::Other(_) | membar::onnx::ValueType::Unknown => false,
    };
    Ok(model.graph.nodes.iter().all(|node| operators.contains(node.op_type.as_str()))
        && model.graph.inputs.iter().chain(&model.graph.outputs).all(known))
}

fn judge(case: &Path, reason: Option<&str>) -> Result<(), Failed> {
    let result = catch_unwind(AssertUnwindSafe(|| run(case))).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        bail!("panicked: {}", message.unwrap_or_default())
    });
    match (result, reason) {
        (Ok(()), None) => Ok(()),
        (Err(error), None) => Err(Failed::from(format!("{error:#}"))),
        (Ok(()), Some(_)) => Err(Failed::from("passes, but not_passing.txt lists it")),
        (Err(_), Some(_)) => Ok(()),
    }
}

#[derive(Deserialize)]
struct Bounds {
    rtol: f64,
    atol: f64,
}

fn run(case: &Path) -> anyhow::Result<()> {
    let bounds: Bounds = serde_json::from_str(&std::fs::read_to_string(case.join("data.json"))?)?;
    let path = case.join("model.onnx");
    let model = membar::onnx::Model::load(&path)?;
    let input_names: Vec<String> =
        model.graph.inputs.iter().map(|input| input.name.clone()).collect();
    let output_names: Vec<String> =
        model.graph.outputs.iter().map(|output| output.name.clone()).collect();
    for number in 0.. {
        let folder = case.join(format!("test_data_set_{number}"));
        if !folder.exists() {
            ensure!(number > 0, "there is no data set");
            break;
        }
        let inputs = read_all(&folder, "input", &input_names)?;
        let expected = read_all(&folder, "output", &output_names)?;
        let (mut session, inputs) = session_of(&path, inputs, &input_names)?;
        let found = session.run(&inputs)?;
        for (name, tensor) in &expected {
            let out = found.get(name).with_context(|| format!("no output `{name}`"))?;
            // The tests' bounds are for f32; a narrower result is right to a unit or two in its
            // last place.
            let rtol = bounds.rtol.max(2.0 * support::epsilon(tensor.dtype()));
            support::all_close(out, tensor, bounds.atol, rtol)
                .map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        }
    }
    Ok(())
}

/// Whether an input of that name and value may be bound.
type MayBind<'a> = &'a dyn Fn(&str, &Tensor) -> bool;

/// A session, and the inputs that it takes. Where the model needs constants for axes, shapes and
/// pads, the inputs that may be such are bound to their values, the first one last.
fn session_of(
    path: &Path,
    inputs: BTreeMap<String, Tensor>,
    names: &[String],
) -> anyhow::Result<(Session, BTreeMap<String, Tensor>)> {
    let may_bind: [MayBind<'_>; 3] = [
        &|_, _| false,
        &|name, tensor| Some(name) != names.first().map(String::as_str) && is_small(tensor),
        &|_, tensor| is_small(tensor),
    ];
    let is_gpu = support::device::is_gpu()?;
    let mut result = Err(anyhow::anyhow!("there are no inputs to bind"));
    for bind in may_bind {
        let (bound, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            inputs.clone().into_iter().partition(|(name, tensor)| bind(name, tensor));
        result = session(path, &bound).map(|session| (session, rest));
        if result.is_ok() {
            break;
        }
    }
    // What compiles for the CPU must compile for the GPU.
    let (cpu, rest) = result?;
    if !is_gpu {
        return Ok((cpu, rest));
    }
    let kept: BTreeSet<&String> = rest.keys().collect();
    let bound = inputs.iter().filter(|(name, _)| !kept.contains(name));
    let bound = bound.map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    let options = ImportOptions { bound, ..ImportOptions::default() };
    let graph = membar::load_model(path, &options)?;
    Ok((support::device::session(graph, &CompileOptions::default())?, rest))
}

fn session(path: &Path, bound: &BTreeMap<String, Tensor>) -> anyhow::Result<Session> {
    let options = ImportOptions { bound: bound.clone(), ..ImportOptions::default() };
    let graph = membar::load_model(path, &options)?;
    Ok(membar::compile(graph, &CompileOptions::default())?.session()?)
}

/// Whether a tensor may be axes, a shape or the like.
fn is_small(tensor: &Tensor) -> bool {
    tensor.shape().len() <= 1 && tensor.elements() <= 8
}

fn read_all(
    folder: &Path,
    kind: &str,
    names: &[String],
) -> anyhow::Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let path = folder.join(format!("{kind}_{index}.pb"));
        if path.exists() {
            let tensor =
                membar::onnx::read_tensor(&path).with_context(|| path.display().to_string())?;
            tensors.insert(name.clone(), tensor);
        }
    }
    Ok(tensors)
}
