//! `fold_constants`: computes operators over weights alone; never lets the weights grow without
//! bound, and never touches an operator that fails (it may be one that no run reaches).

use crate::dead_code::remove_replaced;
use crate::simplify::identity;
use membar_ir::dim::Bindings;
use membar_ir::graph::{Graph, NodeId, NodeKind};
use membar_ir::interp::Interpreter;
use membar_ir::ops::Op;
use membar_ir::pass::{Changed, PassContext, PassError};
use membar_ir::recipe::{Recipe, RecipeNode};
use membar_ir::types::TensorType;

/// Results of at most so many bytes become literals. The text form prints literals in full, so the
/// limit is what a person still scrolls past.
const LITERAL_BYTES: usize = 4 << 10;

/// Operations and elements that may be spent on one literal, and on all of them: the interpreter
/// takes some 50 ns for each, so all of them cost about a second.
const LITERAL_WORK: i64 = 1 << 20;
const TOTAL_WORK: i64 = 1 << 24;

/// Operations for each element read or written up to which an operator may be repeated whenever a
/// weight is made. A product of two large weights is above it.
const RECIPE_WORK: i64 = 16;

/// A recipe's result may have so many times its operands' bytes: `i8` becomes `f32`, and a blocked
/// scale fits in as well. What exceeds it counts against `options.fold_limit`, for all weights
/// together, so that a four-bit weight is widened at each run rather than eightfold in memory, and
/// a scalar that is expanded to gigabytes stays an operator.
const RECIPE_GROWTH: u64 = 4;

/// A recipe may have so many steps: making a weight repeats what it uses twice.
const RECIPE_STEPS: usize = 64;

