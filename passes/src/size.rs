//! Sizes at the upper ends of ranges, and what to say about those that have none; never an actual
//! extent.

use membar_ir::dim::{Dim, Ranges, Symbol};
use membar_ir::graph::Graph;
use membar_ir::types::TensorType;
use std::collections::BTreeSet;

/// Why a type has no greatest size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoSize {
    /// These symbols have no upper bound.
    Unbounded(BTreeSet<Symbol>),
    /// The size does not fit 64 bits.
    Overflow,
}

/// The greatest value of a dimension; a negative one counts as 0.
pub(crate) fn greatest(dim: &Dim, ranges: &Ranges) -> Result<u64, NoSize> {
    match dim.bounds(ranges).hi {
        Some(hi) => Ok(u64::try_from(hi).unwrap_or(0)),
        None => {
            let mut unbounded = BTreeSet::new();
            dim.for_each_symbol(&mut |symbol| {
                if ranges.get(symbol).is_none_or(|range| range.hi.is_none()) {
                    unbounded.insert(symbol.clone());
                }
            });
            if unbounded.is_empty() {
                Err(NoSize::Overflow)
            } else {
                Err(NoSize::Unbounded(unbounded))
            }
        }
    }
}

/// The greatest size of a value of that type, in bytes.
pub(crate) fn greatest_bytes(ty: &TensorType, ranges: &Ranges) -> Result<u64, NoSize> {
    let mut elements = Some(1u64);
    let mut unbounded = BTreeSet::new();
    for dim in &ty.shape {
        match greatest(dim, ranges) {
            Ok(extent) => elements = elements.and_then(|n| n.checked_mul(extent)),
            Err(NoSize::Unbounded(symbols)) => unbounded.extend(symbols),
            Err(NoSize::Overflow) => elements = None,
        }
    }
    if !unbounded.is_empty() {
        return Err(NoSize::Unbounded(unbounded));
    }
    let bits = elements.and_then(|n| n.checked_mul(u64::from(ty.dtype.bits())));
    // An address space has 2⁶³ bytes at most, so that sums of sizes are caught early.
    let bytes = bits.map(|bits| bits.div_ceil(8)).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or(NoSize::Overflow)
}

/// One message for each unbounded symbol.
pub(crate) fn unbounded_faults(symbols: &BTreeSet<Symbol>) -> Vec<String> {
    let message = |symbol: &Symbol| {
        let name = symbol.name();
        format!(
            "dimension `{name}` has no upper bound, so no memory can be planned for it; \
             give a number or a range: `--dim {name}=N` or `--dim {name}=LO..HI`"
        )
    };
    symbols.iter().map(message).collect()
}

/// A size for people.
pub(crate) fn shown(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >> shift != 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}

/// What messages call the value that a node makes, with its type.
pub(crate) fn described(graph: &Graph, value: membar_ir::ValueId) -> String {
    let found = graph.value(value);
    match &found.name {
        Some(name) => format!("`{name}` {}", found.ty),
        None => format!("`{}` {}", graph.label(found.producer()), found.ty),
    }
}
