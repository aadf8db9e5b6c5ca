//! The executor against the reference interpreter: one program for a range of sizes, run at many
//! of them in one session; never against another runtime's numbers.

use crate::fixture::{self, Fixture};
use membar::ir::interp::Interpreter;
use membar::ir::testing::Random;
use membar::tensor_files::Tensors;

#[test]
fn agrees_with_the_interpreter_on_transformers_at_every_size() {
    fixture::each(&split(false), agrees);
}

#[test]
fn agrees_with_the_interpreter_on_images_at_every_size() {
    fixture::each(&split(true), agrees);
}

/// The models that take images or sound, or the others.
fn split(images: bool) -> Vec<String> {
    const IMAGES: [&str; 5] = ["mobilenet", "resnet", "unet", "vit", "whisper"];
    let is_image = |name: &String| IMAGES.iter().any(|image| name.starts_with(image));
    fixture::names().into_iter().filter(|name| is_image(name) == images).collect()
}

fn agrees(fixture: &Fixture) -> Result<(), String> {
    let mut random = Random::new(fixture.name.bytes().map(u64::from).sum());
    let mut cases: Vec<(String, Tensors)> = Vec::new();
    for (number, inputs) in (1..).zip(&fixture.data_sets) {
        cases.push((format!("data set {number}"), inputs.clone()));
    }
    let mut odd = |lo, hi| {
        let size = random.integer(lo, hi);
        if size < hi { size | 1 } else { size }
    };
    let mut sizes = vec![
        fixture.pick_sizes(|lo, _| lo),
        fixture.pick_sizes(|_, hi| hi),
        fixture.pick_sizes(&mut odd),
        fixture.pick_sizes(&mut odd),
    ];
    sizes.dedup();
    for sizes in sizes {
        let inputs = fixture.inputs(&mut random, &sizes, 0);
        cases.push((format!("{sizes:?}"), inputs));
    }
    for index in (1..cases.len()).rev() {
        cases.swap(index, random.integer(0, index as i64) as usize);
    }
    let mut session = fixture.session(&fixture.options())?;
    let mut interpreter = Interpreter::default();
    for (case, inputs) in &cases {
        let sizes = membar::bind(&fixture.graph, inputs).map_err(|e| format!("{case}: {e}"))?;
        let expected = interpreter
            .run(&fixture.graph, inputs, &sizes)
            .map_err(|e| format!("{case}: interpreter: {e}"))?;
        let found = session.run(inputs).map_err(|e| format!("{case}: {e}"))?;
        if found.len() != expected.len() {
            return Err(format!("{case}: {} outputs of {}", found.len(), expected.len()));
        }
        fixture.compare(&found, &expected).map_err(|error| format!("{case}: {error}"))?;
    }
    Ok(())
}
