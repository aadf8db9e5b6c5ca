//! Sessions on a device over hand-made programs, against the CPU executor of the same graphs; never
//! a program that the compiler made.

use super::{Gpu, Outcome, THREADS, Test, resident_bytes};
use anyhow::{Context as _, ensure};
use membar_ir::program::{Argument, DeviceProgram, Kernel, KernelId, Launch, Step, TensorMap};
use membar_ir::testing::{Random, floats};
use membar_ir::{ConcreteType, DType, Graph, Symbol, Tensor};
use membar_runtime::cuda::{self, Arguments, CudaOptions, Edge, EdgeKind};
use membar_runtime::weights::Materialiser;
use membar_runtime::{RunOptions, Session};
use std::collections::BTreeMap;
use std::process::Command;

pub const TESTS: &[(&str, Test)] = &[
    ("programs_agree_with_the_cpu", |gpu| programs_agree(gpu, false)),
    ("programs_without_a_graph_agree_with_the_cpu", |gpu| programs_agree(gpu, true)),
    ("edges_are_those_of_the_orders", edges_are_those_of_the_orders),
    ("indices_out_of_range_name_the_node", indices_name_the_node),
    ("states_go_on_from_run_to_run_on_a_device", states_go_on),
    ("tensor_maps_and_clusters_reach_the_kernel", tensor_maps_and_clusters),
    ("weights_arrive_whole_and_once", weights_arrive),
    ("weights_are_updated_in_place_and_elsewhere", weights_are_updated),
    ("inputs_can_be_written_on_the_device", inputs_on_the_device),
    ("programs_that_do_not_fit_are_refused_on_a_device", misfits_are_refused),
    ("cycles_of_sessions_leak_nothing", cycles_leak_nothing),
    ("a_lost_device_is_reported_once_and_cleanly", a_lost_device_is_reported),
];

