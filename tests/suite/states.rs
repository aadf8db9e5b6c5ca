//! Caches that a session keeps, against the same model without states, its outputs fed back; never
//! a single run.

use crate::fixture::{self, Fixture};
use membar::ir::interp::Interpreter;
use membar::ir::testing::Random;
use membar::{CompileOptions, Range, RunOptions, StateOption};

/// New elements of each step: a prompt, then few at a time.
const STEPS: [[i64; 5]; 2] = [[5, 1, 1, 2, 1], [2, 1, 3, 1, 1]];

/// No cache grows beyond this.
const LONGEST: i64 = 11;

#[test]
fn sessions_with_states_continue_as_the_model_without() {
    let names = fixture::names();
    let names: Vec<String> = names.into_iter().filter(|name| has_cache(name)).collect();
    assert!(names.len() >= 13, "{names:?}");
    fixture::each(&names, continues);
}

fn has_cache(name: &str) -> bool {
    let graph = Fixture::load(name).graph;
    let named = |value| graph.value(value).name.as_deref().unwrap_or_default();
    graph.inputs().iter().any(|value| {
        let name: &str = named(*value);
        // A cache of a fixed length cannot grow.
        let grows = graph.ty(*value).shape.get(2).is_some_and(|dim| dim.as_constant().is_none());
        name.starts_with("past") || name.starts_with("key_cache") || name == "pk" && grows
    })
}

fn continues(fixture: &Fixture) -> Result<(), String> {
    let named = fixture.graph.inputs().iter().any(|value| fixture.name_of(*value) == "pk");
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    let states = if named {
        StateOption::Pairs(vec![pair("pk", "ok"), pair("pv", "ov")])
    } else {
        StateOption::Auto
    };
    let mut options = CompileOptions { states, verify: true, ..fixture.options() };
    for range in options.dims.values_mut() {
        *range = Range::new(range.lo, LONGEST);
    }
    let compiled = membar::compile(fixture.graph.clone(), &options).map_err(|e| e.to_string())?;
    let caches = compiled.graph.states.clone();
    let cache_names: Vec<(String, String)> = caches
        .iter()
        .map(|state| {
            let input = compiled.graph.value(state.input).name.as_deref().unwrap_or_default();
            (input.to_string(), state.output.to_string())
        })
        .collect();
    if cache_names.len() < 2 {
        return Err(format!("{} states", cache_names.len()));
    }
    let mut session = compiled.session().map_err(|e| e.to_string())?;
    let mut interpreter = Interpreter::default();
    let mut random = Random::new(7);
    for (round, steps) in STEPS.iter().enumerate() {
        // The second round finds what the first left, unless it is forgotten.
        session.reset();
        let batch = 2 - round as i64;
        let mut held = None;
        let mut past = 0;
        for (index, new) in steps.iter().enumerate() {
            let step = format!("round {round}, step {index}");
            let sizes = step_sizes(fixture, batch, past, *new);
            let mut inputs = fixture.inputs(&mut random, &sizes, past);
            for (input, output) in &cache_names {
                match &held {
                    Some(held) => {
                        let held: &membar::tensor_files::Tensors = held;
                        inputs.insert(input.clone(), held[output].clone());
                    }
                    None => {
                        let ty = inputs[input].ty().clone();
                        inputs.insert(input.clone(), membar::Tensor::zeros(ty));
                    }
                }
            }
            let sizes = membar::bind(&fixture.graph, &inputs).map_err(|e| e.to_string())?;
            let expected = interpreter
                .run(&fixture.graph, &inputs, &sizes)
                .map_err(|e| format!("{step}: interpreter: {e}"))?;
            inputs.retain(|name, _| !cache_names.iter().any(|(input, _)| input == name));
            let states = index % 2 == 1;
            let found = session
                .run_with(&inputs, &RunOptions { states })
                .map_err(|e| format!("{step}: {e}"))?;
            if found.keys().any(|name| cache_names.iter().any(|(_, o)| o == name)) != states {
                return Err(format!("{step}: outputs {:?}", found.keys()));
            }
            fixture.compare(&found, &expected).map_err(|e| format!("{step}: {e}"))?;
            held = Some(expected);
            past += new;
        }
    }
    Ok(())
}

/// The sizes of a step: those of the inputs' symbols by what they are in every fixture.
fn step_sizes(fixture: &Fixture, batch: i64, past: i64, new: i64) -> membar::ir::dim::Bindings {
    let first = &fixture.graph.ty(fixture.graph.inputs()[0]).shape;
    let mut sizes = fixture.pick_sizes(|lo, _| lo);
    let mut set = |dim: &membar::ir::dim::Dim, size: i64| {
        if let Some(symbol) = dim.as_symbol() {
            sizes.insert(symbol.clone(), size);
        }
    };
    set(&first[0], batch);
    set(&first[1], new);
    for input in fixture.graph.inputs() {
        let name = fixture.name_of(*input);
        if name.starts_with("past") || name == "pk" {
            set(&fixture.graph.ty(*input).shape[2], past);
        }
    }
    for (symbol, terms) in fixture.sums() {
        let sum = terms.iter().map(|term| sizes[term]).sum();
        sizes.insert(symbol, sum);
    }
    sizes
}
