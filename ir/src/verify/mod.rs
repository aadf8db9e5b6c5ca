//! What must hold of a graph, checked; every fault is collected and shown under its line of IR
//! text. Never changes a graph, and shares no code with the passes that it checks.
//!
//! *Structure*, at every stage ([`Depth::Cheap`]):
//!
//! - inputs: each is made by an input node of one value, has a name that no other input has, and
//!   every input node is listed once;
//! - outputs: each is a value of the graph, and no two have one name;
//! - every value is the output of its node that it says it is, every operand is a value of the graph,
//!   every node has an output, inputs and weights have one output and no operands;
//! - the graph has no cycle;
//! - ranges of symbols begin at 0 or more and are not empty;
//! - every symbol in a type, an attribute or a layout is declared, and no dimension is negative for
//!   all values of its symbols;
//! - states: the input is an input of the graph, the output names an output, neither belongs to two
//!   states, element type and rank agree; where the state grows, the axis exists, the input's extent
//!   along it is the length's symbol, the other dimensions agree, and the capacity covers the
//!   length's range;
//! - weights have types without symbols, and recipes are no deeper than the text form can nest, nor
//!   longer than anyone would read.
//!
//! *Placement* ([`Depth::Cheap`]):
//!
//! - before stage placed there is no device and no memory, before stage scheduled no region, no
//!   workspace, no capacity, no step, no buffer and no order; inputs and weights are no steps;
//! - from stage placed on there is a topology, every node has a device of it, every value a memory
//!   of it that the devices of its producer and its readers reach;
//! - a schedule has every node once, the inputs first as they are listed, and no node before one that
//!   it reads from; at stage scheduled there is one;
//! - at stage scheduled every value but the weights has a region, and weights have none;
//! - a region (of a value, a workspace or a hazard) lies inside a declared buffer, a value's in its
//!   own memory, a workspace's in one that the device reaches; runs do not overlap themselves;
//! - a value's region covers its type at the upper ends of all ranges, which must be known, and a
//!   capacity has the type's rank and covers its shape;
//! - the buffers of a memory fit its capacity;
//! - an order leads from a node to a later one of the schedule.
//!
//! *Types* ([`Depth::Full`]):
//!
//! - every operator infers the types that its outputs have, in weights' recipes too;
//! - a weight's value has its recipe's type, a literal the type that its recipe states.
//!
//! *Lifetimes* ([`Depth::Full`]), at stage scheduled:
//!
//! - no two values that live at the same time share bytes, unless one shows the other's bytes again
//!   (a reshape, a bitcast, an append's state), or takes over an operand's region at the step that
//!   reads it last;
//! - inputs and states live from the beginning, outputs to the end, a workspace during its step;
//! - a state's input lives to the end of a run too, unless the state's output lies in its place.
//!
//! *Order* ([`Depth::Full`]), at stage scheduled, on GPUs, once orders have been inserted; the first
//! word is the class that [`check_order`] names:
//!
//! - `undeclared`: where two steps touch a byte and one writes it, orders lead from the earlier to the
//!   later; operators that are no steps show their operand's bytes in its place;
//! - `too-narrow`: an order joins two steps; `sequence` orders nothing on a GPU; a `programmatic` one
//!   leads to a step of the same device that promises to wait, and the device knows it (sm_90 or
//!   newer); what the asynchronous proxy reads without a fence comes by a full edge.

mod lifetimes;
mod placement;
mod program;
mod races;
mod structure;
mod types;

pub use program::verify_program;
pub use races::{OrderClass, OrderFault, OrderReport, check_order};

use crate::graph::Graph;
use crate::text::{Entity, print};
use std::fmt;

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Structure and placement: linear in the size of the graph.
    Cheap,
    /// Types and lifetimes too.
    Full,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// What is wrong.
    pub entity: Entity,
    /// What the fault is about: `structure`, `types`, `placement`, `lifetimes`, or the class of a
    /// fault of order.
    pub context: &'static str,
    /// What was found and what was expected.
    pub message: String,
    /// The line of the IR text that the fault is shown under, from 1.
    pub line: u32,
}

/// All faults of a graph, in the order of their lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyErrors {
    /// The graph's name.
    pub graph: String,
    /// The faults.
    pub errors: Vec<VerifyError>,
    text: String,
}

impl std::error::Error for VerifyErrors {}

/// Each line of IR text that has a fault, with its faults under it.
impl fmt::Display for VerifyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.errors.len();
        let faults = if count == 1 { "fault" } else { "faults" };
        write!(f, "graph `{}` has {count} {faults}", self.graph)?;
        let mut shown = 0;
        let mut lines = self.text.lines().zip(1u32..);
        for error in &self.errors {
            if error.line != shown {
                let line = lines.find(|(_, number)| *number == error.line);
                let line = line.map_or("", |(line, _)| line);
                write!(f, "\n{:5} | {}", error.line, line)?;
                shown = error.line;
            }
            write!(f, "\n      ^ {}: {}", error.context, error.message)?;
        }
        Ok(())
    }
}

/// What checks report faults to.
struct Report<'a> {
    graph: &'a Graph,
    context: &'static str,
    faults: Vec<(Entity, &'static str, String)>,
}

impl Report<'_> {
    fn fault(&mut self, entity: Entity, message: impl Into<String>) {
        self.faults.push((entity, self.context, message.into()));
    }
}

/// Checks a graph against everything that its stage promises.
///
/// # Errors
/// Every fault. Faults of structure hide those of the other kinds, which rely on it.
pub fn verify(graph: &Graph, depth: Depth) -> Result<(), VerifyErrors> {
    let mut report = Report { graph, context: "structure", faults: Vec::new() };
    structure::check(&mut report);
    if report.faults.is_empty() {
        report.context = "placement";
        placement::check(&mut report);
        let placed = report.faults.is_empty();
        if depth == Depth::Full {
            report.context = "types";
            types::check(&mut report);
            if placed {
                report.context = "lifetimes";
                lifetimes::check(&mut report);
                races::check(&mut report);
            }
        }
    }
    if report.faults.is_empty() { Ok(()) } else { Err(collect(graph, report.faults)) }
}

fn collect(graph: &Graph, faults: Vec<(Entity, &'static str, String)>) -> VerifyErrors {
    let printed = print(graph);
    let located = faults.into_iter().map(|(entity, context, message)| {
        let line = printed.line(&entity);
        VerifyError { entity, context, message, line }
    });
    let mut errors: Vec<VerifyError> = located.collect();
    errors.sort_by_key(|error| error.line);
    VerifyErrors { graph: graph.name.clone(), errors, text: printed.text }
}

#[cfg(test)]
mod tests;
