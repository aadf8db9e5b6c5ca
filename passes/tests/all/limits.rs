//! What passes refuse, and sizes that must neither be believed nor take long; never a legal model
//! of ordinary size.

use crate::support::{TestLibrary, context, graph, run};
use membar_ir::dim::{Dim, Range, Symbol};
use membar_ir::dtype::DType;
use membar_ir::graph::{Graph, NodeKind};
use membar_ir::ops::{Broadcast, Concat, Scalar};
use membar_ir::pass::{PassOptions, StateOption};
use membar_ir::recipe::Recipe;
use membar_ir::testing::tensor;
use membar_ir::types::{Axis, TensorType};

/// The message with which a pass refuses a graph.
fn refusal(name: &str, graph: &mut Graph, options: PassOptions) -> String {
    match run(name, graph, &mut context(options, TestLibrary::default())) {
        Ok(changed) => panic!("{name} took it ({changed:?})\n{graph}"),
        Err(error) => error.to_string(),
    }
}

fn with_dim(name: &str, range: Range) -> PassOptions {
    PassOptions { dims: [(Symbol::new(name), range)].into(), ..PassOptions::default() }
}

#[test]
fn dimensions_that_do_not_fit_are_refused() {
    let text = "graph @g(%x: f32[B, S]) where B in 1..=8, S in 0.. {
        %y = reshape %x {shape = [B*S]} : f32[B*S]
        return %y
    }";
    let message = refusal("specialise", &mut graph(text), with_dim("batch", Range::new(1, 1)));
    assert!(message.contains("no dimension `batch`"), "{message}");
    assert!(message.contains("`B`, `S`"), "{message}");
    let message = refusal("specialise", &mut graph(text), with_dim("B", Range::new(9, 9)));
    assert!(message.contains("`--dim B=9`: the model allows 1..8"), "{message}");
    let text = "graph @g(%x: f32[4], %n: f32[S]) where S in 0.. {
        %y = slice %x {starts = [S], sizes = [4 - S], steps = [1]} : f32[4 - S]
        return %y, %n
    }";
    let message = refusal("specialise", &mut graph(text), with_dim("S", Range::new(5, 5)));
    assert!(message.contains("`y`"), "{message}");
}

#[test]
fn states_that_are_none_are_refused() {
    let text = "graph @g(%past: f32[1, P, 8], %new: f32[1, S, 8], %other: i64[1, P, 8])
        where P in 0.., S in 1..=4 {
        %present = concat %past, %new {axis = 1} : f32[1, P + S, 8]
        %twice = neg %present : f32[1, P + S, 8]
        return %present, %twice
    }";
    let cases = [
        ("past", "future", "there is no output `future`; there are `present`, `twice`"),
        ("post", "present", "there is no input `post`; there are `new`, `other`, `past`"),
        ("other", "present", "does not begin with `other`"),
        ("past", "twice", "expected equal types, or an output that concatenates"),
        ("past", "present", "`--dim P=LO..HI`"),
    ];
    for (input, output, expected) in cases {
        let states = StateOption::Pairs(vec![(input.into(), output.into())]);
        let options = PassOptions { states, ..PassOptions::default() };
        let message = refusal("lower-states", &mut graph(text), options);
        assert!(message.contains(expected), "{input}={output}: {message}");
    }
}

#[test]
fn exporters_names_are_known() {
    let names = [
        ("past_key_values.3.key", "present.3.key"),
        ("past_key_values.layers.0.values", "cache.layers.0.values"),
        ("past_1", "present_1"),
        ("past_key_self_0", "present_key_self_0"),
        ("past_value_2", "present_value_2"),
        ("past.0.decoder.key", "present.0.decoder.key"),
    ];
    for (input, output) in names {
        let mut graph = Graph::new("g");
        graph.declare(Symbol::new("P"), Range::new(0, 7));
        let rows = |n: Dim| TensorType::new(DType::F32, vec![n, Dim::from(2)]);
        let past = graph.add_input(input, rows(Dim::symbol("P")));
        let new = graph.add_input("new", rows(Dim::ONE));
        let present = graph.apply(Concat { axis: Axis(0) }, &[past, new]).expect("it fits");
        graph.set_outputs([(output, present)]);
        let options = PassOptions { states: StateOption::Auto, ..PassOptions::default() };
        let mut cx = context(options, TestLibrary::default());
        assert!(run("lower-states", &mut graph, &mut cx).is_ok());
        let capacities: Vec<Option<i64>> =
            graph.states.iter().map(|s| s.growth.as_ref().map(|g| g.capacity)).collect();
        assert_eq!(capacities, [Some(8)], "{input}");
    }
}

