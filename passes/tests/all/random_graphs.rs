//! Properties of passes over random graphs: none changes a result, and a plan's bytes hold what
//! they should when they are read; never an example (see `examples`).

use crate::support::{TestLibrary, context, run};
use membar_ir::dim::{Bindings, Dim, Range, Symbol};
use membar_ir::dtype::DType;
use membar_ir::graph::{Graph, NodeKind, Stage, ValueId};
use membar_ir::interp::Interpreter;
use membar_ir::ops::{Concat, Matmul, Scalar};
use membar_ir::pass::{PassOptions, StateOption};
use membar_ir::schedule::{BufferId, Layout, Region};
use membar_ir::tensor::Tensor;
use membar_ir::testing::{Random, random_graph, random_inputs};
use membar_ir::types::{Axis, ConcreteType, TensorType};
use std::collections::BTreeMap;

const GRAPHS: u64 = 60;

const LIBRARY: TestLibrary = TestLibrary { missing: &["softmax"], contiguous: &["matmul"] };

fn interpret(
    graph: &Graph,
    inputs: &BTreeMap<String, Tensor>,
    bindings: &Bindings,
) -> BTreeMap<String, Tensor> {
    match Interpreter::default().run(graph, inputs, bindings) {
        Ok(results) => results,
        Err(error) => panic!("{error}\n{graph}"),
    }
}

/// Every pass in turn; the results stay the same bit for bit, `NaN`s too.
#[test]
fn no_pass_changes_a_result() {
    for seed in 0..GRAPHS {
        let mut graph = random_graph(seed, 24);
        let (bindings, inputs) = random_inputs(seed, &graph);
        let expected = interpret(&graph, &inputs, &bindings);
        let mut cx = context(PassOptions::default(), LIBRARY);
        for pass in membar_passes::PASSES {
            if let Err(error) = run(pass.name, &mut graph, &mut cx) {
                panic!("seed {seed}, {}: {error}", pass.name);
            }
            let found = interpret(&graph, &inputs, &bindings);
            assert_eq!(found, expected, "seed {seed}, {}\n{graph}", pass.name);
        }
        assert_eq!(graph.stage, Stage::Scheduled);
        let mut memory = Memory::new(&graph);
        let found = memory.run(&graph, &inputs, &bindings);
        assert_eq!(found, expected, "seed {seed}: the plan\n{graph}");
    }
}

/// The same with one symbol bound to a number.
#[test]
fn binding_a_symbol_changes_no_result() {
    for seed in 0..GRAPHS {
        let mut graph = random_graph(seed, 24);
        let (bindings, inputs) = random_inputs(seed, &graph);
        let expected = interpret(&graph, &inputs, &bindings);
        let symbol = Symbol::new("S");
        let value = bindings[&symbol];
        let dims = [(symbol, Range::new(value, value))].into();
        let mut cx = context(PassOptions { dims, ..PassOptions::default() }, LIBRARY);
        for pass in membar_passes::PASSES {
            if let Err(error) = run(pass.name, &mut graph, &mut cx) {
                panic!("seed {seed}, {}: {error}", pass.name);
            }
        }
        assert!(!graph.symbols.contains_key(&Symbol::new("S")));
        let found = Memory::new(&graph).run(&graph, &inputs, &bindings);
        assert_eq!(found, expected, "seed {seed}\n{graph}");
    }
}

/// Equal input gives equal text at every stage.
#[test]
fn passes_are_deterministic() {
    for seed in 0..GRAPHS / 4 {
        let text = || {
            let mut graph = random_graph(seed, 24);
            let mut cx = context(PassOptions::default(), LIBRARY);
            for pass in membar_passes::PASSES {
                assert!(run(pass.name, &mut graph, &mut cx).is_ok());
            }
            graph.to_string()
        };
        assert_eq!(text(), text());
    }
}

