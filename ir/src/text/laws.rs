//! The laws of the text form, for tests to hold every graph against; never a repair.

use super::{SyntaxError, parse_with_topology};
use crate::graph::Graph;

/// A law of the text form that a graph breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LawError {
    /// What was printed does not parse.
    #[error("the printed text does not parse: {error}\n{text}")]
    Parse {
        /// Why not.
        error: SyntaxError,
        /// The text.
        text: String,
    },
    /// What was parsed is not what was printed.
    #[error("the text parses to another graph: {difference}\n{text}")]
    Differs {
        /// What differs.
        difference: String,
        /// The text.
        text: String,
    },
    /// The parsed graph prints otherwise.
    #[error("the parsed graph prints otherwise: line {line} is `{second}`, but was `{first}`")]
    Reprint {
        /// The first line that differs, from 1.
        line: usize,
        /// What was printed first.
        first: String,
        /// What was printed of the parsed graph.
        second: String,
    },
}

/// Checks that the text of a graph parses to an equal graph, which prints as the same text.
///
/// # Errors
/// The law that does not hold.
pub fn check_laws(graph: &Graph) -> Result<(), LawError> {
    let text = graph.to_string();
    let parsed = match parse_with_topology(&text, graph.topology.as_ref()) {
        Ok(parsed) => parsed,
        Err(error) => return Err(LawError::Parse { error, text }),
    };
    if let Some(difference) = graph.difference(&parsed) {
        return Err(LawError::Differs { difference, text });
    }
    let again = parsed.to_string();
    if text == again {
        return Ok(());
    }
    let lines = || text.lines().zip(again.lines()).enumerate();
    let (line, (first, second)) = lines().find(|(_, (a, b))| a != b).unwrap_or_default();
    Err(LawError::Reprint { line: line + 1, first: first.to_string(), second: second.to_string() })
}
