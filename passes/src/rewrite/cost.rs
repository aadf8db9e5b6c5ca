//! What operators cost on the machine: a roofline, and an order for every step; never a choice
//! between two terms.

use membar_ir::dim::{Bindings, Dim};
use membar_ir::dtype::DType;
use membar_ir::graph::Graph;
use membar_ir::op::Meaning;
use membar_ir::ops::Op;
use membar_ir::pass::PassContext;
use membar_ir::schedule::Mechanism;
use membar_ir::topology::{Device, DeviceKind};
use membar_ir::types::TensorType;
use std::cell::RefCell;
use std::collections::HashMap;

/// The size at which costs are compared, of dimensions whose range has it.
const TYPICAL: i64 = 128;

/// What an operator costs that moves nothing: enough that one fewer is better, and no more.
const NOTHING: f64 = 1e-3;

/// How deep definitions may nest; see `decompose`.
const DEPTH: u32 = 16;

/// Costs of operators, in microseconds.
pub(super) struct Costs<'a> {
    cx: &'a PassContext,
    /// Sizes at which costs are compared.
    sizes: Bindings,
    device: Option<&'a Device>,
    /// Bytes a microsecond.
    bandwidth: f64,
    /// What a step adds: the order behind it.
    step: f64,
    known: RefCell<HashMap<(Op, Vec<TensorType>), f64>>,
}

impl<'a> Costs<'a> {
    /// For a graph's symbols and the context's machine.
    pub fn new(graph: &Graph, cx: &'a PassContext) -> Costs<'a> {
        let typical = |lo: i64, hi: Option<i64>| hi.map_or(TYPICAL, |hi| TYPICAL.min(hi)).max(lo);
        let sizes = graph.symbols.iter().map(|(s, r)| (s.clone(), typical(r.lo, r.hi))).collect();
        let topology = &cx.topology;
        let id = topology.first_of(cx.options.device);
        let memory = id.and_then(|id| topology.memories_of(id).next());
        let bandwidth = memory.and_then(|id| topology.memory(id)).map_or(1.0, |m| m.bandwidth);
        let mechanism = match cx.options.device {
            DeviceKind::Gpu => Mechanism::Programmatic,
            DeviceKind::Cpu | DeviceKind::Other => Mechanism::Sequence,
        };
        Costs {
            cx,
            sizes,
            device: id.and_then(|id| topology.device(id)),
            // 10⁹ bytes a second are 10³ a microsecond.
            bandwidth: bandwidth * 1e3,
            step: topology.order_costs.get(&mechanism).copied().unwrap_or(1.0),
            known: RefCell::new(HashMap::new()),
        }
    }

    /// What an operator costs; of one without a kernel, what it is made of.
    pub fn of(&self, op: &Op, operands: &[TensorType], outputs: &[TensorType]) -> f64 {
        self.nested(op, operands, outputs, 0)
    }

    fn nested(&self, op: &Op, operands: &[TensorType], outputs: &[TensorType], depth: u32) -> f64 {
        if moves_nothing(op) {
            return NOTHING;
        }
        let key = (op.clone(), operands.to_vec());
        if let Some(cost) = self.known.borrow().get(&key) {
            return *cost;
        }
        let cost = match self.cx.kernels.kernel(op, operands, outputs) {
            Some(_) => self.roofline(op, operands, outputs),
            None => match op.meaning(operands) {
                Meaning::Composite(parts) if depth < DEPTH => self.sum(&parts, depth + 1),
                // Nothing can run it; `decompose` says so.
                Meaning::Composite(_) | Meaning::Scalar(_) | Meaning::Primitive(_) => f64::MAX,
            },
        };
        self.known.borrow_mut().insert(key, cost);
        cost
    }

    fn sum(&self, parts: &Graph, depth: u32) -> f64 {
        let cost = |id| {
            let node = parts.node(id);
            let types = |values: &[membar_ir::ValueId]| -> Vec<TensorType> {
                values.iter().map(|value| parts.ty(*value).clone()).collect()
            };
            let (operands, outputs) = (types(node.operands()), types(node.outputs()));
            node.op().map_or(0.0, |op| self.nested(op, &operands, &outputs, depth))
        };
        parts.nodes().map(cost).sum()
    }

    /// The time of the slower of memory and arithmetic, and the order behind the step.
    fn roofline(&self, op: &Op, operands: &[TensorType], outputs: &[TensorType]) -> f64 {
        let bytes: f64 = operands.iter().chain(outputs).map(|ty| self.size(&ty.bytes())).sum();
        let operations = self.size(&op.operations(operands, outputs));
        let dtype = operands.first().or(outputs.first()).map_or(DType::F32, |ty| ty.dtype);
        let matrix = matches!(
            op,
            Op::Matmul(_) | Op::Attention(_) | Op::Conv(_) | Op::ConvTranspose(_) | Op::Fused(_)
        );
        // 10¹² operations a second are 10⁶ a microsecond.
        let rate = self.rate(dtype, matrix) * 1e6;
        self.step + (bytes / self.bandwidth).max(operations / rate)
    }

    /// In 10¹² operations a second.
    fn rate(&self, dtype: DType, matrix: bool) -> f64 {
        let Some(device) = self.device else { return 1.0 };
        let units = if matrix { device.matrix_rates.get(&dtype) } else { None };
        let rate = units.or_else(|| device.vector_rates.get(&dtype));
        rate.or_else(|| device.vector_rates.get(&DType::F32)).copied().unwrap_or(1.0)
    }

    fn size(&self, dim: &Dim) -> f64 {
        dim.evaluate(&self.sizes).map_or(TYPICAL as f64, |size| size.max(0) as f64)
    }
}

/// Whether an operator only says how bytes are read, or counts.
fn moves_nothing(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Bitcast(_) | Op::Dims(_))
}