/// A cache that grows, one that is replaced as a whole, and two that change places.
#[test]
fn states_continue_from_run_to_run() {
    let mut graph = Graph::new("states");
    graph.declare(Symbol::new("P"), Range::new(0, 9));
    graph.declare(Symbol::new("N"), Range::new(1, 3));
    let (past, new) = (Dim::symbol("P"), Dim::symbol("N"));
    let rows = |n: Dim| TensorType::new(DType::F32, vec![Dim::from(2), n, Dim::from(3)]);
    let fixed = TensorType::fixed(DType::F32, &[5]);
    let cache = graph.add_input("past_key_values.0.key", rows(past));
    let added = graph.add_input("added", rows(new));
    let sum = graph.add_input("sum", fixed.clone());
    let left = graph.add_input("left", fixed.clone());
    let right = graph.add_input("right", fixed);
    let mut parts = || -> Result<[ValueId; 3], membar_ir::op::TypeError> {
        let axis = Axis(1);
        let present = graph.apply(Concat { axis }, &[cache, added])?;
        let perm = [0u32, 2, 1].map(Axis).to_vec();
        let turned = graph.apply(membar_ir::ops::Transpose { perm }, &[present])?;
        let matmul = Matmul { acc: DType::F32, result: DType::F32 };
        let product = graph.apply(matmul, &[present, turned])?;
        let total = graph.apply(Scalar::Add, &[sum, left])?;
        Ok([present, product, total])
    };
    let [present, product, total] = parts().expect("a legal graph");
    graph.set_outputs([
        ("present.0.key", present),
        ("product", product),
        ("sum.out", total),
        ("left.out", right),
        ("right.out", left),
    ]);
    let source = graph.clone();
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    let pairs = vec![
        pair("past_key_values.0.key", "present.0.key"),
        pair("sum", "sum.out"),
        pair("left", "left.out"),
        pair("right", "right.out"),
    ];
    let options = PassOptions { states: StateOption::Pairs(pairs.clone()), ..Default::default() };
    let mut cx = context(options, LIBRARY);
    for pass in membar_passes::PASSES {
        if let Err(error) = run(pass.name, &mut graph, &mut cx) {
            panic!("{}: {error}", pass.name);
        }
    }
    assert_eq!(graph.states.len(), 4);
    let growth = graph.states[0].growth.clone().expect("it grows");
    assert_eq!((growth.axis, growth.capacity), (Axis(1), 12));
    assert!(graph.states[1..].iter().all(|state| state.growth.is_none()));

    let mut memory = Memory::new(&graph);
    let mut random = Random::new(3);
    let mut carried: BTreeMap<String, Tensor> = ["sum", "left", "right"]
        .map(|name| (name.to_string(), random.tensor(DType::F32, &[5])))
        .into();
    carried.insert("past_key_values.0.key".into(), random.tensor(DType::F32, &[2, 0, 3]));
    memory.begin(&graph, &carried, &[(Symbol::new("P"), 0), (Symbol::new("N"), 1)].into());
    let mut length = 0;
    for count in [2, 3, 1, 3] {
        let bindings: Bindings = [(Symbol::new("P"), length), (Symbol::new("N"), count)].into();
        let added = random.tensor(DType::F32, &[2, count as usize, 3]);
        let fresh: BTreeMap<String, Tensor> = [("added".to_string(), added)].into();
        let mut all = carried.clone();
        all.extend(fresh.clone());
        let expected = interpret(&source, &all, &bindings);
        let found = memory.run(&graph, &fresh, &bindings);
        assert_eq!(found, expected, "after {length} rows\n{graph}");
        carried = pairs.iter().map(|(from, to)| (from.clone(), expected[to].clone())).collect();
        length += count;
    }
}

/// The buffers of a plan, executed in the simplest way: operands are read from their regions, and
/// results written to theirs.
struct Memory {
    buffers: BTreeMap<BufferId, Vec<u8>>,
}

impl Memory {
    /// Buffers full of bytes that no test expects.
    fn new(graph: &Graph) -> Memory {
        let filled = |bytes: u64| vec![0xa5u8; bytes as usize];
        let buffers = graph.buffers.iter().map(|(id, buffer)| (*id, filled(buffer.bytes)));
        Memory { buffers: buffers.collect() }
    }

    /// Writes what states begin with.
    fn begin(&mut self, graph: &Graph, states: &BTreeMap<String, Tensor>, bindings: &Bindings) {
        for input in graph.inputs() {
            let name = graph.value(*input).name.as_deref().unwrap_or_default();
            if let Some(tensor) = states.get(name) {
                self.write(graph, *input, tensor, bindings);
            }
        }
    }

