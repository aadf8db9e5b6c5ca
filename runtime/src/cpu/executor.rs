//! Runs a schedule in its arena: resolves shapes once for each set of extents, then calls one
//! kernel after another; must never choose a kernel or a place (the library and the plan do).

use super::arena::{Arena, Read, Span};
use super::kernels::movement::{gather_bytes, scatter_bytes};
use super::library;
use super::program::{Call, Run, Selected, Shapes};
use super::view::View;
use crate::executor::ExecutorError;
use crate::placement::{self, node_name, place, value_name};
use membar_ir::dim::{Bindings, DimError, Symbol};
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::op::EvalError;
use membar_ir::ops::Op;
use membar_ir::tensor::Tensor;
use membar_ir::types::{ShapeError, TensorType};
use std::collections::{BTreeMap, BTreeSet};

/// A scheduled graph with its memory.
pub struct Executor {
    graph: Graph,
    arena: Arena,
    weights: BTreeMap<ValueId, Tensor>,
    steps: Vec<Step>,
    resolved: Bindings,
}

/// A step of the schedule, with what was worked out for the last extents.
struct Step {
    node: NodeId,
    symbols: BTreeSet<Symbol>,
    resolved: Option<Resolved>,
}

/// A step for concrete shapes.
struct Resolved {
    reads: Vec<Place>,
    writes: Vec<Span>,
    /// `None`: the outputs are the operands' bytes already.
    run: Option<Run>,
}

/// Where a step finds an operand.
enum Place {
    Arena(Span),
    Output(usize),
    Outside(ValueId),
}