/// A test's name and body.
pub type Case = (&'static str, fn() -> Outcome);

/// What needs no GPU.
pub const ON_THE_CPU: &[Case] = &[("hand_made_graphs_are_valid", graphs_are_valid)];

/// The graphs of the hand-made programs run on the CPU, which the others are compared with.
fn graphs_are_valid() -> Outcome {
    let mut random = Random::new(3);
    let rows = input("rows", Tensor::from_elements(&[3], &[1i64, -1, 9])?);
    let x = input("x", random.tensor(DType::F32, &[2, 3, 3]));
    let mut sum = input("x", random.tensor(DType::F32, &[600]));
    sum.insert("n".to_string(), random.tensor(DType::F32, &[1]));
    let v0 = input("v0", random.tensor(DType::F32, &[4]));
    let chain = super::cost::chain(20, "programmatic")?;
    for (model, given) in [(table()?, rows), (cache()?, x), (sums()?, sum), (chain, v0)] {
        let name = model.graph.name.clone();
        model.on_the_cpu()?.run(&given).with_context(|| name)?;
    }
    Ok(())
}

/// A scheduled graph with a program of the suite's kernels.
pub struct Model {
    pub graph: Graph,
    pub program: DeviceProgram,
}

/// A launch of a kernel of `session.cu` that fills a part of the device.
pub fn launch(kernel: u32, arguments: Vec<Argument>) -> Launch {
    Launch {
        kernel: KernelId(kernel),
        grid: [13, 1, 1],
        block: [THREADS, 1, 1],
        cluster: 1,
        shared_bytes: 0,
        arguments,
    }
}

/// A model of a graph's text; steps are schedule positions with their launches.
pub fn model(
    text: &str,
    symbols: &[&str],
    kernels: &[&str],
    steps: Vec<(u32, Vec<Launch>)>,
) -> anyhow::Result<Model> {
    let kernel = |name: &&str| Kernel { name: name.to_string(), source: String::new() };
    let program = DeviceProgram {
        target: "sm_90a".to_string(),
        symbols: symbols.iter().copied().map(Symbol::new).collect(),
        kernels: kernels.iter().map(kernel).collect(),
        steps: steps.into_iter().map(|(position, launches)| Step { position, launches }).collect(),
    };
    Ok(Model { graph: Graph::parse(text)?, program })
}

impl Model {
    /// A session on the device.
    pub fn session(&self, gpu: &Gpu, options: CudaOptions<'_>) -> anyhow::Result<Session> {
        let weights = Materialiser::default().weights(&self.graph)?;
        let cubins = vec![gpu.session_cubin()?.clone(); self.program.kernels.len()];
        let (graph, program) = (self.graph.clone(), self.program.clone());
        Ok(Session::on_cuda_with(gpu.device(), graph, program, cubins, weights, options)?)
    }

    /// A session of the same graph on the CPU.
    fn on_the_cpu(&self) -> anyhow::Result<Session> {
        Ok(Session::from_graph(self.graph.clone())?)
    }
}

fn input(name: &str, tensor: Tensor) -> BTreeMap<String, Tensor> {
    [(name.to_string(), tensor)].into()
}

/// Rows of a table, negated through a workspace by two launches, doubled; the reshape between
/// launches nothing, and what it waits for is handed on.
fn table() -> anyhow::Result<Model> {
    let text = r#"ir 1 stage scheduled topology "h200"
graph @table(%rows: i64[S] @gpu0.hbm in $1[0..512] on gpu0) where S in 1..=64 {
  buffer $0 = 18K @gpu0.hbm
  buffer $1 = 512 @gpu0.hbm
  buffer $2 = 6K @gpu0.hbm
  %table = weight random seed 7 stream 3 normal(1.0) : f32[10, 24] @gpu0.hbm on gpu0
  %g = gather %table, %rows {axis = 0} : f32[S, 24] @gpu0.hbm in $0[0..6K] on gpu0 step waits from "embed/rows"
  %n = neg %g : f32[S, 24] @gpu0.hbm in $0[6K..12K] on gpu0 workspace $0[12K..18K] step waits
  %r = reshape %n {shape = [24*S]} : f32[24*S] @gpu0.hbm in $0[6K..12K] on gpu0
  %y = add %r, %r : f32[24*S] @gpu0.hbm in $2[0..6K] on gpu0 step waits
  order %g -> %n raw $0[0..6K] by programmatic
  order %n -> %r raw $0[6K..12K] by programmatic
  order %r -> %y raw $0[6K..12K] by programmatic
  return %y
}
"#;
    use Argument::{Dims, Faults, I64, Operand, Output, U32, Workspace};
    let gather = vec![Dims, Faults, U32(2), Output(0), Operand(0), Operand(1), I64(10), I64(24)];
    let keep = vec![Dims, Workspace(0), Operand(0), I64(24)];
    let negate = vec![Dims, Output(0), Workspace(0), I64(24)];
    let add = vec![Dims, Output(0), Operand(0), Operand(1), I64(24)];
    model(
        text,
        &["S"],
        &["gather_rows", "keep", "negate", "add"],
        vec![
            (2, vec![launch(0, gather)]),
            (3, vec![launch(1, keep), launch(2, negate)]),
            (5, vec![launch(3, add)]),
        ],
    )
}

fn programs_agree(gpu: &Gpu, without_graph: bool) -> Outcome {
    let model = table()?;
    let options = CudaOptions { without_graph, ..CudaOptions::default() };
    let (mut session, mut cpu) = (model.session(gpu, options)?, model.on_the_cpu()?);
    ensure!(session.notes().is_empty(), "{:?}", session.notes());
    let mut random = Random::new(11);
    for size in [1usize, 64, 2, 63, 17, 17, 1] {
        let rows: Vec<i64> = (0..size).map(|_| random.integer(-10, 9)).collect();
        let given = input("rows", Tensor::from_elements(&[size], &rows)?);
        let (found, expected) = (session.run(&given)?, cpu.run(&given)?);
        ensure!(found == expected, "other results for {size} rows");
    }
    Ok(())
}

fn edges_are_those_of_the_orders(gpu: &Gpu) -> Outcome {
    let mut model = table()?;
    let edges = |model: &Model| -> anyhow::Result<Vec<(u32, u32, EdgeKind)>> {
        let mut session = model.session(gpu, CudaOptions::default())?;
        let cuda = session.cuda().context("not on a device")?;
        let found = cuda.edges()?.context("no graph")?;
        ensure!(found == cuda.planned_edges()?, "the driver has other edges: {found:?}");
        ensure!(cuda.launch_count() == 4, "{} launches", cuda.launch_count());
        let plain = |edge: &Edge| (edge.before.0, edge.after.0, edge.kind);
        Ok(found.iter().map(plain).collect())
    };
    let (full, programmatic) = (EdgeKind::Full, EdgeKind::Programmatic);
    let expected = [(0, 1, programmatic), (1, 2, full), (2, 3, programmatic)];
    ensure!(edges(&model)? == expected, "{:?}", edges(&model)?);
    model.graph.orders[1].mechanism = membar_ir::schedule::Mechanism::Edge;
    let expected = [(0, 1, programmatic), (1, 2, full), (2, 3, full)];
    ensure!(edges(&model)? == expected, "{:?}", edges(&model)?);
    Ok(())
}

fn indices_name_the_node(gpu: &Gpu) -> Outcome {
    let model = table()?;
    let (mut session, mut cpu) = (model.session(gpu, CudaOptions::default())?, model.on_the_cpu()?);
    let good = input("rows", Tensor::from_elements(&[3], &[0i64, 9, -10])?);
    for index in [10i64, -11, i64::MAX, i64::MIN] {
        let bad = input("rows", Tensor::from_elements(&[2], &[3, index])?);
        let (Err(found), Err(expected)) = (session.run(&bad), cpu.run(&bad)) else {
            anyhow::bail!("index {index} was taken");
        };
        ensure!(found.to_string() == expected.to_string(), "{found}, the CPU says {expected}");
        ensure!(found.to_string().contains("embed/rows"), "{found}");
        // The next run begins afresh.
        ensure!(session.run(&good)? == cpu.run(&good)?, "other results after a fault");
    }
    Ok(())
}

/// A cache that grows with gaps between rows, and a state that is replaced in place.
fn cache() -> anyhow::Result<Model> {
    let text = r#"ir 1 stage scheduled topology "h200"
graph @cache(
  %past: f32[B, P, 3] @gpu0.hbm in $0[0..192] capacity [2, 8, 3] on gpu0,
  %x: f32[B, S, 3] @gpu0.hbm in $1[0..96] on gpu0,
  %total: f32[1] @gpu0.hbm in $2[0..4] on gpu0
) where B in 1..=2, P in 0..=7, S in 1..=4 {
  state %past -> present {axis = 1, length = P, capacity = 8}
  state %total -> next
  buffer $0 = 192 @gpu0.hbm
  buffer $1 = 96 @gpu0.hbm
  buffer $2 = 4 @gpu0.hbm
  %one = weight [1.0] : f32[1] @gpu0.hbm on gpu0
  %present = append %past, %x {axis = 1} : f32[B, P + S, 3] @gpu0.hbm in $0[0..192] capacity [2, 8, 3] on gpu0 step waits
  %a = abs %total : f32[1] @gpu0.hbm in $2[0..4] on gpu0
  %next = add %a, %one : f32[1] @gpu0.hbm in $2[0..4] on gpu0 step waits
  order %a -> %next raw $2[0..4] by edge
  return
    %present,
    %next
}
"#;
    use Argument::{Dims, I64, Operand, Output};
    let append = vec![Dims, Output(0), Operand(1), I64(8), I64(3)];
    // The step of `%a` launches nothing here: the kernel of `%next` computes both.
    model(
        text,
        &["B", "P", "S"],
        &["append", "count"],
        vec![(4, vec![launch(0, append)]), (6, vec![launch(1, vec![Output(0), Operand(1)])])],
    )
}

fn states_go_on(gpu: &Gpu) -> Outcome {
    let model = cache()?;
    let (mut session, mut cpu) = (model.session(gpu, CudaOptions::default())?, model.on_the_cpu()?);
    let mut random = Random::new(61);
    let options = RunOptions { states: true };
    for batch in [1usize, 2, 1] {
        for length in [1usize, 3, 4] {
            let given = input("x", random.tensor(DType::F32, &[batch, length, 3]));
            let (found, expected) =
                (session.run_with(&given, &options)?, cpu.run_with(&given, &options)?);
            ensure!(found == expected, "batch {batch}: {found:?} instead of {expected:?}");
        }
        let more = input("x", random.tensor(DType::F32, &[batch, 1, 3]));
        ensure!(session.run(&more).is_err(), "grew beyond its capacity");
        session.reset();
        cpu.reset();
    }
    let mut given = input("x", random.tensor(DType::F32, &[2, 1, 3]));
    given.insert("past".to_string(), random.tensor(DType::F32, &[2, 5, 3]));
    given.insert("total".to_string(), Tensor::from_elements(&[1], &[-7f32])?);
    let found = session.run_with(&given, &options)?;
    ensure!(found == cpu.run_with(&given, &options)?, "{found:?}");
    Ok(())
}

fn tensor_maps_and_clusters(gpu: &Gpu) -> Outcome {
    if gpu.device().compute_capability()?.0 < 9 {
        println!("note: this device has neither tensor maps nor clusters");
        return Ok(());
    }
    let text = r#"ir 1 stage scheduled topology "h200"
graph @box(%x: f32[16, 64] @gpu0.hbm in $0[0..4K] on gpu0) {
  buffer $0 = 4K @gpu0.hbm
  buffer $1 = 1K @gpu0.hbm
  buffer $2 = 4K @gpu0.hbm
  %y = slice %x {starts = [0, 0], sizes = [8, 32], steps = [1, 1]} : f32[8, 32] @gpu0.hbm in $1[0..1K] on gpu0 step waits
  %ranks = neg %x : f32[16, 64] @gpu0.hbm in $2[0..4K] on gpu0 step waits
  order %y -> %ranks linearise by programmatic
  return
    %y,
    %ranks
}
"#;
    let map = TensorMap {
        base: Box::new(Argument::Operand(0)),
        dtype: DType::F32,
        extents: vec![64, 16],
        strides: vec![256],
        box_extents: vec![32, 8],
        swizzle: 0,
    };
    let copy = launch(0, vec![Argument::TensorMap(map), Argument::Output(0)]);
    let ranks = |cluster: u32, shared_bytes: u32| Launch {
        grid: [32, 1, 1],
        cluster,
        shared_bytes,
        ..launch(1, vec![Argument::Output(0)])
    };
    for (cluster, shared_bytes, without_graph) in
        [(1, 0, false), (4, 0, false), (16, 100 << 10, false), (16, 0, true)]
    {
        let steps = vec![(1, vec![copy.clone()]), (2, vec![ranks(cluster, shared_bytes)])];
        let model = model(text, &[], &["copy_box", "cluster_rank"], steps)?;
        let options = CudaOptions { without_graph, ..CudaOptions::default() };
        let mut session = model.session(gpu, options)?;
        ensure!(session.notes().is_empty(), "{:?}", session.notes());
        let x = Random::new(5).tensor(DType::F32, &[16, 64]);
        let found = session.run(&input("x", x.clone()))?;
        let all = floats(&x);
        let expected: Vec<f64> = (0..8 * 32).map(|i| all[i / 32 * 64 + i % 32]).collect();
        ensure!(floats(&found["y"]) == expected, "another box");
        let expected: Vec<f64> = (0..32u32).map(|block| f64::from(block % cluster)).collect();
        ensure!(floats(&found["ranks"])[..32] == expected, "other clusters than of {cluster}");
    }
    Ok(())
}

fn weights_arrive(gpu: &Gpu) -> Outcome {
    // The first is larger than all pinned memory of the upload, and twice there.
    let text = r#"ir 1 stage scheduled topology "h200"
graph @weights() {
  %a = weight random seed 1 stream 1 normal(1.0) : f32[5000003] @gpu0.hbm on gpu0
  %b = weight random seed 1 stream 2 normal(1.0) : f16[77] @gpu0.hbm on gpu0
  %c = weight random seed 1 stream 1 normal(1.0) : f32[5000003] @gpu0.hbm on gpu0
  return
    %a,
    %b,
    %c
}
"#;
    let model = model(text, &[], &[], Vec::new())?;
    let mut reports = Vec::new();
    let mut progress = |done, total| reports.push((done, total));
    let options = CudaOptions { progress: Some(&mut progress), ..CudaOptions::default() };
    let mut session = model.session(gpu, options)?;
    let total = 5_000_003 * 4 + 77 * 2;
    ensure!(reports.first() == Some(&(0, total)), "{reports:?}");
    ensure!(reports.last() == Some(&(total, total)), "{reports:?}");
    ensure!(reports.is_sorted() && reports.len() > 4, "{reports:?}");
    let nothing = BTreeMap::new();
    ensure!(session.run(&nothing)? == model.on_the_cpu()?.run(&nothing)?, "other weights");
    let bytes = session.cuda().context("not on a device")?.weight_bytes() as u64;
    ensure!((total..total + 1024).contains(&bytes), "{bytes} bytes of weights");
    Ok(())
}

/// `y = x + a`, `z = x + b`, where `a` and `b` are equal at first and so share their bytes.
fn sums() -> anyhow::Result<Model> {
    let text = r#"ir 1 stage scheduled topology "h200"
graph @sums(
  %x: f32[600] @gpu0.hbm in $0[0..2400] on gpu0,
  %n: f32[N] @gpu0.hbm in $3[0..4] on gpu0
) where N in 1..=1 {
  buffer $0 = 2400 @gpu0.hbm
  buffer $1 = 2400 @gpu0.hbm
  buffer $2 = 2400 @gpu0.hbm
  buffer $3 = 4 @gpu0.hbm
  %a = weight random seed 1 stream 1 normal(1.0) : f32[600] @gpu0.hbm on gpu0
  %b = weight random seed 1 stream 1 normal(1.0) : f32[600] @gpu0.hbm on gpu0
  %y = add %x, %a : f32[600] @gpu0.hbm in $1[0..2400] on gpu0 step waits
  %z = add %x, %b : f32[600] @gpu0.hbm in $2[0..2400] on gpu0 step waits
  order %y -> %z linearise by programmatic
  return
    %y,
    %z
}
"#;
    use Argument::{Dims, I64, Operand, Output};
    let add = || launch(0, vec![Dims, Output(0), Operand(0), Operand(1), I64(600)]);
    model(text, &["N"], &["add"], vec![(4, vec![add()]), (5, vec![add()])])
}

fn weights_are_updated(gpu: &Gpu) -> Outcome {
    let model = sums()?;
    let (mut session, mut cpu) = (model.session(gpu, CudaOptions::default())?, model.on_the_cpu()?);
    let mut random = Random::new(21);
    let mut given = input("x", random.tensor(DType::F32, &[600]));
    given.insert("n".to_string(), Tensor::from_elements(&[1], &[0f32])?);
    let agree = |session: &mut Session, cpu: &mut Session, what: &str| -> Outcome {
        let (found, expected) = (session.run(&given)?, cpu.run(&given)?);
        ensure!(found == expected, "other results {what}");
        Ok(())
    };
    agree(&mut session, &mut cpu, "at first")?;
    let weights: Vec<_> = Materialiser::default().weights(&model.graph)?.into_keys().collect();
    let [a, b] = weights[..] else { anyhow::bail!("{} weights", weights.len()) };
    let bytes = |session: &mut Session| session.cuda().map(|cuda| cuda.weight_bytes());
    let shared = bytes(&mut session);
    let both = random.tensor(DType::F32, &[600]);
    let values = [(a, both.clone()), (b, both.clone())].into();
    session.update_weights(&values)?;
    cpu.update_weights(&values)?;
    ensure!(bytes(&mut session) == shared, "equal weights moved apart");
    agree(&mut session, &mut cpu, "after new values at the same addresses")?;
    for round in 0..3 {
        let values = [(b, random.tensor(DType::F32, &[600]))].into();
        session.update_weights(&values)?;
        cpu.update_weights(&values)?;
        agree(&mut session, &mut cpu, &format!("after new addresses, round {round}"))?;
    }
    let memory = std::sync::Arc::new(gpu.memory(both.as_slice::<f32>()?)?);
    let cuda = session.cuda().context("not on a device")?.relocate_weight(b, memory.clone(), 4);
    ensure!(cuda.is_err(), "took memory that is too small");
    session.cuda().context("not on a device")?.relocate_weight(b, memory, 0)?;
    cpu.update_weights(&[(b, both)].into())?;
    agree(&mut session, &mut cpu, "in memory from outside")?;
    session.cuda().context("not on a device")?.rebuild()?;
    agree(&mut session, &mut cpu, "after the graph was made anew")?;
    for shape in [vec![599], vec![600, 1]] {
        let values =
            [(a, random.tensor(DType::F32, &[600])), (b, random.tensor(DType::F32, &shape))];
        let Err(error) = session.update_weights(&values.into()) else {
            anyhow::bail!("a weight of shape {shape:?} was taken");
        };
        ensure!(error.to_string().contains("expected f32[600]"), "{error}");
        agree(&mut session, &mut cpu, "after a refusal")?;
    }
    let values = [(a, random.tensor(DType::F16, &[600]))].into();
    ensure!(session.update_weights(&values).is_err(), "a weight of another type was taken");
    let x = model.graph.inputs()[0];
    let values = [(x, random.tensor(DType::F32, &[600]))].into();
    let Err(error) = session.update_weights(&values) else { anyhow::bail!("an input was taken") };
    ensure!(error.to_string().contains("no weight"), "{error}");
    Ok(())
}

/// Doubles what lies on the device already.
fn inputs_on_the_device(gpu: &Gpu) -> Outcome {
    let text = r#"ir 1 stage scheduled topology "h200"
graph @double(%x: f32[S] @gpu0.hbm in $0[0..4K] on gpu0) where S in 1..=1024 {
  buffer $0 = 4K @gpu0.hbm
  buffer $1 = 4K @gpu0.hbm
  %y = add %x, %x : f32[S] @gpu0.hbm in $1[0..4K] on gpu0 step waits
  return %y
}
"#;
    use Argument::{Dims, I64, Operand, Output};
    let add = vec![Dims, Output(0), Operand(0), Operand(1), I64(1)];
    let model = model(text, &["S"], &["add"], vec![(1, vec![launch(0, add)])])?;
    let mut session = model.session(gpu, CudaOptions::default())?;
    ensure!(session.launch().is_err(), "ran without inputs");
    let mut random = Random::new(9);
    for size in [1000usize, 3] {
        let [a, b] = [(); 2].map(|()| random.tensor(DType::F32, &[size]));
        let (a, b) = (gpu.memory(a.as_slice::<f32>()?)?, gpu.memory(b.as_slice::<f32>()?)?);
        let types = [("x".to_string(), ConcreteType::new(DType::F32, vec![size])?)].into();
        session.feed_extents(&types)?;
        let cuda = session.cuda().context("not on a device")?;
        let place = cuda.bytes_of("x")?.context("no input")?;
        ensure!(place.contiguous && place.bytes == size * 4, "{place:?}");
        let arguments =
            Arguments::new().value(place.address).pointer(&a, 0).pointer(&b, 0).value(size as u32);
        let sum = cuda::Launch::linear(&gpu.module.function("add")?, 4, THREADS, arguments);
        gpu.stream.launch(&sum)?;
        gpu.stream.synchronize()?;
        session.launch()?;
        session.synchronize()?;
        let outputs = session.collect(&RunOptions::default())?;
        let (a, b): (Vec<f32>, Vec<f32>) = (a.read(0, size)?, b.read(0, size)?);
        let expected: Vec<f64> =
            a.iter().zip(&b).map(|(a, b)| f64::from((a + b) + (a + b))).collect();
        ensure!(floats(&outputs["y"]) == expected, "other sums");
    }
    session.feed_extents(&[("x".to_string(), ConcreteType::new(DType::F32, vec![5])?)].into())?;
    let timing = session.cuda().context("not on a device")?.measure(50)?;
    ensure!(timing.device.len() == 50 && timing.host.len() == 50, "{timing:?}");
    ensure!(timing.device_median() > 0.0 && timing.device_median() < 1e3, "{timing:?}");
    Ok(())
}

fn misfits_are_refused(gpu: &Gpu) -> Outcome {
    let refused = |change: &dyn Fn(&mut Model), part: &str| -> Outcome {
        let mut model = table()?;
        change(&mut model);
        match model.session(gpu, CudaOptions::default()) {
            Ok(_) => anyhow::bail!("taken: {part}"),
            Err(error) => ensure!(format!("{error:#}").contains(part), "{error:#}, not {part}"),
        }
        Ok(())
    };
    refused(&|m| m.program.kernels[1].name = "absent".to_string(), "no kernel `absent`")?;
    refused(&|m| m.program.steps[0].launches[0].arguments.truncate(3), "arguments")?;
    refused(&|m| m.program.steps[0].launches[0].kernel = KernelId(9), "no kernel 9")?;
    refused(&|m| m.program.steps[0].position = 90, "schedule")?;
    let operand = |m: &mut Model, argument| m.program.steps[0].launches[0].arguments[4] = argument;
    refused(&|m| operand(m, Argument::Operand(7)), "no operand 7")?;
    refused(&|m| operand(m, Argument::Workspace(0)), "workspace")?;
    let model = table()?;
    let weights = Materialiser::default().weights(&model.graph)?;
    let result = Session::on_cuda(gpu.device(), model.graph, model.program, Vec::new(), weights);
    ensure!(result.err().is_some_and(|error| error.to_string().contains("0 cubins")), "taken");
    Ok(())
}

fn cycles_leak_nothing(gpu: &Gpu) -> Outcome {
    let (table, sums, cache) = (table()?, sums()?, cache()?);
    let weight = |model: &Model| -> anyhow::Result<_> {
        let weights = Materialiser::default().weights(&model.graph)?;
        weights.into_iter().next().context("no weight")
    };
    let ((table_weight, values), (sums_weight, _)) = (weight(&table)?, weight(&sums)?);
    let sum_values = Random::new(2).tensor(DType::F32, &[600]);
    let rows = input("rows", Tensor::from_elements(&[5], &[1i64, 2, 3, 4, 5])?);
    let x = input("x", Random::new(1).tensor(DType::F32, &[2, 2, 3]));
    let cycle = |number: usize| -> Outcome {
        let without_graph = number % 5 == 4;
        let mut session =
            table.session(gpu, CudaOptions { without_graph, ..CudaOptions::default() })?;
        session.run(&rows)?;
        session.run(&rows)?;
        session.update_weights(&[(table_weight, values.clone())].into())?;
        session.run(&rows)?;
        let mut session = sums.session(gpu, CudaOptions::default())?;
        session.update_weights(&[(sums_weight, sum_values.clone())].into())?;
        session.cuda().context("not on a device")?.rebuild()?;
        let mut session = cache.session(gpu, CudaOptions::default())?;
        session.run(&x)?;
        // The last is dropped while it runs.
        session.feed(&x)?;
        session.launch()?;
        Ok(())
    };
    (0..50).try_for_each(cycle)?;
    let (device, host) = (gpu.context.memory()?.0, resident_bytes()?);
    (0..1000).try_for_each(cycle)?;
    let (device_after, host_after) = (gpu.context.memory()?.0, resident_bytes()?);
    println!("figure: 1000 cycles: {} bytes of host memory", host_after as i64 - host as i64);
    ensure!(device_after >= device, "{} bytes of device memory lost", device - device_after);
    let grown = host_after.saturating_sub(host);
    ensure!(grown < 4 << 20, "{grown} bytes of host memory lost");
    Ok(())
}

/// The variable that makes the suite lose its device instead of testing.
pub const LOSE: &str = "MEMBAR_GPU_LOSE";

/// What a process says that lost its device as it should.
const LOST: &str = "the loss was reported";

/// Loses the device: nothing else can use it in the same process.
fn a_lost_device_is_reported(_: &Gpu) -> Outcome {
    let output = Command::new(std::env::current_exe()?).env(LOSE, "1").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && text.contains(LOST), "{text}\n{error}");
    Ok(())
}

