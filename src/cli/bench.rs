//! `membar bench`: how fast a model or a bundle runs, and how fast the machine would allow; never a
//! run whose inputs change between repetitions.

use super::arguments::{Bench, CompileArguments, Execution};
use super::report::{bytes, is_launch, library_of, types};
use super::{Terminal, execution};
use anyhow::Context;
use membar::ir::DType;
use membar::ir::dim::{Bindings, Dim, DimError};
use membar::ir::graph::NodeKind;
use membar::ir::topology::{DeviceKind, Topology};
use membar::tensor_files::Tensors;
use membar::{Graph, RunOptions, Session};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// The seed of inputs that are not given.
const SEED: u64 = 1;

/// Runs the command.
pub fn run(command: &Bench, terminal: &Terminal) -> anyhow::Result<()> {
    let execution = complete(&command.execution);
    let (mut session, inputs) = execution::open(&execution, terminal)?;
    let options = RunOptions::default();
    let mut once = || -> anyhow::Result<f64> {
        let begin = Instant::now();
        session.run_with(&inputs, &options).map_err(membar::Error::from)?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    for _ in 0..command.warmup {
        once()?;
    }
    let mut times = Vec::new();
    for _ in 0..command.reps {
        times.push(once()?);
    }
    times.sort_by(f64::total_cmp);
    let on_device = device_times(&mut session, &inputs, command.reps)?;
    let graph = session.graph();
    let bindings = membar::bind(graph, &inputs).map_err(membar::Error::from)?;
    let topology = machine(graph, &execution.options)?;
    let work = Work::of(graph, &bindings).context("the size of a value")?;
    let kind = device_kind(graph, &topology);
    let report = Report::new(&times, on_device.as_ref(), &work, &topology, kind);
    if terminal.json {
        return terminal.data(&serde_json::to_string_pretty(&report)?);
    }
    terminal.data(&report.text())
}

/// How long runs take on a device without copies, if the session is on one.
fn device_times(
    session: &mut Session,
    inputs: &Tensors,
    reps: u32,
) -> anyhow::Result<Option<DeviceTime>> {
    if session.cuda().is_none() {
        return Ok(None);
    }
    // States stay as they are: what is measured is one run again and again.
    session.reset();
    session.feed(inputs).map_err(membar::Error::from)?;
    let Some(mut cuda) = session.cuda() else { return Ok(None) };
    let timing = cuda.measure(reps as usize).map_err(membar::Error::from)?;
    let launches = cuda.launch_count();
    let mut milliseconds: Vec<f64> = timing.device.iter().map(|time| time / 1e3).collect();
    milliseconds.sort_by(f64::total_cmp);
    Ok(Some(DeviceTime {
        median_ms: quantile(&milliseconds, 0.5),
        p10_ms: quantile(&milliseconds, 0.1),
        p99_ms: quantile(&milliseconds, 0.99),
        launch_ms: timing.host_median() / 1e3,
        launches,
    }))
}

/// Inputs that are not given are drawn at random.
fn complete(execution: &Execution) -> Execution {
    let mut execution = execution.clone();
    execution.random_inputs.get_or_insert(SEED);
    execution
}

/// The machine that the floor is computed for: the one that was asked for, that of the GPU which
/// the graph was compiled for, else this one.
fn machine(graph: &Graph, options: &CompileArguments) -> anyhow::Result<Arc<Topology>> {
    match (&options.topology, &graph.topology) {
        (Some(_), Some(topology)) => Ok(topology.clone()),
        (None, Some(topology)) if device_kind(graph, topology) == DeviceKind::Gpu => {
            Ok(topology.clone())
        }
        _ => {
            Ok(Arc::new(membar::this_machine().context("the built-in topology `cpu` is damaged")?))
        }
    }
}

/// What a graph is placed on.
fn device_kind(graph: &Graph, topology: &Topology) -> DeviceKind {
    let device = graph.nodes().find_map(|id| graph.node(id).device);
    let device = device.and_then(|device| topology.device(device));
    device.map_or(DeviceKind::Cpu, |device| device.kind)
}

/// What one run does, by the operators' own account.
#[derive(Debug, Default, PartialEq)]
struct Work {
    launches: usize,
    /// Arithmetic operations by element type.
    operations: BTreeMap<DType, f64>,
    /// Bytes that the launches read and write, whether memory or a cache serves them.
    bytes: f64,
    /// Bytes of weights, inputs and outputs: what must move once even if all else stays on chip.
    compulsory_bytes: f64,
}

impl Work {
    fn of(graph: &Graph, bindings: &Bindings) -> Result<Work, DimError> {
        let size = |value| -> Result<f64, DimError> {
            let ty = graph.ty(value);
            let mut bits = ty.dtype.bits() as f64;
            for dim in &ty.shape {
                bits *= dim.evaluate(bindings)? as f64;
            }
            Ok((bits / 8.0).ceil())
        };
        let mut work = Work::default();
        let library = library_of(graph);
        let mut compulsory: BTreeSet<_> = graph.outputs().iter().map(|o| o.value).collect();
        for id in graph.nodes() {
            let node = graph.node(id);
            match &node.kind {
                NodeKind::Input | NodeKind::Weight(_) => compulsory.extend(node.outputs()),
                NodeKind::Op(_) if !is_launch(graph, id, library.as_ref()) => {}
                NodeKind::Op(op) => {
                    work.launches += 1;
                    let (operands, outputs) =
                        (types(graph, node.operands()), types(graph, node.outputs()));
                    let operations: Dim = op.operations(&operands, &outputs);
                    let first = operands.iter().chain(&outputs).next();
                    let dtype = first.map_or(DType::F32, |ty| ty.dtype);
                    *work.operations.entry(dtype).or_default() +=
                        operations.evaluate(bindings)? as f64;
                    for value in node.operands().iter().chain(node.outputs()) {
                        work.bytes += size(*value)?;
                    }
                }
            }
        }
        for value in compulsory {
            work.compulsory_bytes += size(value)?;
        }
        Ok(work)
    }

    fn total_operations(&self) -> f64 {
        self.operations.values().sum()
    }

    /// The least time on a machine, in milliseconds: operations over peak, or compulsory bytes over
    /// bandwidth, whichever is longer. `None` where the topology does not tell.
    fn roofline_ms(&self, topology: &Topology, kind: DeviceKind) -> Option<f64> {
        let id = topology.first_of(kind)?;
        let device = topology.device(id)?;
        let memory = topology.memory(topology.memories_of(id).next()?)?;
        let rate = |dtype: DType| {
            let own = device.matrix_rates.get(&dtype).or_else(|| device.vector_rates.get(&dtype));
            own.or_else(|| device.vector_rates.get(&DType::F32)).copied()
        };
        let mut arithmetic = 0.0;
        for (dtype, operations) in &self.operations {
            arithmetic += operations / (rate(*dtype)? * 1e12);
        }
        let traffic = self.compulsory_bytes / (memory.bandwidth * 1e9);
        Some(arithmetic.max(traffic) * 1e3)
    }
}

/// What runs cost on a device, from the end of one to the end of the next, without copies.
#[derive(Serialize)]
struct DeviceTime {
    median_ms: f64,
    p10_ms: f64,
    p99_ms: f64,
    /// Median of what a launch takes on the host.
    launch_ms: f64,
    /// Kernels that are launched in a run.
    #[serde(skip)]
    launches: usize,
}

#[derive(Serialize)]
struct Report<'a> {
    reps: usize,
    /// Wall time of a run in milliseconds.
    median_ms: f64,
    p10_ms: f64,
    p99_ms: f64,
    /// Time on the device alone; `None` on the CPU.
    device: Option<&'a DeviceTime>,
    launches: usize,
    /// Arithmetic operations of a run.
    operations: f64,
    /// Bytes that the launches of a run read and write.
    bytes: f64,
    /// Bytes of weights, inputs and outputs.
    compulsory_bytes: f64,
    gflop_per_s: f64,
    gb_per_s: f64,
    topology: String,
    /// The least time on that machine in milliseconds.
    roofline_ms: Option<f64>,
    /// That least time over the median, of the device's time where there is one.
    roofline_share: Option<f64>,
}

