//! `convert-precision`: changes the types in which floats are stored and multiplied; never those of
//! inputs and outputs, of integers, or of `f64`.

mod classes;

use crate::dead_code::remove_replaced;
use classes::{Class, Classes, operand_is_converted};
use membar_ir::dtype::DType;
use membar_ir::graph::{Graph, NodeId, NodeKind, ValueId};
use membar_ir::interp::Interpreter;
use membar_ir::ops::{Op, Scalar};
use membar_ir::pass::{Changed, PassContext, PassError, Precision};
use membar_ir::recipe::Recipe;
use membar_ir::tensor::Tensor;
use membar_ir::types::TensorType;
use std::collections::HashMap;

/// Constants of at most so many elements are converted at once, larger ones as they are read.
const SMALL: usize = 64;

/// Stores floats, and feeds matrix units, in another type. With `--precision bf16`:
///
/// ```text
/// graph @g(%x: f32[2, 8]) {
///   %w = weight random seed 1 stream 0 normal(1.0) : f32[8, 4]
///   %h = matmul %x, %w {acc = f32, result = f32} : f32[2, 4]
///   %y = softmax %h {axis = 1} : f32[2, 4]
///   return %y
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%x: f32[2, 8]) {
///   %w = weight random seed 1 stream 0 normal(1.0) : f32[8, 4]
///   %0 = cast %x {to = bf16, saturate = true} : bf16[2, 8]
///   %w#1 = weight cast(random seed 1 stream 0 normal(1.0) : f32[8, 4]) {to = bf16, saturate = true} : bf16[8, 4]
///   %h = matmul %0, %w#1 {acc = f32, result = bf16} : bf16[2, 4]
///   %y = softmax %h {axis = 1} : bf16[2, 4]
///   %1 = cast %y {to = f32, saturate = true} : f32[2, 4]
///   return y = %1
/// }
/// ```
///
/// `dead-code` removes the weight that nobody reads any more.
///
/// Products add up in `f32`. What is spelled out stays in `f32` where its result would suffer:
/// statistics (sums and means and what is computed from them), exponentials and the like, angles
/// (everything that a sine or cosine is computed from), and masks (whatever holds a number beyond
/// `f16`, until a softmax has read it). A finite number beyond the type's range becomes its greatest,
/// so that a mask's least value never becomes an infinity.
///
/// # Errors
/// None; an operator that cannot have the new types is reported as a fault, which is a defect here.
pub fn convert_precision(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let narrow = match cx.options.precision {
        Precision::Model => return Ok(Changed::No),
        // TF32 is how matrix units read f32; in memory there is no such type.
        Precision::F32 | Precision::Tf32 => DType::F32,
        Precision::Bf16 => DType::Bf16,
        Precision::F16 => DType::F16,
    };
    let classes = Classes::of(graph);
    let declared: Vec<DType> = graph.outputs().iter().map(|o| graph.ty(o.value).dtype).collect();
    let mut converter =
        Converter { narrow, casts: HashMap::new(), replaced: Vec::new(), any: false };
    for id in graph.order() {
        if graph.node(id).op().is_some() {
            converter.node(graph, id, &classes)?;
        }
    }
    let mut outputs = graph.outputs().to_vec();
    for (output, dtype) in outputs.iter_mut().zip(declared) {
        if graph.ty(output.value).dtype != dtype {
            let producer = graph.value(output.value).producer();
            output.value = converter.cast(graph, output.value, dtype, false, producer)?;
        }
    }
    graph.set_outputs(outputs.into_iter().map(|output| (output.name, output.value)));
    let changed = converter.any || !converter.replaced.is_empty();
    remove_replaced(graph, converter.replaced);
    Ok(changed.into())
}

/// Whether a float of this type is converted.
fn is_converted(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}

struct Converter {
    narrow: DType,
    /// Values in another type.
    casts: HashMap<(ValueId, DType), ValueId>,
    /// Conversions of the model that say nothing any more.
    replaced: Vec<NodeId>,
    any: bool,
}

impl Converter {
    fn node(&mut self, graph: &mut Graph, id: NodeId, classes: &Classes) -> Result<(), PassError> {
        let Some(op) = graph.node(id).op().cloned() else { return Ok(()) };
        let operands = graph.node(id).operands().to_vec();
        if let (Op::Scalar(Scalar::Cast { to, .. }), [operand]) = (&op, operands.as_slice())
            && is_converted(*to)
            && is_converted(graph.ty(*operand).dtype)
        {
            // Its operand is in the type that its place asks for, so it is that.
            for output in graph.node(id).outputs().to_vec() {
                graph.replace_uses(output, *operand);
            }
            self.replaced.push(id);
            return Ok(());
        }
        let dtype = match classes.of_node(id) {
            Class::Narrow => self.narrow,
            Class::Wide => DType::F32,
            Class::Kept => return Ok(()),
        };
        for (index, operand) in operands.iter().enumerate() {
            let found = graph.ty(*operand).dtype;
            if is_converted(found) && found != dtype && operand_is_converted(&op, index) {
                let clamp = classes.is_huge(*operand);
                let converted = self.cast(graph, *operand, dtype, clamp, id)?;
                graph.set_operand(id, index, converted);
            }
        }
        let op = with_dtype(op, dtype);
        self.any |= graph.node(id).op() != Some(&op);
        let types: Vec<TensorType> =
            graph.node(id).operands().iter().map(|value| graph.ty(*value).clone()).collect();
        let inferred = op.infer(&types).map_err(|error| {
            PassError::fault(format!("node `{}` in {dtype}: {error}", graph.label(id)))
        })?;
        let outputs = graph.node(id).outputs().to_vec();
        graph.node_mut(id).kind = NodeKind::Op(op);
        for (output, ty) in outputs.into_iter().zip(inferred) {
            self.any |= graph.ty(output).dtype != ty.dtype;
            // The shape stays as it was written: inference may find it in another form.
            graph.value_mut(output).ty.dtype = ty.dtype;
        }
        Ok(())
    }

    /// A value in another type, for a reader at `place`; made once.
    fn cast(
        &mut self,
        graph: &mut Graph,
        value: ValueId,
        to: DType,
        clamp: bool,
        place: NodeId,
    ) -> Result<ValueId, PassError> {
        self.any = true;
        if let Some(known) = self.casts.get(&(value, to)) {
            return Ok(*known);
        }
        let op = Op::from(Scalar::Cast { to, saturate: true });
        let (producer, name) = (graph.value(value).producer(), graph.value(value).name.clone());
        let result = match &graph.node(producer).kind {
            NodeKind::Weight(recipe) => {
                let recipe = converted(recipe, op, to)?;
                graph.add_weight(name.as_deref(), recipe)
            }
            NodeKind::Op(_) | NodeKind::Input => {
                let fault = |error: membar_ir::op::TypeError| PassError::fault(error.to_string());
                let clamped = if clamp && to != DType::F32 {
                    let added = self.clamped(graph, value, to).map_err(fault)?;
                    graph.stand_in(graph.value(added).producer(), place);
                    added
                } else {
                    value
                };
                graph.apply(op, &[clamped]).map_err(fault)?
            }
        };
        let node = graph.value(result).producer();
        let origin = graph.node(producer).origin.clone();
        graph.node_mut(node).origin = origin;
        graph.stand_in(node, place);
        self.casts.insert((value, to), result);
        Ok(result)
    }

    /// The value inside the finite range of a type.
    fn clamped(
        &self,
        graph: &mut Graph,
        value: ValueId,
        to: DType,
    ) -> Result<ValueId, membar_ir::op::TypeError> {
        let limit = classes::greatest(to);
        let dtype = graph.ty(value).dtype;
        let mut constant = |limit: f64| {
            let mut tensor = Tensor::scalar(0f32);
            tensor.set(0, membar_ir::element::Number::Float(limit));
            let literal = graph.add_weight(None, Recipe::literal(tensor));
            match dtype {
                DType::F32 => Ok(literal),
                _ => graph.apply(Scalar::Cast { to: dtype, saturate: true }, &[literal]),
            }
        };
        let (lo, hi) = (constant(-limit)?, constant(limit)?);
        graph.apply(Scalar::Clip, &[value, lo, hi])
    }
}

/// A weight in another type: small constants at once, so that dumps show them, finite ones inside the
/// type's range.
fn converted(recipe: &Recipe, op: Op, to: DType) -> Result<Recipe, PassError> {
    let ty = TensorType::new(to, recipe.ty().shape.clone());
    let Some(literal) = recipe.as_literal().filter(|tensor| tensor.elements() <= SMALL) else {
        return Ok(Recipe::apply(ty, op, vec![recipe.clone()]));
    };
    let mut tensor = literal.clone();
    let limit = classes::greatest(to);
    for (index, number) in literal.numbers().enumerate() {
        let value = number.to_float();
        if value.is_finite() && value.abs() > limit {
            let bounded = limit.min(classes::greatest(literal.dtype())).copysign(value);
            tensor.set(index, membar_ir::element::Number::Float(bounded));
        }
    }
    let fault = |error: membar_ir::interp::InterpError| PassError::fault(error.to_string());
    let results = Interpreter::default().evaluate(&op, &[tensor]).map_err(fault)?;
    let result = results.into_iter().next().map(Recipe::literal);
    Ok(result.unwrap_or_else(|| Recipe::apply(ty, op, vec![recipe.clone()])))
}

/// The operator with the types of its attributes changed.
fn with_dtype(op: Op, dtype: DType) -> Op {
    match op {
        Op::Matmul(mut matmul) if matmul.acc.is_float() => {
            matmul.acc = matmul.acc.compute();
            if is_converted(matmul.result) {
                matmul.result = dtype;
            }
            Op::Matmul(matmul)
        }
        Op::Dequantize(mut dequantize) if is_converted(dequantize.dtype) => {
            dequantize.dtype = dtype;
            Op::Dequantize(dequantize)
        }
        Op::Iota(mut iota) if is_converted(iota.dtype) => {
            iota.dtype = dtype;
            Op::Iota(iota)
        }
        Op::Scalar(Scalar::Cast { to, saturate }) if is_converted(to) => {
            let _ = to;
            Op::Scalar(Scalar::Cast { to: dtype, saturate })
        }
        other => other,
    }
}
