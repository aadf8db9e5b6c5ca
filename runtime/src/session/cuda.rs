//! What only sessions on a CUDA device have: addresses, time, and what the driver knows of the
//! graph; must never change what a run computes.

use super::{Fed, Session, SessionError};
use crate::cuda::{CudaExecutor, DeviceMemory, Edge, Event};
use crate::executor::{Executor, ExecutorError};
use crate::placement;
use membar_ir::graph::ValueId;
use std::sync::Arc;
use std::time::Instant;

/// A session on a CUDA device, seen as such.
pub struct CudaSession<'a> {
    executor: &'a mut CudaExecutor,
    inputs: &'a [(String, ValueId)],
    outputs: &'a [(String, ValueId)],
    fed: Option<&'a Fed>,
}

/// Bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBytes {
    /// Where they begin. The address stays the same as long as the session lives.
    pub address: u64,
    /// How many there are at the extents that were fed last.
    pub bytes: usize,
    /// Whether elements lie without gaps; if not, `bytes` counts the gaps.
    pub contiguous: bool,
}

/// How long runs take.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Microseconds of each run on the device, from the end of the one before to its own end,
    /// without copies.
    pub device: Vec<f64>,
    /// Microseconds that each launch took on the host.
    pub host: Vec<f64>,
}

impl Timing {
    /// Median of the device's time in microseconds.
    pub fn device_median(&self) -> f64 {
        median(&self.device)
    }

    /// Median of the host's time in microseconds.
    pub fn host_median(&self) -> f64 {
        median(&self.host)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

impl Session {
    /// The session as one on a CUDA device; `None` if it is not.
    pub fn cuda(&mut self) -> Option<CudaSession<'_>> {
        let Executor::Cuda(executor) = &mut self.executor else { return None };
        let (inputs, outputs) = (&self.inputs, &self.outputs);
        Some(CudaSession { executor, inputs, outputs, fed: self.fed.as_ref() })
    }
}

impl CudaSession<'_> {
    /// How many kernels a run launches.
    pub fn launch_count(&self) -> usize {
        self.executor.launch_count()
    }

    /// How many CUDA graphs the session has instantiated so far: one at its start, none for other
    /// extents, and one for each that had to be made anew.
    pub fn instantiations(&self) -> usize {
        self.executor.instantiations()
    }

    /// Size of the weights on the device in bytes.
    pub fn weight_bytes(&self) -> usize {
        self.executor.weight_bytes()
    }

    /// The edges of the CUDA graph as the driver has them, between launches in the order of the
    /// program; `None` if the session has no CUDA graph (see [`Session::notes`]).
    ///
    /// # Errors
    /// The driver's.
    pub fn edges(&self) -> Result<Option<Vec<Edge>>, SessionError> {
        Ok(self.executor.edges()?)
    }

    /// The edges that the program's orders ask for.
    ///
    /// # Errors
    /// The program does not fit the graph.
    pub fn planned_edges(&self) -> Result<Vec<Edge>, SessionError> {
        Ok(self.executor.planned_edges()?)
    }

    /// Where an input or output lies, to be written before [`Session::launch`] or read after
    /// [`Session::synchronize`] by other code on the same device, without copies through the host;
    /// see [`Session::feed_extents`]. `None` if there is none of that name.
    ///
    /// # Errors
    /// Nothing was fed, or the value has no bytes of its own.
    pub fn bytes_of(&self, name: &str) -> Result<Option<DeviceBytes>, SessionError> {
        let fed = self.fed.ok_or(SessionError::NotFed)?;
        let all = self.inputs.iter().chain(self.outputs);
        let Some((_, value)) = all.into_iter().find(|(other, _)| other == name) else {
            return Ok(None);
        };
        let address = self.executor.address(*value)?;
        if !self.executor.is_planned(*value) {
            let ty = placement::concrete(self.executor.graph(), *value, &fed.bindings)?;
            return Ok(Some(DeviceBytes { address, bytes: ty.byte_len(), contiguous: true }));
        }
        let (view, span) = placement::place(self.executor.graph(), *value, &fed.bindings)?;
        let (bytes, contiguous) = (span.bytes.len(), view.is_contiguous());
        Ok(Some(DeviceBytes { address, bytes, contiguous }))
    }

    /// Lets a weight lie in other memory of the same device, from `offset` on, which has its value
    /// already: patches the kernels that read it. The session keeps the memory.
    ///
    /// # Errors
    /// The value is no weight, the memory is not of that device or has not the bytes, or the
    /// driver's.
    pub fn relocate_weight(
        &mut self,
        weight: ValueId,
        memory: Arc<DeviceMemory>,
        offset: usize,
    ) -> Result<(), SessionError> {
        Ok(self.executor.relocate_weight(weight, memory, offset)?)
    }

    /// Makes the CUDA graph anew, and frees the old one.
    ///
    /// # Errors
    /// The device was lost. If the driver refuses, the session goes on without a graph, and says so
    /// in [`Session::notes`].
    pub fn rebuild(&mut self) -> Result<(), SessionError> {
        Ok(self.executor.rebuild()?)
    }

    /// Runs `count` times with what was fed, and measures each; runs before, `count` too but at
    /// most 10, are not counted. States do not go on.
    ///
    /// # Errors
    /// Nothing was fed, or a run fails.
    pub fn measure(&mut self, count: usize) -> Result<Timing, SessionError> {
        self.fed.ok_or(SessionError::NotFed)?;
        for _ in 0..count.min(10) {
            self.executor.launch()?;
        }
        self.executor.synchronize()?;
        let event = || Event::new(self.executor.stream().context()).map_err(ExecutorError::from);
        let events = (0..=count).map(|_| event()).collect::<Result<Vec<Event>, _>>()?;
        let mut timing = Timing { device: Vec::new(), host: Vec::new() };
        // Runs are queued behind each other, so that no launch's latency stands between them.
        for (index, event) in events.iter().enumerate() {
            if index > 0 {
                let clock = Instant::now();
                self.executor.launch()?;
                timing.host.push(clock.elapsed().as_secs_f64() * 1e6);
            }
            event.record(self.executor.stream()).map_err(ExecutorError::from)?;
        }
        self.executor.synchronize()?;
        for pair in events.windows(2) {
            let time = pair[1].microseconds_since(&pair[0]).map_err(ExecutorError::from)?;
            timing.device.push(time);
        }
        Ok(timing)
    }
}