impl<'a> Report<'a> {
    /// `times` in milliseconds, ascending, at least one.
    fn new(
        times: &[f64],
        device: Option<&'a DeviceTime>,
        work: &Work,
        topology: &Topology,
        kind: DeviceKind,
    ) -> Report<'a> {
        let median_ms = quantile(times, 0.5);
        let basis_ms = device.map_or(median_ms, |device| device.median_ms);
        let roofline_ms = work.roofline_ms(topology, kind);
        Report {
            reps: times.len(),
            median_ms,
            p10_ms: quantile(times, 0.1),
            p99_ms: quantile(times, 0.99),
            device,
            launches: device.map_or(work.launches, |device| device.launches),
            operations: work.total_operations(),
            bytes: work.bytes,
            compulsory_bytes: work.compulsory_bytes,
            gflop_per_s: work.total_operations() / basis_ms / 1e6,
            gb_per_s: work.bytes / basis_ms / 1e6,
            topology: topology.name.clone(),
            roofline_ms,
            roofline_share: roofline_ms.map(|floor| floor / basis_ms),
        }
    }

    /// For people.
    fn text(&self) -> String {
        let mut lines = vec![
            format!(
                "wall time: median {:.3} ms, p10 {:.3} ms, p99 {:.3} ms ({} runs)",
                self.median_ms, self.p10_ms, self.p99_ms, self.reps
            ),
            format!("launches: {}", self.launches),
            format!(
                "operations: {:.4} GFLOP, {:.1} GFLOP/s",
                self.operations / 1e9,
                self.gflop_per_s
            ),
            format!(
                "bytes moved: {}, {:.1} GB/s; weights, inputs and outputs: {}",
                bytes(self.bytes as u64),
                self.gb_per_s,
                bytes(self.compulsory_bytes as u64)
            ),
        ];
        if let Some(device) = self.device {
            lines.insert(
                1,
                format!(
                    "device time: median {:.4} ms, p10 {:.4} ms, p99 {:.4} ms; a launch takes the \
                     host {:.4} ms",
                    device.median_ms, device.p10_ms, device.p99_ms, device.launch_ms
                ),
            );
        }
        if let (Some(floor), Some(share)) = (self.roofline_ms, self.roofline_share) {
            lines.push(format!(
                "roofline of `{}`: {floor:.3} ms, reached {:.1} %",
                self.topology,
                share * 100.0
            ));
        }
        lines.join("\n")
    }
}

