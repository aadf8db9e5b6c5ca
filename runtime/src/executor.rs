//! The executors behind one interface, so that sessions are the same on every kind of device; must
//! never hold logic of its own.

use crate::cpu;
use crate::cpu::arena::ArenaError;
use crate::cuda::{CudaError, CudaExecutor};
use crate::placement;
use membar_ir::dim::Bindings;
use membar_ir::graph::{Graph, Stage, ValueId};
use membar_ir::op::EvalError;
use membar_ir::tensor::Tensor;
use membar_ir::types::{ConcreteType, ShapeError, TensorType};
use std::collections::BTreeMap;

/// Why a scheduled graph cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The graph is not scheduled.
    #[error("graph `{name}` is at stage {}, the executor takes {}", .stage.word(), Stage::Scheduled.word())]
    Stage {
        /// The graph.
        name: String,
        /// Its stage.
        stage: Stage,
    },
    /// A weight was not given.
    #[error("weight `{0}` has no data")]
    MissingWeight(String),
    /// What is no weight cannot be given a new value.
    #[error("`{0}` is no weight of the program")]
    NotAWeight(String),
    /// A tensor of another type than the value that it is for.
    #[error("`{value}` is {found}, expected {expected}")]
    Type {
        /// The value.
        value: String,
        /// Declared.
        expected: TensorType,
        /// Given.
        found: ConcreteType,
    },
    /// The plan does not say where a value lies, or says something impossible.
    #[error("the plan of `{value}`: {message}")]
    Plan {
        /// The value.
        value: String,
        /// What is wrong.
        message: String,
    },
    /// An operator without a kernel.
    #[error(
        "node `{node}`: the CPU has no kernel for `{operator}`; the pass `decompose` replaces it"
    )]
    NoKernel {
        /// The node.
        node: String,
        /// The operator.
        operator: String,
    },
    /// A step failed.
    #[error("node `{node}` ({operator}): {error}")]
    Step {
        /// The node.
        node: String,
        /// The operator's name.
        operator: &'static str,
        /// What went wrong.
        error: EvalError,
    },
    /// A step's memory.
    #[error("node `{node}`: {error}")]
    Memory {
        /// The node.
        node: String,
        /// What went wrong.
        error: ArenaError,
    },
    /// A value's shape under these extents.
    #[error("`{value}`: {error}")]
    Shape {
        /// The value.
        value: String,
        /// What went wrong.
        error: ShapeError,
    },
    /// The arena cannot be allocated.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The device program does not fit the graph.
    #[error("the device program of `{graph}`: {message}")]
    Program {
        /// The graph.
        graph: String,
        /// What is wrong.
        message: String,
    },
    /// The device's memory does not suffice.
    #[error("{what} of {bytes} bytes cannot be had on the device: {error}")]
    DeviceMemory {
        /// What for.
        what: String,
        /// How many.
        bytes: u64,
        /// What went wrong.
        error: CudaError,
    },
    /// A kernel cannot be loaded.
    #[error("kernel `{kernel}`: {error}")]
    Load {
        /// The kernel.
        kernel: String,
        /// What went wrong.
        error: CudaError,
    },
    /// A launch cannot be prepared.
    #[error("node `{node}`: {error}")]
    Launch {
        /// The node.
        node: String,
        /// What went wrong.
        error: CudaError,
    },
    /// The CUDA driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// What runs a scheduled graph.
pub(crate) enum Executor {
    /// On the CPU.
    Cpu(Box<cpu::Executor>),
    /// On a CUDA device.
    Cuda(Box<CudaExecutor>),
}

impl Executor {
    /// The graph.
    pub fn graph(&self) -> &Graph {
        match self {
            Executor::Cpu(executor) => executor.graph(),
            Executor::Cuda(executor) => executor.graph(),
        }
    }

    /// Size of all buffers in bytes.
    pub fn arena_bytes(&self) -> usize {
        match self {
            Executor::Cpu(executor) => executor.arena_bytes(),
            Executor::Cuda(executor) => executor.arena_bytes(),
        }
    }

    /// Whether a value lies in a buffer, so that [`Executor::write`] can set it.
    pub fn is_planned(&self, value: ValueId) -> bool {
        match self {
            Executor::Cpu(executor) => executor.is_planned(value),
            Executor::Cuda(executor) => executor.is_planned(value),
        }
    }

    /// Copies a tensor to where an input lies.
    pub fn write(
        &mut self,
        value: ValueId,
        tensor: &Tensor,
        bindings: &Bindings,
    ) -> Result<(), ExecutorError> {
        match self {
            Executor::Cpu(executor) => executor.write(value, tensor, bindings),
            Executor::Cuda(executor) => executor.write(value, tensor, bindings),
        }
    }

    /// Copies a value out of its buffer, or gives a weight.
    pub fn read(&mut self, value: ValueId, bindings: &Bindings) -> Result<Tensor, ExecutorError> {
        match self {
            Executor::Cpu(executor) => executor.read(value, bindings),
            Executor::Cuda(executor) => executor.read(value, bindings),
        }
    }

    /// Gives weights new values of the same types; none if one of them cannot have it.
    pub fn update_weights(
        &mut self,
        values: &BTreeMap<ValueId, Tensor>,
    ) -> Result<(), ExecutorError> {
        for (value, tensor) in values {
            placement::check_weight(self.graph(), *value, tensor)?;
        }
        match self {
            Executor::Cpu(executor) => executor.update_weights(values),
            Executor::Cuda(executor) => executor.update_weights(values)?,
        }
        Ok(())
    }

    /// Prepares for runs with these extents.
    pub fn bind(&mut self, bindings: &Bindings) -> Result<(), ExecutorError> {
        match self {
            // It looks at the extents of each run.
            Executor::Cpu(_) => Ok(()),
            Executor::Cuda(executor) => executor.set_dims(bindings),
        }
    }

    /// Starts every step, for the extents that were bound last. `outside` has the inputs that have
    /// no buffer.
    pub fn launch(
        &mut self,
        bindings: &Bindings,
        outside: &BTreeMap<ValueId, Tensor>,
    ) -> Result<(), ExecutorError> {
        match self {
            Executor::Cpu(executor) => executor.run(bindings, outside),
            // Its constructor refuses steps that read what has no buffer.
            Executor::Cuda(executor) => executor.launch(),
        }
    }

    /// Waits for all that was launched.
    pub fn synchronize(&mut self) -> Result<(), ExecutorError> {
        match self {
            Executor::Cpu(_) => Ok(()),
            Executor::Cuda(executor) => executor.synchronize(),
        }
    }
}
