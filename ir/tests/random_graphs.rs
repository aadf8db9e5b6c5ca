//! Random graphs at every stage hold the laws of the text form and satisfy the verifier; damaged
//! ones do not satisfy it, and still print.

use membar_ir::dim::{Dim, Range, Symbol};
use membar_ir::graph::{Graph, NodeId, NodeKind, Stage, State, ValueId};
use membar_ir::kernel::Promise;
use membar_ir::ops::{
    Broadcast, Concat, Iota, LayerNorm, Op, Reduce, ReduceKind, Reshape, Scalar, Slice, Softmax,
    TopK, Transpose,
};
use membar_ir::recipe::{Distribution, Recipe, RecipeNode, Source};
use membar_ir::schedule::{
    Buffer, BufferId, Hazard, HazardKind, Layout, Mechanism, Order, Reason, Region,
};
use membar_ir::testing::Random;
use membar_ir::text::{check_laws, print};
use membar_ir::topology::{DeviceId, MemoryId, Topology};
use membar_ir::types::{Axis, TensorType};
use membar_ir::verify::{Depth, OrderClass, verify};
use membar_ir::{DType, attribute::Float};
use std::sync::Arc;

const CASES: u64 = 150;

/// Names that are alike, odd or missing.
const NAMES: &[&str] =
    &["x", "x", "y", "a.b", "a..b", "in put", "", "0", "x#1", "\u{1b}\"é", "mod"];

struct Generator {
    random: Random,
    graph: Graph,
    values: Vec<ValueId>,
}

