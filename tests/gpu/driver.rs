//! The driver layer: kernels, edges, arguments and copies, each on its own; never a session.

use super::{Gpu, Outcome, THREADS, Test, median, resident_bytes};
use anyhow::ensure;
use membar_ir::testing::{Random, floats};
use membar_ir::{DType, Tensor};
use membar_runtime::cuda::{
    Arguments, CudaError, DeviceMemory, Edge, EdgeKind, Event, GraphBuilder, GraphNode, Launch,
    Module,
};
use std::time::Instant;

pub const TESTS: &[(&str, Test)] = &[
    ("a_kernel_writes_what_it_declares_and_no_more", writes_what_it_declares),
    ("a_chain_of_full_edges_is_ordered", |gpu| chain_is_ordered(gpu, EdgeKind::Full)),
    ("a_chain_of_programmatic_edges_is_ordered", |gpu| {
        chain_is_ordered(gpu, EdgeKind::Programmatic)
    }),
    ("programmatic_diamonds_are_ordered", diamonds_are_ordered),
    ("edges_are_those_that_were_added", edges_are_those_added),
    ("new_arguments_reach_the_kernel", new_arguments_reach_the_kernel),
    ("wrong_arguments_are_refused", wrong_arguments_are_refused),
    ("damaged_cubins_are_refused", damaged_cubins_are_refused),
    ("copies_stay_inside_memory", copies_stay_inside_memory),
    ("cycles_of_graphs_leak_nothing", cycles_leak_nothing),
    ("launches_are_cheap", launches_are_cheap),
];

/// How far the element lies that another block wrote.
const SHIFT: u32 = 4099;

impl Gpu {
    /// `out[i] = in[(i + SHIFT) % n] + 1`, waiting as the edge before it asks.
    fn shift(
        &self,
        kind: EdgeKind,
        out: &DeviceMemory,
        input: &DeviceMemory,
    ) -> anyhow::Result<Launch> {
        let name = match kind {
            EdgeKind::Full => "shift_full",
            EdgeKind::Programmatic => "shift_programmatic",
        };
        let arguments = Arguments::new()
            .pointer(out, 0)
            .pointer(input, 0)
            .value(input.len() as u32 / 4)
            .value(SHIFT);
        Ok(Launch::linear(&self.module.function(name)?, self.blocks, THREADS, arguments))
    }
}

fn writes_what_it_declares(gpu: &Gpu) -> Outcome {
    let mut random = Random::new(1);
    for n in [1usize, 31, 257, 100_003] {
        let tensors = [random.tensor(DType::F32, &[n]), random.tensor(DType::F32, &[n])];
        let a = gpu.memory(tensors[0].as_slice::<f32>()?)?;
        let b = gpu.memory(tensors[1].as_slice::<f32>()?)?;
        let guard = 64usize;
        let mut out = DeviceMemory::new(&gpu.context, (n + 2 * guard) * 4)?;
        out.fill(0xa5)?;
        let arguments = Arguments::new()
            .pointer(&out, guard as u64 * 4)
            .pointer(&a, 0)
            .pointer(&b, 0)
            .value(n as u32);
        let launch = Launch::linear(&gpu.module.function("add")?, 7, 96, arguments);
        let mut builder = GraphBuilder::new(&gpu.context)?;
        builder.add_kernel(&launch, &[])?;
        gpu.run(&mut builder.instantiate()?)?;
        let all: Vec<u32> = out.read(0, n + 2 * guard)?;
        let (before, rest) = all.split_at(guard);
        let (result, after) = rest.split_at(n);
        ensure!(before.iter().chain(after).all(|word| *word == 0xa5a5_a5a5), "neighbours changed");
        let result: Vec<f32> = result.iter().map(|bits| f32::from_bits(*bits)).collect();
        let result = Tensor::from_elements(&[n], &result)?;
        let sum = |(a, b): (&f64, &f64)| f64::from((*a as f32) + (*b as f32));
        let (a, b) = (floats(&tensors[0]), floats(&tensors[1]));
        let expected: Vec<f64> = a.iter().zip(&b).map(sum).collect();
        ensure!(floats(&result) == expected, "wrong sums for {n} elements");
    }
    Ok(())
}

/// A chain through two buffers in turn, each kernel reading what other blocks wrote before it.
fn chain(
    gpu: &Gpu,
    kind: EdgeKind,
    buffers: &[DeviceMemory; 2],
    n: usize,
) -> anyhow::Result<GraphBuilder> {
    let mut builder = GraphBuilder::new(&gpu.context)?;
    let mut last: Option<GraphNode> = None;
    for i in 0..n {
        let launch = gpu.shift(kind, &buffers[(i + 1) % 2], &buffers[i % 2])?;
        let after: Vec<_> = last.map(|node| (node, kind)).into_iter().collect();
        last = Some(builder.add_kernel(&launch, &after)?);
    }
    Ok(builder)
}

