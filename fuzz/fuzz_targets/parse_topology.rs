//! The fuzzer of `targets::parse_topology`; it must do nothing else.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::parse_topology(data));
