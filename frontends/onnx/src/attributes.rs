//! Attributes of nodes and the typed access to them. Which attributes an operator has is never
//! known here.

use crate::error::{AttributeProblem, ImportError};
use crate::model::{GraphDef, NodeDef};
use crate::tensors::TensorDef;
use bytes::Bytes;

/// The value of one attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// One integer.
    Int(i64),
    /// One number.
    Float(f32),
    /// One string; ONNX stores bytes, which need not be UTF-8.
    String(Bytes),
    /// One tensor.
    Tensor(TensorDef),
    /// One subgraph.
    Graph(Box<GraphDef>),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Strings.
    Strings(Vec<Bytes>),
    /// Tensors.
    Tensors(Vec<TensorDef>),
    /// Subgraphs.
    Graphs(Vec<GraphDef>),
    /// A kind that Membar does not take (sparse tensors, types), by its name.
    Unsupported(&'static str),
}

impl AttributeValue {
    /// The kind, as error messages name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::String(_) => "a string",
            Self::Tensor(_) => "a tensor",
            Self::Graph(_) => "a graph",
            Self::Ints(_) => "a list of integers",
            Self::Floats(_) => "a list of floats",
            Self::Strings(_) => "a list of strings",
            Self::Tensors(_) => "a list of tensors",
            Self::Graphs(_) => "a list of graphs",
            Self::Unsupported(kind) => kind,
        }
    }

    /// The subgraphs in this value, in order.
    pub fn graphs(&self) -> &[GraphDef] {
        match self {
            Self::Graph(graph) => std::slice::from_ref(graph),
            Self::Graphs(graphs) => graphs,
            _ => &[],
        }
    }

    pub(crate) fn graphs_mut(&mut self) -> &mut [GraphDef] {
        match self {
            Self::Graph(graph) => std::slice::from_mut(graph),
            Self::Graphs(graphs) => graphs,
            _ => &mut [],
        }
    }
}

/// A Rust type that an attribute can be read as: `i64`, `f32`, `&str`, `&[i64]`, `&[f32]`,
/// `Vec<&str>`, `&TensorDef`, `&GraphDef`.
pub trait FromAttribute<'a>: Sized {
    /// The kind of attribute, as error messages name it.
    const EXPECTED: &'static str;

    /// Reads the value.
    ///
    /// # Errors
    /// Where the attribute is of another kind, or a string is not UTF-8.
    fn from_attribute(value: &'a AttributeValue) -> Result<Self, AttributeProblem>;
}

impl NodeDef {
    /// The attribute `name`, or `None` where the node does not have it.
    ///
    /// ```
    /// # use membar_onnx::{ImportError, NodeDef};
    /// # fn softmax(node: &NodeDef) -> Result<i64, ImportError> {
    /// let axis = node.attribute::<i64>("axis")?.unwrap_or(-1);
    /// # Ok(axis) }
    /// ```
    ///
    /// # Errors
    /// [`ImportError::Attribute`] where the attribute is of another kind.
    pub fn attribute<'a, T: FromAttribute<'a>>(
        &'a self,
        name: &str,
    ) -> Result<Option<T>, ImportError> {
        self.attributes
            .get(name)
            .map(T::from_attribute)
            .transpose()
            .map_err(|problem| self.attribute_error(name, problem))
    }

    /// The attribute `name`, which the operator requires.
    ///
    /// # Errors
    /// [`ImportError::Attribute`] where it is absent or of another kind.
    pub fn required<'a, T: FromAttribute<'a>>(&'a self, name: &str) -> Result<T, ImportError> {
        self.attribute(name)?.ok_or_else(|| {
            self.attribute_error(name, AttributeProblem::Missing { expected: T::EXPECTED })
        })
    }

    /// Refuses attributes that are not in `known`, so that none is silently ignored.
    ///
    /// # Errors
    /// [`ImportError::UnknownAttributes`] with all of them.
    pub fn only_attributes(&self, known: &[&str]) -> Result<(), ImportError> {
        let unknown: Vec<String> = self
            .attributes
            .keys()
            .filter(|name| !known.contains(&name.as_str()))
            .cloned()
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(ImportError::UnknownAttributes {
            node: self.name.clone(),
            op: self.op_type.clone(),
            unknown,
            known: known.iter().map(|name| (*name).to_owned()).collect(),
        })
    }

    pub(crate) fn attribute_error(&self, name: &str, problem: AttributeProblem) -> ImportError {
        ImportError::Attribute {
            node: self.name.clone(),
            op: self.op_type.clone(),
            attribute: name.to_owned(),
            problem,
        }
    }
}

macro_rules! from_attribute {
    ($($type:ty, $expected:literal, $variant:ident($value:ident) => $result:expr;)*) => {$(
        impl<'a> FromAttribute<'a> for $type {
            const EXPECTED: &'static str = $expected;

            fn from_attribute(value: &'a AttributeValue) -> Result<Self, AttributeProblem> {
                match value {
                    AttributeValue::$variant($value) => $result,
                    other => Err(AttributeProblem::WrongType {
                        found: other.kind(),
                        expected: Self::EXPECTED,
                    }),
                }
            }
        }
    )*};
}

from_attribute! {
    i64, "an integer", Int(value) => Ok(*value);
    f32, "a float", Float(value) => Ok(*value);
    &'a str, "a string", String(value) => utf8(value);
    &'a [i64], "a list of integers", Ints(values) => Ok(values);
    &'a [f32], "a list of floats", Floats(values) => Ok(values);
    Vec<&'a str>, "a list of strings", Strings(values) => values.iter().map(utf8).collect();
    &'a TensorDef, "a tensor", Tensor(tensor) => Ok(tensor);
    &'a GraphDef, "a graph", Graph(graph) => Ok(graph);
}

fn utf8(value: &Bytes) -> Result<&str, AttributeProblem> {
    std::str::from_utf8(value).map_err(|_| AttributeProblem::NotUtf8)
}
