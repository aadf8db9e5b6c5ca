//! What the mapping of one node sees: its attributes and operands, and how it adds operators and
//! sets results. Never knows which operator it serves.

use super::branch::Importer;
use super::constants::WeightRole;
use super::environment::Slot;
use super::fault::NodeError;
use super::symbols::is_excessive;
use crate::attributes::FromAttribute;
use crate::model::{GraphDef, NodeDef};
use crate::tensors::TensorDef;
use membar_ir::{Axis, ConcreteType, DType, Dim, Number, Op, Tensor, TensorType, ValueId};
use std::sync::Arc;

/// One node that is being imported.
///
/// An operand can be read in three ways: as a value of the graph ([`NodeContext::operand`]), as
/// dimensions ([`NodeContext::dims`]: small integer tensors that depend on shapes and constants
/// alone) or as a constant ([`NodeContext::constant`]). Only the first adds to the graph.
pub(crate) struct NodeContext<'a, 'm> {
    importer: &'a mut Importer<'m>,
    node: &'m NodeDef,
    origin: Arc<str>,
    operands: Vec<Option<Slot>>,
    wanted: &'a [bool],
    results: Vec<Option<Slot>>,
}

impl<'a, 'm> NodeContext<'a, 'm> {
    pub(super) fn new(
        importer: &'a mut Importer<'m>,
        node: &'m NodeDef,
        operands: Vec<Option<Slot>>,
        wanted: &'a [bool],
    ) -> NodeContext<'a, 'm> {
        let origin = node.name.as_str().into();
        let results = vec![None; node.outputs.len()];
        NodeContext { importer, node, origin, operands, wanted, results }
    }

    pub(super) fn into_results(self) -> Vec<Option<Slot>> {
        self.results
    }

    // Attributes.

    /// Version of the domain's operator set.
    pub(crate) fn opset(&self) -> i64 {
        self.node.opset
    }