/// Replaces operators over weights alone by weights: small results by literals, others by recipes
/// where the operator takes time in proportion to its data.
///
/// ```text
/// graph @g(%x: f32[4, 512]) {
///   %w = weight file "up.weight" : f16[512, 512]
///   %t = transpose %w {perm = [1, 0]} : f16[512, 512]
///   %c = cast %t {to = f32, saturate = false} : f32[512, 512]
///   %y = matmul %x, %c {acc = f32, result = f32} : f32[4, 512]
///   return %y
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%x: f32[4, 512]) {
///   %c = weight cast(transpose(file "up.weight" : f16[512, 512]) {perm = [1, 0]} : f16[512, 512]) {to = f32, saturate = false} : f32[512, 512]
///   %y = matmul %x, %c {acc = f32, result = f32} : f32[4, 512]
///   return %y
/// }
/// ```
///
/// # Errors
/// None: what cannot be folded stays.
pub fn fold_constants(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let limit = usize::try_from(cx.options.fold_limit).unwrap_or(usize::MAX);
    let mut folder = Folder {
        interpreter: Interpreter::with_limit(limit),
        growth: cx.options.fold_limit,
        work: TOTAL_WORK,
    };
    let mut folded = Vec::new();
    for id in graph.order() {
        let Some(operands) = recipes(graph, id) else { continue };
        let outputs = graph.node(id).outputs().to_vec();
        if let (Some(same), [result]) = (identity(graph, id), outputs.as_slice()) {
            graph.replace_uses(*result, same);
            folded.push(id);
            continue;
        }
        let Some(results) = folder.fold(graph, id, &operands) else { continue };
        let origin = graph.node(id).origin.clone();
        for (old, recipe) in outputs.into_iter().zip(results) {
            let name = graph.value(old).name.clone();
            let new = graph.add_weight(name.as_deref(), recipe);
            let node = graph.value(new).producer();
            graph.node_mut(node).origin = origin.clone();
            graph.stand_in(node, id);
            graph.replace_uses(old, new);
        }
        folded.push(id);
    }
    let changed = !folded.is_empty();
    remove_replaced(graph, folded);
    Ok(changed.into())
}

/// The recipes of an operator's operands, if all of them are weights.
fn recipes(graph: &Graph, id: NodeId) -> Option<Vec<Recipe>> {
    let node = graph.node(id);
    node.op()?;
    let recipe = |value: &membar_ir::ValueId| match &graph.node(graph.value(*value).producer()).kind
    {
        NodeKind::Weight(recipe) => Some(recipe.clone()),
        NodeKind::Input | NodeKind::Op(_) => None,
    };
    node.operands().iter().map(recipe).collect()
}

/// What is left of the budgets.
struct Folder {
    interpreter: Interpreter,
    growth: u64,
    work: i64,
}

impl Folder {
    /// A recipe for each output.
    fn fold(&mut self, graph: &Graph, id: NodeId, operands: &[Recipe]) -> Option<Vec<Recipe>> {
        let node = graph.node(id);
        let op = node.op()?;
        if !is_bound(op) {
            return None;
        }
        let inputs: Vec<TensorType> = operands.iter().map(|recipe| recipe.ty().clone()).collect();
        let outputs: Vec<TensorType> =
            node.outputs().iter().map(|value| graph.ty(*value).clone()).collect();
        let (read, written) = (Amount::of(&inputs)?, Amount::of(&outputs)?);
        let elements = read.elements.checked_add(written.elements)?;
        let operations = op.operations(&inputs, &outputs).as_constant()?;
        if written.bytes <= LITERAL_BYTES as u64 {
            let work = elements.saturating_add(operations);
            if work <= LITERAL_WORK.min(self.work) {
                self.work -= work;
                if let Some(literals) = self.literals(op, operands, &outputs) {
                    return Some(literals);
                }
            }
        }
        let [output] = outputs.as_slice() else { return None };
        let steps = 1 + operands.iter().map(|r| steps(r, RECIPE_STEPS)).sum::<usize>();
        if operations > elements.saturating_mul(RECIPE_WORK) || steps > RECIPE_STEPS {
            return None;
        }
        let growth = written.bytes.saturating_sub(read.bytes.saturating_mul(RECIPE_GROWTH));
        self.growth = self.growth.checked_sub(growth)?;
        Some(vec![Recipe::apply(output.clone(), op.clone(), operands.to_vec())])
    }

    /// The results as literals, if the data is at hand and the evaluation succeeds.
    fn literals(
        &mut self,
        op: &Op,
        operands: &[Recipe],
        outputs: &[TensorType],
    ) -> Option<Vec<Recipe>> {
        let operands = operands.iter().map(|recipe| self.interpreter.materialise(recipe).ok());
        let operands = operands.collect::<Option<Vec<_>>>()?;
        let results = self.interpreter.evaluate(op, &operands).ok()?;
        let recipes: Vec<Recipe> = results.into_iter().map(Recipe::literal).collect();
        let expected = recipes.len() == outputs.len()
            && recipes.iter().zip(outputs).all(|(recipe, ty)| recipe.ty() == ty);
        expected.then_some(recipes)
    }
}

/// Whether no dimension among the attributes depends on a symbol.
fn is_bound(op: &Op) -> bool {
    let mut bound = true;
    op.clone().visit_dims(&mut |dim| bound &= dim.as_constant().is_some());
    bound
}

/// Steps of a recipe, one that is used twice counted twice; counts no further than `limit`.
fn steps(recipe: &Recipe, limit: usize) -> usize {
    let mut open = vec![recipe];
    let mut count = 0;
    while let Some(recipe) = open.pop() {
        count += 1;
        if count > limit {
            break;
        }
        match recipe.node() {
            RecipeNode::Source { .. } => {}
            RecipeNode::Apply { operands, .. } => open.extend(operands),
        }
    }
    count
}

/// How much data there is.
struct Amount {
    elements: i64,
    bytes: u64,
}

impl Amount {
    /// Of several types; `None` if a dimension is not known, or the sum overflows.
    fn of(types: &[TensorType]) -> Option<Amount> {
        let mut sum = Amount { elements: 0, bytes: 0 };
        for ty in types {
            let ty = ty.concrete(&Bindings::new()).ok()?;
            sum.elements = sum.elements.checked_add(i64::try_from(ty.elements()).ok()?)?;
            sum.bytes = sum.bytes.checked_add(u64::try_from(ty.byte_len()).ok()?)?;
        }
        Some(sum)
    }
}
