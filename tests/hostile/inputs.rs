//! Wrong input tensors: names, types, shapes, sizes outside ranges, files that are no tensors.

use crate::models::small;
use crate::place::{Place, random};
use membar::Tensor;

fn rows(count: usize) -> Tensor {
    let elements: Vec<f32> = (0..count * 3).map(|index| index as f32 * 0.5 - 1.25).collect();
    Tensor::from_elements(&[count, 3], &elements).unwrap()
}

const RUN: &[&str] = &["run", "model.onnx", "--inputs", "in.npz", "--outputs", "out/out.npz"];
const RUN_BUNDLE: &[&str] = &["run", "bundle", "--inputs", "in.npz", "--outputs", "out/out.npz"];

/// The small model, and a bundle of it for 2 to 4 rows.
fn compiled() -> Place {
    let place = Place::new();
    place.file("model.onnx", small());
    place.done(&["compile", "model.onnx", "-o", "bundle", "--dim", "rows=2..4"]);
    place
}

#[test]
fn wrong_names_types_and_shapes_are_refused() {
    let place = compiled();
    for arguments in [RUN, RUN_BUNDLE] {
        let refused = |tensors: &[(&str, Tensor)], facts: &[&str]| {
            place.tensors("in.npz", tensors);
            place.refused(1, arguments, facts);
        };
        refused(&[], &["input `x`", "missing", "f32"]);
        refused(&[("z", rows(2))], &["no input `z`", "the inputs are `x`", "input `x`", "missing"]);
        refused(&[("x", rows(2)), ("z", rows(2))], &["no input `z`"]);
        let integers = Tensor::from_elements(&[2, 3], &[1i64; 6]).unwrap();
        refused(&[("x", integers)], &["input `x`", "i64", "f32"]);
        let flat = Tensor::from_elements(&[6], &[1f32; 6]).unwrap();
        refused(&[("x", flat)], &["input `x`", "[6]", "3]"]);
        let wide = Tensor::from_elements(&[2, 4], &[1f32; 8]).unwrap();
        refused(&[("x", wide)], &["input `x`", "dimension 1 is 4", "3"]);
    }
}

#[test]
fn a_size_outside_the_declared_range_is_refused() {
    let place = compiled();
    for count in [0, 1, 5, 1000] {
        place.tensors("in.npz", &[("x", rows(count))]);
        place.refused(1, RUN_BUNDLE, &["`rows`", &format!("is {count}"), "2..4"]);
        // A model is bound first, and no ONNX dimension is 0 unless it is a cache's length.
        let range = if count == 0 { "1.." } else { "2..4" };
        let ranged = [RUN, &["--dim", "rows=2..4"]].concat();
        place.refused(1, &ranged, &["`rows`", &count.to_string(), range]);
    }
    for count in [2, 3, 4] {
        place.tensors("in.npz", &[("x", rows(count))]);
        place.done(&["run", "bundle", "--inputs", "in.npz"]);
    }
}

#[test]
fn files_that_are_no_tensors_are_refused() {
    let place = compiled();
    let refused = |name: &str, bytes: &[u8], facts: &[&str]| {
        place.file(name, bytes);
        place.refused(1, &["run", "bundle", "--inputs", name], &[facts, &[name]].concat());
    };
    place.refused(1, &["run", "bundle", "--inputs", "absent.npz"], &["absent.npz"]);
    refused("in.txt", b"1 2 3", &[".npz"]);
    refused("in.npz", b"", &[]);
    refused("in.npz", b"PK\x03\x04 and no more", &[]);
    refused("in.safetensors", b"", &[]);
    refused("in.safetensors", &[0xff; 64], &[]);
    refused("in.safetensors", b"\x40\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"F32\"", &[]);
    let path = place.tensors("good.npz", &[("x", rows(3))]);
    let good = std::fs::read(path).unwrap();
    for length in (0..good.len()).step_by(23) {
        refused("in.npz", &good[..length], &[]);
    }
    for seed in 0..24 {
        let mut random = random(seed);
        let mut damaged = good.clone();
        let position = random(damaged.len());
        damaged[position] ^= 1 << random(8);
        place.file("in.npz", &damaged);
        // A flipped bit in a time stamp, say, is no damage.
        let outcome = place.membar(&["run", "bundle", "--inputs", "in.npz"]);
        assert!(matches!(outcome.code, Some(0 | 1)), "seed {seed}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "seed {seed}: {outcome:?}");
    }
}

#[test]
fn nan_and_infinity_pass_through() {
    let place = compiled();
    let odd = [f32::NAN, 1.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, -0.0];
    place.tensors("in.npz", &[("x", Tensor::from_elements(&[2, 3], &odd).unwrap())]);
    let outcome = place.done(&["run", "bundle", "--inputs", "in.npz", "--json"]);
    assert!(outcome.stdout.contains("\"y\""), "{}", outcome.stdout);
}

#[test]
fn bound_inputs_need_values_and_must_exist() {
    let place = compiled();
    place.tensors("in.npz", &[("x", rows(2)), ("z", rows(2))]);
    place.refused(2, &["run", "model.onnx", "--random-inputs", "1", "--bind", "x"], &["`x`"]);
    place.refused(1, &[RUN, &["--bind", "z"]].concat(), &["`z`", "`x`"]);
    place.refused(2, &[RUN, &["--bind", "w"]].concat(), &["`w`"]);
}

#[test]
fn outputs_that_cannot_be_written_are_refused() {
    let place = compiled();
    place.tensors("in.npz", &[("x", rows(2))]);
    place.file("file", b"");
    let run = ["run", "bundle", "--inputs", "in.npz", "--outputs"];
    for target in ["/proc/out.npz", "file/out.npz", "absent/out.npz", "out", "out/out.txt"] {
        place.refused(1, &[&run[..], &[target]].concat(), &[target]);
    }
}
