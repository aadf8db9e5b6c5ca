//! Attention of random shapes, masks and windows as one kernel, against the reference interpreter;
//! never a kernel written by hand.

use super::{Gpu, Outcome, Test};
use anyhow::{Context as _, ensure};
use membar::ir::dim::Dim;
use membar::ir::graph::{Graph, ValueId};
use membar::ir::ops::{Attention, MaskKind, Position, Reshape, Scores, Transpose};
use membar::ir::testing::{Random, Tolerance, compare, evaluate_one};
use membar::ir::types::{Axis, TensorType};
use membar::{CompileOptions, DType, DeviceChoice, Gpu as Machine, Tensor};
use std::collections::BTreeMap;

pub const TESTS: &[(&str, Test)] = &[
    ("attention_agrees_with_the_interpreter", |_| random_attentions(random_case)),
    ("long_attention_agrees_with_the_interpreter", |_| random_attentions(long_case)),
    ("attention_serves_a_range_of_lengths", a_range_of_lengths),
];

/// Attentions in one program: their kernels are compiled side by side.
const CASES: usize = 24;

/// The most that elements of keys and values may be: garbage would show.
const POISON: f64 = 1e4;

struct Case {
    op: Attention,
    operands: Vec<Tensor>,
    /// Whether Q, K, V and the result lie position by position, as products of encoders give them.
    interleaved: bool,
}

fn pick<T: Copy>(random: &mut Random, among: &[T]) -> T {
    among[random.integer(0, among.len() as i64 - 1) as usize]
}

fn random_case(random: &mut Random) -> Case {
    let dtype = pick(random, &[DType::F16, DType::Bf16]);
    let (batch, key_heads) = (pick(random, &[1, 2, 3]), pick(random, &[1, 2, 3]));
    let heads = key_heads * pick(random, &[1, 1, 2, 4, 7]);
    let queries = pick(random, &[1, 1, 2, 5, 17, 64, 65, 100, 130]);
    let keys = pick(random, &[1, 3, 16, 33, 64, 100, 128, 129, 257]);
    let width: usize = pick(random, &[1, 7, 8, 32, 40, 64, 64, 80, 128, 256]);
    let value_width = pick(random, &[width, width, width.div_ceil(2), 64]);
    let mask = pick(random, &[MaskKind::None, MaskKind::Additive, MaskKind::Boolean]);
    let lengths = pick(random, &[false, false, true]);
    let offset = pick(random, &[0, 0, 3, -2, keys as i64 - queries as i64]);
    let position = match lengths && random.unit() < 0.5 {
        true => Position::Lengths,
        false => Position::Offset(Dim::from(offset)),
    };
    let op = Attention {
        scale: pick(random, &[0.125, 0.125, 1.0, 0.0, -0.3]).into(),
        position,
        before: pick(random, &[None, None, Some(0), Some(40)]),
        after: pick(random, &[None, Some(0), Some(3)]),
        mask,
        lengths,
        softcap: pick(random, &[None, None, Some(5.0)]).map(Into::into),
        empty_rows_zero: pick(random, &[true, false]),
        scores: Scores::None,
    };
    let mut operands = vec![
        random.floats(dtype, &[batch, heads, queries, width], -2.0, 2.0),
        random.floats(dtype, &[batch, key_heads, keys, width], -2.0, 2.0),
        random.floats(dtype, &[batch, key_heads, keys, value_width], -2.0, 2.0),
    ];
    let shape = pick(
        random,
        &[
            [batch, 1, 1, keys],
            [batch, heads, queries, keys],
            [1, 1, queries, keys],
            [1, heads, 1, 1],
        ],
    );
    match mask {
        MaskKind::None => {}
        MaskKind::Additive => {
            let dtype = pick(random, &[dtype, DType::F32]);
            let lowest = if dtype == DType::F16 { -65504.0 } else { -3e38 };
            let masked = pick(random, &[f64::NEG_INFINITY, -1e4, lowest]);
            let count: usize = shape.iter().product();
            let numbers: Vec<f64> = (0..count)
                .map(|_| if random.unit() < 0.3 { masked } else { random.unit() })
                .collect();
            operands.push(membar::ir::testing::tensor_of(dtype, &shape, &numbers));
        }
        MaskKind::Boolean => operands.push(random.integers(DType::Bool, &shape, 0, 1)),
    }
    if lengths {
        operands.push(random.integers(DType::I64, &[batch], 0, keys as i64));
    }
    Case { op, operands, interleaved: random.unit() < 0.4 }
}

