//! Where the values of a scheduled graph lie, for every executor; must never touch their bytes.

use crate::cpu::arena::Span;
use crate::cpu::view::View;
use crate::executor::ExecutorError;
use membar_ir::dim::Bindings;
use membar_ir::graph::{Graph, NodeId, NodeKind, Stage, ValueId};
use membar_ir::schedule::Layout;
use membar_ir::tensor::Tensor;
use membar_ir::types::{ConcreteType, TensorType};
use std::collections::BTreeMap;

/// That a graph can be executed.
pub(crate) fn check_stage(graph: &Graph) -> Result<(), ExecutorError> {
    match graph.stage {
        Stage::Scheduled => Ok(()),
        stage => Err(ExecutorError::Stage { name: graph.name.clone(), stage }),
    }
}

/// That there is a tensor of the declared type for each weight.
pub(crate) fn check_weights(
    graph: &Graph,
    weights: &BTreeMap<ValueId, Tensor>,
) -> Result<(), ExecutorError> {
    for id in graph.nodes() {
        let node = graph.node(id);
        if !matches!(node.kind, NodeKind::Weight(_)) {
            continue;
        }
        for value in node.outputs() {
            let Some(tensor) = weights.get(value) else {
                return Err(ExecutorError::MissingWeight(value_name(graph, *value)));
            };
            check_type(graph, *value, tensor, &Bindings::new())?;
        }
    }
    Ok(())
}

/// That a value is a weight and a tensor has its type.
pub(crate) fn check_weight(
    graph: &Graph,
    value: ValueId,
    tensor: &Tensor,
) -> Result<(), ExecutorError> {
    let found = graph.try_value(value).map(|found| &graph.node(found.producer()).kind);
    match found {
        Some(NodeKind::Weight(_)) => check_type(graph, value, tensor, &Bindings::new()),
        Some(_) => Err(ExecutorError::NotAWeight(value_name(graph, value))),
        None => Err(ExecutorError::NotAWeight(format!("{value:?}"))),
    }
}

/// That a tensor has the type of a value.
pub(crate) fn check_type(
    graph: &Graph,
    value: ValueId,
    tensor: &Tensor,
    bindings: &Bindings,
) -> Result<(), ExecutorError> {
    if concrete(graph, value, bindings)? == *tensor.ty() {
        return Ok(());
    }
    Err(ExecutorError::Type {
        value: value_name(graph, value),
        expected: graph.value(value).ty.clone(),
        found: tensor.ty().clone(),
    })
}

/// The type of a value under bindings.
pub(crate) fn concrete(
    graph: &Graph,
    value: ValueId,
    bindings: &Bindings,
) -> Result<ConcreteType, ExecutorError> {
    let ty = &graph.value(value).ty;
    ty.concrete(bindings)
        .map_err(|error| ExecutorError::Shape { value: value_name(graph, value), error })
}

/// The view of a value in its buffer, and the bytes that the view spans.
pub(crate) fn place(
    graph: &Graph,
    value: ValueId,
    bindings: &Bindings,
) -> Result<(View, Span), ExecutorError> {
    let plan = |message: String| plan_error(graph, value, message);
    let ty = concrete(graph, value, bindings)?;
    let placed = graph.value(value);
    let Some(region) = &placed.region else {
        return Err(plan("it has no region".to_string()));
    };
    let view = match &placed.layout {
        Layout::Contiguous => View::contiguous(&ty),
        Layout::Capacity(capacity) => {
            let capacity = TensorType::new(ty.dtype, capacity.clone())
                .concrete(bindings)
                .map_err(|error| plan(error.to_string()))?;
            let fits = capacity.shape.len() == ty.shape.len()
                && ty.shape.iter().zip(&capacity.shape).all(|(extent, room)| extent <= room);
            if !fits {
                return Err(plan(format!("{ty} does not fit into {capacity}")));
            }
            View::corner(&ty, &capacity.shape)
        }
    };
    let end = region.end().and_then(|end| usize::try_from(end).ok());
    let start = usize::try_from(region.offset).ok();
    let span = view.byte_span();
    let (Some(start), Some(end), Some(bytes)) = (start, end, span) else {
        return Err(plan("its region does not fit the address space".to_string()));
    };
    if bytes > end - start {
        return Err(plan(format!("{ty} takes {bytes} bytes, its region has {}", end - start)));
    }
    let size = (ty.dtype.bits() as usize / 8).max(1);
    if !start.is_multiple_of(size) {
        let message = format!("offset {start} is not a multiple of its {size}-byte elements");
        return Err(plan(message));
    }
    Ok((view, Span { buffer: region.buffer, bytes: start..start + bytes }))
}

/// What is wrong with the plan of a value.
pub(crate) fn plan_error(graph: &Graph, value: ValueId, message: impl ToString) -> ExecutorError {
    ExecutorError::Plan { value: value_name(graph, value), message: message.to_string() }
}

/// How messages call a value.
pub(crate) fn value_name(graph: &Graph, value: ValueId) -> String {
    let found = graph.value(value);
    match &found.name {
        Some(name) => name.to_string(),
        None => node_name(graph, found.producer()),
    }
}

/// How messages call a node: by the source model's name where there is one.
pub(crate) fn node_name(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let origin = node.origin.first().map(|name| name.to_string());
    let named = || {
        let mut names = node.outputs().iter().filter_map(|value| graph.value(*value).name.clone());
        names.next().map(|name| name.to_string())
    };
    origin.or_else(named).unwrap_or_else(|| format!("{id:?}"))
}
