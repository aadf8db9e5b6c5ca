//! Runs a scheduled graph on a CUDA device as one explicit CUDA graph; must never choose an order
//! (the graph has them) or a launch (the program has them).

use super::channel::{Channel, Rows};
use super::context::Context;
use super::error::CudaError;
use super::graph::{Edge, EdgeKind, ExecutableGraph, GraphBuilder, GraphNode};
use super::memory::DeviceMemory;
use super::module::{Function, Launch, Module};
use super::places::{self, Places};
use super::plan;
use super::record::HostRecord;
use super::stream::Stream;
use super::weights::{DeviceWeights, Progress};
use crate::cpu::view::{View, Walk};
use crate::executor::ExecutorError;
use crate::placement::{self, node_name, plan_error, value_name};
use membar_ir::dim::Bindings;
use membar_ir::graph::{Graph, ValueId};
use membar_ir::op::EvalError;
use membar_ir::ops::Op;
use membar_ir::program::{DeviceProgram, FaultRecord};
use membar_ir::tensor::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pinned slots for inputs and outputs, and the bytes of one.
const SLOTS: usize = 8;
const SLOT_BYTES: usize = 256 << 10;

/// Settings of a session on a CUDA device.
#[derive(Default)]
pub struct CudaOptions<'a> {
    /// Is told how far the upload of the weights has come: bytes done, bytes in all.
    pub progress: Option<Progress<'a>>,
    /// Launches on a stream, one kernel after another, instead of a CUDA graph; slow, and for
    /// comparison.
    pub without_graph: bool,
}

/// A scheduled graph on a CUDA device, with its memory.
pub(crate) struct CudaExecutor {
    graph: Graph,
    program: DeviceProgram,
    functions: Vec<Function>,
    launches: Vec<Launch>,
    form: Form,
    /// How many CUDA graphs were instantiated so far.
    instantiations: usize,
    /// What somebody should know of this session.
    notes: Vec<String>,
    places: Places,
    faults: HostRecord<FaultRecord>,
    /// What the dimension block holds.
    dims: Option<Vec<i64>>,
    channel: Channel,
}

impl Drop for CudaExecutor {
    fn drop(&mut self) {
        // Kernels may run that use what is freed next. A failure leaves nothing running.
        let _ = self.channel.stream().synchronize();
    }
}

/// How the launches are launched.
enum Form {
    Graph(ExecutableGraph),
    Stream,
}

impl CudaExecutor {
    /// Allocates, uploads, loads and builds everything; a run does none of these.
    pub fn new(
        context: &Arc<Context>,
        graph: Graph,
        program: DeviceProgram,
        cubins: &[Vec<u8>],
        weights: &BTreeMap<ValueId, Tensor>,
        options: CudaOptions<'_>,
    ) -> Result<CudaExecutor, ExecutorError> {
        placement::check_stage(&graph)?;
        placement::check_weights(&graph, weights)?;
        let edges = plan::edges(&graph, &program)?;
        let functions = load(context, &graph, &program, cubins)?;
        let mut ignored = |_, _| {};
        let bytes = weights.values().map(|tensor| tensor.bytes().len() as u64).sum();
        let weights =
            DeviceWeights::new(context, weights, options.progress.unwrap_or(&mut ignored))
                .map_err(|error| ExecutorError::DeviceMemory {
                    what: "weights".to_string(),
                    bytes,
                    error,
                })?;
        let faults = HostRecord::new(context)?;
        let places = Places {
            buffers: places::allocate(context, &graph)?,
            weights,
            dims: DeviceMemory::new(context, (program.symbols.len() * 8).max(8))?,
            faults: faults.address(),
        };
        let launches = launches(&graph, &program, &places, &functions)?;
        let channel = Channel::new(context, SLOTS, SLOT_BYTES)?;
        let mut notes = Vec::new();
        let form = match options.without_graph {
            true => Form::Stream,
            false => match instantiate(context, &launches, &edges, &channel) {
                Ok(executable) => Form::Graph(executable),
                Err(error @ CudaError::Lost { .. }) => return Err(error.into()),
                Err(error) => {
                    notes.push(no_graph(&error));
                    Form::Stream
                }
            },
        };
        Ok(CudaExecutor {
            graph,
            program,
            functions,
            launches,
            instantiations: usize::from(matches!(form, Form::Graph(_))),
            form,
            notes,
            places,
            faults,
            dims: None,
            channel,
        })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What somebody should know of this session: why it has no CUDA graph.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Size of all buffers in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.places.buffers.values().map(DeviceMemory::len).sum()
    }

    /// Size of the weights in bytes.
    pub fn weight_bytes(&self) -> usize {
        self.places.weights.bytes()
    }