/// A case with as many queries and such heads as kernels that load by tensor maps want.
fn long_case(random: &mut Random) -> Case {
    let dtype = pick(random, &[DType::F16, DType::Bf16]);
    let (batch, key_heads) = (pick(random, &[1, 2]), pick(random, &[1, 2, 3]));
    let heads = key_heads * pick(random, &[1, 1, 2, 4]);
    let queries = pick(random, &[128, 129, 200, 256, 300]);
    let keys = pick(random, &[queries, queries, 5, 77, 257, 400]);
    let (width, value_width) = (pick(random, &[64, 128]), pick(random, &[64, 128]));
    let offset = pick(random, &[0, 0, 3, -9, keys as i64 - queries as i64]);
    let op = Attention {
        scale: pick(random, &[0.125, 0.125, 1.0, 0.0, -0.3]).into(),
        position: Position::Offset(Dim::from(offset)),
        before: pick(random, &[None, None, Some(0), Some(31), Some(150)]),
        after: pick(random, &[None, Some(0), Some(0), Some(7)]),
        mask: MaskKind::None,
        lengths: false,
        softcap: pick(random, &[None, None, Some(5.0)]).map(Into::into),
        empty_rows_zero: pick(random, &[true, true, false]),
        scores: Scores::None,
    };
    let operands = vec![
        random.floats(dtype, &[batch, heads, queries, width], -2.0, 2.0),
        random.floats(dtype, &[batch, key_heads, keys, width], -2.0, 2.0),
        random.floats(dtype, &[batch, key_heads, keys, value_width], -2.0, 2.0),
    ];
    Case { op, operands, interleaved: random.unit() < 0.4 }
}

impl Case {
    fn add(&self, graph: &mut Graph, index: usize) -> anyhow::Result<()> {
        let mut values = Vec::new();
        for (operand, tensor) in self.operands.iter().enumerate() {
            let name = format!("x{index}_{operand}");
            let shape: Vec<i64> = tensor.shape().iter().map(|extent| *extent as i64).collect();
            if !self.interleaved || operand > 2 {
                values.push(graph.add_input(&name, TensorType::fixed(tensor.dtype(), &shape)));
                continue;
            }
            let [batch, heads, rows, width] = [shape[0], shape[1], shape[2], shape[3]];
            let flat = TensorType::fixed(tensor.dtype(), &[batch, rows, heads * width]);
            let input = graph.add_input(&name, flat);
            let shape = [batch, rows, heads, width].map(Dim::from).to_vec();
            let split = one(graph, Reshape { shape }, input)?;
            values.push(one(graph, swapped(), split)?);
        }
        let node = graph.add_op(self.op.clone(), &values)?;
        let mut result = graph.node(node).outputs()[0];
        if self.interleaved {
            result = one(graph, swapped(), result)?;
        }
        let mut outputs: Vec<(String, ValueId)> =
            graph.outputs().iter().map(|output| (output.name.to_string(), output.value)).collect();
        outputs.push((format!("y{index}"), result));
        graph.set_outputs(outputs);
        Ok(())
    }

    /// The inputs in the form that the graph takes.
    fn inputs(&self, index: usize) -> anyhow::Result<BTreeMap<String, Tensor>> {
        let mut inputs = BTreeMap::new();
        for (operand, tensor) in self.operands.iter().enumerate() {
            let name = format!("x{index}_{operand}");
            let tensor = match self.interleaved && operand <= 2 {
                true => {
                    let turned = evaluate_one(swapped(), std::slice::from_ref(tensor));
                    let shape = turned.shape().to_vec();
                    let shape = [shape[0], shape[1], shape[2] * shape[3]];
                    let shape = shape.map(|extent| Dim::from(extent as i64)).to_vec();
                    evaluate_one(Reshape { shape }, &[turned])
                }
                false => tensor.clone(),
            };
            inputs.insert(name, tensor);
        }
        Ok(inputs)
    }

    fn expected(&self) -> Tensor {
        let result = evaluate_one(self.op.clone(), &self.operands);
        if self.interleaved { evaluate_one(swapped(), &[result]) } else { result }
    }
}

fn swapped() -> Transpose {
    Transpose { perm: [0, 2, 1, 3].map(Axis).to_vec() }
}

