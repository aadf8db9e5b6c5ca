//! What can be wrong with a run's inputs, in words; must never decide whether it is.

use membar_ir::dim::{Dim, Range};
use membar_ir::dtype::DType;
use membar_ir::types::{Axis, TensorType};
use std::fmt;

/// What is wrong with an input, or with the extents that the inputs give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputFault {
    /// An input was not given.
    #[error("input `{name}` ({expected}) is missing")]
    Missing {
        /// The input.
        name: String,
        /// Its type.
        expected: TensorType,
    },
    /// The program has no such input.
    #[error("there is no input `{name}`; the inputs are {}", quoted(.inputs))]
    Unknown {
        /// What was given.
        name: String,
        /// The inputs.
        inputs: Vec<String>,
    },
    /// Another element type.
    #[error("input `{name}` has element type {found}, expected {expected}")]
    DType {
        /// The input.
        name: String,
        /// Declared.
        expected: DType,
        /// Given.
        found: DType,
    },
    /// Another number of dimensions.
    #[error("input `{name}` has shape {found:?}, expected {expected}")]
    Rank {
        /// The input.
        name: String,
        /// Declared.
        expected: TensorType,
        /// Given.
        found: Vec<usize>,
    },
    /// A dimension that contradicts the declared shape or another input.
    #[error("input `{name}`: dimension {axis} is {found}, expected {expected}{}", valued(.value))]
    Dimension {
        /// The input.
        name: String,
        /// Which dimension.
        axis: Axis,
        /// Declared.
        expected: Dim,
        /// What the declared dimension comes out as with the other extents, if it does.
        value: Option<i64>,
        /// Given.
        found: usize,
    },
    /// A dimension outside its declared range.
    #[error("dimension `{symbol}` is {value} (input `{name}`), outside its range {}", Shown(*.range))]
    Range {
        /// The dimension.
        symbol: String,
        /// Its value.
        value: i64,
        /// The range.
        range: Range,
        /// The input that gave the value.
        name: String,
    },
    /// A dimension that no input determines.
    #[error("dimension `{symbol}` has no value: no input's shape determines it")]
    Unbound {
        /// The dimension.
        symbol: String,
    },
    /// A state would grow beyond its capacity.
    #[error(
        "state `{name}` would grow to {length} of at most {capacity}; \
         reset the session, or compile with a greater range"
    )]
    Capacity {
        /// The state's input.
        name: String,
        /// The length after the run.
        length: i64,
        /// The greatest length.
        capacity: i64,
    },
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn valued(value: &Option<i64>) -> String {
    value.map_or(String::new(), |value| format!(" = {value}"))
}

/// A range as the command line writes it.
struct Shown(Range);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.0.lo)?;
        self.0.hi.map_or(Ok(()), |hi| write!(f, "{hi}"))
    }
}