impl Generator {
    fn new(seed: u64) -> Generator {
        let mut generator = Generator {
            random: Random::new(seed),
            graph: Graph::new(NAMES[seed as usize % NAMES.len()]),
            values: Vec::new(),
        };
        generator.graph.declare(Symbol::new("B"), Range::new(1, 5));
        generator.graph.declare(Symbol::new("odd name"), Range::new(2, 9));
        generator
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.integer(0, bound as i64 - 1) as usize
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn dtype(&mut self) -> DType {
        self.pick(&DType::ALL)
    }

    fn dim(&mut self) -> Dim {
        let (b, s) = (Dim::symbol("B"), Dim::symbol("odd name"));
        let half = s.floor_div(&Dim::from(2)).unwrap_or(Dim::ONE);
        let choices = [
            Dim::from(1),
            Dim::from(3),
            Dim::from(7),
            b.clone(),
            s.clone(),
            Dim::from(2) * b.clone() * s.clone() - Dim::ONE,
            half,
            b.maximum(&s),
        ];
        self.pick(&choices)
    }

    fn ty(&mut self) -> TensorType {
        let rank = self.below(4);
        let shape: Vec<Dim> = (0..rank).map(|_| self.dim()).collect();
        TensorType::new(self.dtype(), shape)
    }

    fn recipe(&mut self) -> Recipe {
        let rank = self.below(3);
        let shape: Vec<usize> = (0..rank).map(|_| 1 + self.below(5)).collect();
        let fixed: Vec<i64> = shape.iter().map(|extent| *extent as i64).collect();
        let dtype = self.dtype();
        let ty = TensorType::fixed(dtype, &fixed);
        let offset = self.random.bits() >> self.below(60);
        let mut recipe = match self.below(3) {
            0 => Recipe::literal(self.random.tensor(dtype, &shape)),
            1 => Recipe::source(ty, Source::File { path: self.pick(NAMES).into(), offset }),
            _ => {
                let value = Float(self.random.unit());
                let distribution =
                    self.pick(&[Distribution::Normal(value), Distribution::Constant(value)]);
                let (seed, stream) = (self.random.bits(), offset);
                Recipe::source(ty, Source::Random { seed, stream, distribution })
            }
        };
        for _ in 0..self.below(4) {
            let rank = recipe.ty().rank();
            let to = self.dtype();
            let op = match self.below(2) {
                0 => Op::from(Transpose { perm: (0..rank).rev().map(Axis::from).collect() }),
                _ => Op::from(Scalar::Cast { to, saturate: true }),
            };
            if let Ok([ty]) = op.infer(&[recipe.ty().clone()]).as_deref() {
                recipe = Recipe::apply(ty.clone(), op, vec![recipe.clone()]);
            }
        }
        recipe
    }

    /// An operator that may or may not fit the operands.
    fn op(&mut self, ty: &TensorType) -> Op {
        let rank = ty.rank();
        let axis = Axis::from(self.below(rank.max(1)));
        match self.below(14) {
            0 => Scalar::Neg.into(),
            1 => Scalar::Add.into(),
            2 => Scalar::Exp.into(),
            3 => Scalar::Less.into(),
            4 => Scalar::Cast { to: self.dtype(), saturate: false }.into(),
            5 => Scalar::Elu { alpha: Float(self.random.unit() - 0.5) }.into(),
            6 => Transpose { perm: (0..rank).rev().map(Axis::from).collect() }.into(),
            7 => Reshape { shape: vec![ty.elements()] }.into(),
            8 => Concat { axis }.into(),
            9 => {
                let kind = self.pick(&[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Mean]);
                Reduce { kind, axes: vec![axis], keep: self.below(2) == 0 }.into()
            }
            10 => TopK { axis, k: Dim::ONE, largest: true }.into(),
            11 => Softmax { axis }.into(),
            12 => {
                let starts = vec![Dim::ZERO; rank];
                Slice { starts, sizes: vec![Dim::ONE; rank], steps: vec![1; rank] }.into()
            }
            _ => {
                let mut shape = ty.shape.clone();
                shape.insert(0, self.dim());
                Broadcast { shape }.into()
            }
        }
    }

    fn tensor_stage(&mut self) {
        for index in 0..1 + self.below(3) {
            let ty = self.ty();
            let name = format!("{}{index}", self.pick(NAMES));
            let input = self.graph.add_input(&name, ty);
            self.values.push(input);
        }
        let steps = 3 + self.below(25);
        for _ in 0..steps {
            match self.below(8) {
                0 => {
                    let recipe = self.recipe();
                    let value = self.graph.add_weight(None, recipe);
                    self.made(value);
                }
                1 => {
                    let shape = vec![self.dim(), Dim::from(3)];
                    let iota = Iota { shape, axis: Axis(1), dtype: DType::I64 };
                    if let Ok(value) = self.graph.apply(iota, &[]) {
                        self.made(value);
                    }
                }
                2 => self.layer_norm(),
                _ => {
                    let first = self.pick(&self.values.clone());
                    let ty = self.graph.ty(first).clone();
                    let alike: Vec<ValueId> =
                        self.values.iter().copied().filter(|v| *self.graph.ty(*v) == ty).collect();
                    let op = self.op(&ty);
                    let mut operands = vec![first];
                    if op.infer(&[ty]).is_err() {
                        operands.push(self.pick(&alike));
                    }
                    if let Ok(node) = self.graph.add_op(op, &operands) {
                        for value in self.graph.node(node).outputs().to_vec() {
                            self.made(value);
                        }
                    }
                }
            }
        }
        let outputs: Vec<ValueId> =
            (0..self.below(4)).map(|_| self.pick(&self.values.clone())).collect();
        let named = outputs.into_iter().enumerate().map(|(i, v)| (format!("{}{i}", NAMES[i]), v));
        let named: Vec<(String, ValueId)> = named.collect();
        self.graph.set_outputs(named);
        self.state();
    }

    /// A node with three results, its operands of any type that fits.
    fn layer_norm(&mut self) {
        let value = self.pick(&self.values.clone());
        let op = LayerNorm { axis: Axis(0), epsilon: Float(1e-5), bias: true, statistics: true };
        if let Ok(node) = self.graph.add_op(op, &[value, value, value]) {
            for value in self.graph.node(node).outputs().to_vec() {
                self.made(value);
            }
        }
    }

    fn made(&mut self, value: ValueId) {
        if self.below(2) == 0 {
            let name = self.pick(NAMES);
            self.graph.set_name(value, name);
        }
        if self.below(4) == 0 {
            let origin = vec![self.pick(NAMES).into(), self.pick(NAMES).into()];
            let node = self.graph.value(value).producer();
            self.graph.node_mut(node).origin = origin;
        }
        self.values.push(value);
    }

    fn state(&mut self) {
        let input = self.graph.inputs()[0];
        let ty = self.graph.ty(input).clone();
        let fits = |output: &&membar_ir::graph::Output| {
            let found = self.graph.ty(output.value);
            found.dtype == ty.dtype && found.rank() == ty.rank()
        };
        if let Some(output) = self.graph.outputs().iter().find(fits) {
            let output = output.name.clone();
            self.graph.states.push(State { input, output, growth: None });
        }
    }

    fn place(&mut self) {
        self.graph.topology = Topology::builtin("h200x2").map(Arc::new);
        self.graph.stage = Stage::Placed;
        let nodes: Vec<NodeId> = self.graph.nodes().collect();
        for node in nodes {
            let device = DeviceId(self.below(2) as u32);
            self.graph.node_mut(node).device = Some(device);
            for value in self.graph.node(node).outputs().to_vec() {
                // Both GPUs reach both memories and the host's.
                let memory = MemoryId(self.below(3) as u32);
                self.graph.value_mut(value).memory = Some(memory);
            }
        }
    }

    fn schedule(&mut self) {
        let is_input = |graph: &Graph, id: NodeId| graph.node(id).kind == NodeKind::Input;
        let order = self.graph.order();
        let inputs = self.graph.inputs().iter().map(|input| self.graph.value(*input).producer());
        let rest = order.iter().copied().filter(|id| !is_input(&self.graph, *id));
        self.graph.schedule = inputs.chain(rest).collect();
    }

    /// Every value has bytes of its own, in one buffer for each memory.
    fn plan(&mut self) {
        self.graph.stage = Stage::Scheduled;
        let mut used = [0u64; 3];
        let values: Vec<ValueId> = self.graph.values().collect();
        for value in values {
            let node = self.graph.value(value).producer();
            if matches!(self.graph.node(node).kind, NodeKind::Weight(_)) {
                continue;
            }
            let Some(MemoryId(memory)) = self.graph.value(value).memory else { continue };
            let mut ty = self.graph.ty(value).clone();
            if ty.rank() > 0 && self.below(4) == 0 {
                ty.shape = ty
                    .shape
                    .iter()
                    .map(|d| d.bounds(&self.graph.symbols).hi.unwrap_or(0).into())
                    .collect();
                ty.shape[0] = ty.shape[0].clone() + Dim::ONE;
                self.graph.value_mut(value).layout = Layout::Capacity(ty.shape.clone());
            }
            let bytes = bytes(&ty, &self.graph);
            let start = used[memory as usize];
            used[memory as usize] += bytes.next_multiple_of(16);
            let region = Region::contiguous(BufferId(memory), start, bytes);
            self.graph.value_mut(value).region = Some(region);
        }
        for (memory, bytes) in (0..).zip(used) {
            let buffer = Buffer { bytes: bytes + 64, memory: MemoryId(memory) };
            self.graph.buffers.insert(BufferId(memory), buffer);
        }
        for index in 1..self.graph.schedule.len() {
            let (before, after) = (self.below(index), index);
            let (before, after) = (self.graph.schedule[before], self.graph.schedule[after]);
            let region = Region::contiguous(BufferId(0), 0, used[0]);
            let kinds = [
                HazardKind::ReadAfterWrite,
                HazardKind::WriteAfterRead,
                HazardKind::WriteAfterWrite,
            ];
            let hazards =
                (0..self.below(3)).map(|i| Hazard { kind: kinds[i], region: region.clone() });
            let hazards = Reason::Hazards(hazards.collect());
            let reason = self.pick(&[hazards, Reason::Linearise]);
            let mechanism =
                self.pick(&[Mechanism::Sequence, Mechanism::Edge, Mechanism::Programmatic]);
            self.graph.orders.push(Order { before, after, reason, mechanism });
            if self.below(5) == 0 {
                let workspace = Region::contiguous(BufferId(0), used[0], 64);
                self.graph.node_mut(after).workspace = Some(workspace);
            }
            if self.graph.node(after).op().is_some() && self.below(3) > 0 {
                let waits = self.below(2) == 0;
                let async_operands = (0..self.below(3) as u32).collect();
                let async_fence = self.below(2) == 0;
                let promise = Promise { waits, async_operands, async_fence };
                self.graph.node_mut(after).step = Some(promise);
            }
        }
    }
}

fn bytes(ty: &TensorType, graph: &Graph) -> u64 {
    let most = ty.shape.iter().map(|dim| dim.bounds(&graph.symbols).hi.unwrap_or(0) as u64);
    let elements: u64 = most.product();
    (elements * u64::from(ty.dtype.bits())).div_ceil(8)
}

fn hold(graph: &Graph, seed: u64) {
    if let Err(error) = verify(graph, Depth::Full) {
        // Orders are random, and so order nothing; all else must hold.
        let of_order = |word: &str| OrderClass::WORDS.iter().any(|(known, _)| *known == word);
        let others = error.errors.iter().any(|fault| !of_order(fault.context));
        assert!(!others, "seed {seed}: {error}\n{graph}");
    }
    if let Err(error) = check_laws(graph) {
        panic!("seed {seed}: {error}");
    }
}

fn at_every_stage(seed: u64, mut check: impl FnMut(&mut Generator)) {
    let mut generator = Generator::new(seed);
    generator.tensor_stage();
    check(&mut generator);
    generator.place();
    check(&mut generator);
    generator.schedule();
    check(&mut generator);
    generator.plan();
    check(&mut generator);
}

#[test]
fn random_graphs_hold_the_laws_at_every_stage() {
    let (mut nodes, mut applied, mut states) = (0, 0, 0);
    for seed in 0..CASES {
        at_every_stage(seed, |generator| {
            hold(&generator.graph, seed);
            nodes = nodes.max(generator.graph.node_count());
            states += generator.graph.states.len();
            applied += generator
                .graph
                .nodes()
                .filter(|id| match &generator.graph.node(*id).kind {
                    NodeKind::Weight(recipe) => matches!(recipe.node(), RecipeNode::Apply { .. }),
                    NodeKind::Input | NodeKind::Op(_) => false,
                })
                .count();
        });
    }
    assert!(nodes > 20 && applied > 50 && states > 20, "{nodes} {applied} {states}");
}

#[test]
fn a_change_makes_graphs_differ() {
    for seed in 0..CASES {
        at_every_stage(seed, |generator| {
            let before = generator.graph.clone();
            assert!(before.equivalent(&generator.graph));
            let value = generator.pick(&generator.values.clone());
            let node = generator.graph.value(value).producer();
            match generator.below(4) {
                0 => generator.graph.set_name(value, "changed"),
                1 => generator.graph.node_mut(node).origin.push("changed".into()),
                2 => generator.graph.value_mut(value).ty.shape.push(Dim::from(9)),
                _ => generator.graph.declare(Symbol::new("changed"), Range::UNBOUNDED),
            }
            assert!(!before.equivalent(&generator.graph), "seed {seed}\n{before}");
            assert_ne!(before.to_string(), generator.graph.to_string());
            generator.graph = before;
        });
    }
}

#[test]
fn damaged_graphs_are_refused() {
    for seed in 0..CASES {
        let mut generator = Generator::new(seed);
        generator.tensor_stage();
        generator.place();
        generator.schedule();
        generator.plan();
        let graph = &mut generator.graph;
        let last = graph.schedule[graph.schedule.len() - 1];
        let first_input = graph.inputs()[0];
        let kind = seed % 9;
        match kind {
            0 => graph.schedule.pop().into_iter().for_each(drop),
            1 => graph.schedule.push(last),
            2 => graph.value_mut(first_input).region = None,
            3 => graph.value_mut(first_input).memory = None,
            4 => graph.node_mut(last).device = Some(DeviceId(77)),
            5 => graph.symbols.clear(),
            6 => graph.buffers.clear(),
            7 => graph.topology = None,
            _ => graph.stage = Stage::Tensor,
        }
        let refused = verify(graph, Depth::Cheap).is_err();
        // Without a symbol in any type, nothing is missing.
        let symbols = graph.values().any(|v| {
            let mut found = false;
            let mut see = |_: &Symbol| found = true;
            graph.ty(v).shape.iter().for_each(|dim| dim.for_each_symbol(&mut see));
            found
        });
        assert!(refused || (kind == 5 && !symbols), "seed {seed}, damage {kind}\n{graph}");
        assert!(!print(graph).text.is_empty());
    }
}