impl Executor {
    /// Allocates the arena of a scheduled graph. `weights` has a tensor for each weight.
    ///
    /// # Errors
    /// The graph is not scheduled, a weight is missing or of another type, a node has no kernel,
    /// or the arena does not fit.
    pub fn new(
        graph: Graph,
        weights: BTreeMap<ValueId, Tensor>,
    ) -> Result<Executor, ExecutorError> {
        placement::check_stage(&graph)?;
        let arena = Arena::new(&graph.buffers)?;
        let mut steps = Vec::new();
        for id in &graph.schedule {
            let node = graph.node(*id);
            match &node.kind {
                NodeKind::Input | NodeKind::Weight(_) => {}
                NodeKind::Op(op) => {
                    check_kernel(&graph, *id, op)?;
                    let symbols = symbols(&graph, *id, op);
                    steps.push(Step { node: *id, symbols, resolved: None });
                }
            }
        }
        placement::check_weights(&graph, &weights)?;
        Ok(Executor { graph, arena, weights, steps, resolved: Bindings::new() })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Size of the arena in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Whether a value lies in the arena, so that [`Executor::write`] can set it.
    pub fn is_planned(&self, value: ValueId) -> bool {
        self.graph.value(value).region.is_some() && !self.weights.contains_key(&value)
    }

    /// Gives weights new values; they were checked to be weights and to have the same types.
    pub(crate) fn update_weights(&mut self, values: &BTreeMap<ValueId, Tensor>) {
        let values = values.iter().map(|(value, tensor)| (*value, tensor.clone()));
        self.weights.extend(values);
    }

    /// Copies a tensor to where an input lies.
    ///
    /// # Errors
    /// The tensor is of another type, or the value has no place in the arena.
    pub fn write(
        &mut self,
        value: ValueId,
        tensor: &Tensor,
        bindings: &Bindings,
    ) -> Result<(), ExecutorError> {
        placement::check_type(&self.graph, value, tensor, bindings)?;
        let (view, span) = place(&self.graph, value, bindings)?;
        let bytes = self.arena.get_mut(&span)?;
        if view.is_contiguous() {
            bytes.copy_from_slice(tensor.bytes());
            return Ok(());
        }
        scatter_bytes(&view, tensor.bytes(), bytes)
            .map_err(|error| placement::plan_error(&self.graph, value, error))
    }

    /// Copies a value out of the arena, or gives a weight.
    ///
    /// # Errors
    /// The value has no place in the arena.
    pub fn read(&self, value: ValueId, bindings: &Bindings) -> Result<Tensor, ExecutorError> {
        if let Some(weight) = self.weights.get(&value) {
            return Ok(weight.clone());
        }
        let (view, span) = place(&self.graph, value, bindings)?;
        let bytes = self.arena.get(&span)?;
        let mut tensor = Tensor::zeros(view.ty());
        if view.is_contiguous() {
            tensor.bytes_mut().copy_from_slice(bytes);
        } else {
            gather_bytes(&view, bytes, tensor.bytes_mut())
                .map_err(|error| placement::plan_error(&self.graph, value, error))?;
        }
        Ok(tensor)
    }

    /// Runs every step. `outside` has the inputs that have no place in the arena.
    ///
    /// # Errors
    /// The plan does not fit these extents, or a step fails.
    pub fn run(
        &mut self,
        bindings: &Bindings,
        outside: &BTreeMap<ValueId, Tensor>,
    ) -> Result<(), ExecutorError> {
        self.resolve(bindings)?;
        // On one of the pool's threads, each step's tasks start at once and end without waking
        // another thread.
        rayon::scope(|_| self.run_steps(outside))
    }

    fn run_steps(&mut self, outside: &BTreeMap<ValueId, Tensor>) -> Result<(), ExecutorError> {
        for step in &self.steps {
            let Some(resolved) = &step.resolved else { continue };
            let Some(run) = &resolved.run else { continue };
            let name = || node_name(&self.graph, step.node);
            for place in &resolved.reads {
                if let Place::Outside(value) = place
                    && !self.weights.contains_key(value)
                    && !outside.contains_key(value)
                {
                    let message = "it has no region, and no tensor was given".to_string();
                    let value = value_name(&self.graph, *value);
                    return Err(ExecutorError::Plan { value, message });
                }
            }
            let reads = resolved.reads.iter().filter_map(|place| match place {
                Place::Arena(span) => Some(Read::Span(span.clone())),
                Place::Output(output) => Some(Read::InPlace(*output)),
                Place::Outside(value) => {
                    let tensor = self.weights.get(value).or_else(|| outside.get(value));
                    tensor.map(|tensor| Read::Outside(tensor.bytes()))
                }
            });
            let (sources, mut outputs) = self
                .arena
                .views(reads, &resolved.writes)
                .map_err(|error| ExecutorError::Memory { node: name(), error })?;
            let mut call = Call { sources: &sources, outputs: &mut outputs };
            run(&mut call).map_err(|error| ExecutorError::Step {
                node: name(),
                operator: self.graph.node(step.node).op().map_or("", Op::mnemonic),
                error,
            })?;
        }
        Ok(())
    }

    /// Works out every step whose extents changed since the last run.
    fn resolve(&mut self, bindings: &Bindings) -> Result<(), ExecutorError> {
        for index in 0..self.steps.len() {
            let step = &self.steps[index];
            let same = |symbol: &Symbol| self.resolved.get(symbol) == bindings.get(symbol);
            if step.resolved.is_some() && step.symbols.iter().all(same) {
                continue;
            }
            let resolved = self.resolve_step(step.node, bindings)?;
            self.steps[index].resolved = Some(resolved);
        }
        self.resolved = bindings.clone();
        Ok(())
    }

    fn resolve_step(&self, id: NodeId, bindings: &Bindings) -> Result<Resolved, ExecutorError> {
        let node = self.graph.node(id);
        let Some(op) = node.op() else {
            return Ok(Resolved { reads: Vec::new(), writes: Vec::new(), run: None });
        };
        let failed = |error: EvalError| ExecutorError::Step {
            node: node_name(&self.graph, id),
            operator: op.mnemonic(),
            error,
        };
        let bound =
            op.bind(bindings).map_err(|error: DimError| failed(ShapeError::from(error).into()))?;
        let mut outputs = Vec::new();
        let mut writes = Vec::new();
        for value in node.outputs() {
            let (view, span) = placement::place(&self.graph, *value, bindings)?;
            outputs.push(view);
            writes.push(span);
        }
        let mut operands = Vec::new();
        let mut spans = Vec::new();
        for value in node.operands() {
            if self.is_planned(*value) {
                let (view, span) = placement::place(&self.graph, *value, bindings)?;
                operands.push(view);
                spans.push((*value, Some(span)));
            } else {
                operands.push(View::contiguous(&placement::concrete(
                    &self.graph,
                    *value,
                    bindings,
                )?));
                spans.push((*value, None));
            }
        }
        let selected = selected(&self.graph, id, &bound)?;
        for (value, view) in node.outputs().iter().zip(&outputs) {
            if !selected.strided_outputs && !view.is_contiguous() {
                let message = format!("kernel `{}` cannot write with gaps", selected.spec.name);
                return Err(placement::plan_error(&self.graph, *value, message));
            }
        }
        let mut reads = Vec::new();
        for (index, (value, span)) in spans.into_iter().enumerate() {
            reads.push(match span {
                None => Place::Outside(value),
                Some(span) => {
                    self.operand_place(index, value, span, &selected, &operands, &outputs, &writes)?
                }
            });
        }
        let run = match selected.spec.launches(&self.graph, id) {
            false => None,
            true => {
                let shapes = Shapes { operands: &operands, outputs: &outputs };
                Some((selected.prepare)(&shapes).map_err(failed)?)
            }
        };
        Ok(Resolved { reads, writes, run })
    }

    /// Where an operand in the arena is read: apart from all outputs, or in place of one.
    #[allow(clippy::too_many_arguments, reason = "one place that joins all facts of a step")]
    fn operand_place(
        &self,
        index: usize,
        value: ValueId,
        span: Span,
        selected: &Selected,
        operands: &[View],
        outputs: &[View],
        writes: &[Span],
    ) -> Result<Place, ExecutorError> {
        let overlapping = writes.iter().position(|written| {
            written.buffer == span.buffer
                && written.bytes.start < span.bytes.end
                && span.bytes.start < written.bytes.end
        });
        let Some(output) = overlapping else {
            return Ok(Place::Arena(span));
        };
        let spec = &selected.spec;
        let allowed = spec
            .in_place
            .iter()
            .chain(&spec.alias)
            .any(|pair| pair.operand as usize == index && pair.output as usize == output);
        let (view, written) = (&operands[index], &outputs[output]);
        let aligned = span.bytes.start == writes[output].bytes.start;
        // An alias has the same bytes, which may be more elements of a smaller type.
        let aliased = spec.alias.is_some_and(|pair| pair.operand as usize == index);
        let same_extent = view.elements() == written.elements()
            || aliased && view.ty().byte_len() == written.ty().byte_len();
        let same_elements = view.is_contiguous() && written.is_contiguous() && same_extent
            || same_strides(view, written);
        if allowed && aligned && same_elements {
            return Ok(Place::Output(output));
        }
        let message = format!(
            "kernel `{}` writes over it while it reads it, and may not do so in place",
            spec.name
        );
        Err(placement::plan_error(&self.graph, value, message))
    }

    /// Overwrites every byte that is no state's, so that a read of what nothing wrote shows.
    #[cfg(test)]
    pub(crate) fn poison(&mut self) -> Result<(), ExecutorError> {
        let states: Vec<ValueId> = self.graph.states.iter().map(|state| state.input).collect();
        let kept: BTreeSet<_> = states
            .iter()
            .filter_map(|value| self.graph.value(*value).region.as_ref())
            .map(|region| region.buffer)
            .collect();
        for (id, buffer) in &self.graph.buffers {
            if !kept.contains(id) {
                let span = Span { buffer: *id, bytes: 0..buffer.bytes as usize };
                self.arena.get_mut(&span)?.fill(0xff);
            }
        }
        Ok(())
    }
}

/// Strides that matter, of dimensions longer than 1, are equal.
fn same_strides(a: &View, b: &View) -> bool {
    a.rank() == b.rank()
        && (0..a.rank()).all(|axis| {
            (a.shape[axis] <= 1 && b.shape[axis] <= 1) || a.strides[axis] == b.strides[axis]
        })
}

fn check_kernel(graph: &Graph, id: NodeId, op: &Op) -> Result<(), ExecutorError> {
    selected(graph, id, op).map(|_| ())
}

fn selected(graph: &Graph, id: NodeId, op: &Op) -> Result<Selected, ExecutorError> {
    let node = graph.node(id);
    let types = |values: &[ValueId]| -> Vec<TensorType> {
        values.iter().map(|value| graph.ty(*value).clone()).collect()
    };
    library::select(op, &types(node.operands()), &types(node.outputs())).ok_or_else(|| {
        ExecutorError::NoKernel { node: node_name(graph, id), operator: op.to_string() }
    })
}

/// The symbols that a step's shapes and attributes depend on.
fn symbols(graph: &Graph, id: NodeId, op: &Op) -> BTreeSet<Symbol> {
    let mut symbols = BTreeSet::new();
    let mut note = |dim: &membar_ir::dim::Dim| {
        dim.for_each_symbol(&mut |symbol| {
            symbols.insert(symbol.clone());
        });
    };
    let node = graph.node(id);
    for value in node.operands().iter().chain(node.outputs()) {
        let value = graph.value(*value);
        value.ty.shape.iter().for_each(&mut note);
        value.layout.clone().visit_dims(&mut |dim| note(dim));
    }
    op.clone().visit_dims(&mut |dim| note(dim));
    symbols
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, check_graph, check_op, declare, plan, sure};
    use super::*;
    use membar_ir::dim::Dim;
    use membar_ir::dtype::DType;
    use membar_ir::ops::{Reshape, Scalar};
    use membar_ir::recipe::Recipe;
    use membar_ir::schedule::Region;

