//! What tests of passes share: a kernel library, contexts, and running one pass; never an expected
//! result.

use membar_ir::dim::Dim;
use membar_ir::graph::{Graph, Stage};
use membar_ir::kernel::{InPlace, KernelLibrary, KernelSpec};
use membar_ir::ops::Op;
use membar_ir::pass::{Changed, Pass, PassContext, PassError, PassOptions};
use membar_ir::text::{check_laws, parse_with_topology};
use membar_ir::topology::{DeviceId, Topology};
use membar_ir::types::TensorType;
use membar_ir::verify::{Depth, verify};
use std::sync::Arc;

/// A library that has every operator but some, works in place where types allow it, and reads
/// operands with gaps but for some operators.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestLibrary {
    /// Mnemonics of operators without a kernel.
    pub missing: &'static [&'static str],
    /// Mnemonics of operators whose kernel takes no gaps.
    pub contiguous: &'static [&'static str],
}

impl KernelLibrary for TestLibrary {
    fn kernel(
        &self,
        op: &Op,
        operands: &[TensorType],
        outputs: &[TensorType],
    ) -> Option<KernelSpec> {
        if self.missing.contains(&op.mnemonic()) {
            return None;
        }
        let name = op.mnemonic().to_string();
        let mut spec = KernelSpec { name, waits: true, ..KernelSpec::default() };
        if !self.contiguous.contains(&op.mnemonic()) {
            spec.strided_operands = (0..operands.len() as u32).collect();
        }
        match op {
            Op::Reshape(_) | Op::Bitcast(_) => spec.alias = Some(InPlace { operand: 0, output: 0 }),
            Op::Scalar(_) => {
                let alike = |ty: &TensorType| {
                    ty.shape == outputs[0].shape && ty.dtype.bits() == outputs[0].dtype.bits()
                };
                let operands = operands.iter().enumerate().filter(|(_, ty)| alike(ty));
                spec.in_place = operands
                    .map(|(operand, _)| InPlace { operand: operand as u32, output: 0 })
                    .collect();
            }
            Op::Matmul(_) => spec.workspace = Dim::from(100),
            _ => {}
        }
        Some(spec)
    }
}

/// A context for one CPU.
pub fn context(options: PassOptions, library: TestLibrary) -> PassContext {
    PassContext::new(options, topology(), Arc::new(library))
}

/// The built-in machine of one CPU.
pub fn topology() -> Arc<Topology> {
    Arc::new(Topology::builtin("cpu").expect("a built-in topology"))
}

/// The pass of that name.
pub fn pass(name: &str) -> &'static Pass {
    membar_passes::PASSES.iter().find(|pass| pass.name == name).expect("a pass of that name")
}

/// Reads a graph; text without a first line is at stage tensor, and placed nodes that name no device
/// stand on the first.
pub fn graph(text: &str) -> Graph {
    let header = if text.trim_start().starts_with("ir ") { "" } else { "ir 1 stage tensor\n" };
    let text = format!("{header}{text}");
    let mut graph = match parse_with_topology(&text, Some(&topology())) {
        Ok(graph) => graph,
        Err(error) => panic!("{error}\n{text}"),
    };
    if graph.stage > Stage::Tensor {
        let nodes: Vec<_> = graph.nodes().collect();
        for id in nodes {
            graph.node_mut(id).device.get_or_insert(DeviceId(0));
        }
    }
    graph
}

/// Runs a pass and checks what holds for every one: its stages, that it says whether it changed
/// anything, and that the result reads back from its text.
pub fn run(name: &str, graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let (pass, before) = (pass(name), graph.clone());
    assert_eq!(graph.stage, pass.before, "{name}");
    let changed = (pass.run)(graph, cx)?;
    assert_eq!(graph.stage, pass.after, "{name}");
    assert_eq!(
        changed == Changed::No,
        graph.equivalent(&before),
        "{name} says {changed:?}\n{graph}"
    );
    if let Err(errors) = verify(graph, Depth::Full) {
        panic!("{name}: {errors}");
    }
    if let Err(error) = check_laws(graph) {
        panic!("{name}: {error}");
    }
    Ok(changed)
}
