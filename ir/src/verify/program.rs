//! What must hold of a program beside its graph: launches name what is there, with sizes that a
//! device takes, and tensor maps stay inside their tensors. Never looks into a kernel.

use crate::dim::Bindings;
use crate::graph::{Graph, Node, NodeKind, ValueId};
use crate::program::{Argument, DeviceProgram, Launch, TensorMap};
use crate::schedule::Region;
use crate::topology::Device;
use std::collections::BTreeSet;

/// Most bytes of a kernel's arguments.
const ARGUMENT_BYTES: u64 = 4096;
/// Bytes of a tensor map, which is passed by value.
const TENSOR_MAP_BYTES: u64 = 128;
/// Most blocks of a grid in x, y, z.
const GRID_LIMITS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
/// Most threads of a block in x, y, z.
const BLOCK_LIMITS: [u32; 3] = [1024, 1024, 64];
/// Where the topology does not tell: threads of a block, bytes of shared memory, blocks of a cluster.
const DEVICE_LIMITS: (u32, u64, u32) = (1024, 227 << 10, 16);

/// Checks a program against the scheduled graph that it runs; every fault in words, in order.
///
/// After it, an executor may take positions and numbers as they are. What a kernel does with its
/// arguments is not looked at.
///
/// # Errors
/// All faults, one message each; at least one.
pub fn verify_program(graph: &Graph, program: &DeviceProgram) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    names(graph, program, &mut faults);
    let ordered = graph.nodes().any(|id| graph.node(id).step.is_some());
    let mut last = None;
    for step in &program.steps {
        let place = format!("step {}", step.position);
        if last.is_some_and(|last| step.position <= last) {
            faults.push(format!("{place}: it does not come after step {}", last.unwrap_or(0)));
        }
        last = Some(step.position);
        let id = graph.schedule.get(step.position as usize);
        let node = id.map(|id| graph.node(*id)).filter(|node| node.op().is_some());
        let Some(node) = node else {
            faults.push(format!("{place}: the schedule has no operator there"));
            continue;
        };
        if node.step.is_none() && ordered {
            faults.push(format!("{place}: it launches, but the graph does not order it"));
        }
        if step.launches.is_empty() {
            faults.push(format!("{place}: it launches nothing"));
        }
        let device = node
            .device
            .and_then(|id| graph.topology.as_ref().and_then(|topology| topology.device(id)));
        for (index, launch) in step.launches.iter().enumerate() {
            let place = format!("{place}, launch {index}");
            let mut fault = |message: String| faults.push(format!("{place}: {message}"));
            shape(launch, program, device, &mut fault);
            arguments(graph, node, launch, &mut fault);
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn names(graph: &Graph, program: &DeviceProgram, faults: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    for symbol in &program.symbols {
        if !graph.symbols.contains_key(symbol) {
            faults.push(format!("the graph has no symbol `{symbol}`"));
        }
        if !known.insert(symbol) {
            faults.push(format!("symbol `{symbol}` is listed twice"));
        }
    }
    let mut known = BTreeSet::new();
    for kernel in &program.kernels {
        if !is_entry_point(&kernel.name) {
            faults.push(format!("kernel `{}` is not the name of a function", kernel.name));
        }
        if !known.insert(&kernel.name) {
            faults.push(format!("two kernels are called `{}`", kernel.name));
        }
    }
}

/// Whether a name can be an `extern "C"` function's and a file's.
fn is_entry_point(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.len() <= 200
}

fn shape(
    launch: &Launch,
    program: &DeviceProgram,
    device: Option<&Device>,
    fault: &mut impl FnMut(String),
) {
    let Launch { kernel, grid, block, cluster, shared_bytes, arguments: _ } = launch;
    if kernel.0 as usize >= program.kernels.len() {
        fault(format!("there is no kernel {}", kernel.0));
    }
    let (mut threads, mut shared, mut blocks) = DEVICE_LIMITS;
    if let Some(device) = device {
        threads = device.max_threads.min(threads);
        (shared, blocks) = (device.shared_memory, device.max_cluster);
    }
    let within = |sizes: &[u32; 3], limits: [u32; 3]| {
        sizes.iter().zip(limits).all(|(n, m)| (1..=m).contains(n))
    };
    if !within(grid, GRID_LIMITS) {
        fault(format!("a grid of {grid:?} blocks is not possible"));
    }
    let total = block.iter().map(|n| u128::from(*n)).product::<u128>();
    if !within(block, BLOCK_LIMITS) || total > threads.into() {
        fault(format!("a block of {block:?} threads is not possible; at most {threads}"));
    }
    if !(1..=blocks.max(1)).contains(cluster) || !grid[0].is_multiple_of(*cluster) {
        fault(format!("clusters of {cluster} blocks are not possible in a grid of {grid:?}"));
    }
    if u64::from(*shared_bytes) > shared {
        fault(format!("{shared_bytes} bytes of shared memory are too many; at most {shared}"));
    }
}

fn arguments(graph: &Graph, node: &Node, launch: &Launch, fault: &mut impl FnMut(String)) {
    let mut bytes = 0;
    for (index, argument) in launch.arguments.iter().enumerate() {
        let mut fault = |message: String| fault(format!("argument {index}: {message}"));
        bytes += match argument {
            Argument::TensorMap(_) => 2 * TENSOR_MAP_BYTES,
            _ => 8,
        };
        match argument {
            Argument::Dims | Argument::Faults | Argument::U32(_) | Argument::I64(_) => {}
            Argument::Operand(_) | Argument::Output(_) | Argument::Workspace(_) => {
                if let Err(message) = memory_of(graph, node, argument) {
                    fault(message);
                }
            }
            Argument::TensorMap(map) => match memory_of(graph, node, &map.base) {
                Ok(bytes) => tensor_map(map, bytes, &mut fault),
                Err(message) => fault(message),
            },
        }
    }
    if bytes > ARGUMENT_BYTES {
        fault(format!("{bytes} bytes of arguments are too many; at most {ARGUMENT_BYTES}"));
    }
}

/// The bytes of memory that an address has behind it.
fn memory_of(graph: &Graph, node: &Node, argument: &Argument) -> Result<u64, String> {
    let whole = |region: &Region| region.end().map_or(0, |end| end - region.offset);
    let value = |values: &[ValueId], position: u32, what: &str| {
        let missing = || format!("the node has {} {what}s, none at {position}", values.len());
        let value = *values.get(position as usize).ok_or_else(missing)?;
        match &graph.value(value).region {
            Some(region) => Ok(whole(region)),
            None => weight_bytes(graph, value).ok_or_else(|| format!("its {what} has no region")),
        }
    };
    match argument {
        Argument::Operand(position) => value(node.operands(), *position, "operand"),
        Argument::Output(position) => value(node.outputs(), *position, "output"),
        Argument::Workspace(offset) => {
            let bytes = node.workspace.as_ref().map_or(0, whole);
            let left = bytes.checked_sub(*offset).filter(|left| *left > 0);
            left.ok_or_else(|| format!("the workspace has {bytes} bytes, none at {offset}"))
        }
        Argument::Dims
        | Argument::Faults
        | Argument::U32(_)
        | Argument::I64(_)
        | Argument::TensorMap(_) => Err("it is no tensor".to_string()),
    }
}

fn weight_bytes(graph: &Graph, value: ValueId) -> Option<u64> {
    let value = graph.value(value);
    let is_weight = matches!(graph.node(value.producer()).kind, NodeKind::Weight(_));
    let ty = value.ty.concrete(&Bindings::new()).ok().filter(|_| is_weight)?;
    Some(ty.byte_len() as u64)
}

/// What `cuTensorMapEncodeTiled` asks for, and that the tensor lies inside `bytes`.
fn tensor_map(map: &TensorMap, bytes: u64, fault: &mut impl FnMut(String)) {
    let TensorMap { base: _, dtype, extents, strides, box_extents, swizzle } = map;
    let rank = extents.len();
    if !(1..=5).contains(&rank) || strides.len() + 1 != rank || box_extents.len() != rank {
        return fault(format!("a tensor map of rank {rank} has the wrong number of entries"));
    }
    if dtype.bits() < 8 {
        return fault(format!("a tensor map cannot have elements of type {dtype}"));
    }
    let element = u64::from(dtype.bits() / 8);
    let row = u64::from(box_extents[0]) * element;
    let fits = extents.iter().all(|n| (1..=1 << 32).contains(n))
        && strides.iter().all(|n| n.is_multiple_of(16) && *n < 1 << 40)
        && box_extents.iter().all(|n| (1..=256).contains(n))
        && row.is_multiple_of(16)
        && matches!(swizzle, 0 | 32 | 64 | 128)
        && (*swizzle == 0 || row <= u64::from(*swizzle));
    if !fits {
        return fault("the sizes of a tensor map are not possible".to_string());
    }
    // None of these overflows: 2³² · 2⁴⁰ · 4 fits 128 bits.
    let mut end = u128::from(extents[0]) * u128::from(element);
    for (extent, stride) in extents[1..].iter().zip(strides) {
        end += u128::from(extent - 1) * u128::from(*stride);
    }
    if end > u128::from(bytes) {
        fault(format!("a tensor map of {end} bytes leaves its tensor of {bytes}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::program::{Kernel, KernelId, Step};

    const TEXT: &str = "ir 1 stage scheduled topology \"h200\"
graph @g(%x: f32[B, 16] @gpu0.hbm in $0[0..256]) where B in 1..=4 {
  buffer $0 = 512 @gpu0.hbm
  %y = neg %x : f32[B, 16] @gpu0.hbm in $0[256..512]
  return %y
}
";

    fn graph() -> Graph {
        Graph::parse(TEXT).unwrap_or_else(|error| panic!("{error}"))
    }

    fn map(base: Argument) -> TensorMap {
        TensorMap {
            base: Box::new(base),
            dtype: DType::F32,
            extents: vec![16, 4],
            strides: vec![64],
            box_extents: vec![16, 4],
            swizzle: 0,
        }
    }

    fn program() -> DeviceProgram {
        let graph = graph();
        let arguments = vec![
            Argument::Dims,
            Argument::Operand(0),
            Argument::Output(0),
            Argument::TensorMap(map(Argument::Output(0))),
        ];
        let launch = Launch {
            kernel: KernelId(0),
            grid: [132, 1, 1],
            block: [256, 1, 1],
            cluster: 2,
            shared_bytes: 0,
            arguments,
        };
        let is_op = |id: &crate::NodeId| graph.node(*id).op().is_some();
        let position = graph.schedule.iter().position(is_op).unwrap_or(0) as u32;
        DeviceProgram {
            target: "sm_90a".into(),
            symbols: graph.symbols.keys().cloned().collect(),
            kernels: vec![Kernel { name: "neg_f32".into(), source: String::new() }],
            steps: vec![Step { position, launches: vec![launch] }],
        }
    }

    #[test]
    fn a_program_of_its_graph_passes() {
        assert_eq!(verify_program(&graph(), &program()), Ok(()));
    }

    #[test]
    fn every_fault_is_found() {
        type Change = fn(&mut DeviceProgram);
        fn launch(program: &mut DeviceProgram) -> &mut Launch {
            &mut program.steps[0].launches[0]
        }
        fn with_map(program: &mut DeviceProgram, change: impl FnOnce(&mut TensorMap)) {
            let mut changed = map(Argument::Operand(0));
            change(&mut changed);
            launch(program).arguments.push(Argument::TensorMap(changed));
        }
        let changes: &[(Change, &str)] = &[
            (|p| p.symbols.push(crate::Symbol::new("Z")), "no symbol"),
            (|p| p.symbols.push(crate::Symbol::new("B")), "twice"),
            (|p| p.kernels[0].name = "../../etc".into(), "name of a function"),
            (|p| p.kernels.push(p.kernels[0].clone()), "two kernels"),
            (|p| p.steps.push(p.steps[0].clone()), "does not come after"),
            (|p| p.steps[0].position = 0, "no operator"),
            (|p| p.steps[0].position = u32::MAX, "no operator"),
            (|p| p.steps[0].launches.clear(), "launches nothing"),
            (|p| launch(p).kernel = KernelId(1), "no kernel 1"),
            (|p| launch(p).grid[1] = 0, "blocks is not possible"),
            (|p| launch(p).grid[2] = 65_536, "blocks is not possible"),
            (|p| launch(p).block = [64, 32, 1], "threads is not possible"),
            (|p| launch(p).block = [u32::MAX; 3], "threads is not possible"),
            (|p| launch(p).cluster = 0, "clusters"),
            (|p| launch(p).cluster = 5, "clusters"),
            (|p| launch(p).shared_bytes = 240 << 10, "shared memory"),
            (|p| launch(p).arguments.push(Argument::Operand(1)), "none at 1"),
            (|p| launch(p).arguments.push(Argument::Output(7)), "none at 7"),
            (|p| launch(p).arguments.push(Argument::Workspace(0)), "workspace has 0 bytes"),
            (|p| launch(p).arguments.resize(600, Argument::Dims), "too many"),
            (|p| with_map(p, |map| *map.base = Argument::Dims), "no tensor"),
            (|p| with_map(p, |map| map.extents.clear()), "wrong number"),
            (|p| with_map(p, |map| map.strides[0] = 8), "not possible"),
            (|p| with_map(p, |map| map.box_extents[0] = 0), "not possible"),
            (|p| with_map(p, |map| map.swizzle = 3), "not possible"),
            (|p| with_map(p, |map| map.extents[1] = 5), "leaves its tensor"),
        ];
        for (change, reason) in changes {
            let mut program = program();
            change(&mut program);
            let faults = verify_program(&graph(), &program).err().unwrap_or_default();
            assert!(faults.iter().any(|fault| fault.contains(reason)), "{reason}: {faults:?}");
        }
    }
}