/// The smallest of the ascending times which that share of them does not exceed.
fn quantile(times: &[f64], share: f64) -> f64 {
    let rank = (share * times.len() as f64).ceil() as usize;
    times[rank.clamp(1, times.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use membar::ir::TensorType;
    use membar::ir::ops::{Matmul, Scalar};
    use membar::ir::recipe::Recipe;
    use membar::{Range, Symbol, Tensor};

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!([0.1, 0.5, 0.99].map(|share| quantile(&times, share)), [20.0, 100.0, 198.0]);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn work_counts_operations_and_bytes() -> Result<(), Box<dyn std::error::Error>> {
        let mut graph = Graph::new("work");
        graph.symbols.insert(Symbol::new("B"), Range::new(1, 9));
        let x =
            graph.add_input("x", TensorType::new(DType::F32, vec![Dim::symbol("B"), Dim::from(3)]));
        let w = Tensor::from_elements(&[3, 5], &[0.5f32; 15])?;
        let w = graph.add_weight(Some("w"), Recipe::literal(w));
        let product = graph.apply(Matmul { acc: DType::F32, result: DType::F32 }, &[x, w])?;
        let y = graph.apply(Scalar::Neg, &[product])?;
        graph.set_outputs([("y", y)]);
        let work = Work::of(&graph, &Bindings::from([(Symbol::new("B"), 7)]))?;
        assert_eq!(work.launches, 2);
        assert_eq!(work.total_operations(), (2 * 7 * 3 * 5 + 7 * 5) as f64);
        assert_eq!(work.bytes, (4 * (7 * 3 + 15 + 35) + 4 * (35 + 35)) as f64);
        assert_eq!(work.compulsory_bytes, (4 * (7 * 3 + 15 + 35)) as f64);
        assert!(Work::of(&graph, &Bindings::new()).is_err());
        Ok(())
    }

    #[test]
    fn the_floor_is_the_longer_of_arithmetic_and_traffic() {
        let topology = Topology::builtin("cpu");
        let of = |operations: f64, compulsory_bytes: f64| {
            let operations = BTreeMap::from([(DType::F32, operations)]);
            let work = Work { launches: 1, operations, bytes: 0.0, compulsory_bytes };
            topology.as_ref().and_then(|topology| work.roofline_ms(topology, DeviceKind::Cpu))
        };
        // 0.64 · 10¹² operations and 40 · 10⁹ bytes a second.
        assert_eq!(of(0.64e12, 4e9), Some(1000.0));
        assert_eq!(of(0.64e9, 40e9), Some(1000.0));
    }
}
