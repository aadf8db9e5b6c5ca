//! Explicit CUDA graphs: nodes and edges added one by one, never captured; must never add an edge
//! that the caller did not ask for.

use super::context::Context;
use super::error::{CudaError, call};
use super::module::Launch;
use super::stream::Stream;
use cudarc::driver::sys::{
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CUDA_GRAPH_INSTANTIATE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v3, CUgraph, CUgraphDependencyType, CUgraphEdgeData, CUgraphExec,
    CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUlaunchAttributeID,
};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem;
use std::sync::Arc;

/// The number of a node in the order of its addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphNode(pub u32);

/// How a node waits for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// It begins when the earlier one has ended and its memory is visible.
    Full,
    /// It may begin when every block of the earlier one has called
    /// `griddepcontrol.launch_dependents` or ended; it must call `griddepcontrol.wait` before it
    /// touches anything that another kernel writes.
    Programmatic,
}

/// An edge of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// The node that comes first.
    pub before: GraphNode,
    /// The node that waits.
    pub after: GraphNode,
    /// How.
    pub kind: EdgeKind,
}

/// A graph under construction.
#[derive(Debug)]
pub struct GraphBuilder {
    context: Arc<Context>,
    raw: CUgraph,
    nodes: Vec<CUgraphNode>,
    launches: Vec<Launch>,
}

// SAFETY: graph handles are plain data of the driver, which may be used from any thread, one at a
// time.
unsafe impl Send for GraphBuilder {}

impl GraphBuilder {
    /// An empty graph.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<Context>) -> Result<GraphBuilder, CudaError> {
        context.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the flags must be 0; the driver writes one handle.
        unsafe { call!(cuGraphCreate(&mut raw, 0))? };
        Ok(GraphBuilder { context: context.clone(), raw, nodes: Vec::new(), launches: Vec::new() })
    }

    /// Adds a kernel that waits for earlier nodes.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If a node in `after` is of another graph and its number is not in this one.
    pub fn add_kernel(
        &mut self,
        launch: &Launch,
        after: &[(GraphNode, EdgeKind)],
    ) -> Result<GraphNode, CudaError> {
        launch.prepare()?;
        let before: Vec<CUgraphNode> =
            after.iter().map(|(node, _)| self.nodes[node.0 as usize]).collect();
        let edges: Vec<CUgraphEdgeData> = after.iter().map(|(_, kind)| edge_data(*kind)).collect();
        let mut pointers = launch.arguments.pointers();
        let mut parameters = node_parameters(launch, &mut pointers);
        let mut node = std::ptr::null_mut();
        // SAFETY: graph, earlier nodes and kernel are alive, both lists have the given length,
        // `prepare` checked the arguments, and the driver copies them before it returns.
        unsafe {
            call!(cuGraphAddNode_v2(
                &mut node,
                self.raw,
                before.as_ptr(),
                edges.as_ptr(),
                before.len(),
                &mut parameters,
            ))?;
        }
        if launch.cluster > 1 {
            let attribute = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            let value = launch.cluster_attribute();
            // SAFETY: the node was added just now; the driver copies the value.
            unsafe { call!(cuGraphKernelNodeSetAttribute(node, attribute, &value))? };
        }
        self.nodes.push(node);
        self.launches.push(launch.clone());
        Ok(GraphNode(self.nodes.len() as u32 - 1))
    }

    /// The edges as the driver has them, sorted.
    ///
    /// # Errors
    /// The driver's.
    pub fn edges(&self) -> Result<Vec<Edge>, CudaError> {
        self.context.make_current()?;
        let mut count = 0;
        let none = std::ptr::null_mut();
        // SAFETY: without lists the driver only counts.
        unsafe {
            call!(cuGraphGetEdges_v2(self.raw, none, none, std::ptr::null_mut(), &mut count))?
        };
        let mut before = vec![std::ptr::null_mut(); count];
        let mut after = vec![std::ptr::null_mut(); count];
        let mut data = vec![edge_data(EdgeKind::Full); count];
        if count > 0 {
            // SAFETY: the lists have room for `count` items, and the graph does not change.
            unsafe {
                call!(cuGraphGetEdges_v2(
                    self.raw,
                    before.as_mut_ptr(),
                    after.as_mut_ptr(),
                    data.as_mut_ptr(),
                    &mut count,
                ))?;
            }
        }
        let numbers: BTreeMap<CUgraphNode, GraphNode> =
            self.nodes.iter().zip(0..).map(|(node, number)| (*node, GraphNode(number))).collect();
        let mut edges: Vec<Edge> = before
            .iter()
            .zip(&after)
            .zip(&data)
            .map(|((before, after), data)| Edge {
                before: numbers[before],
                after: numbers[after],
                kind: edge_kind(data),
            })
            .collect();
        edges.sort();
        Ok(edges)
    }

    /// Makes the graph executable. Everything that its kernels use must be loaded and allocated.
    ///
    /// # Errors
    /// The driver's, with the reason why it cannot be instantiated.
    pub fn instantiate(self) -> Result<ExecutableGraph, CudaError> {
        self.context.make_current()?;
        // SAFETY: plain data; all bytes 0 are valid.
        let mut parameters: CUDA_GRAPH_INSTANTIATE_PARAMS = unsafe { mem::zeroed() };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph is alive; the driver writes one handle and the reason of a failure.
        unsafe { call!(cuGraphInstantiateWithParams(&mut raw, self.raw, &mut parameters))? };
        Ok(ExecutableGraph { raw, graph: self })
    }
}

