//! What is in a graph, as numbers and names: for people and as JSON; never a change to it.

use membar::Graph;
use membar::codegen::CudaLibrary;
use membar::compile::PassReport;
use membar::ir::graph::NodeKind;
use membar::ir::kernel::KernelLibrary;
use membar::ir::program::DeviceProgram;
use membar::ir::schedule::{HazardKind, Mechanism, Reason};
use membar::ir::topology::DeviceKind;
use membar::ir::{NodeId, Stage, TensorType, ValueId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The contents of a graph.
#[derive(Serialize)]
pub struct GraphReport {
    name: String,
    stage: &'static str,
    topology: Option<String>,
    inputs: Vec<ValueReport>,
    outputs: Vec<ValueReport>,
    states: Vec<StateReport>,
    /// Symbolic dimensions and their ranges.
    dims: BTreeMap<String, RangeReport>,
    /// Operators by kind.
    ops: BTreeMap<&'static str, usize>,
    /// How many steps do work on a device.
    pub launches: usize,
    /// Orders by mechanism.
    orders: BTreeMap<&'static str, usize>,
    /// Hazards by kind.
    hazards: BTreeMap<&'static str, usize>,
    /// Bytes of all buffers that are not weights.
    pub arena_bytes: u64,
    /// Bytes of all weights.
    pub weight_bytes: u64,
    targets: Vec<String>,
    passes: Vec<PassReport>,
}

#[derive(Serialize)]
struct ValueReport {
    name: String,
    dtype: &'static str,
    /// Numbers, or expressions over the symbols.
    shape: Vec<String>,
}

#[derive(Serialize)]
struct StateReport {
    input: String,
    output: String,
    axis: Option<u32>,
    length: Option<String>,
    capacity: Option<i64>,
}

#[derive(Serialize)]
struct RangeReport {
    lo: i64,
    hi: Option<i64>,
}

impl GraphReport {
    /// Counts what is in a graph. `passes` is what compiling it did, if it was compiled now;
    /// `targets` what there is code for; `program` what a GPU runs of the graph.
    pub fn of(
        graph: &Graph,
        passes: &[PassReport],
        targets: Vec<String>,
        program: Option<&DeviceProgram>,
    ) -> GraphReport {
        let mut report = GraphReport {
            name: graph.name.clone(),
            stage: graph.stage.word(),
            topology: graph.topology.as_ref().map(|topology| topology.name.clone()),
            inputs: graph.inputs().iter().map(|v| value(graph, *v, None)).collect(),
            outputs: graph
                .outputs()
                .iter()
                .map(|output| value(graph, output.value, Some(&output.name)))
                .collect(),
            states: states(graph),
            dims: BTreeMap::new(),
            ops: BTreeMap::new(),
            launches: 0,
            orders: Mechanism::WORDS.iter().map(|(word, _)| (*word, 0)).collect(),
            hazards: HazardKind::WORDS.iter().map(|(word, _)| (*word, 0)).collect(),
            arena_bytes: graph.buffers.values().map(|buffer| buffer.bytes).sum(),
            weight_bytes: 0,
            targets,
            passes: passes.to_vec(),
        };
        for (symbol, range) in &graph.symbols {
            let range = RangeReport { lo: range.lo, hi: range.hi };
            report.dims.insert(symbol.name().to_string(), range);
        }
        let library = library_of(graph);
        for id in graph.nodes() {
            report.count_node(graph, id, library.as_ref());
        }
        if let Some(program) = program {
            report.launches = program.launch_count();
        }
        for order in &graph.orders {
            *report.orders.entry(order.mechanism.word()).or_insert(0) += 1;
            if let Reason::Hazards(hazards) = &order.reason {
                for hazard in hazards {
                    *report.hazards.entry(hazard.kind.word()).or_insert(0) += 1;
                }
            }
        }
        report
    }

    fn count_node(&mut self, graph: &Graph, id: NodeId, library: &dyn KernelLibrary) {
        let node = graph.node(id);
        match &node.kind {
            NodeKind::Input => {}
            NodeKind::Weight(recipe) => {
                let shape = recipe.ty().concrete(&Default::default());
                self.weight_bytes += shape.map_or(0, |ty| ty.byte_len() as u64);
            }
            NodeKind::Op(op) => {
                *self.ops.entry(op.mnemonic()).or_insert(0) += 1;
                self.launches += usize::from(is_launch(graph, id, library));
            }
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("graph {} at stage {}", self.name, self.stage);
        if let Some(topology) = &self.topology {
            text += &format!(", topology {topology}");
        }
        text.push('\n');
        list(&mut text, "inputs", self.inputs.iter().map(ValueReport::line));
        list(&mut text, "outputs", self.outputs.iter().map(ValueReport::line));
        list(&mut text, "states", self.states.iter().map(StateReport::line));
        list(&mut text, "dims", self.dims.iter().map(|(name, range)| range.line(name)));
        let mut ops: Vec<_> = self.ops.iter().collect();
        ops.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        list(&mut text, "operators", ops.iter().map(|(name, count)| format!("{count:>6} {name}")));
        let counts = [
            ("steps", self.launches.to_string()),
            ("orders", self.orders.values().sum::<usize>().to_string()),
            ("arena", bytes(self.arena_bytes)),
            ("weights", bytes(self.weight_bytes)),
            ("targets", self.targets.join(", ")),
        ];
        for (name, value) in counts {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    }
}

/// Whether a node does work: an operator whose result is not its operand's bytes, where these lie once
/// that is known.
pub fn is_launch(graph: &Graph, id: NodeId, library: &dyn KernelLibrary) -> bool {
    let node = graph.node(id);
    let Some(op) = node.op() else { return false };
    let (operands, outputs) = (types(graph, node.operands()), types(graph, node.outputs()));
    let planned = graph.stage == Stage::Scheduled;
    library.kernel(op, &operands, &outputs).is_none_or(|kernel| {
        if planned { kernel.launches(graph, id) } else { kernel.alias.is_none() }
    })
}

/// The kernels of the device that a graph is placed on; the CPU's for one that is not.
pub fn library_of(graph: &Graph) -> Box<dyn KernelLibrary> {
    let placed = || {
        let topology = graph.topology.as_ref()?;
        let device = graph.nodes().find_map(|id| graph.node(id).device)?;
        let is_gpu = topology.device(device)?.kind == DeviceKind::Gpu;
        is_gpu.then(|| CudaLibrary::for_device(topology, device))?
    };
    match placed() {
        Some(library) => Box::new(library),
        None => Box::new(membar::CpuLibrary),
    }
}

/// The types of values.
pub fn types(graph: &Graph, values: &[ValueId]) -> Vec<TensorType> {
    values.iter().map(|value| graph.ty(*value).clone()).collect()
}

fn list(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "{title}:");
        lines.for_each(|line| {
            let _ = writeln!(text, "  {line}");
        });
    }
}

fn value(graph: &Graph, id: ValueId, name: Option<&str>) -> ValueReport {
    let value = graph.value(id);
    ValueReport {
        name: name.or(value.name.as_deref()).unwrap_or_default().to_string(),
        dtype: value.ty.dtype.name(),
        shape: value.ty.shape.iter().map(ToString::to_string).collect(),
    }
}

fn states(graph: &Graph) -> Vec<StateReport> {
    let report = |state: &membar::ir::graph::State| StateReport {
        input: value(graph, state.input, None).name,
        output: state.output.to_string(),
        axis: state.growth.as_ref().map(|growth| growth.axis.0),
        length: state.growth.as_ref().map(|growth| growth.length.name().to_string()),
        capacity: state.growth.as_ref().map(|growth| growth.capacity),
    };
    graph.states.iter().map(report).collect()
}

impl ValueReport {
    fn line(&self) -> String {
        format!("{}: {}[{}]", self.name, self.dtype, self.shape.join(", "))
    }
}

impl StateReport {
    fn line(&self) -> String {
        let growth = match (self.axis, self.capacity) {
            (Some(axis), Some(capacity)) => format!(", grows along axis {axis} up to {capacity}"),
            _ => String::new(),
        };
        format!("{} <- {}{growth}", self.input, self.output)
    }
}

impl RangeReport {
    fn line(&self, name: &str) -> String {
        match self.hi {
            Some(hi) => format!("{name} in {}..={hi}", self.lo),
            None => format!("{name} in {}.., unbounded", self.lo),
        }
    }
}

/// A size for people: `1.50 MiB`.
pub fn bytes(size: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (size as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{size} B") } else { format!("{value:.2} {}", units[unit]) }
}