fn one(
    graph: &mut Graph,
    op: impl Into<membar::ir::ops::Op>,
    operand: ValueId,
) -> anyhow::Result<ValueId> {
    let node = graph.add_op(op, &[operand])?;
    Ok(graph.node(node).outputs()[0])
}

fn options() -> anyhow::Result<CompileOptions> {
    Ok(CompileOptions { target: Machine::get(0)?.target(), ..CompileOptions::default() })
}

fn random_attentions(draw: fn(&mut Random) -> Case) -> Outcome {
    for seed in 0..3 {
        let mut random = Random::new(100 + seed);
        let cases: Vec<Case> = (0..CASES).map(|_| draw(&mut random)).collect();
        let mut graph = Graph::new("attentions");
        let mut inputs = BTreeMap::new();
        for (index, case) in cases.iter().enumerate() {
            case.add(&mut graph, index)?;
            inputs.extend(case.inputs(index)?);
        }
        let compiled = membar::compile(graph, &options()?)?;
        let code = compiled.code.as_ref().context("no code")?;
        let launches: usize = code.program.steps.iter().map(|step| step.launches.len()).sum();
        ensure!(launches == CASES, "{launches} launches for {CASES} attentions");
        let mut session = compiled.session_on(DeviceChoice::Cuda(0))?;
        for run in 0..2 {
            let outputs = session.run(&inputs)?;
            for (index, case) in cases.iter().enumerate() {
                let found = &outputs[&format!("y{index}")];
                check(found, &case.expected()).with_context(|| {
                    format!("seed {seed}, case {index}, run {run}: {:?}", case.op)
                })?;
            }
        }
    }
    Ok(())
}

/// Weights are rounded to the operands' type before they meet the values, so a result has two
/// roundings, and that of the weights of every key.
fn check(found: &Tensor, expected: &Tensor) -> Outcome {
    let tolerance = Tolerance::of(expected.dtype(), 1);
    let tolerance = Tolerance { norm: tolerance.norm, element: 2.0 * tolerance.element };
    compare(found, expected, tolerance).map_err(|difference| anyhow::anyhow!("{difference}"))
}

/// One program for a range of lengths; what lies behind the last key is as bad as can be.
fn a_range_of_lengths(_: &Gpu) -> Outcome {
    let text = "ir 1 stage tensor
graph @ranges(%q: f16[B, 6, S, 32], %k: f16[B, 2, S, 32], %v: f16[B, 2, S, 32], %n: i64[B]) where B in 1..=4, S in 1..=200 {
  %y = attention %q, %k, %v, %n {scale = 0.2, position = lengths, after = 0, mask = none, lengths = true, empty_rows_zero = true, scores = none} : f16[B, 6, S, 32]
  return %y
}
";
    let graph = Graph::parse(text)?;
    let op = graph.nodes().find_map(|id| graph.node(id).op().cloned()).context("no operator")?;
    let mut session = membar::compile(graph, &options()?)?.session_on(DeviceChoice::Cuda(0))?;
    let mut random = Random::new(7);
    for (batch, rows) in [(1usize, 1usize), (4, 200), (2, 17), (3, 64), (1, 199), (4, 1)] {
        let mut operands: Vec<Tensor> = [6, 2, 2]
            .iter()
            .map(|heads| random.floats(DType::F16, &[batch, *heads, rows, 32], -2.0, 2.0))
            .collect();
        let lengths: Vec<i64> = (0..batch).map(|_| random.integer(1, rows as i64)).collect();
        for operand in &mut operands[1..] {
            let shape = operand.shape().to_vec();
            let mut numbers = membar::ir::testing::floats(operand);
            for (index, number) in numbers.iter_mut().enumerate() {
                let row = index / 32 % rows;
                if row as i64 >= lengths[index / 32 / rows / 2] {
                    *number = POISON;
                }
            }
            *operand = membar::ir::testing::tensor_of(DType::F16, &shape, &numbers);
        }
        operands.push(Tensor::from_elements(&[batch], &lengths)?);
        let expected = evaluate_one(op.clone(), &operands);
        let names = ["q", "k", "v", "n"].map(str::to_string);
        let outputs = session.run(&names.into_iter().zip(operands).collect())?;
        check(&outputs["y"], &expected).with_context(|| format!("{batch} x {rows}"))?;
    }
    Ok(())
}
