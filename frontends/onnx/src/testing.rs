//! Models built in code, for the tests of this crate alone.

use crate::proto::attribute_proto::AttributeType;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto,
    tensor_shape_proto, type_proto,
};
use crate::{ImportError, Model};
use bytes::Bytes;
use prost::Message;

/// A model of the opset 21 with the given graph.
pub(crate) fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(10),
        producer_name: Some("tests".into()),
        opset_import: vec![opset("", 21)],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

pub(crate) fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) }
}

/// A graph without initializers; inputs and outputs are `f32[n, 3]`.
pub(crate) fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto {
        name: Some("main".into()),
        input: inputs.iter().map(|name| value(name)).collect(),
        output: outputs.iter().map(|name| value(name)).collect(),
        node: nodes,
        ..GraphProto::default()
    }
}

pub(crate) fn value(name: &str) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dims = [Value::DimParam("n".into()), Value::DimValue(3)];
    let dim = dims.map(|value| Dimension { value: Some(value), denotation: None }).to_vec();
    let tensor = type_proto::Tensor { elem_type: Some(1), shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            value: Some(type_proto::Value::TensorType(tensor)),
            denotation: None,
        }),
        ..ValueInfoProto::default()
    }
}

/// A node called `name`; empty strings are operands left out.
pub(crate) fn node(name: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        name: Some(name.into()),
        op_type: Some(op.into()),
        input: inputs.iter().map(|name| (*name).into()).collect(),
        output: outputs.iter().map(|name| (*name).into()).collect(),
        ..NodeProto::default()
    }
}

impl NodeProto {
    pub(crate) fn of(mut self, domain: &str) -> Self {
        self.domain = Some(domain.into());
        self
    }

    pub(crate) fn with(mut self, attribute: AttributeProto) -> Self {
        self.attribute.push(attribute);
        self
    }
}

pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..empty(name, AttributeType::Int) }
}

pub(crate) fn subgraph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), ..empty(name, AttributeType::Graph) }
}

pub(crate) fn reference(name: &str, target: &str) -> AttributeProto {
    AttributeProto { ref_attr_name: Some(target.into()), ..empty(name, AttributeType::Int) }
}

/// An attribute of a kind, without a value.
pub(crate) fn empty(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(kind.into()),
        ..AttributeProto::default()
    }
}

/// A function of the domain `local`.
pub(crate) fn function(
    name: &str,
    inputs: &[&str],
    nodes: Vec<NodeProto>,
    outputs: &[&str],
) -> FunctionProto {
    FunctionProto {
        name: Some(name.into()),
        domain: Some("local".into()),
        input: inputs.iter().map(|name| (*name).into()).collect(),
        output: outputs.iter().map(|name| (*name).into()).collect(),
        node: nodes,
        opset_import: vec![opset("", 18), opset("local", 1)],
        ..FunctionProto::default()
    }
}

/// A tensor without data.
pub(crate) fn tensor(name: &str, data_type: i32, dims: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(data_type),
        dims: dims.to_vec(),
        ..TensorProto::default()
    }
}

/// A tensor of floats in external data.
pub(crate) fn external(name: &str, dims: &[i64], entries: &[(&str, &str)]) -> TensorProto {
    let entry = |&(key, value): &(&str, &str)| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    };
    TensorProto {
        data_location: Some(1),
        external_data: entries.iter().map(entry).collect(),
        ..tensor(name, 1, dims)
    }
}

/// A model that only has these constants.
pub(crate) fn constants(tensors: Vec<TensorProto>) -> ModelProto {
    model(GraphProto { initializer: tensors, ..GraphProto::default() })
}

pub(crate) fn load(model: &ModelProto) -> Result<Model, ImportError> {
    Model::from_bytes(Bytes::from(model.encode_to_vec()), None)
}

/// The message of the error that loading gives.
pub(crate) fn error(model: &ModelProto) -> String {
    load(model).expect_err("the model is wrong").to_string()
}
