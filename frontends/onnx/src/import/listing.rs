//! Which operators the importer takes and which it refuses, for documentation; derived from the
//! table, never a list of its own.

use super::table::{OPS, REFUSED};

/// An operator that the importer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SupportedOperator {
    /// Domain; empty for ONNX's own.
    pub domain: &'static str,
    /// Operator type.
    pub op_type: &'static str,
    /// First and last version of the domain's operator set in which it is taken.
    pub opsets: (i64, i64),
    /// In what form it is taken, where not in all; else empty.
    pub form: &'static str,
}

/// Every operator that the importer takes, sorted by domain and name.
pub fn supported_operators() -> Vec<SupportedOperator> {
    let mut operators: Vec<SupportedOperator> = OPS
        .iter()
        .map(|mapping| SupportedOperator {
            domain: mapping.domain,
            op_type: mapping.op_type,
            opsets: mapping.opsets,
            form: mapping.supported,
        })
        .collect();
    operators.sort_unstable();
    operators
}

/// Operators of ONNX that are refused, each with the reason, sorted by name.
pub fn refused_operators() -> Vec<(&'static str, &'static str)> {
    let mut operators = REFUSED.to_vec();
    operators.sort_unstable();
    operators
}
