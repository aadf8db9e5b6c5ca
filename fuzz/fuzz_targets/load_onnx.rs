//! The fuzzer of `targets::load_onnx`; it must do nothing else.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::load_onnx(data));
