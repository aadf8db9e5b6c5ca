//! Tests of the product as a whole, in one binary so that it links once: each module is one
//! subject. Never a test of one crate alone, and never expected tensors (`fixtures` and
//! `conformance` have those).

#[path = "../support/mod.rs"]
mod support;

mod bundles;
mod executor;
mod fixture;
mod kernels;
mod launches;
mod laws;
mod order;
mod pipeline;
mod ptx;
mod random_graphs;
mod rewriting;
mod snapshots;
mod states;