    fn run(
        &mut self,
        graph: &Graph,
        inputs: &BTreeMap<String, Tensor>,
        bindings: &Bindings,
    ) -> BTreeMap<String, Tensor> {
        self.begin(graph, inputs, bindings);
        let mut interpreter = Interpreter::default();
        let mut weights: BTreeMap<ValueId, Tensor> = BTreeMap::new();
        for id in &graph.schedule {
            let node = graph.node(*id);
            match &node.kind {
                NodeKind::Input => {}
                NodeKind::Weight(recipe) => {
                    let tensor = interpreter.materialise(recipe).expect("a literal");
                    weights.insert(node.outputs()[0], tensor);
                }
                NodeKind::Op(op) => {
                    self.spoil(node.workspace.as_ref());
                    let operands: Vec<Tensor> = node
                        .operands()
                        .iter()
                        .map(|v| self.read(graph, &weights, *v, bindings))
                        .collect();
                    let op = op.bind(bindings).expect("bound symbols");
                    let results = interpreter.evaluate(&op, &operands);
                    let results = results.unwrap_or_else(|error| panic!("{error}"));
                    for (value, tensor) in node.outputs().iter().zip(&results) {
                        self.write(graph, *value, tensor, bindings);
                    }
                    self.spoil(node.workspace.as_ref());
                }
            }
        }
        let outputs = graph.outputs().iter().map(|output| {
            let tensor = self.read(graph, &weights, output.value, bindings);
            (output.name.to_string(), tensor)
        });
        let outputs: BTreeMap<String, Tensor> = outputs.collect();
        // A state whose two ends lie apart is copied after the run.
        for state in &graph.states {
            let output = graph.outputs().iter().find(|output| output.name == state.output);
            let output = output.expect("the state's output").value;
            if graph.value(state.input).region != graph.value(output).region {
                self.write(graph, state.input, &outputs[state.output.as_ref()], bindings);
            }
        }
        outputs
    }

    fn spoil(&mut self, region: Option<&Region>) {
        if let Some(region) = region {
            let bytes = self.buffers.get_mut(&region.buffer).expect("a buffer");
            bytes[region.offset as usize..][..region.len as usize].fill(0x5a);
        }
    }

    fn read(
        &self,
        graph: &Graph,
        weights: &BTreeMap<ValueId, Tensor>,
        value: ValueId,
        bindings: &Bindings,
    ) -> Tensor {
        if let Some(weight) = weights.get(&value) {
            return weight.clone();
        }
        let (region, ty, places) = places(graph, value, bindings);
        let size = ty.dtype.bits() as usize / 8;
        let mut tensor = Tensor::zeros(ty);
        for (element, place) in tensor.bytes_mut().chunks_mut(size).zip(places) {
            element.copy_from_slice(&self.buffers[&region.buffer][place..place + size]);
        }
        tensor
    }

    fn write(&mut self, graph: &Graph, value: ValueId, tensor: &Tensor, bindings: &Bindings) {
        let (region, ty, places) = places(graph, value, bindings);
        assert_eq!(tensor.ty(), &ty);
        let size = ty.dtype.bits() as usize / 8;
        let buffer = self.buffers.get_mut(&region.buffer).expect("a buffer");
        for (element, place) in tensor.bytes().chunks(size).zip(places) {
            assert!(place + size <= (region.offset + region.len) as usize, "outside its region");
            buffer[place..place + size].copy_from_slice(element);
        }
    }
}

/// Where each element of a value lies in its buffer, in row-major order.
fn places(
    graph: &Graph,
    value: ValueId,
    bindings: &Bindings,
) -> (Region, ConcreteType, Vec<usize>) {
    let value = graph.value(value);
    let region = value.region.clone().expect("a region");
    assert_eq!(region.offset % 256, 0);
    let ty = value.ty.concrete(bindings).expect("bound symbols");
    let room = match &value.layout {
        Layout::Contiguous => ty.shape.clone(),
        Layout::Capacity(shape) => {
            shape.iter().map(|dim| dim.as_constant().expect("a number") as usize).collect()
        }
    };
    let size = ty.dtype.bits() as usize / 8;
    let places = (0..ty.elements()).map(|element| {
        let (mut rest, mut place, mut stride) = (element, 0, 1);
        for (extent, room) in ty.shape.iter().zip(&room).rev() {
            place += rest % extent * stride;
            rest /= extent;
            stride *= room;
        }
        region.offset as usize + place * size
    });
    let places = places.collect();
    (region, ty, places)
}
