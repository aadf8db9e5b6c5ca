//! Which operators compute in the narrow type and which in `f32`; never a change to a graph.

use super::is_converted;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::element::Number;
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::ops::{Op, ReduceKind, Scalar};
use std::collections::{HashMap, HashSet};

/// What happens to an operator's floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Read and written in the narrow type.
    Narrow,
    /// Read and written in `f32`.
    Wide,
    /// Left as they are.
    Kept,
}

/// What an operator says of itself, whatever stands around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It is why the narrow type is there, and keeps its own sums in `f32`.
    Narrow,
    /// Its result would suffer.
    Wide,
    /// It does as its neighbours do.
    Follow,
    /// It reads no float of its own.
    Kept,
}

/// The classes of a graph's operators.
pub(super) struct Classes {
    nodes: HashMap<NodeId, Class>,
    /// Values that may hold finite numbers beyond `f16`, or infinities that are meant.
    huge: HashSet<ValueId>,
}

/// The greatest finite number of a float type.
pub(super) fn greatest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65_504.0,
        DType::Bf16 => f64::from(f32::from_bits(0x7f7f_0000)),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// Whether an operator's operand takes the type of its class; norms take parameters of any type, and
/// scales of quantisation are exact as they are.
pub(super) fn operand_is_converted(op: &Op, index: usize) -> bool {
    match op {
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::GroupNorm(_) | Op::BatchNorm(_) => index == 0,
        Op::Attention(_) => index < 3,
        Op::Quantize(_) | Op::Dequantize(_) => false,
        _ => true,
    }
}

impl Classes {
    /// Decides about every operator.
    pub fn of(graph: &Graph) -> Classes {
        let order = graph.order();
        let mut classes = Classes { nodes: HashMap::new(), huge: HashSet::new() };
        let angles = angles(graph, &order);
        let states: HashSet<ValueId> = graph.states.iter().map(|state| state.input).collect();
        let mut statistics = HashSet::new();
        for id in &order {
            let class = match graph.node(*id).op() {
                Some(_) if angles.contains(id) => Class::Wide,
                Some(op) => classes.forward(graph, *id, op, &mut statistics, &states),
                None => {
                    classes.mark_constant(graph, *id);
                    Class::Kept
                }
            };
            classes.nodes.insert(*id, class);
        }
        // What only operators in f32 read need not be rounded before.
        for id in order.iter().rev() {
            let Some(op) = graph.node(*id).op() else { continue };
            if role(op) == Role::Follow && classes.of_node(*id) == Class::Narrow {
                let outputs = graph.node(*id).outputs();
                let mut readers = outputs.iter().flat_map(|value| graph.users(*value)).peekable();
                let read = readers.peek().is_some();
                if read
                    && readers.all(|user| classes.of_node(user.node) == Class::Wide)
                    && !outputs.iter().any(|value| graph.is_output(*value))
                {
                    classes.nodes.insert(*id, Class::Wide);
                }
            }
        }
        classes
    }

    /// The class of a node.
    pub fn of_node(&self, id: NodeId) -> Class {
        self.nodes.get(&id).copied().unwrap_or(Class::Kept)
    }

    /// Whether a value may hold numbers that a narrow type does not have.
    pub fn is_huge(&self, value: ValueId) -> bool {
        self.huge.contains(&value)
    }

    fn mark_constant(&mut self, graph: &Graph, id: NodeId) {
        if let NodeKind::Weight(recipe) = &graph.node(id).kind
            && let Some(tensor) = recipe.as_literal().filter(|tensor| tensor.dtype().is_float())
            && tensor.numbers().map(Number::to_float).any(|x| x.abs() > greatest(DType::F16))
        {
            self.huge.extend(graph.node(id).outputs());
        }
    }

    /// The class by what stands before it.
    fn forward(
        &mut self,
        graph: &Graph,
        id: NodeId,
        op: &Op,
        statistics: &mut HashSet<ValueId>,
        states: &HashSet<ValueId>,
    ) -> Class {
        let node = graph.node(id);
        let floats = |values: &[ValueId]| -> Vec<ValueId> {
            values.iter().copied().filter(|value| is_converted(graph.ty(*value).dtype)).collect()
        };
        let (operands, outputs) = (floats(node.operands()), floats(node.outputs()));
        if operands.is_empty() && outputs.is_empty() {
            return Class::Kept;
        }
        let huge = operands.iter().any(|value| self.huge.contains(value));
        let is_wide = |value: &ValueId| {
            let producer = graph.value(*value).producer();
            self.of_node(producer) == Class::Wide
        };
        let own = role(op);
        let class = match own {
            Role::Narrow => Class::Narrow,
            Role::Wide => Class::Wide,
            Role::Kept => Class::Kept,
            // A state keeps the type that its input and output declare.
            Role::Follow if operands.iter().any(|value| states.contains(value)) => Class::Kept,
            Role::Follow => {
                let pulls = |value: &ValueId| {
                    is_wide(value) && (statistics.contains(value) || graph.users(*value).len() == 1)
                };
                if huge || operands.iter().any(pulls) { Class::Wide } else { Class::Narrow }
            }
        };
        if huge && own == Role::Follow && !matches!(op, Op::Softmax(_) | Op::LogSoftmax(_)) {
            self.huge.extend(&outputs);
        }
        let of_statistics = operands.iter().all(|value| {
            let producer = graph.value(*value).producer();
            statistics.contains(value) || matches!(graph.node(producer).kind, NodeKind::Weight(_))
        });
        let sums = matches!(op, Op::Reduce(reduce) if !picks(reduce.kind));
        let elementwise = matches!(op, Op::Scalar(_) | Op::Reshape(_) | Op::Broadcast(_));
        let derived = operands.iter().any(|value| statistics.contains(value)) && of_statistics;
        if sums || elementwise && derived {
            statistics.extend(&outputs);
        }
        class
    }
}