#[test]
fn memory_that_no_one_has_is_refused() {
    let plan = |text: &str, limit: u64| {
        let text = format!("ir 1 stage placed topology \"cpu\"\n{text}");
        let options = PassOptions { arena_limit: limit, ..PassOptions::default() };
        refusal("plan-memory", &mut graph(&text), options)
    };
    let unbounded = "graph @g(%x: f32[B, S] @cpu0.dram) where B in 1..=2, S in 1.. {
        %y = neg %x : f32[B, S] @cpu0.dram
        return %y
    }";
    let message = plan(unbounded, u64::MAX);
    assert!(message.contains("`--dim S=LO..HI`") && !message.contains("`B`"), "{message}");
    let huge = "graph @g(%x: f32[1] @cpu0.dram) {
        %y = broadcast %x {shape = [1000000, 1000000]} : f32[1000000, 1000000] @cpu0.dram
        %z = reduce %y {kind = sum, axes = [0, 1], keep = false} : f32[] @cpu0.dram
        return %z
    }";
    let message = plan(huge, 1 << 30);
    assert!(message.contains("3.6 TiB") && message.contains("`y`"), "{message}");
    let overflowing = "graph @g(%x: f32[B, S] @cpu0.dram)
        where B in 1..=4000000000, S in 1..=4000000000 {
        %y = neg %x : f32[B, S] @cpu0.dram
        return %y
    }";
    let message = plan(overflowing, u64::MAX);
    assert!(message.contains("does not fit the address space"), "{message}");
}

#[test]
fn operators_without_a_kernel_are_named() {
    let text = "graph @g(%x: f32[4]) {
        %y = neg %x : f32[4]
        return %y
    }";
    let library = TestLibrary { missing: &["neg"], ..TestLibrary::default() };
    let mut cx = context(PassOptions::default(), library);
    let message = run("decompose", &mut graph(text), &mut cx).map_err(|error| error.to_string());
    assert!(message.is_err_and(|m| m.contains("`y`: no kernel for neg on (f32[4]) -> (f32[4])")));
}

#[test]
fn folding_does_not_make_weights_grow() {
    let mut graph = Graph::new("g");
    let one = graph.add_weight(Some("one"), Recipe::literal(tensor(&[1], &[2f32])));
    let shape = vec![Dim::from(1 << 20), Dim::from(1 << 10)];
    let huge = graph.apply(Broadcast { shape }, &[one]).expect("it fits");
    // Each doubles the one before: 2³⁰ elements in the end.
    let mut doubled = one;
    for _ in 0..30 {
        doubled = graph.apply(Concat { axis: Axis(0) }, &[doubled, doubled]).expect("it fits");
    }
    graph.set_outputs([("huge", huge), ("doubled", doubled)]);
    let mut cx = context(PassOptions::default(), TestLibrary::default());
    assert!(run("fold-constants", &mut graph, &mut cx).is_ok());
    let bytes = |id| match &graph.node(id).kind {
        NodeKind::Weight(recipe) => recipe.ty().elements().as_constant().map_or(0, |n| 4 * n),
        NodeKind::Input | NodeKind::Op(_) => 0,
    };
    let total: i64 = graph.nodes().map(bytes).sum();
    assert!(total <= 2 * (64 << 20), "{total} bytes");
    assert!(graph.node(graph.value(huge).producer()).op().is_some());
}

/// A quadratic step would take minutes here.
#[test]
fn long_graphs_take_little_time() {
    let mut graph = Graph::new("g");
    let ty = TensorType::fixed(DType::F32, &[8]);
    let x = graph.add_input("x", ty.clone());
    let shared = graph.add_weight(None, Recipe::literal(tensor(&[8], &[0.5f32; 8])));
    let mut chain = x;
    let mut fan = Vec::new();
    for index in 0..20_000 {
        let scalar = if index % 2 == 0 { Scalar::Mul } else { Scalar::Add };
        chain = graph.apply(scalar, &[chain, shared]).expect("it fits");
        // Read by nobody, folded, and equal to one another, in turn.
        graph.apply(Scalar::Neg, &[x]).expect("it fits");
        fan.push(graph.apply(Scalar::Exp, &[shared]).expect("it fits"));
    }
    let joined = graph.apply(Concat { axis: Axis(0) }, &fan).expect("it fits");
    graph.set_outputs([("chain", chain), ("joined", joined)]);
    let mut cx = context(PassOptions::default(), TestLibrary::default());
    for pass in membar_passes::PASSES {
        let result = (pass.run)(&mut graph, &mut cx);
        assert!(result.is_ok(), "{}: {result:?}", pass.name);
    }
    assert_eq!(graph.schedule.len(), graph.node_count());
}