fn chain_is_ordered(gpu: &Gpu, kind: EdgeKind) -> Outcome {
    let (n, length) = (gpu.blocks * THREADS * 3 + 17, 1000usize);
    let start: Vec<u32> = (0..n).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let buffers = [gpu.memory(&start)?, gpu.memory(&vec![0xdead_beefu32; n as usize])?];
    let mut graph = chain(gpu, kind, &buffers, length)?.instantiate()?;
    gpu.run(&mut graph)?;
    let found: Vec<u32> = buffers[length % 2].read(0, n as usize)?;
    let offset = (u64::from(SHIFT) * length as u64 % u64::from(n)) as u32;
    let wrong = (0..n).filter(|i| {
        let source = ((u64::from(*i) + u64::from(offset)) % u64::from(n)) as usize;
        found[*i as usize] != start[source].wrapping_add(length as u32)
    });
    let wrong = wrong.count();
    ensure!(wrong == 0, "{wrong} of {n} words are wrong");
    Ok(())
}

/// One kernel, two that wait for it, one that waits for both; the next diamond waits for that.
fn diamonds_are_ordered(gpu: &Gpu) -> Outcome {
    let (n, rounds) = (gpu.blocks * THREADS * 2 + 5, 50usize);
    let kind = EdgeKind::Programmatic;
    let mut expected: Vec<u32> = (0..n).map(|i| i ^ 0x5bd1).collect();
    let zeros = vec![0u32; n as usize];
    let [s, t, u] = [gpu.memory(&expected)?, gpu.memory(&zeros)?, gpu.memory(&zeros)?];
    let mut builder = GraphBuilder::new(&gpu.context)?;
    let mut last: Vec<(GraphNode, EdgeKind)> = Vec::new();
    let at = |i: u32| ((u64::from(i) + u64::from(SHIFT)) % u64::from(n)) as usize;
    for _ in 0..rounds {
        let left = builder.add_kernel(&gpu.shift(kind, &t, &s)?, &last)?;
        let right = builder.add_kernel(&gpu.shift(kind, &u, &s)?, &last)?;
        let arguments =
            Arguments::new().pointer(&s, 0).pointer(&t, 0).pointer(&u, 0).value(n).value(SHIFT);
        let join = gpu.module.function("join_programmatic")?;
        let join = Launch::linear(&join, gpu.blocks, THREADS, arguments);
        last = vec![(builder.add_kernel(&join, &[(left, kind), (right, kind)])?, kind)];
        let shifted: Vec<u32> = (0..n).map(|i| expected[at(i)].wrapping_add(1)).collect();
        expected = (0..n).map(|i| shifted[i as usize].wrapping_add(shifted[at(i)])).collect();
    }
    gpu.run(&mut builder.instantiate()?)?;
    let found: Vec<u32> = s.read(0, n as usize)?;
    let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
    ensure!(wrong == 0, "{wrong} of {n} words are wrong");
    Ok(())
}

fn edges_are_those_added(gpu: &Gpu) -> Outcome {
    let buffers = [gpu.memory(&[0u32; 64])?, gpu.memory(&[0u32; 64])?];
    let mut builder = GraphBuilder::new(&gpu.context)?;
    ensure!(builder.edges()?.is_empty(), "an empty graph has edges");
    let launch = gpu.shift(EdgeKind::Programmatic, &buffers[1], &buffers[0])?;
    let mut expected = Vec::new();
    let mut nodes = Vec::new();
    for i in 0..20usize {
        let kind = if i % 3 == 0 { EdgeKind::Full } else { EdgeKind::Programmatic };
        let befores = [i.checked_sub(1), i.checked_sub(4)];
        let after: Vec<(GraphNode, EdgeKind)> =
            befores.into_iter().flatten().map(|before| (nodes[before], kind)).collect();
        let node = builder.add_kernel(&launch, &after)?;
        expected.extend(after.iter().map(|(before, kind)| Edge {
            before: *before,
            after: node,
            kind: *kind,
        }));
        nodes.push(node);
    }
    expected.sort();
    ensure!(builder.edges()? == expected, "other edges: {:?}", builder.edges()?);
    Ok(())
}

fn new_arguments_reach_the_kernel(gpu: &Gpu) -> Outcome {
    let start: Vec<u32> = (0..1000).collect();
    let [a, b, c] = [gpu.memory(&start)?, gpu.memory(&[0u32; 1000])?, gpu.memory(&[0u32; 1000])?];
    let mut builder = GraphBuilder::new(&gpu.context)?;
    let node = builder.add_kernel(&gpu.shift(EdgeKind::Full, &b, &a)?, &[])?;
    let mut graph = builder.instantiate()?;
    gpu.run(&mut graph)?;
    graph.set_kernel(node, &gpu.shift(EdgeKind::Full, &c, &b)?)?;
    gpu.run(&mut graph)?;
    let found: Vec<u32> = c.read(0, 1000)?;
    let expected: Vec<u32> = (0..1000u32).map(|i| (i + 2 * SHIFT) % 1000 + 2).collect();
    ensure!(found == expected, "{:?}", &found[..4]);
    Ok(())
}

