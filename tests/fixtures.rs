//! Every model in `tests/fixtures`, with every data set, through `membar run` on the CPU, or through
//! the library on the device that `MEMBAR_TEST_DEVICE` names. Each is a test of its own; a model that
//! cannot run fails, and a trained model that is not run yet is reported by name with the reason. The
//! models run again at `--precision bf16` and `f16`, with bounds that follow from the type.

mod support;

use anyhow::{Context, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use membar::ir::types::ConcreteType;
use membar::tensor_files::{self, Tensors};
use membar::{CompileOptions, DType, ImportOptions, Precision, Range, Tensor};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// How many roundings of the greatest element an output in a narrow type may be off.
const ROUNDINGS: f64 = 8.0;

/// Models that round activations to 8 bits inside: a rounding before that may move a number by one
/// step of 1 / 254 of its row's greatest, whatever the type.
const EIGHT_BITS_INSIDE: &[&str] = &["llama3_genai_int4"];
const EIGHT_BIT_STEP: f64 = 1.0 / 254.0;

/// Models that send each token to the experts whose scores are greatest: where two scores are a rounding
/// apart, a narrow type may choose the other expert, and that token's row is another. One row of so many
/// may be.
const ROUTED: &[&str] = &["mixtral_batched_mm_dynamo"];
const ROWS: usize = 8;

/// What a fixture's `meta.json` says that matters here.
#[derive(Deserialize)]
struct Meta {
    #[serde(default = "default_atol")]
    atol: f64,
    #[serde(default = "default_rtol")]
    rtol: f64,
}

fn default_atol() -> f64 {
    1e-4
}

fn default_rtol() -> f64 {
    1e-3
}

fn main() -> ExitCode {
    let names = || Ok(data_sets()?.into_iter().map(|data_set| data_set.name).collect());
    if let Some(code) = support::shards::run("fixtures", &names, &run_named) {
        return code;
    }
    let arguments = Arguments::from_args();
    let trials = match collect() {
        Ok(trials) => trials,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn collect() -> anyhow::Result<Vec<Trial>> {
    let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
    let mut trials: Vec<Trial> = data_sets()?
        .into_iter()
        .map(|data_set| Trial::test(data_set.name.clone(), move || data_set.run().map_err(failed)))
        .collect();
    ensure!(trials.len() > 80, "only {} data sets found", trials.len());
    trials.push(Trial::test("caches_of_different_lengths_are_refused", move || {
        caches_of_different_lengths_are_refused().map_err(failed)
    }));
    Ok(trials)
}

fn run_named(name: &str) -> anyhow::Result<()> {
    let found = data_sets()?.into_iter().find(|data_set| data_set.name == name);
    found.with_context(|| format!("there is no data set `{name}`"))?.run()
}

/// Inputs and outputs of a model.
#[derive(Clone)]
struct DataSet {
    name: String,
    precision: Precision,
    model: PathBuf,
    inputs: PathBuf,
    expected: PathBuf,
    atol: f64,
    rtol: f64,
}

fn data_sets() -> anyhow::Result<Vec<DataSet>> {
    let mut found = Vec::new();
    for folder in folders("tests/fixtures/models")? {
        let model = folder.join("model.onnx");
        add_data_sets(&mut found, "models", &folder, &model)?;
    }
    for (word, precision) in [("bf16", Precision::Bf16), ("f16", Precision::F16)] {
        let again = found.iter().filter(|data_set| data_set.precision == Precision::Model);
        let again = again.map(|data_set| {
            let name = format!("{word}::{}", data_set.name);
            DataSet { name, precision, ..data_set.clone() }
        });
        found.extend(again.collect::<Vec<DataSet>>());
    }
    for folder in folders("tests/fixtures/trained")? {
        let name = file_name(&folder);
        let model = support::trained_model(&name);
        let staged = support::is_staged() && !model.exists();
        let reason = staged.then_some("its model was not brought here");
        if let Some(reason) = support::not_run(&name).or(reason) {
            eprintln!("skipped: trained::{name}: {reason}");
            continue;
        }
        add_data_sets(&mut found, "trained", &folder, &model)?;
    }
    Ok(found)
}

fn add_data_sets(
    found: &mut Vec<DataSet>,
    kind: &str,
    folder: &Path,
    model: &Path,
) -> anyhow::Result<()> {
    let meta = folder.join("meta.json");
    let text = std::fs::read_to_string(&meta).with_context(|| meta.display().to_string())?;
    let meta: Meta = serde_json::from_str(&text).with_context(|| meta.display().to_string())?;
    for number in 1.. {
        let suffix = if number == 1 { String::new() } else { format!("_{number}") };
        let inputs = folder.join(format!("inputs{suffix}.npz"));
        if !inputs.exists() {
            break;
        }
        found.push(DataSet {
            name: format!("{kind}::{}::{number}", file_name(folder)),
            precision: Precision::Model,
            model: model.to_path_buf(),
            inputs,
            expected: folder.join(format!("outputs{suffix}.npz")),
            atol: meta.atol,
            rtol: meta.rtol,
        });
    }
    Ok(())
}

/// As [`support::all_close`], but for one row in [`ROWS`] of those along the innermost dimension.
fn most_rows_close(found: &Tensor, expected: &Tensor, atol: f64, rtol: f64) -> Result<(), String> {
    let width = expected.shape().last().copied().unwrap_or(1).max(1);
    let row = |tensor: &Tensor, row: usize| {
        let numbers = (row * width..(row + 1) * width).map(|index| tensor.get(index));
        let ty = ConcreteType { dtype: tensor.dtype(), shape: vec![width] };
        Tensor::from_numbers(ty, numbers).map_err(|error| error.to_string())
    };
    if found.ty() != expected.ty() {
        return Err(format!("{} instead of {}", found.ty(), expected.ty()));
    }
    let rows = expected.elements() / width;
    let mut faults = Vec::new();
    for index in 0..rows {
        let (found, expected) = (row(found, index)?, row(expected, index)?);
        let result = support::all_close(&found, &expected, atol, rtol);
        faults.extend(result.err().map(|error| format!("row {index}: {error}")));
    }
    if faults.len() <= rows / ROWS { Ok(()) } else { Err(faults.join("; ")) }
}

impl DataSet {
    fn run(&self) -> anyhow::Result<()> {
        let model = self.model.display();
        ensure!(self.model.exists(), "{model} is missing: run `cargo xtask fetch`");
        let by_command = self.precision == Precision::Model && !support::device::is_gpu()?;
        let found = if by_command { self.by_command()? } else { self.by_library()? };
        let expected: Tensors = tensor_files::read(&self.expected)?;
        let names = |tensors: &BTreeMap<String, _>| tensors.keys().cloned().collect::<Vec<_>>();
        ensure!(
            names(&found) == names(&expected),
            "outputs {:?}, expected {:?}",
            names(&found),
            names(&expected)
        );
        let faults: Vec<String> = expected
            .iter()
            .filter_map(|(name, tensor)| {
                let (atol, rtol) = self.bounds(tensor);
                let result = match self.may_take_other_experts() {
                    true => most_rows_close(&found[name], tensor, atol, rtol),
                    false => support::all_close(&found[name], tensor, atol, rtol),
                };
                result.err().map(|e| format!("{name}: {e}"))
            })
            .collect();
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        Ok(())
    }

    /// Whether a rounding can change which experts a token goes to, and so all of its result.
    fn may_take_other_experts(&self) -> bool {
        let narrow = matches!(self.precision, Precision::Bf16 | Precision::F16);
        narrow && ROUTED.iter().any(|model| self.name.contains(model))
    }

    /// Absolute and relative bounds for an output. In a narrow type every value is a rounding off,
    /// and a row of products adds values of all signs, so errors are measured by the output's
    /// greatest element.
    fn bounds(&self, expected: &Tensor) -> (f64, f64) {
        let epsilon = match self.precision {
            Precision::Model | Precision::F32 | Precision::Tf32 => return (self.atol, self.rtol),
            Precision::Bf16 => support::epsilon(DType::Bf16),
            Precision::F16 => support::epsilon(DType::F16),
        };
        let quantises = EIGHT_BITS_INSIDE.iter().any(|model| self.name.contains(model));
        let epsilon = if quantises { epsilon.max(EIGHT_BIT_STEP) } else { epsilon };
        let magnitudes = expected.numbers().map(|x| x.to_float().abs()).filter(|x| x.is_finite());
        let atol = self.atol + ROUNDINGS * epsilon * magnitudes.fold(0.0, f64::max);
        (atol, self.rtol)
    }

    fn by_command(&self) -> anyhow::Result<Tensors> {
        let folder = tempfile::tempdir()?;
        let outputs = folder.path().join("outputs.safetensors");
        let result = Command::new(env!("CARGO_BIN_EXE_membar"))
            .arg("run")
            .arg(&self.model)
            .args([Path::new("--inputs"), &self.inputs, Path::new("--outputs"), &outputs])
            .args(["--device", "cpu"])
            .output()?;
        let stderr = String::from_utf8_lossy(&result.stderr);
        ensure!(result.status.success(), "{}\n{stderr}", result.status);
        Ok(tensor_files::read(&outputs)?)
    }

    /// As `membar run` does: compiled for exactly the sizes of the inputs.
    fn by_library(&self) -> anyhow::Result<Tensors> {
        let graph = membar::load_model(&self.model, &ImportOptions::default())?;
        let inputs = tensor_files::read(&self.inputs)?;
        let mut options = CompileOptions { precision: self.precision, ..Default::default() };
        for (symbol, value) in membar::bind(&graph, &inputs)? {
            options.dims.insert(symbol, Range::new(value, value));
        }
        Ok(support::device::session(graph, &options)?.run(&inputs)?)
    }
}

/// The new rows of a cache stand behind it, so sequences of one batch must be equally long; others
/// would give wrong numbers.
fn caches_of_different_lengths_are_refused() -> anyhow::Result<()> {
    let fixture = support::root().join("tests/fixtures/models/ms_gqa_packed_rotary");
    let mut inputs = tensor_files::read(&fixture.join("inputs_2.npz"))?;
    inputs.insert("sl".to_string(), membar::Tensor::from_elements(&[2], &[6i32, 4])?);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("inputs.npz");
    tensor_files::write(&path, &inputs)?;
    let result = Command::new(env!("CARGO_BIN_EXE_membar"))
        .arg("run")
        .arg(fixture.join("model.onnx"))
        .args([Path::new("--inputs"), &path])
        .output()?;
    let stderr = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.code() == Some(1), "{}\n{stderr}", result.status);
    ensure!(stderr.contains("GroupQueryAttention"), "{stderr}");
    Ok(())
}

fn folders(path: &str) -> anyhow::Result<Vec<PathBuf>> {
    let root = support::root().join(path);
    let entries = std::fs::read_dir(&root).with_context(|| root.display().to_string())?;
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
