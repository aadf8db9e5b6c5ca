//! The fuzzer of `targets::parse_ir`; it must do nothing else.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::parse_ir(data));