    /// An attribute, if the node has it.
    pub(crate) fn attribute<T: FromAttribute<'m>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, NodeError> {
        Ok(self.node.attribute(name)?)
    }

    /// An attribute with a default.
    pub(crate) fn attribute_or<T: FromAttribute<'m>>(
        &self,
        name: &str,
        default: T,
    ) -> Result<T, NodeError> {
        Ok(self.node.attribute(name)?.unwrap_or(default))
    }

    /// An attribute that the operator requires.
    pub(crate) fn required<T: FromAttribute<'m>>(&self, name: &str) -> Result<T, NodeError> {
        Ok(self.node.required(name)?)
    }

    /// An integer attribute that is a truth value.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, NodeError> {
        Ok(self.attribute::<i64>(name)?.map_or(default, |value| value != 0))
    }

    // Operands.

    /// How many operands the node has, those left out in the middle included.
    pub(crate) fn operand_count(&self) -> usize {
        self.operands.len()
    }

    /// Whether an operand is given.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.operands.get(index).is_some_and(Option::is_some)
    }

    /// An operand as it is, to be made a result.
    pub(crate) fn slot(&self, index: usize) -> Result<Slot, NodeError> {
        let slot = self.operands.get(index).copied().flatten();
        slot.ok_or_else(|| NodeError::new(format!("operand {index} is missing")))
    }

    /// The type of an operand.
    pub(crate) fn ty(&mut self, index: usize) -> Result<TensorType, NodeError> {
        let slot = self.slot(index)?;
        Ok(self.importer.environment.ty(slot))
    }

    /// An operand as a value of the graph.
    pub(crate) fn operand(&mut self, index: usize) -> Result<ValueId, NodeError> {
        let slot = self.slot(index)?;
        self.importer.environment.value(slot, WeightRole::Other)
    }

    /// An optional operand as a value of the graph.
    pub(crate) fn optional(&mut self, index: usize) -> Result<Option<ValueId>, NodeError> {
        if self.has(index) { self.operand(index).map(Some) } else { Ok(None) }
    }

    /// The factor of a normalisation as a value of the graph: 1 where weights are random.
    pub(crate) fn norm_scale(&mut self, index: usize) -> Result<ValueId, NodeError> {
        let slot = self.slot(index)?;
        self.importer.environment.value(slot, WeightRole::NormScale)
    }

    /// All operands as values of the graph; none may be left out.
    pub(crate) fn all_operands(&mut self) -> Result<Vec<ValueId>, NodeError> {
        (0..self.operand_count()).map(|index| self.operand(index)).collect()
    }

    /// The elements of a small integer operand, if they depend on shapes and constants alone.
    pub(crate) fn known_dims(&mut self, index: usize) -> Option<Vec<Dim>> {
        let slot = self.slot(index).ok()?;
        self.importer.environment.dims(slot)
    }

    /// The elements of a small integer operand, which must depend on shapes and constants alone.
    pub(crate) fn dims(&mut self, index: usize) -> Result<Vec<Dim>, NodeError> {
        self.slot(index)?;
        self.known_dims(index).ok_or_else(|| {
            NodeError::new(format!(
                "operand {index} is data; a constant or something computed from shapes is expected \
                 (`--bind` fixes an input)"
            ))
        })
    }

    /// The elements of a small integer operand, which must be constant.
    pub(crate) fn integers(&mut self, index: usize) -> Result<Vec<i64>, NodeError> {
        let dims = self.dims(index)?;
        let constant = |dim: &Dim| {
            dim.as_constant().ok_or_else(|| {
                NodeError::new(format!("operand {index} holds `{dim}`; a constant is expected"))
            })
        };
        dims.iter().map(constant).collect()
    }

    /// The elements of an operand if it is constant.
    pub(crate) fn known_constant(&mut self, index: usize) -> Result<Option<Tensor>, NodeError> {
        let slot = self.slot(index)?;
        Ok(self.importer.environment.tensor(slot)?)
    }

    /// The elements of an operand that must be constant.
    pub(crate) fn constant(&mut self, index: usize) -> Result<Tensor, NodeError> {
        self.known_constant(index)?.ok_or_else(|| {
            NodeError::new(format!("operand {index} is data; a constant is expected"))
        })
    }

    /// An axis of an operand of that rank, negative ones counted from the end.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<Axis, NodeError> {
        Axis::normalise(axis, rank)
            .ok_or_else(|| NodeError::new(format!("axis {axis} of a tensor of rank {rank}")))
    }

    /// Several axes, as [`NodeContext::axis`]; sorted, and each once.
    pub(crate) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<Axis>, NodeError> {
        let mut normalised =
            axes.iter().map(|axis| self.axis(*axis, rank)).collect::<Result<Vec<_>, _>>()?;
        normalised.sort();
        normalised.dedup();
        if normalised.len() < axes.len() {
            return Err(NodeError::new(format!("axes {axes:?} name an axis twice")));
        }
        Ok(normalised)
    }

    /// The elements of a tensor that is an attribute.
    pub(crate) fn read(&self, tensor: &TensorDef) -> Result<Tensor, NodeError> {
        Ok(self.importer.environment.read(tensor)?)
    }

    // The graph.

    /// Adds an operator and gives its first result.
    pub(crate) fn emit(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<ValueId, NodeError> {
        let results = self.emit_all(op, operands)?;
        results.first().copied().ok_or_else(|| NodeError::new("an operator without results"))
    }

    /// Adds an operator and gives all its results.
    pub(crate) fn emit_all(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, NodeError> {
        self.importer.environment.emit(op, operands, &self.origin)
    }

    /// The type of a value of the graph.
    pub(crate) fn type_of(&mut self, value: ValueId) -> TensorType {
        self.importer.environment.value_type(value)
    }

    /// A scalar constant of rank 0.
    pub(crate) fn scalar(&mut self, dtype: DType, value: f64) -> Result<ValueId, NodeError> {
        self.literal(dtype, &[], [Number::Float(value)])
    }

    /// A small constant.
    pub(crate) fn literal(
        &mut self,
        dtype: DType,
        shape: &[usize],
        numbers: impl IntoIterator<Item = Number>,
    ) -> Result<ValueId, NodeError> {
        let tensor = ConcreteType::new(dtype, shape.to_vec())
            .map_err(|error| NodeError::new(error.to_string()))
            .and_then(|ty| {
                Tensor::from_numbers(ty, numbers).map_err(|error| NodeError::new(error.to_string()))
            })?;
        Ok(self.importer.environment.literal(tensor))
    }

    /// A dimension as a value: `i64`, rank 0.
    pub(crate) fn dim_value(&mut self, dim: &Dim) -> Result<ValueId, NodeError> {
        let slot = self.importer.environment.add_dims(DType::I64, true, vec![dim.clone()]);
        self.importer.environment.value(slot, WeightRole::Other)
    }

    /// The symbols, to compare and simplify dimensions.
    pub(crate) fn symbols(&self) -> &super::symbols::Symbols {
        &self.importer.environment.symbols
    }

    /// Takes two dimensions to be equal.
    pub(crate) fn unify(&mut self, left: &Dim, right: &Dim, what: &str) -> Result<(), NodeError> {
        if self.importer.environment.symbols.unify(left, right, &self.origin) {
            return Ok(());
        }
        let explanation = self.symbols().explain(left, right);
        Err(NodeError::new(format!("{what}: `{left}` and `{right}` differ{explanation}")))
    }

    // Results.

    /// How many results the node has.
    pub(crate) fn result_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether anything reads a result.
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.wanted.get(index).copied().unwrap_or(false)
    }

    /// Sets a result to a value of the graph.
    pub(crate) fn output(&mut self, index: usize, value: ValueId) -> Result<(), NodeError> {
        if let Some(Some(name)) = self.node.outputs.get(index) {
            let graph = &mut self.importer.environment.graph;
            if graph.value(value).name.is_none() {
                graph.set_name(value, name);
            }
        }
        let slot = self.importer.environment.add_value(value);
        self.output_slot(index, slot)
    }

    /// Sets a result to what an operand is.
    pub(crate) fn output_slot(&mut self, index: usize, slot: Slot) -> Result<(), NodeError> {
        if let Some(result) = self.results.get_mut(index) {
            *result = Some(slot);
        }
        Ok(())
    }

    /// Sets a result to dimensions: of rank 0 if `scalar`, else a vector.
    pub(crate) fn output_dims(
        &mut self,
        index: usize,
        dtype: DType,
        scalar: bool,
        dims: Vec<Dim>,
    ) -> Result<(), NodeError> {
        if dims.iter().any(is_excessive) {
            return Err(NodeError::new("a dimension of too many terms"));
        }
        let slot = self.importer.environment.add_dims(dtype, scalar, dims);
        self.output_slot(index, slot)
    }

    /// Sets a result to a constant of the model.
    pub(crate) fn output_constant(
        &mut self,
        index: usize,
        tensor: &'m TensorDef,
    ) -> Result<(), NodeError> {
        let slot = self.importer.environment.add_constant(tensor)?;
        self.output_slot(index, slot)
    }

    /// Imports a branch in the scope of this node; its outputs become the node's results.
    pub(crate) fn take_branch(&mut self, branch: &'m GraphDef) -> Result<(), NodeError> {
        self.results = self.importer.branch(branch, self.wanted)?;
        Ok(())
    }
}