impl Drop for GraphBuilder {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: created in `new` and destroyed once. A failure cannot be told to anybody.
            let _ = unsafe { call!(cuGraphDestroy(self.raw)) };
        }
    }
}

/// What a kernel node is made of. It points to the launch's arguments through `pointers`.
fn node_parameters(launch: &Launch, pointers: &mut [*mut c_void]) -> CUgraphNodeParams {
    let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
    // SAFETY: the struct is plain data whose first variant is 0; all bytes 0 are valid.
    let mut parameters: CUgraphNodeParams = unsafe { mem::zeroed() };
    parameters.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
    parameters.__bindgen_anon_1.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
        func: launch.function.raw,
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: launch.shared_bytes,
        kernelParams: pointers.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    parameters
}

fn edge_data(kind: EdgeKind) -> CUgraphEdgeData {
    let (from_port, ty) = match kind {
        EdgeKind::Full => (0, CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_DEFAULT),
        EdgeKind::Programmatic => (
            CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
            CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC,
        ),
    };
    CUgraphEdgeData { from_port, to_port: 0, type_: ty as u8, reserved: [0; 5] }
}

fn edge_kind(data: &CUgraphEdgeData) -> EdgeKind {
    let programmatic = CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;
    if data.type_ == programmatic { EdgeKind::Programmatic } else { EdgeKind::Full }
}

/// A graph that can be launched. It runs once at a time: launching takes it exclusively, and a
/// launch waits on its stream for the one before.
#[derive(Debug)]
pub struct ExecutableGraph {
    raw: CUgraphExec,
    /// Keeps nodes, kernels and the context alive.
    graph: GraphBuilder,
}

// SAFETY: as for `GraphBuilder`.
unsafe impl Send for ExecutableGraph {}

impl ExecutableGraph {
    /// The edges as the driver has them, sorted.
    ///
    /// # Errors
    /// The driver's.
    pub fn edges(&self) -> Result<Vec<Edge>, CudaError> {
        self.graph.edges()
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.graph.nodes.len()
    }

    /// Moves what a first launch would have to move to the device now.
    ///
    /// # Errors
    /// The driver's.
    pub fn upload(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.graph.context.make_current()?;
        // SAFETY: both are alive.
        self.graph.context.watch(unsafe { call!(cuGraphUpload(self.raw, stream.raw)) })
    }

    /// Launches the graph on a stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.graph.context.make_current()?;
        // SAFETY: both are alive.
        self.graph.context.watch(unsafe { call!(cuGraphLaunch(self.raw, stream.raw)) })
    }

    /// Gives a kernel node another launch: other arguments, grid or kernel. Launches that are
    /// under way are not affected.
    ///
    /// # Errors
    /// The arguments are not what the kernel declares, or the driver's.
    ///
    /// # Panics
    /// If the node's number is not in this graph.
    pub fn set_kernel(&mut self, node: GraphNode, launch: &Launch) -> Result<(), CudaError> {
        let index = node.0 as usize;
        launch.prepare()?;
        let mut pointers = launch.arguments.pointers();
        let mut parameters = node_parameters(launch, &mut pointers);
        let raw = self.graph.nodes[index];
        // SAFETY: graph, node and kernel are alive, `prepare` checked the arguments, and the driver
        // copies them.
        unsafe { call!(cuGraphExecNodeSetParams(self.raw, raw, &mut parameters))? };
        self.graph.launches[index] = launch.clone();
        Ok(())
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        if self.graph.context.make_current().is_ok() {
            // SAFETY: instantiated once and destroyed once; a running launch goes on by itself. A
            // failure cannot be told to anybody.
            let _ = unsafe { call!(cuGraphExecDestroy(self.raw)) };
        }
    }
}