    /// How many kernels a run launches.
    pub fn launch_count(&self) -> usize {
        self.launches.len()
    }

    /// How many CUDA graphs were instantiated so far.
    pub fn instantiations(&self) -> usize {
        self.instantiations
    }

    /// The edges of the CUDA graph, as the driver has them; `None` without a graph.
    pub fn edges(&self) -> Result<Option<Vec<Edge>>, ExecutorError> {
        match &self.form {
            Form::Graph(executable) => Ok(Some(executable.edges()?)),
            Form::Stream => Ok(None),
        }
    }

    /// The edges that the graph's orders ask for.
    pub fn planned_edges(&self) -> Result<Vec<Edge>, ExecutorError> {
        plan::edges(&self.graph, &self.program)
    }

    /// Whether a value lies in a buffer, so that [`CudaExecutor::write`] can set it.
    pub fn is_planned(&self, value: ValueId) -> bool {
        self.graph.value(value).region.is_some() && self.places.weights.address(value).is_none()
    }

    /// Copies a tensor to where an input lies. The copy ends before the next run begins.
    pub fn write(
        &mut self,
        value: ValueId,
        tensor: &Tensor,
        bindings: &Bindings,
    ) -> Result<(), ExecutorError> {
        placement::check_type(&self.graph, value, tensor, bindings)?;
        let (view, span) = placement::place(&self.graph, value, bindings)?;
        let Some(buffer) = self.places.buffers.get(&span.buffer) else {
            return Err(plan_error(&self.graph, value, "its buffer does not exist"));
        };
        let parts = parts(&view, span.bytes.start)
            .ok_or_else(|| plan_error(&self.graph, value, "its elements cannot lie apart"))?;
        let mut bytes = tensor.bytes();
        for rows in parts {
            let (part, rest) = bytes.split_at(rows.row_bytes * rows.rows);
            self.channel.upload(part, buffer, &rows)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Copies a value, or a weight, to the host.
    pub fn read(&mut self, value: ValueId, bindings: &Bindings) -> Result<Tensor, ExecutorError> {
        let ty = placement::concrete(&self.graph, value, bindings)?;
        let mut tensor = Tensor::zeros(ty);
        if let Some((memory, rows)) = self.places.weights.find(value) {
            self.channel.download(memory, &rows, tensor.bytes_mut())?;
            return Ok(tensor);
        }
        let (view, span) = placement::place(&self.graph, value, bindings)?;
        let Some(buffer) = self.places.buffers.get(&span.buffer) else {
            return Err(plan_error(&self.graph, value, "its buffer does not exist"));
        };
        let parts = parts(&view, span.bytes.start)
            .ok_or_else(|| plan_error(&self.graph, value, "its elements cannot lie apart"))?;
        let mut bytes = tensor.bytes_mut();
        for rows in parts {
            let (part, rest) = bytes.split_at_mut(rows.row_bytes * rows.rows);
            self.channel.download(buffer, &rows, part)?;
            bytes = rest;
        }
        Ok(tensor)
    }

    /// Gives weights new values: through the same addresses, or where two weights shared theirs and
    /// do so no longer, at new ones.
    pub fn update_weights(
        &mut self,
        values: &BTreeMap<ValueId, Tensor>,
    ) -> Result<(), ExecutorError> {
        self.synchronize()?;
        self.places.weights.update(&mut self.channel, values)?;
        self.channel.stream().synchronize()?;
        self.repoint()
    }

    /// Lets a weight lie at other addresses, which have its value already.
    pub fn relocate_weight(
        &mut self,
        value: ValueId,
        memory: Arc<DeviceMemory>,
        offset: usize,
    ) -> Result<(), ExecutorError> {
        self.synchronize()?;
        if !self.places.weights.relocate(value, memory, offset)? {
            return Err(ExecutorError::NotAWeight(value_name(&self.graph, value)));
        }
        self.repoint()
    }

    /// Patches every launch whose addresses changed; if the driver does not take that, makes the
    /// graph anew.
    fn repoint(&mut self) -> Result<(), ExecutorError> {
        let launches = launches(&self.graph, &self.program, &self.places, &self.functions)?;
        let old = std::mem::replace(&mut self.launches, launches);
        let Form::Graph(executable) = &mut self.form else { return Ok(()) };
        for ((number, new), old) in (0..).zip(&self.launches).zip(&old) {
            if new.arguments == old.arguments {
                continue;
            }
            match executable.set_kernel(GraphNode(number), new) {
                Ok(()) => {}
                Err(error @ CudaError::Lost { .. }) => return Err(error.into()),
                Err(_) => return self.rebuild(),
            }
        }
        Ok(())
    }

    /// Makes the graph anew from the launches, and frees the old one.
    pub fn rebuild(&mut self) -> Result<(), ExecutorError> {
        self.synchronize()?;
        let edges = self.planned_edges()?;
        // The old one goes first, so that there are never two.
        self.form = Form::Stream;
        let context = self.channel.stream().context().clone();
        match instantiate(&context, &self.launches, &edges, &self.channel) {
            Ok(executable) => {
                self.form = Form::Graph(executable);
                self.instantiations += 1;
            }
            Err(error @ CudaError::Lost { .. }) => return Err(error.into()),
            Err(error) => self.notes.push(no_graph(&error)),
        }
        Ok(())
    }

    /// Gives the kernels the extents of the next runs.
    pub fn set_dims(&mut self, bindings: &Bindings) -> Result<(), ExecutorError> {
        let mut dims = Vec::with_capacity(self.program.symbols.len());
        for symbol in &self.program.symbols {
            let Some(value) = bindings.get(symbol) else {
                let message = format!("dimension `{}` has no value", symbol.name());
                return Err(plan::error(&self.graph, message));
            };
            dims.push(*value);
        }
        if self.dims.as_ref() == Some(&dims) {
            return Ok(());
        }
        // Unknown until the copy was accepted.
        self.dims = None;
        let rows = Rows::contiguous(0, dims.len() * 8);
        self.channel.upload(bytemuck::cast_slice(&dims), &self.places.dims, &rows)?;
        self.dims = Some(dims);
        Ok(())
    }

    /// Starts a run with the extents and inputs that are there; does not wait.
    pub fn launch(&mut self) -> Result<(), ExecutorError> {
        let stream = self.channel.stream();
        match &mut self.form {
            Form::Graph(executable) => executable.launch(stream)?,
            Form::Stream => self.launches.iter().try_for_each(|launch| stream.launch(launch))?,
        }
        Ok(())
    }

    /// The stream of all copies and launches.
    pub fn stream(&self) -> &Stream {
        self.channel.stream()
    }

    /// Where a value begins on the device.
    pub fn address(&self, value: ValueId) -> Result<u64, ExecutorError> {
        self.places.value(&self.graph, value)
    }

    /// Waits for all runs, and reports what they found wrong.
    pub fn synchronize(&mut self) -> Result<(), ExecutorError> {
        self.channel.stream().synchronize()?;
        let fault = self.faults.take();
        if fault.kind == 0 {
            return Ok(());
        }
        let node = self.graph.schedule.get(fault.step as usize).copied();
        let error = match fault.kind {
            1 => EvalError::Index {
                index: fault.index,
                extent: usize::try_from(fault.extent).unwrap_or(0),
            },
            kind => EvalError::Invalid(format!("it reported a fault of unknown kind {kind}")),
        };
        Err(ExecutorError::Step {
            node: node.map_or_else(|| "?".to_string(), |id| node_name(&self.graph, id)),
            operator: node.and_then(|id| self.graph.node(id).op()).map_or("", Op::mnemonic),
            error,
        })
    }
}

/// The note of a session that launches on a stream.
fn no_graph(error: &CudaError) -> String {
    format!("no CUDA graph can be made, so kernels are launched one by one: {error}")
}

/// Loads every kernel.
fn load(
    context: &Arc<Context>,
    graph: &Graph,
    program: &DeviceProgram,
    cubins: &[Vec<u8>],
) -> Result<Vec<Function>, ExecutorError> {
    if cubins.len() != program.kernels.len() {
        let (found, expected) = (cubins.len(), program.kernels.len());
        return Err(plan::error(graph, format!("{found} cubins for {expected} kernels")));
    }
    program
        .kernels
        .iter()
        .zip(cubins)
        .map(|(kernel, cubin)| {
            let module = Module::load(context, cubin);
            let function = module.and_then(|module| module.function(&kernel.name));
            let failed = |error| ExecutorError::Load { kernel: kernel.name.clone(), error };
            function.map_err(failed)
        })
        .collect()
}

/// Every launch of the program with its addresses.
fn launches(
    graph: &Graph,
    program: &DeviceProgram,
    places: &Places,
    functions: &[Function],
) -> Result<Vec<Launch>, ExecutorError> {
    let mut launches = Vec::with_capacity(program.launch_count());
    for step in &program.steps {
        // `plan::edges` checked that the position exists.
        let Some(node) = graph.schedule.get(step.position as usize) else { continue };
        for launch in &step.launches {
            let Some(function) = functions.get(launch.kernel.0 as usize) else {
                let message = format!("there is no kernel {}", launch.kernel.0);
                return Err(plan::error(graph, message));
            };
            let launch = Launch {
                function: function.clone(),
                grid: launch.grid,
                block: launch.block,
                cluster: launch.cluster,
                shared_bytes: launch.shared_bytes,
                arguments: places.arguments(graph, *node, &launch.arguments)?,
            };
            launch
                .prepare()
                .map_err(|error| ExecutorError::Launch { node: node_name(graph, *node), error })?;
            launches.push(launch);
        }
    }
    Ok(launches)
}

/// The launches as one executable graph on the device.
fn instantiate(
    context: &Arc<Context>,
    launches: &[Launch],
    edges: &[Edge],
    channel: &Channel,
) -> Result<ExecutableGraph, CudaError> {
    let mut before: Vec<Vec<(GraphNode, EdgeKind)>> = vec![Vec::new(); launches.len()];
    for edge in edges {
        before[edge.after.0 as usize].push((edge.before, edge.kind));
    }
    let mut builder = GraphBuilder::new(context)?;
    for (launch, before) in launches.iter().zip(&before) {
        builder.add_kernel(launch, before)?;
    }
    let mut executable = builder.instantiate()?;
    executable.upload(channel.stream())?;
    channel.stream().synchronize()?;
    Ok(executable)
}

/// The bytes of a view that begins at `start`, in row-major order; `None` if they are no whole
/// bytes.
fn parts(view: &View, start: usize) -> Option<Vec<Rows>> {
    if view.elements() == 0 {
        return Some(Vec::new());
    }
    if view.is_contiguous() {
        return Some(vec![Rows::contiguous(start, view.byte_span()?)]);
    }
    if !view.dtype.bits().is_multiple_of(8) {
        return None;
    }
    let size = view.dtype.bits() as usize / 8;
    let walk = Walk::new(&view.shape, std::slice::from_ref(&view.strides));
    let strides = &walk.strides[0];
    let mut outer: Vec<(usize, usize)> =
        walk.shape.iter().zip(strides).map(|(extent, stride)| (*extent, *stride * size)).collect();
    let mut row_bytes = size;
    if let Some((extent, _)) = outer.pop_if(|(_, stride)| *stride == size) {
        row_bytes = extent * size;
    }
    let (rows, pitch) = outer.pop().unwrap_or((1, row_bytes));
    let mut starts = vec![start];
    for (extent, stride) in outer {
        starts = starts
            .iter()
            .flat_map(|start| (0..extent).map(move |index| start + index * stride))
            .collect();
    }
    Some(starts.into_iter().map(|offset| Rows { offset, row_bytes, rows, pitch }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::sure;
    use membar_ir::DType;
    use membar_ir::types::ConcreteType;

    fn view(dtype: DType, shape: &[usize], capacity: &[usize]) -> View {
        View::corner(&sure(ConcreteType::new(dtype, shape.to_vec())), capacity)
    }

    #[test]
    fn parts_are_the_bytes_of_a_view_in_order() {
        let cases: [(&[usize], &[usize]); 8] = [
            (&[2, 3], &[2, 3]),
            (&[2, 3], &[4, 3]),
            (&[2, 3], &[4, 5]),
            (&[2, 4, 3, 2], &[3, 4, 5, 2]),
            (&[2, 2, 3, 2], &[3, 4, 5, 2]),
            (&[3, 1], &[3, 4]),
            (&[2, 2, 1, 1], &[2, 3, 4, 5]),
            (&[2, 0, 3], &[2, 4, 3]),
        ];
        for (shape, capacity) in cases {
            let view = view(DType::I32, shape, capacity);
            let mut expected = Vec::new();
            for element in 0..view.elements() {
                let (mut rest, mut offset) = (element, 64);
                for axis in (0..shape.len()).rev() {
                    offset += rest % shape[axis] * view.strides[axis] * 4;
                    rest /= shape[axis];
                }
                expected.extend(offset..offset + 4);
            }
            let Some(parts) = parts(&view, 64) else { panic!("{shape:?}") };
            let found: Vec<usize> = parts
                .iter()
                .flat_map(|rows| {
                    (0..rows.rows).flat_map(move |row| {
                        let start = rows.offset + row * rows.pitch;
                        start..start + rows.row_bytes
                    })
                })
                .collect();
            assert_eq!(found, expected, "{shape:?} in {capacity:?}");
        }
    }

    #[test]
    fn packed_elements_lie_together() {
        assert_eq!(
            parts(&view(DType::I4, &[2, 4], &[2, 4]), 8),
            Some(vec![Rows::contiguous(8, 4)])
        );
        assert_eq!(parts(&view(DType::I4, &[2, 2], &[2, 4]), 8), None);
    }
}
