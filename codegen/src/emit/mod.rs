//! From a scheduled graph to a device program: a kernel's text and its launch for each step. Must
//! never compile or run a kernel, nor order steps (the graph's orders do).

mod attention;
mod dims;
mod factor;
mod family;
mod group;
mod headers;
mod index;
mod inline;
mod kernel;
mod loops;
pub(crate) mod matmul;
mod movement;
mod pointwise;
mod rows;
mod scalar;
mod scatter;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use family::Family;

use crate::library::CudaLibrary;
use kernel::{ENTRY, Emitted, StepContext};
use membar_ir::graph::{Graph, NodeId, NodeKind, Stage};
use membar_ir::program::{DeviceProgram, Kernel, KernelId, Step};
use std::collections::BTreeMap;

/// Why a graph has no device program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The graph is not scheduled.
    #[error("graph `{name}` is at stage {stage}; kernels are emitted for a scheduled one")]
    Stage {
        /// The graph.
        name: String,
        /// Its stage.
        stage: &'static str,
    },
    /// An operator without a kernel.
    #[error("no kernel for `{operator}`")]
    NoKernel {
        /// The operator, with its attributes.
        operator: String,
    },
    /// A node's kernel cannot be written.
    #[error("node `{node}`: {error}")]
    Node {
        /// The node.
        node: String,
        /// Why.
        error: Box<EmitError>,
    },
}

/// Writes the kernels of a scheduled graph and the launches of its steps.
///
/// # Errors
/// The graph is not scheduled, or an operator has no kernel: the pass `decompose`, given the same
/// library, sees to it that each has.
pub fn emit(graph: &Graph, library: &CudaLibrary) -> Result<DeviceProgram, EmitError> {
    if graph.stage != Stage::Scheduled {
        let (name, stage) = (graph.name.clone(), graph.stage.word());
        return Err(EmitError::Stage { name, stage });
    }
    let symbols: Vec<_> = graph.symbols.keys().cloned().collect();
    let mut kernels = Kernels::default();
    let mut steps = Vec::new();
    for (position, id) in graph.schedule.iter().enumerate() {
        let NodeKind::Op(op) = &graph.node(*id).kind else { continue };
        let machine = (library.units(), library.capability());
        let position = position as u32;
        let step = StepContext::new(graph, *id, op, position, &symbols, machine);
        let emitted = launches(graph, *id, &step)
            .map_err(|error| EmitError::Node { node: graph.label(*id), error: Box::new(error) })?;
        if emitted.is_empty() {
            continue;
        }
        let launches = emitted.into_iter().map(|emitted| kernels.add(emitted)).collect();
        steps.push(Step { position, launches });
    }
    Ok(DeviceProgram {
        target: library.target().to_string(),
        symbols,
        kernels: kernels.list,
        steps,
    })
}

/// The kernels of one step, one after another; none where the result is there already.
fn launches(
    graph: &Graph,
    node: NodeId,
    step: &StepContext<'_>,
) -> Result<Vec<Emitted>, EmitError> {
    let (operands, outputs) = (step.operand_types(), step.output_types());
    let family = Family::of(step.op, &operands, &outputs)
        .ok_or_else(|| EmitError::NoKernel { operator: step.op.to_string() })?;
    // The passes that order steps ask the same.
    if !family.spec(step.op, &operands, &outputs).launches(graph, node) {
        return Ok(Vec::new());
    }
    family.emit(step)
}

/// The kernels of a program, each once.
#[derive(Default)]
struct Kernels {
    list: Vec<Kernel>,
    known: BTreeMap<String, KernelId>,
}

impl Kernels {
    fn add(&mut self, emitted: Emitted) -> membar_ir::program::Launch {
        let mut launch = emitted.launch;
        launch.kernel = match self.known.get(&emitted.source) {
            Some(id) => *id,
            None => {
                let id = KernelId(self.list.len() as u32);
                let hash = blake3::hash(emitted.source.as_bytes()).to_hex();
                let name = format!("{}_{}", emitted.family, &hash[..12]);
                let source = emitted.source.replace(ENTRY, &name);
                self.list.push(Kernel { name, source });
                self.known.insert(emitted.source, id);
                id
            }
        };
        launch
    }
}
