//! The fuzzer of `targets::open_bundle`; it must do nothing else.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::open_bundle(data));