/// A session whose kernel writes where nothing is, and what comes after it.
pub fn lose_the_device() -> Outcome {
    let gpu = Gpu::new()?;
    let text = r#"ir 1 stage scheduled topology "h200"
graph @trespass(%x: f32[4] @gpu0.hbm in $0[0..16] on gpu0) {
  buffer $0 = 16 @gpu0.hbm
  buffer $1 = 16 @gpu0.hbm
  %y = neg %x : f32[4] @gpu0.hbm in $1[0..16] on gpu0 step waits
  return %y
}
"#;
    let model = model(text, &[], &["trespass"], vec![(1, vec![launch(0, Vec::new())])])?;
    let mut session = model.session(&gpu, CudaOptions::default())?;
    let x = input("x", Tensor::from_elements(&[4], &[0f32; 4])?);
    let mut texts = Vec::new();
    for _ in 0..3 {
        match session.run(&x) {
            Ok(_) => anyhow::bail!("ran"),
            Err(error) => texts.push(error.to_string()),
        }
    }
    ensure!(
        texts[0].contains("lost") && texts[0].contains("CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{texts:?}"
    );
    ensure!(texts[1] == texts[0] && texts[2] == texts[0], "{texts:?}");
    drop(session);
    // A session of its own finds the same device.
    let Err(error) = model.session(&gpu, CudaOptions::default()) else {
        anyhow::bail!("a lost device was used again");
    };
    ensure!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    println!("{LOST}: {}", texts[0]);
    Ok(())
}

#[allow(dead_code, reason = "fails to compile where a session cannot move to another thread")]
fn sessions_can_be_sent(session: Session) -> impl Send {
    session
}
