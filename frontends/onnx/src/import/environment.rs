//! The values of an import: what is known of each ONNX value, and the graph under construction.
//! Never interprets an operator.

use super::ImportOptions;
use super::constants::{self, LITERAL_LIMIT, WeightRole};
use super::fault::NodeError;
use super::symbols::{Symbols, is_excessive};
use crate::error::ImportError;
use crate::model::Model;
use crate::tensors::TensorDef;
use membar_ir::interp::Interpreter;
use membar_ir::op::TypeError;
use membar_ir::ops::{Dims, Reshape, Scalar};
use membar_ir::{
    ConcreteType, DType, Dim, Graph, NodeId, NodeKind, Number, Op, Recipe, Tensor, TensorType,
    ValueId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Vectors of more elements are not followed symbolically.
pub(crate) const DIMS_LIMIT: usize = 1024;

/// More equations than this in one operator's shapes are a contradiction, not a model.
const UNIFICATION_LIMIT: usize = 64;

/// No tensor that is computed during import, results of inner operators included, is larger.
const FOLD_LIMIT: usize = 1 << 20;

/// A handle of an [`Imported`] value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// What is known of an ONNX value.
#[derive(Debug, Clone)]
pub(crate) struct Imported<'m> {
    /// Its type; the rank is always known.
    ty: TensorType,
    /// The value in the graph, once an operator has asked for it.
    value: Option<ValueId>,
    /// The elements, of a small integer or truth tensor of rank 0 or 1 that depends on shapes and
    /// constants alone.
    dims: Option<Vec<Dim>>,
    /// The elements, of a constant.
    constant: Option<Constant<'m>>,
}

/// Where the elements of a constant are.
#[derive(Debug, Clone)]
enum Constant<'m> {
    /// Here.
    Tensor(Tensor),
    /// In the model; `stream` is its number among the model's constants.
    Weight { tensor: &'m TensorDef, stream: u64 },
}

/// The graph under construction, its symbols and its values.
pub(crate) struct Environment<'m> {
    model: &'m Model,
    options: &'m ImportOptions,
    pub(crate) graph: Graph,
    pub(crate) symbols: Symbols,
    slots: Vec<Imported<'m>>,
    literals: BTreeMap<(DType, Vec<usize>, Vec<u8>), ValueId>,
    interpreter: Interpreter,
    streams: u64,
}

