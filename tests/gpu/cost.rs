//! What launching a session costs, against the figures of the driver; never a real kernel's time.

use super::session::{Model, launch, model};
use super::{Gpu, Outcome, Test, median};
use anyhow::{Context as _, ensure};
use membar_ir::Tensor;
use membar_ir::program::{Launch, Step};
use membar_runtime::cuda::CudaOptions;
use std::fmt::Write as _;
use std::time::Instant;

pub const TESTS: &[(&str, Test)] = &[
    ("graphs_cost_what_their_nodes_cost", graphs_cost_what_their_nodes_cost),
    ("graphs_beat_streams", graphs_beat_streams),
];

/// A chain of this many steps whose kernels end at once.
pub fn chain(length: usize, mechanism: &str) -> anyhow::Result<Model> {
    let mut text = String::from(
        "ir 1 stage scheduled topology \"h200\"\n\
         graph @chain(%v0: f32[4] @gpu0.hbm in $0[0..16] on gpu0) {\n  \
         buffer $0 = 16 @gpu0.hbm\n",
    );
    for i in 0..length {
        let next = i + 1;
        writeln!(
            text,
            "  %v{next} = neg %v{i} : f32[4] @gpu0.hbm in $0[0..16] on gpu0 step waits"
        )?;
    }
    for i in 1..length {
        writeln!(text, "  order %v{i} -> %v{} raw $0[0..16] by {mechanism}", i + 1)?;
    }
    writeln!(text, "  return %v{length}\n}}")?;
    let one = Launch { grid: [1; 3], block: [32, 1, 1], ..launch(0, Vec::new()) };
    let mut model = model(&text, &[], &["nothing"], Vec::new())?;
    model.program.steps = (1..=length as u32)
        .map(|position| Step { position, launches: vec![one.clone()] })
        .collect();
    Ok(model)
}

/// Measured on an H200, driver 580: microseconds a node of one block, behind a programmatic and
/// behind a full edge.
const NODE_COST: [(&str, f64); 2] = [("programmatic", 0.48), ("edge", 0.76)];

fn graphs_cost_what_their_nodes_cost(gpu: &Gpu) -> Outcome {
    let x = [("v0".to_string(), Tensor::from_elements(&[4], &[0f32; 4])?)].into();
    for (mechanism, cost) in NODE_COST {
        for length in [10usize, 100, 1000] {
            let mut session = chain(length, mechanism)?.session(gpu, CudaOptions::default())?;
            ensure!(session.notes().is_empty(), "{:?}", session.notes());
            session.feed(&x)?;
            let timing = session.cuda().context("not on a device")?.measure(200)?;
            let mut alone = Vec::new();
            for _ in 0..200 {
                let clock = Instant::now();
                session.launch()?;
                alone.push(clock.elapsed().as_secs_f64() * 1e6);
                session.synchronize()?;
            }
            let (device, host) = (timing.device_median(), median(alone));
            println!(
                "figure: {length} nodes behind {mechanism}: {device:.1} us on the device \
                 ({:.3} a node), launch {host:.1} us on the host",
                device / length as f64
            );
            // What a launch of a graph itself costs the device is not in the cost of a node.
            let bound = 1.3 * length as f64 * cost + 6.0;
            ensure!(device <= bound, "{length} nodes behind {mechanism}: {device} us > {bound} us");
            ensure!(host < 10.0, "a launch of {length} nodes takes {host} us on the host");
        }
    }
    Ok(())
}

fn graphs_beat_streams(gpu: &Gpu) -> Outcome {
    let x = [("v0".to_string(), Tensor::from_elements(&[4], &[0f32; 4])?)].into();
    let model = chain(200, "programmatic")?;
    let mut times = Vec::new();
    for without_graph in [false, true] {
        let options = CudaOptions { without_graph, ..CudaOptions::default() };
        let mut session = model.session(gpu, options)?;
        session.feed(&x)?;
        times.push(session.cuda().context("not on a device")?.measure(100)?.device_median());
    }
    println!("figure: 200 launches: graph {:.1} us, stream {:.1} us", times[0], times[1]);
    ensure!(times[0] < times[1], "a graph is slower than its launches on a stream");
    Ok(())
}
