//! Every kernel that is emitted for a fixture, compiled by NVRTC; no GPU is needed, and nothing runs.

use crate::fixture::{self, Fixture};
use crate::ptx::read_only_parameters;
use membar::codegen::nvrtc::Nvrtc;
use membar::compile::EMIT;
use membar::ir::NodeKind;
use membar::ir::program::{Argument, DeviceProgram, Kernel};
use membar::{CompileOptions, Graph, KernelOptions, Target, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

/// Compiled for these, each kernel of each fixture.
const TARGETS: [&str; 2] = ["sm_80", "sm_90a"];

/// Compiled for this, every so many kernels.
const SAMPLE: (&str, usize) = ("sm_100a", 8);

#[test]
fn every_kernel_of_every_fixture_compiles() {
    let Some(compiler) = Nvrtc::for_test("every_kernel_of_every_fixture_compiles") else { return };
    let mut faults = Vec::new();
    let mut checks = Vec::new();
    for target in TARGETS {
        let kernels = distinct_kernels(target, &mut checks, &mut faults);
        let count = kernels.len();
        let begin = Instant::now();
        faults.extend(compile(target, kernels.clone()));
        eprintln!("{target}: {count} kernels, {:.1} s", begin.elapsed().as_secs_f64());
        if target == TARGETS[1] {
            let sample = kernels.into_iter().step_by(SAMPLE.1).collect();
            faults.extend(compile(SAMPLE.0, sample));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    let faults = read_only_faults(compiler, &checks);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// A kernel, and the parameters that it must not read through the path which does not see what
/// another kernel has just written.
struct Check {
    kernel: Kernel,
    written: BTreeSet<usize>,
}

/// The kernels of all fixtures for a target, each once. A fixture that does not compile is a fault.
fn distinct_kernels(
    target: &str,
    checks: &mut Vec<Check>,
    faults: &mut Vec<String>,
) -> Vec<Kernel> {
    let target: Target = target.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut kernels: BTreeMap<String, Kernel> = BTreeMap::new();
    for name in fixture::names() {
        let fixture = Fixture::load(&name);
        let stop_after = Some(EMIT.to_string());
        let options = CompileOptions { target, stop_after, ..fixture.options() };
        let compiled = match membar::compile(fixture.graph.clone(), &options) {
            Ok(compiled) => compiled,
            Err(error) => {
                faults.push(format!("{name} for {target}: {error}"));
                continue;
            }
        };
        let Some(code) = compiled.code else { panic!("{name} has no program") };
        for (index, kernel) in code.program.kernels.iter().enumerate() {
            let is_new = kernels.insert(kernel.name.clone(), kernel.clone()).is_none();
            if is_new && target.to_string() == TARGETS[1] {
                let written = written_parameters(&compiled.graph, &code.program, index);
                checks.push(Check { kernel: kernel.clone(), written });
            }
        }
    }
    kernels.into_values().collect()
}

/// The positions of a kernel's arguments that are no weights and not the dimension block.
fn written_parameters(graph: &Graph, program: &DeviceProgram, kernel: usize) -> BTreeSet<usize> {
    let mut written = BTreeSet::new();
    for step in &program.steps {
        let node = graph.node(graph.schedule[step.position as usize]);
        for launch in step.launches.iter().filter(|l| l.kernel.0 as usize == kernel) {
            for (index, argument) in launch.arguments.iter().enumerate() {
                let is_written = match argument {
                    Argument::Operand(operand) => {
                        let producer = graph.value(node.operands()[*operand as usize]).producer();
                        !matches!(graph.node(producer).kind, NodeKind::Weight(_))
                    }
                    Argument::Output(_) | Argument::Workspace(_) | Argument::Faults => true,
                    Argument::Dims
                    | Argument::U32(_)
                    | Argument::I64(_)
                    | Argument::TensorMap(_) => false,
                };
                if is_written {
                    written.insert(index);
                }
            }
        }
    }
    written
}

/// Compiles over processes of `membar`, with a cache that outlives the test.
fn compile(target: &str, kernels: Vec<Kernel>) -> Vec<String> {
    let program = DeviceProgram {
        target: target.to_string(),
        symbols: Vec::new(),
        kernels,
        steps: Vec::new(),
    };
    let worker = Worker {
        program: env!("CARGO_BIN_EXE_membar").into(),
        arguments: vec!["compile-kernels".into()],
    };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    let options = KernelOptions { jobs: 0, cache: Some(cache), worker: Some(worker) };
    match membar::codegen::compile_kernels(&program, &options) {
        Ok(cubins) => {
            assert_eq!(cubins.len(), program.kernels.len());
            Vec::new()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Only kernels whose source could make the compiler choose that path are compiled again: NVRTC does
/// so for pointers that are both `const` and `__restrict__`, and for explicit loads.
fn read_only_faults(compiler: Nvrtc, checks: &[Check]) -> Vec<String> {
    let mut faults = Vec::new();
    for Check { kernel, written } in checks {
        let text = without_comments(&kernel.source);
        if !["__restrict__", "__ldg", ".nc"].iter().any(|word| text.contains(word)) {
            continue;
        }
        let compiled = match compiler.compile_both(&kernel.name, &kernel.source, TARGETS[1]) {
            Ok(compiled) => compiled,
            Err(error) => {
                faults.push(error.to_string());
                continue;
            }
        };
        let read = read_only_parameters(&compiled.ptx);
        let wrong: Vec<&usize> = read.intersection(written).collect();
        if !wrong.is_empty() {
            faults.push(format!("{}: parameters {wrong:?} are read by ld.global.nc", kernel.name));
        }
    }
    faults
}

fn without_comments(source: &str) -> String {
    source
        .lines()
        .map(|line| line.split("//").next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_read_only_load_of_an_activation_is_seen() {
    let Some(compiler) = Nvrtc::for_test("a_read_only_load_of_an_activation_is_seen") else {
        return;
    };
    let source = "extern \"C\" __global__ void f(const float* __restrict__ x, float* __restrict__ y) \
                  { y[threadIdx.x] = x[threadIdx.x]; }";
    let compiled = compiler.compile_both("f", source, TARGETS[1]).expect("it compiles");
    assert_eq!(read_only_parameters(&compiled.ptx), BTreeSet::from([0]));
    let kernel = Kernel { name: "f".to_string(), source: source.to_string() };
    let check = |written: [usize; 1]| Check { kernel: kernel.clone(), written: written.into() };
    assert_eq!(read_only_faults(compiler, &[check([0])]).len(), 1);
    assert!(read_only_faults(compiler, &[check([1])]).is_empty());
}
