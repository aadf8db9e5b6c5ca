//! Writes ONNX models for the tests, message by message, wrong ones too; must never check what it
//! writes.

#![allow(dead_code, reason = "each test binary uses some of it")]

/// A protobuf message being written. The field numbers are those of `onnx.proto`.
#[derive(Clone, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Adds a field of bytes, text or a finished message.
    pub fn bytes(mut self, field: u64, value: impl AsRef<[u8]>) -> Message {
        self.varint(field << 3 | 2);
        self.varint(value.as_ref().len() as u64);
        self.0.extend_from_slice(value.as_ref());
        self
    }

    /// Adds the messages as one repeated field.
    pub fn all<T: AsRef<[u8]>>(self, field: u64, values: impl IntoIterator<Item = T>) -> Message {
        values.into_iter().fold(self, |message, value| message.bytes(field, value))
    }

    /// Adds an integer.
    pub fn int(mut self, field: u64, value: i64) -> Message {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    /// Adds a float.
    pub fn float(mut self, field: u64, value: f32) -> Message {
        self.varint(field << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

pub const FLOAT: i64 = 1;
pub const INT64: i64 = 7;

/// A dimension of a declared type.
#[derive(Clone, Copy)]
pub enum Extent {
    Is(i64),
    Named(&'static str),
}

pub use Extent::{Is, Named};

/// A declared input, output or value.
pub fn value(name: &str, data_type: i64, dims: &[Extent]) -> Message {
    let dims = dims.iter().map(|dim| match dim {
        Is(extent) => Message::default().int(1, *extent),
        Named(symbol) => Message::default().bytes(2, symbol),
    });
    let shape = Message::default().all(1, dims);
    let tensor = Message::default().int(1, data_type).bytes(2, shape);
    Message::default().bytes(1, name).bytes(2, Message::default().bytes(1, tensor))
}

/// A declared output whose type is left to inference.
pub fn untyped(name: &str) -> Message {
    Message::default().bytes(1, name)
}

/// A node named after its first output.
pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Message {
    let name = outputs.first().copied().unwrap_or("node");
    Message::default().all(1, inputs).all(2, outputs).bytes(3, name).bytes(4, op)
}

impl Message {
    /// Sets a node's domain.
    pub fn domain(self, domain: &str) -> Message {
        self.bytes(7, domain)
    }

    /// Adds an integer attribute to a node.
    pub fn attribute(self, name: &str, value: i64) -> Message {
        self.bytes(5, Message::default().bytes(1, name).int(3, value).int(20, 2))
    }

    /// Adds an attribute of integers to a node.
    pub fn attributes(self, name: &str, values: &[i64]) -> Message {
        let attribute = Message::default().bytes(1, name).int(20, 7);
        self.bytes(5, values.iter().fold(attribute, |message, value| message.int(8, *value)))
    }

    /// Adds a graph attribute to a node.
    pub fn subgraph(self, name: &str, graph: &Message) -> Message {
        self.bytes(5, Message::default().bytes(1, name).bytes(6, graph).int(20, 5))
    }
}

/// A tensor with its bytes in the file.
pub fn tensor(name: &str, data_type: i64, dims: &[i64], data: &[u8]) -> Message {
    header(name, data_type, dims).bytes(9, data)
}

/// A constant of 64-bit integers of rank 1.
pub fn integers(name: &str, values: &[i64]) -> Message {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, INT64, &[values.len() as i64], &data)
}

/// A constant of floats.
pub fn floats(name: &str, dims: &[i64], values: &[f32]) -> Message {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, FLOAT, dims, &data)
}

/// A tensor of floats in a file beside the model.
pub fn external(name: &str, dims: &[i64], entries: &[(&str, &str)]) -> Message {
    let entries =
        entries.iter().map(|(key, value)| Message::default().bytes(1, key).bytes(2, value));
    header(name, FLOAT, dims).all(13, entries).int(14, 1)
}

fn header(name: &str, data_type: i64, dims: &[i64]) -> Message {
    let dims = dims.iter().fold(Message::default(), |message, dim| message.int(1, *dim));
    dims.int(2, data_type).bytes(8, name)
}

/// A graph.
pub fn graph(
    inputs: &[Message],
    constants: &[Message],
    nodes: &[Message],
    outputs: &[Message],
) -> Message {
    let graph = Message::default().all(1, nodes).bytes(2, "main").all(5, constants);
    graph.all(11, inputs).all(12, outputs)
}

/// A function of the domain `local`.
pub fn function(name: &str, inputs: &[&str], nodes: &[Message], outputs: &[&str]) -> Message {
    let function = Message::default().bytes(1, name).all(4, inputs).all(5, outputs);
    function.all(7, nodes).bytes(9, opset("", 21)).bytes(9, opset("local", 1)).bytes(10, "local")
}

fn opset(domain: &str, version: i64) -> Message {
    Message::default().bytes(1, domain).int(2, version)
}

/// A model of opset 21.
pub fn model(graph: &Message) -> Message {
    let model = Message::default().int(1, 10).bytes(2, "tests").bytes(7, graph);
    model.bytes(8, opset("", 21)).bytes(8, opset("local", 1))
}

/// A model with functions.
pub fn model_with(graph: &Message, functions: &[Message]) -> Message {
    model(graph).all(25, functions)
}
