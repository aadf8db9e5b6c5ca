//! `lower_states`: declares states and finds out how they grow; never changes what a run computes.

use crate::size::{NoSize, greatest, unbounded_faults};
use membar_ir::graph::{Graph, Growth, State, ValueId};
use membar_ir::ops::{Append, Concat, Op};
use membar_ir::pass::{Changed, PassContext, PassError, StateOption};
use membar_ir::types::{Axis, TensorType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How exporters name the two ends of a cache: the input's prefix and the output's; what follows is
/// the same in both. The first line that fits counts.
const NAMES: &[(&str, &str)] = &[
    // Optimum, PyTorch's exporter, onnxruntime-genai.
    ("past_key_values.", "present."),
    ("past_key_values.", "present_key_values."),
    // Hugging Face's exporter: `past_key_values.layers.0.keys`.
    ("past_key_values.", "cache."),
    ("past.", "present."),
    // onnxruntime's tools: `past_0`, `past_key_self_0`, `past_key_0`.
    ("past_", "present_"),
    // Static caches: `key_cache.0`, `value_cache.0`.
    ("key_cache", "updated_key_cache"),
    ("value_cache", "updated_value_cache"),
];

/// Turns the concatenation that grows a state into an append. With `--state past=present`:
///
/// ```text
/// graph @g(%past: f32[1, P, 8], %new: f32[1, S, 8]) where P in 0..=60, S in 1..=4 {
///   %present = concat %past, %new {axis = 1} : f32[1, P + S, 8]
///   return %present
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%past: f32[1, P, 8], %new: f32[1, S, 8]) where P in 0..=60, S in 1..=4 {
///   state %past -> present {axis = 1, length = P, capacity = 64}
///   %present = append %past, %new {axis = 1} : f32[1, P + S, 8]
///   return %present
/// }
/// ```
///
/// The capacity is the upper end of the output's length. A state whose output has the input's type
/// is replaced as a whole: a recurrent network's, or a cache that is written at an index.
///
/// # Errors
/// A pair that names no input or output, names one twice, or whose types say that it is no state; a
/// length without an upper bound.
pub fn lower_states(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let pairs = match &cx.options.states {
        StateOption::None => return Ok(Changed::No),
        StateOption::Auto => named_pairs(graph),
        StateOption::Pairs(pairs) => resolve(graph, pairs)?,
    };
    let declared: BTreeSet<ValueId> = graph.states.iter().map(|state| state.input).collect();
    let mut faults = Vec::new();
    let mut unbounded = BTreeSet::new();
    let mut changed = false;
    for pair in pairs.into_iter().filter(|pair| !declared.contains(&pair.input)) {
        match growth(graph, &pair) {
            Ok(growth) => {
                if let Some(growth) = &growth {
                    append(graph, &pair, growth.axis, &mut faults);
                }
                let output = pair.output_name.clone();
                graph.states.push(State { input: pair.input, output, growth });
                changed = true;
            }
            Err(NoGrowth::Unbounded(symbols)) => unbounded.extend(symbols),
            Err(NoGrowth::Misfit(message)) => match cx.options.states {
                StateOption::Auto => cx.notes.push(format!("not a state: {message}")),
                StateOption::None | StateOption::Pairs(_) => faults.push(message),
            },
        }
    }
    faults.extend(unbounded_faults(&unbounded));
    if faults.is_empty() { Ok(changed.into()) } else { Err(PassError::Faults(faults)) }
}

/// The two ends of a state.
struct Pair {
    input: ValueId,
    input_name: Arc<str>,
    output: ValueId,
    output_name: Arc<str>,
}

impl Pair {
    fn shown(&self) -> String {
        format!("state `{}={}`", self.input_name, self.output_name)
    }
}

/// Pairs that exporters' naming shows.
fn named_pairs(graph: &Graph) -> Vec<Pair> {
    let outputs: BTreeMap<&str, ValueId> =
        graph.outputs().iter().map(|output| (output.name.as_ref(), output.value)).collect();
    let mut taken = BTreeSet::new();
    let mut pairs = Vec::new();
    for input in graph.inputs() {
        let Some(name) = graph.value(*input).name.clone() else { continue };
        let found = NAMES.iter().find_map(|(past, present)| {
            let output_name = format!("{present}{}", name.strip_prefix(past)?);
            let output = *outputs.get(output_name.as_str())?;
            taken.insert(output_name.clone()).then_some((output_name, output))
        });
        if let Some((output_name, output)) = found {
            let output_name = output_name.into();
            pairs.push(Pair { input: *input, input_name: name, output, output_name });
        }
    }
    pairs
}

/// Pairs that the user named.
fn resolve(graph: &Graph, pairs: &[(String, String)]) -> Result<Vec<Pair>, PassError> {
    let inputs: BTreeMap<Arc<str>, ValueId> = graph
        .inputs()
        .iter()
        .filter_map(|input| Some((graph.value(*input).name.clone()?, *input)))
        .collect();
    let outputs: BTreeMap<Arc<str>, ValueId> =
        graph.outputs().iter().map(|output| (output.name.clone(), output.value)).collect();
    let mut taken = BTreeSet::new();
    let mut faults = Vec::new();
    let mut found = Vec::new();
    for (input_name, output_name) in pairs {
        let shown = format!("`--state {input_name}={output_name}`");
        let input = inputs.get_key_value(input_name.as_str());
        let output = outputs.get_key_value(output_name.as_str());
        if input.is_none() {
            let names = listed(inputs.keys());
            faults.push(format!("{shown}: there is no input `{input_name}`; there are {names}"));
        }
        if output.is_none() {
            let names = listed(outputs.keys());
            faults.push(format!("{shown}: there is no output `{output_name}`; there are {names}"));
        }
        let (Some((input_name, input)), Some((output_name, output))) = (input, output) else {
            continue;
        };
        for (kind, name) in [("input", input_name), ("output", output_name)] {
            if !taken.insert((kind, name.clone())) {
                faults.push(format!("{shown}: {kind} `{name}` belongs to another state already"));
            }
        }
        found.push(Pair {
            input: *input,
            input_name: input_name.clone(),
            output: *output,
            output_name: output_name.clone(),
        });
    }
    if faults.is_empty() { Ok(found) } else { Err(PassError::Faults(faults)) }
}

fn listed<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Why a pair has no growth.
enum NoGrowth {
    Unbounded(BTreeSet<membar_ir::Symbol>),
    Misfit(String),
}

/// How a state grows; `None` if it is replaced as a whole.
fn growth(graph: &Graph, pair: &Pair) -> Result<Option<Growth>, NoGrowth> {
    let (input, output) = (graph.ty(pair.input), graph.ty(pair.output));
    if input == output {
        return Ok(None);
    }
    let misfit = |what: String| {
        Err(NoGrowth::Misfit(format!(
            "{}: the input is {input} and the output {output}; {what}",
            pair.shown(),
        )))
    };
    let node = graph.node(graph.value(pair.output).producer());
    let axis = match node.op() {
        Some(Op::Concat(concat)) => concat.axis,
        Some(Op::Append(append)) => append.axis,
        _ => {
            return misfit(
                "expected equal types, or an output that concatenates to the input".into(),
            );
        }
    };
    if node.operands().first() != Some(&pair.input) {
        return misfit(format!(
            "the output is a concatenation that does not begin with `{}`",
            pair.input_name,
        ));
    }
    let Some(length) = input.shape.get(axis.index()).and_then(|dim| dim.as_symbol()) else {
        return misfit(format!(
            "the input's dimension {axis} must be a symbol, so that it can grow"
        ));
    };
    let alone = |shape: &TensorType| {
        let others = shape.shape.iter().enumerate().filter(|(i, _)| *i != axis.index());
        let mut alone = true;
        for (_, dim) in others {
            dim.for_each_symbol(&mut |symbol| alone &= symbol != length);
        }
        alone
    };
    if !alone(input) {
        return misfit(format!("`{}` stands in more than one dimension", length.name()));
    }
    match greatest(&output.shape[axis.index()], &graph.symbols) {
        Ok(capacity) => match i64::try_from(capacity) {
            Ok(capacity) => Ok(Some(Growth { axis, length: length.clone(), capacity })),
            Err(_) => misfit("its greatest length does not fit 63 bits".into()),
        },
        Err(NoSize::Unbounded(symbols)) => Err(NoGrowth::Unbounded(symbols)),
        Err(NoSize::Overflow) => misfit("its greatest length does not fit 64 bits".into()),
    }
}

/// Replaces the concatenation by an append of all that follows the state.
fn append(graph: &mut Graph, pair: &Pair, axis: Axis, faults: &mut Vec<String>) {
    let old = graph.value(pair.output).producer();
    if matches!(graph.node(old).op(), Some(Op::Append(_))) {
        return;
    }
    let rows: Vec<ValueId> = graph.node(old).operands()[1..].to_vec();
    let joined = match rows.as_slice() {
        [] => return,
        [rows] => Ok(*rows),
        _ => graph.add_op(Concat { axis }, &rows).map(|node| {
            graph.stand_in(node, old);
            graph.node(node).outputs()[0]
        }),
    };
    let appended = joined.and_then(|rows| graph.add_op(Append { axis }, &[pair.input, rows]));
    match appended {
        Ok(node) => {
            graph.stand_in(node, old);
            graph.node_mut(node).origin = graph.node(old).origin.clone();
            let new = graph.node(node).outputs()[0];
            graph.value_mut(new).name = graph.value(pair.output).name.clone();
            graph.replace_uses(pair.output, new);
            graph.remove_node(old);
        }
        Err(error) => faults.push(format!("{}: {error}", pair.shown())),
    }
}