/// Blocks of attention and norms, 60,000 operators, are rewritten in seconds of a debug build, the
/// equal ones once.
#[test]
fn many_blocks_are_rewritten_in_little_time() {
    const BLOCKS: usize = 2_000;
    let block = |from: usize| {
        let to = from + 1;
        format!(
            "  %m{from} = reduce %x{from} {{kind = mean, axes = [2], keep = true}} : f32[2, S, 1]
  %c{from} = sub %x{from}, %m{from} : f32[2, S, 8]
  %s{from} = mul %c{from}, %c{from} : f32[2, S, 8]
  %v{from} = reduce %s{from} {{kind = mean, axes = [2], keep = true}} : f32[2, S, 1]
  %e{from} = add %v{from}, %epsilon : f32[2, S, 1]
  %d{from} = sqrt %e{from} : f32[2, S, 1]
  %n{from} = div %c{from}, %d{from} : f32[2, S, 8]
  %w{from} = weight random seed 1 stream {from} normal(1.0) : f32[8, 8]
  %p{from} = matmul %n{from}, %w{from} {{acc = f32, result = f32}} : f32[2, S, 8]
  %r{from} = reshape %p{from} {{shape = [2, S, 2, 4]}} : f32[2, S, 2, 4]
  %q{from} = transpose %r{from} {{perm = [0, 2, 1, 3]}} : f32[2, 2, S, 4]
  %k{from} = transpose %r{from} {{perm = [0, 2, 3, 1]}} : f32[2, 2, 4, S]
  %a{from} = matmul %q{from}, %k{from} {{acc = f32, result = f32}} : f32[2, 2, S, S]
  %b{from} = mul %a{from}, %scale : f32[2, 2, S, S]
  %f{from} = add %b{from}, %mask : f32[2, 2, S, S]
  %g{from} = softmax %f{from} {{axis = 3}} : f32[2, 2, S, S]
  %h{from} = matmul %g{from}, %q{from} {{acc = f32, result = f32}} : f32[2, 2, S, 4]
  %i{from} = transpose %h{from} {{perm = [0, 2, 1, 3]}} : f32[2, S, 2, 4]
  %j{from} = reshape %i{from} {{shape = [2, S, 8]}} : f32[2, S, 8]
  %l{from} = add %x{from}, %j{from} : f32[2, S, 8]
  %u{from} = div %l{from}, %root : f32[2, S, 8]
  %z{from} = erf %u{from} : f32[2, S, 8]
  %o{from} = add %z{from}, %one : f32[2, S, 8]
  %t{from} = mul %l{from}, %o{from} : f32[2, S, 8]
  %y{from} = mul %t{from}, %half : f32[2, S, 8]
  %x{to} = add %l{from}, %y{from} : f32[2, S, 8]\n"
        )
    };
    let blocks: String = (0..BLOCKS).map(block).collect();
    let mut graph = crate::support::graph(&format!(
        "graph @g(%x0: f32[2, S, 8], %mask: f32[S, S]) where S in 1..=8 {{
  %epsilon = weight 0.01 : f32[]
  %scale = weight 0.5 : f32[]
  %one = weight 1.0 : f32[]
  %root = weight 1.4142135 : f32[]
  %half = weight 0.5 : f32[]
{blocks}  return %x{BLOCKS}
}}"
    ));
    assert!(graph.node_count() > 50_000);
    let mut cx = context(PassOptions::default(), TestLibrary::default());
    let begin = std::time::Instant::now();
    let changed = membar_passes::rewrite(&mut graph, &mut cx);
    let time = begin.elapsed();
    assert_eq!(changed, Ok(membar_ir::pass::Changed::Yes));
    let report = cx.rewriting.expect("a report");
    let found = |name: &str| report.places.iter().filter(|place| place.op == name).count();
    assert_eq!(["attention", "layer_norm", "gelu"].map(found), [BLOCKS; 3]);
    assert!(report.distinct < 12, "{} different regions", report.distinct);
    assert!(time.as_secs() < 10, "{time:?}");
}