fn wrong_arguments_are_refused(gpu: &Gpu) -> Outcome {
    let memory = gpu.memory(&[0u32; 4])?;
    let function = gpu.module.function("shift_full")?;
    let mut builder = GraphBuilder::new(&gpu.context)?;
    for arguments in [
        Arguments::new(),
        Arguments::new().pointer(&memory, 0).pointer(&memory, 0).value(4u32),
        Arguments::new().pointer(&memory, 0).pointer(&memory, 0).value(4u64).value(1u32),
    ] {
        let launch = Launch::linear(&function, 1, 32, arguments);
        let result = builder.add_kernel(&launch, &[]);
        ensure!(matches!(result, Err(CudaError::Arguments { .. })), "{result:?}");
        let result = gpu.stream.launch(&launch);
        ensure!(matches!(result, Err(CudaError::Arguments { .. })), "{result:?}");
    }
    let result = gpu.module.function("absent");
    ensure!(matches!(result, Err(CudaError::NoKernel(_))), "{result:?}");
    Ok(())
}

fn damaged_cubins_are_refused(gpu: &Gpu) -> Outcome {
    for bytes in [&b""[..], b"not a cubin", b"\x7fELF\x02\x01\x01"] {
        let result = Module::load(&gpu.context, bytes);
        ensure!(matches!(result, Err(CudaError::Call { .. })), "{result:?}");
    }
    Ok(())
}

fn copies_stay_inside_memory(gpu: &Gpu) -> Outcome {
    let mut memory = gpu.memory(&[1u8, 2, 3, 4])?;
    ensure!(memory.read::<u8>(1, 3)? == [2, 3, 4], "wrong bytes");
    ensure!(memory.read::<u8>(1, 4).is_err(), "read beyond the end");
    ensure!(memory.write(4, &[0u8]).is_err(), "wrote beyond the end");
    ensure!(memory.write(usize::MAX, &[0u8]).is_err(), "wrote beyond the end");
    let empty = DeviceMemory::new(&gpu.context, 0)?;
    ensure!(empty.read::<u32>(0, 0)?.is_empty(), "bytes of nothing");
    Ok(())
}

fn cycles_leak_nothing(gpu: &Gpu) -> Outcome {
    let cycle = || -> Outcome {
        let buffers = [gpu.memory(&[0u32; 4096])?, gpu.memory(&[0u32; 4096])?];
        let mut graph = chain(gpu, EdgeKind::Programmatic, &buffers, 100)?.instantiate()?;
        graph.upload(&gpu.stream)?;
        gpu.run(&mut graph)
    };
    for _ in 0..20 {
        cycle()?;
    }
    let (device, host) = (gpu.context.memory()?.0, resident_bytes()?);
    for _ in 0..200 {
        cycle()?;
    }
    let (device_after, host_after) = (gpu.context.memory()?.0, resident_bytes()?);
    ensure!(device_after >= device, "{} bytes of device memory lost", device - device_after);
    let grown = host_after.saturating_sub(host);
    ensure!(grown < 4 << 20, "{grown} bytes of host memory lost");
    Ok(())
}

/// Prints what launches cost. The bounds are loose: they catch a mistake, not a slow machine.
fn launches_are_cheap(gpu: &Gpu) -> Outcome {
    let buffers = [gpu.memory(&vec![0u32; 1 << 16])?, gpu.memory(&vec![0u32; 1 << 16])?];
    for kind in [EdgeKind::Full, EdgeKind::Programmatic] {
        let length = 1000;
        let mut graph = chain(gpu, kind, &buffers, length)?.instantiate()?;
        graph.upload(&gpu.stream)?;
        let (begin, end) = (Event::new(&gpu.context)?, Event::new(&gpu.context)?);
        let (mut device, mut host) = (Vec::new(), Vec::new());
        for _ in 0..30 {
            begin.record(&gpu.stream)?;
            let clock = Instant::now();
            graph.launch(&gpu.stream)?;
            host.push(clock.elapsed().as_secs_f64() * 1e6);
            end.record(&gpu.stream)?;
            device.push(end.microseconds_since(&begin)? / length as f64);
        }
        let (device, host) = (median(device), median(host));
        println!(
            "figure: {kind:?} edge: {device:.3} us a node, launch of {length} nodes {host:.1} us"
        );
        ensure!(device < 10.0 && host < 1000.0, "{device} us a node, {host} us a launch");
    }
    Ok(())
}
