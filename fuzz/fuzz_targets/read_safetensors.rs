//! The fuzzer of `targets::read_safetensors`; it must do nothing else.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::read_safetensors(data));