    /// `y = reshape(-x + w)`, all of `[B, 3]`.
    fn chain() -> (Graph, [ValueId; 4]) {
        let mut graph = Graph::new("chain");
        declare(&mut graph, "B", 1, 5);
        let ty = TensorType::new(DType::F32, vec![Dim::symbol("B"), Dim::from(3)]);
        let x = graph.add_input("x", ty);
        let w = Random::new(1).tensor(DType::F32, &[3]);
        let w = graph.add_weight(Some("w"), Recipe::literal(w));
        let a = sure(graph.apply(Scalar::Neg, &[x]));
        let b = sure(graph.apply(Scalar::Add, &[a, w]));
        let shape = vec![Dim::symbol("B") * Dim::from(3)];
        let y = sure(graph.apply(Reshape { shape }, &[b]));
        graph.set_outputs([("y", y)]);
        (graph, [x, a, b, y])
    }

    fn at(graph: &mut Graph, value: ValueId, offset: u64, len: u64) {
        let buffer = membar_ir::schedule::BufferId(0);
        graph.value_mut(value).region = Some(Region::contiguous(buffer, offset, len));
        let memory = membar_ir::topology::MemoryId(0);
        let buffers = &mut graph.buffers;
        buffers.insert(buffer, membar_ir::schedule::Buffer { bytes: 192, memory });
    }