/// Whether a reduction gives one of its elements.
fn picks(kind: ReduceKind) -> bool {
    matches!(kind, ReduceKind::Max | ReduceKind::Min)
}

/// The nodes that sines and cosines are computed from, and these, up to what was multiplied and added
/// up along more than one element.
fn angles(graph: &Graph, order: &[NodeId]) -> HashSet<NodeId> {
    let mut found = HashSet::new();
    for id in order.iter().rev() {
        let Some(op) = graph.node(*id).op() else { continue };
        let is_angle = matches!(op, Op::Scalar(Scalar::Sin | Scalar::Cos));
        let outputs = graph.node(*id).outputs().iter();
        let read =
            outputs.flat_map(|value| graph.users(*value)).any(|user| found.contains(&user.node));
        let passes = match op {
            Op::Matmul(_) => {
                let first = graph.node(*id).operands().first();
                first.and_then(|value| graph.ty(*value).shape.last()) == Some(&Dim::ONE)
            }
            _ => role(op) == Role::Follow || role(op) == Role::Wide,
        };
        let converts = graph.node(*id).outputs().iter().any(|v| is_converted(graph.ty(*v).dtype));
        if is_angle || read && passes && converts {
            found.insert(*id);
        }
    }
    found
}

fn role(op: &Op) -> Role {
    match op {
        Op::Matmul(_)
        | Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::Attention(_)
        | Op::LayerNorm(_)
        | Op::RmsNorm(_)
        | Op::GroupNorm(_)
        | Op::BatchNorm(_)
        | Op::LocalResponseNorm(_)
        | Op::RotaryEmbedding(_)
        | Op::Dequantize(_)
        | Op::Pool(_)
        | Op::Resize(_) => Role::Narrow,
        Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Broadcast(_)
        | Op::Slice(_)
        | Op::Concat(_)
        | Op::Append(_)
        | Op::Pad(_)
        | Op::Gather(_)
        | Op::GatherElements(_)
        | Op::GatherNd(_)
        | Op::ScatterElements(_)
        | Op::ScatterNd(_)
        | Op::TensorScatter(_)
        | Op::Softmax(_)
        | Op::LogSoftmax(_) => Role::Follow,
        Op::Reduce(reduce) if picks(reduce.kind) => Role::Follow,
        Op::Reduce(_)
        | Op::ArgReduce(_)
        | Op::Cumulative(_)
        | Op::TopK(_)
        | Op::Iota(_)
        | Op::GridSample(_) => Role::Wide,
        // Its operands may have any type; its results are integers.
        Op::Quantize(_) | Op::Dims(_) => Role::Kept,
        // Bits mean something in one type alone.
        Op::Bitcast(_) => Role::Kept,
        // Groups are made behind this pass; what was fused before keeps its types.
        Op::Fused(_) => Role::Kept,
        Op::Scalar(scalar) => scalar_role(scalar),
    }
}

fn scalar_role(scalar: &Scalar) -> Role {
    match scalar {
        Scalar::Neg
        | Scalar::Abs
        | Scalar::Sign
        | Scalar::Relu
        | Scalar::LeakyRelu { .. }
        | Scalar::Prelu
        | Scalar::ThresholdedRelu { .. }
        | Scalar::Sigmoid
        | Scalar::HardSigmoid { .. }
        | Scalar::Swish { .. }
        | Scalar::HardSwish
        | Scalar::Gelu { .. }
        | Scalar::Add
        | Scalar::Sub
        | Scalar::Mul
        | Scalar::Div
        | Scalar::Min
        | Scalar::Max
        | Scalar::Clip
        | Scalar::Less
        | Scalar::LessOrEqual
        | Scalar::Greater
        | Scalar::GreaterOrEqual
        | Scalar::Equal
        | Scalar::NotEqual
        | Scalar::Select => Role::Follow,
        Scalar::Cast { .. }
        | Scalar::Floor
        | Scalar::Ceil
        | Scalar::Round
        | Scalar::Reciprocal
        | Scalar::Sqrt
        | Scalar::Rsqrt
        | Scalar::Exp
        | Scalar::Log
        | Scalar::Sin
        | Scalar::Cos
        | Scalar::Tan
        | Scalar::Asin
        | Scalar::Acos
        | Scalar::Atan
        | Scalar::Sinh
        | Scalar::Cosh
        | Scalar::Tanh
        | Scalar::Asinh
        | Scalar::Acosh
        | Scalar::Atanh
        | Scalar::Erf
        | Scalar::IsNan
        | Scalar::IsInf { .. }
        | Scalar::Elu { .. }
        | Scalar::Selu { .. }
        | Scalar::Celu { .. }
        | Scalar::Softplus
        | Scalar::Softsign
        | Scalar::Mish
        | Scalar::Shrink { .. }
        | Scalar::Pow
        | Scalar::FloorMod
        | Scalar::TruncMod => Role::Wide,
        Scalar::Not
        | Scalar::BitNot
        | Scalar::And
        | Scalar::Or
        | Scalar::Xor
        | Scalar::BitAnd
        | Scalar::BitOr
        | Scalar::BitXor
        | Scalar::ShiftLeft
        | Scalar::ShiftRight => Role::Kept,
    }
}
