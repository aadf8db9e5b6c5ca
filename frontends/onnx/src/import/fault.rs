//! Why a node cannot be imported, and the report that lists all such nodes at once. Never a fault
//! of the file's encoding (those are [`ImportError`]'s other variants).

use crate::error::{ImportError, shown_domain};
use crate::model::NodeDef;
use membar_ir::op::TypeError;
use std::fmt;

/// Why one node cannot be imported.
#[derive(Debug)]
pub(crate) enum NodeError {
    /// The node is of a form that Membar does not take, or contradicts the operator's definition.
    Unsupported(String),
    /// An IR operator refuses its operands.
    Type {
        /// The IR operator with its attributes.
        operator: String,
        /// What does not fit.
        error: Box<TypeError>,
        /// Equations between dimensions that led to it, or nothing.
        explanation: String,
    },
    /// An attribute or a constant of the node cannot be read.
    Import(Box<ImportError>),
    /// It depends on a node that has been reported already.
    Poisoned,
}

impl NodeError {
    /// A node that is not supported, for a reason in words.
    pub(crate) fn new(reason: impl Into<String>) -> NodeError {
        NodeError::Unsupported(reason.into())
    }
}

impl From<ImportError> for NodeError {
    fn from(error: ImportError) -> NodeError {
        NodeError::Import(Box::new(error))
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Unsupported(reason) => f.write_str(reason),
            NodeError::Type { operator, error, explanation } => {
                write!(f, "{error}, in `{operator}`{explanation}")
            }
            NodeError::Import(error) => write!(f, "{error}"),
            NodeError::Poisoned => f.write_str("depends on a node that is not supported"),
        }
    }
}

/// A node, input or output of the model that Membar cannot import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Node name; `input NAME` for an input of the model.
    pub node: String,
    /// Operator type; empty for an input.
    pub op: String,
    /// Domain; empty for `ai.onnx`.
    pub domain: String,
    /// Version of the domain's operator set.
    pub opset: i64,
    /// Types and shapes of the operands, where they are known; `absent` for one that is left out.
    pub operands: Vec<String>,
    /// What is wrong.
    pub reason: String,
    /// What is supported instead, if anything.
    pub supported: Option<&'static str>,
}

impl Unsupported {
    /// The report of a node.
    pub(crate) fn node(
        node: &NodeDef,
        operands: Vec<String>,
        reason: String,
        supported: Option<&'static str>,
    ) -> Unsupported {
        Unsupported {
            node: node.name.clone(),
            op: node.op_type.clone(),
            domain: node.domain.clone(),
            opset: node.opset,
            operands,
            reason,
            supported: supported.filter(|text| !text.is_empty()),
        }
    }

    /// The report of something that is not a node.
    pub(crate) fn value(what: String, reason: String) -> Unsupported {
        Unsupported {
            node: what,
            op: String::new(),
            domain: String::new(),
            opset: 0,
            operands: Vec::new(),
            reason,
            supported: None,
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.op.is_empty() {
            return write!(f, "{}: {}", self.node, self.reason);
        }
        let domain = shown_domain(&self.domain);
        write!(f, "node `{}`: {domain}.{} (opset {})", self.node, self.op, self.opset)?;
        write!(f, " of ({}): {}", self.operands.join(", "), self.reason)?;
        match self.supported {
            Some(supported) => write!(f, "; supported: {supported}"),
            None => Ok(()),
        }
    }
}

/// The text of a report of several faults, one a line.
pub(crate) fn listed(faults: &[Unsupported]) -> String {
    let lines: Vec<String> = faults.iter().map(|fault| format!("\n  {fault}")).collect();
    lines.concat()
}