    fn inputs(rows: usize) -> BTreeMap<String, Tensor> {
        [("x".to_string(), Random::new(7).tensor(DType::F32, &[rows, 3]))].into()
    }

    #[test]
    fn extents_vary_between_runs() {
        let (graph, _) = chain();
        let graph = plan(graph);
        for rows in [4, 1, 5] {
            check_graph(&graph, &inputs(rows), &[(Symbol::new("B"), rows as i64)].into());
        }
    }

    #[test]
    fn steps_run_in_place_and_aliases_cost_nothing() {
        let (mut graph, [_, a, b, y]) = chain();
        for value in [a, b, y] {
            at(&mut graph, value, 64, 60);
        }
        check_graph(&plan(graph), &inputs(5), &[(Symbol::new("B"), 5)].into());
    }

    #[test]
    fn impossible_plans_are_refused() {
        let bindings: Bindings = [(Symbol::new("B"), 5)].into();
        // An overlap that is no kernel's in-place pair, a region too small, one beyond its buffer
        // and one not aligned.
        for (offset, len) in [(4, 60), (64, 40), (160, 60), (66, 60)] {
            let (mut graph, [x, a, ..]) = chain();
            at(&mut graph, x, 0, 60);
            at(&mut graph, a, offset, len);
            let graph = plan(graph);
            let weights = sure(crate::weights::Materialiser::default().weights(&graph));
            let mut executor = sure(Executor::new(graph, weights));
            assert!(executor.run(&bindings, &BTreeMap::new()).is_err(), "{offset} {len}");
        }
    }

    #[test]
    fn the_reference_runs_what_has_no_kernel() {
        let mut random = Random::new(3);
        let operands = [random.tensor(DType::U64, &[3, 5]), random.tensor(DType::U64, &[5])];
        check_op(Scalar::FloorMod, &operands);
    }

    #[test]
    fn graphs_that_are_not_scheduled_are_refused() {
        let (graph, _) = chain();
        let result = Executor::new(graph, BTreeMap::new());
        assert!(matches!(result, Err(ExecutorError::Stage { .. })));
        let (graph, _) = chain();
        let result = Executor::new(plan(graph), BTreeMap::new());
        assert!(matches!(result, Err(ExecutorError::MissingWeight(name)) if name == "w"));
    }
}