impl<'m> Environment<'m> {
    pub(crate) fn new(model: &'m Model, options: &'m ImportOptions) -> Environment<'m> {
        Environment {
            model,
            options,
            graph: Graph::new(&model.graph.name),
            symbols: Symbols::default(),
            slots: Vec::new(),
            literals: BTreeMap::new(),
            interpreter: Interpreter::with_limit(FOLD_LIMIT),
            streams: 0,
        }
    }

    fn add(&mut self, imported: Imported<'m>) -> Slot {
        self.slots.push(imported);
        Slot(self.slots.len() - 1)
    }

    /// A value of the graph. If it is a small constant, its elements are known too.
    pub(crate) fn add_value(&mut self, value: ValueId) -> Slot {
        let ty = self.value_type(value);
        let tensor = self.literal_of(value).cloned();
        let dims = tensor.as_ref().and_then(dims_of_tensor);
        let constant = tensor.map(Constant::Tensor);
        self.add(Imported { ty, value: Some(value), dims, constant })
    }

    /// Dimensions as data: of rank 0 if `scalar`, else a vector.
    pub(crate) fn add_dims(&mut self, dtype: DType, scalar: bool, dims: Vec<Dim>) -> Slot {
        let shape = if scalar { Vec::new() } else { vec![Dim::from(dims.len() as i64)] };
        let ty = TensorType::new(dtype, shape);
        let constant = tensor_of_dims(&ty, &dims).map(Constant::Tensor);
        self.add(Imported { ty, value: None, dims: Some(dims), constant })
    }

    /// A constant tensor.
    pub(crate) fn add_tensor(&mut self, tensor: Tensor) -> Slot {
        let ty = Recipe::literal(tensor.clone()).ty().clone();
        let dims = dims_of_tensor(&tensor);
        self.add(Imported { ty, value: None, dims, constant: Some(Constant::Tensor(tensor)) })
    }

    /// A constant of the model. It becomes a weight when an operator reads it.
    pub(crate) fn add_constant(&mut self, tensor: &'m TensorDef) -> Result<Slot, ImportError> {
        let stream = self.streams;
        self.streams += 1;
        let ty = constants::tensor_type(tensor)?;
        let small = ty.rank() <= 1 && ty.dtype.is_integer() || ty.dtype == DType::Bool;
        let few = tensor.element_count() <= DIMS_LIMIT as u64;
        if small && few && tensor.require_data().is_ok() {
            let read = constants::read(&self.model.source, tensor)?;
            let dims = dims_of_tensor(&read);
            let constant = Some(Constant::Weight { tensor, stream });
            return Ok(self.add(Imported { ty, value: None, dims, constant }));
        }
        let constant = Some(Constant::Weight { tensor, stream });
        Ok(self.add(Imported { ty, value: None, dims: None, constant }))
    }

    /// The type, with all that is known of its dimensions by now.
    pub(crate) fn ty(&mut self, slot: Slot) -> TensorType {
        let imported = &mut self.slots[slot.0];
        for dim in &mut imported.ty.shape {
            self.symbols.resolve(dim);
        }
        imported.ty.clone()
    }

    /// The elements, if they depend on shapes and constants alone and are few.
    pub(crate) fn dims(&mut self, slot: Slot) -> Option<Vec<Dim>> {
        let dims = self.slots[slot.0].dims.as_mut()?;
        for dim in dims.iter_mut() {
            self.symbols.resolve(dim);
        }
        Some(dims.clone())
    }

    /// The elements of a constant; `None` if it is none.
    pub(crate) fn tensor(&mut self, slot: Slot) -> Result<Option<Tensor>, ImportError> {
        match &self.slots[slot.0].constant {
            Some(Constant::Tensor(tensor)) => return Ok(Some(tensor.clone())),
            Some(Constant::Weight { tensor, .. }) => {
                return constants::read(&self.model.source, tensor).map(Some);
            }
            None => {}
        }
        // Symbols may have turned out to be numbers since.
        let ty = self.slots[slot.0].ty.clone();
        Ok(self.dims(slot).and_then(|dims| tensor_of_dims(&ty, &dims)))
    }

    /// The elements of a tensor of the model.
    pub(crate) fn read(&self, tensor: &TensorDef) -> Result<Tensor, ImportError> {
        constants::read(&self.model.source, tensor)
    }

    /// The value in the graph; constants and dimensions become nodes when this is first asked.
    pub(crate) fn value(&mut self, slot: Slot, role: WeightRole) -> Result<ValueId, NodeError> {
        if let Some(value) = self.slots[slot.0].value {
            return Ok(value);
        }
        let value = match self.slots[slot.0].constant.clone() {
            Some(Constant::Tensor(tensor)) => self.literal(tensor),
            Some(Constant::Weight { tensor, stream }) => {
                let by_name = constants::named_like_norm_scale(tensor);
                let role = if by_name { WeightRole::NormScale } else { role };
                let random = self.options.random_weights;
                let recipe = constants::recipe(self.model, tensor, random, role, stream)?;
                self.graph.add_weight(Some(&tensor.name), recipe)
            }
            None => self.dims_value(slot)?,
        };
        self.slots[slot.0].value = Some(value);
        Ok(value)
    }

    fn dims_value(&mut self, slot: Slot) -> Result<ValueId, NodeError> {
        let ty = self.ty(slot);
        let Some(values) = self.dims(slot) else {
            return Err(NodeError::new("a value that is neither computed nor constant"));
        };
        if let Some(tensor) = tensor_of_dims(&ty, &values) {
            return Ok(self.literal(tensor));
        }
        let origin: Arc<str> = "shape".into();
        let mut value = self.emit(Dims { values }, &[], &origin)?[0];
        if ty.rank() == 0 {
            value = self.emit(Reshape { shape: Vec::new() }, &[value], &origin)?[0];
        }
        if ty.dtype != DType::I64 {
            let cast = Scalar::Cast { to: ty.dtype, saturate: true };
            value = self.emit(cast, &[value], &origin)?[0];
        }
        Ok(value)
    }

    /// A small constant as a value; equal ones are one value.
    pub(crate) fn literal(&mut self, tensor: Tensor) -> ValueId {
        let key = (tensor.dtype(), tensor.shape().to_vec(), tensor.bytes().to_vec());
        if let Some(value) = self.literals.get(&key) {
            return *value;
        }
        let value = self.graph.add_weight(None, Recipe::literal(tensor));
        self.literals.insert(key, value);
        value
    }

    /// The elements of a value that is a literal weight.
    pub(crate) fn literal_of(&self, value: ValueId) -> Option<&Tensor> {
        match &self.graph.node(self.graph.value(value).producer()).kind {
            NodeKind::Weight(recipe) => recipe.as_literal(),
            NodeKind::Input | NodeKind::Op(_) => None,
        }
    }

    /// The type of a value, with all that is known of its dimensions by now.
    pub(crate) fn value_type(&mut self, value: ValueId) -> TensorType {
        let ty = &mut self.graph.value_mut(value).ty;
        for dim in &mut ty.shape {
            self.symbols.resolve(dim);
        }
        ty.clone()
    }

    /// Adds an operator. Where its inference finds two dimensions that differ, they are taken to
    /// be the same dimension under two names, if that is possible; what small constants alone
    /// decide is computed at once.
    pub(crate) fn emit(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
        origin: &Arc<str>,
    ) -> Result<Vec<ValueId>, NodeError> {
        let mut op = op.into();
        for _ in 0..UNIFICATION_LIMIT {
            op.visit_dims(&mut |dim| self.symbols.resolve(dim));
            for operand in operands {
                self.value_type(*operand);
            }
            if let Some(folded) = self.fold(&op, operands) {
                return Ok(folded);
            }
            match self.graph.add_op(op.clone(), operands) {
                Ok(node) => return self.finish(node, origin, &op),
                Err(TypeError::Mismatch { left, right, what }) => {
                    if !self.symbols.unify(&left, &right, origin) {
                        let explanation = self.symbols.explain(&left, &right);
                        let error = Box::new(TypeError::Mismatch { left, right, what });
                        let operator = op.to_string();
                        return Err(NodeError::Type { operator, error, explanation });
                    }
                }
                Err(error) => {
                    let (operator, error) = (op.to_string(), Box::new(error));
                    return Err(NodeError::Type { operator, error, explanation: String::new() });
                }
            }
        }
        Err(NodeError::new(format!("the shapes of `{op}` contradict each other")))
    }

    fn finish(
        &mut self,
        node: NodeId,
        origin: &Arc<str>,
        op: &Op,
    ) -> Result<Vec<ValueId>, NodeError> {
        let node = self.graph.node_mut(node);
        node.origin.push(origin.clone());
        let results = node.outputs().to_vec();
        for result in &results {
            let ty = self.graph.ty(*result).clone();
            let negative = |dim: &Dim| dim.as_constant().is_some_and(|extent| extent < 0);
            if ty.shape.iter().any(|dim| negative(dim) || is_excessive(dim)) {
                let shape = ty.shape.iter().map(abbreviated).collect::<Vec<_>>().join(", ");
                let op = op.mnemonic();
                return Err(NodeError::new(format!("`{op}` to the impossible shape [{shape}]")));
            }
            // No run has a negative extent, so what follows may count on that.
            for dim in &ty.shape {
                if self.symbols.bounds(dim).lo.is_none_or(|lo| lo < 0) {
                    self.symbols.require_at_least(dim, 0);
                }
            }
        }
        Ok(results)
    }

    /// Evaluates an operator whose operands are small constants, if its results are small too.
    fn fold(&mut self, op: &Op, operands: &[ValueId]) -> Option<Vec<ValueId>> {
        if operands.is_empty() {
            return None;
        }
        let literals: Option<Vec<Tensor>> =
            operands.iter().map(|operand| self.literal_of(*operand).cloned()).collect();
        let literals = literals?;
        let types: Vec<TensorType> =
            operands.iter().map(|operand| self.graph.ty(*operand).clone()).collect();
        for ty in op.infer(&types).ok()? {
            let ty = ConcreteType::new(ty.dtype, ty.static_shape()?).ok()?;
            if ty.byte_len() > LITERAL_LIMIT {
                return None;
            }
        }
        let mut fixed = true;
        op.clone().visit_dims(&mut |dim| fixed &= dim.as_constant().is_some());
        if !fixed {
            return None;
        }
        let results = self.interpreter.evaluate(op, &literals).ok()?;
        Some(results.into_iter().map(|tensor| self.literal(tensor)).collect())
    }
}

/// A dimension for a message, however long it is.
fn abbreviated(dim: &Dim) -> String {
    if is_excessive(dim) { "…".to_owned() } else { dim.to_string() }
}

/// The elements as dimensions, of a small tensor of signed integers or truth values of rank 0
/// or 1.
fn dims_of_tensor(tensor: &Tensor) -> Option<Vec<Dim>> {
    let kind = matches!(tensor.dtype(), DType::I64 | DType::I32 | DType::Bool);
    if !kind || tensor.shape().len() > 1 || tensor.elements() > DIMS_LIMIT {
        return None;
    }
    tensor.numbers().map(|number| number.to_i64().map(Dim::from)).collect()
}

fn tensor_of_dims(ty: &TensorType, dims: &[Dim]) -> Option<Tensor> {
    let numbers: Option<Vec<Number>> =
        dims.iter().map(|dim| dim.as_constant().map(Number::Signed)).collect();
    let ty = ConcreteType::new(ty.dtype, ty.static_shape()?).ok()?;
    Tensor::from_numbers(ty, numbers?).ok()
}
