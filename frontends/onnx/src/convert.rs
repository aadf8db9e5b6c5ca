//! From protobuf messages to the structures of `model`. Nothing is resolved here that needs more
//! than one node: names, order and functions come afterwards.

use crate::attributes::AttributeValue;
use crate::dims::DimDef;
use crate::element::ElementType;
use crate::error::{AttributeProblem, ImportError};
use crate::functions::{FunctionKey, Functions, Reference, inline};
use crate::model::{GraphDef, Model, NodeDef, ValueInfo, ValueType};
use crate::names::unique_node_names;
use crate::order::check_and_order;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TypeProto,
    ValueInfoProto, tensor_shape_proto, type_proto,
};
use crate::source::Source;
use crate::tensors;
use prost::Message;
use std::collections::BTreeMap;

/// How deep functions and subgraphs may be nested, together.
pub(crate) const NESTING_LIMIT: usize = 64;

/// Versions of the default operator set that the importer knows.
const ONNX_OPSETS: std::ops::RangeInclusive<i64> = 7..=28;

/// Decodes, converts, inlines and checks a whole model.
pub(crate) fn model(mut source: Source) -> Result<Model, ImportError> {
    let proto = ModelProto::decode(source.bytes().clone())
        .map_err(|error| ImportError::Decode { reason: error.to_string() })?;
    let graph_proto = proto.graph.ok_or(ImportError::NoGraph)?;
    let opsets = opsets(&proto.opset_import, "the model")?;
    let functions = Functions::new(proto.functions, &opsets)?;
    let mut cx = Scope { opsets: &opsets, functions: &functions, source: &mut source, body: false };
    let mut graph = graph(graph_proto, &mut cx, 0)?;
    unique_node_names(&mut graph);
    let mut graph = inline(graph, &functions, &mut source)?;
    unique_node_names(&mut graph);
    check_and_order(&mut graph)?;

    let text = |text: Option<String>| text.unwrap_or_default();
    let producer = format!("{} {}", text(proto.producer_name), text(proto.producer_version));
    let metadata = proto.metadata_props.into_iter();
    Ok(Model {
        ir_version: proto.ir_version.unwrap_or(0),
        producer: producer.trim().to_owned(),
        metadata: metadata.map(|entry| (text(entry.key), text(entry.value))).collect(),
        opsets,
        graph,
        source,
    })
}

/// What surrounds a node that is being converted.
pub(crate) struct Scope<'a> {
    pub(crate) opsets: &'a BTreeMap<String, i64>,
    pub(crate) functions: &'a Functions,
    pub(crate) source: &'a mut Source,
    /// Whether this is a function's body, where attributes may be references.
    pub(crate) body: bool,
}

/// Versions by normalised domain, each in the supported range.
pub(crate) fn opsets(
    imports: &[OperatorSetIdProto],
    place: &str,
) -> Result<BTreeMap<String, i64>, ImportError> {
    let mut opsets = BTreeMap::new();
    for import in imports {
        let domain = normalised(import.domain());
        let version = import.version();
        let supported = match domain {
            "" => ONNX_OPSETS,
            "com.microsoft" => 1..=1,
            _ => i64::MIN..=i64::MAX,
        };
        if !supported.contains(&version) {
            return Err(ImportError::UnsupportedOpset {
                place: place.to_owned(),
                domain: domain.to_owned(),
                version,
                supported: if supported.start() == supported.end() {
                    supported.start().to_string()
                } else {
                    format!("{} to {}", supported.start(), supported.end())
                },
            });
        }
        if let Some(first) = opsets.insert(domain.to_owned(), version)
            && first != version
        {
            return Err(ImportError::ConflictingOpsets {
                place: place.to_owned(),
                domain: domain.to_owned(),
                first,
                second: version,
            });
        }
    }
    Ok(opsets)
}

/// `ai.onnx` and the empty string are the same domain.
pub(crate) fn normalised(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn graph(proto: GraphProto, cx: &mut Scope<'_>, depth: usize) -> Result<GraphDef, ImportError> {
    let name = proto.name.unwrap_or_default();
    if depth > NESTING_LIMIT {
        return Err(ImportError::TooDeep {
            place: format!("graph `{name}`"),
            limit: NESTING_LIMIT,
        });
    }
    if let Some(sparse) = proto.sparse_initializer.into_iter().next() {
        let tensor = sparse.values.and_then(|values| values.name).unwrap_or_default();
        return Err(ImportError::SparseInitializer { tensor });
    }
    let initializers = proto
        .initializer
        .into_iter()
        .map(|tensor| tensors::describe(tensor, String::new, cx.source))
        .collect::<Result<_, _>>()?;
    Ok(GraphDef {
        nodes: nodes(proto.node, cx, depth)?,
        inputs: proto.input.into_iter().map(value_info).collect(),
        outputs: proto.output.into_iter().map(value_info).collect(),
        value_infos: proto.value_info.into_iter().map(value_info).collect(),
        initializers,
        name,
    })
}

pub(crate) fn nodes(
    protos: Vec<NodeProto>,
    cx: &mut Scope<'_>,
    depth: usize,
) -> Result<Vec<NodeDef>, ImportError> {
    protos
        .into_iter()
        .enumerate()
        .map(|(position, proto)| node(proto, position, cx, depth))
        .collect()
}

fn node(
    proto: NodeProto,
    position: usize,
    cx: &mut Scope<'_>,
    depth: usize,
) -> Result<NodeDef, ImportError> {
    let op_type = proto.op_type.unwrap_or_default();
    let name = proto.name.filter(|name| !name.is_empty());
    let mut node = NodeDef {
        name: name.unwrap_or_else(|| format!("{op_type}_{position}")),
        op_type,
        domain: normalised(proto.domain.as_deref().unwrap_or("")).to_owned(),
        inputs: operands(proto.input),
        outputs: operands(proto.output),
        overload: proto.overload.unwrap_or_default(),
        ..NodeDef::default()
    };
    node.opset = match cx.opsets.get(&node.domain) {
        Some(version) => *version,
        None if cx.functions.contains(&FunctionKey::of_call(&node)) => 0,
        None => {
            return Err(ImportError::MissingOpset {
                node: node.name,
                op: node.op_type,
                domain: node.domain,
            });
        }
    };
    for attribute in proto.attribute {
        let name = attribute.name().to_owned();
        if node.attributes.contains_key(&name) || node.references.contains_key(&name) {
            return Err(node.attribute_error(&name, AttributeProblem::Duplicate));
        }
        if attribute.ref_attr_name().is_empty() {
            let value = self::attribute(attribute, &node, cx, depth)?;
            node.attributes.insert(name, value);
            continue;
        }
        let target = attribute.ref_attr_name().to_owned();
        if !cx.body {
            let problem = AttributeProblem::ReferenceOutsideFunction { target };
            return Err(node.attribute_error(&name, problem));
        }
        node.references.insert(name, Reference { target });
    }
    Ok(node)
}

/// Empty names are operands left out; trailing ones say nothing.
fn operands(names: Vec<String>) -> Vec<Option<String>> {
    let mut operands: Vec<Option<String>> =
        names.into_iter().map(|name| Some(name).filter(|name| !name.is_empty())).collect();
    while operands.last().is_some_and(Option::is_none) {
        operands.pop();
    }
    operands
}

pub(crate) fn attribute(
    proto: AttributeProto,
    node: &NodeDef,
    cx: &mut Scope<'_>,
    depth: usize,
) -> Result<AttributeValue, ImportError> {
    let name = proto.name().to_owned();
    let declared = proto.r#type.unwrap_or(0);
    let absent = || node.attribute_error(&name, AttributeProblem::Malformed { declared });
    let tensor_name = || format!("{}/{name}", node.name);
    Ok(match AttributeType::try_from(declared).map(|kind| effective(kind, &proto)) {
        // A writer of proto3 leaves out a value of 0, so an absent scalar is that.
        Ok(AttributeType::Float) => AttributeValue::Float(proto.f.unwrap_or(0.0)),
        Ok(AttributeType::Int) => AttributeValue::Int(proto.i.unwrap_or(0)),
        Ok(AttributeType::String) => AttributeValue::String(proto.s.unwrap_or_default()),
        Ok(AttributeType::Tensor) => {
            let tensor = proto.t.ok_or_else(absent)?;
            AttributeValue::Tensor(tensors::describe(tensor, tensor_name, cx.source)?)
        }
        Ok(AttributeType::Graph) => {
            let subgraph = proto.g.ok_or_else(absent)?;
            AttributeValue::Graph(Box::new(graph(subgraph, cx, depth + 1)?))
        }
        Ok(AttributeType::Floats) => AttributeValue::Floats(proto.floats),
        Ok(AttributeType::Ints) => AttributeValue::Ints(proto.ints),
        Ok(AttributeType::Strings) => AttributeValue::Strings(proto.strings),
        Ok(AttributeType::Tensors) => {
            let tensors = proto.tensors.into_iter();
            let tensors = tensors.map(|tensor| tensors::describe(tensor, tensor_name, cx.source));
            AttributeValue::Tensors(tensors.collect::<Result<_, _>>()?)
        }
        Ok(AttributeType::Graphs) => {
            let graphs = proto.graphs.into_iter();
            let graphs = graphs.map(|subgraph| graph(subgraph, cx, depth + 1));
            AttributeValue::Graphs(graphs.collect::<Result<_, _>>()?)
        }
        Ok(AttributeType::SparseTensor) => AttributeValue::Unsupported("a sparse tensor"),
        Ok(AttributeType::SparseTensors) => AttributeValue::Unsupported("a list of sparse tensors"),
        Ok(AttributeType::TypeProto) => AttributeValue::Unsupported("a type"),
        Ok(AttributeType::TypeProtos) => AttributeValue::Unsupported("a list of types"),
        Ok(AttributeType::Undefined) => AttributeValue::Unsupported("without a value"),
        Err(_) => AttributeValue::Unsupported("of a type that ONNX did not define yet"),
    })
}

/// Files older than IR version 2 have no declared type; there the field in use tells it.
fn effective(declared: AttributeType, proto: &AttributeProto) -> AttributeType {
    if declared != AttributeType::Undefined {
        return declared;
    }
    [
        (AttributeType::Float, proto.f.is_some()),
        (AttributeType::Int, proto.i.is_some()),
        (AttributeType::String, proto.s.is_some()),
        (AttributeType::Tensor, proto.t.is_some()),
        (AttributeType::Graph, proto.g.is_some()),
        (AttributeType::Floats, !proto.floats.is_empty()),
        (AttributeType::Ints, !proto.ints.is_empty()),
        (AttributeType::Strings, !proto.strings.is_empty()),
        (AttributeType::Tensors, !proto.tensors.is_empty()),
        (AttributeType::Graphs, !proto.graphs.is_empty()),
    ]
    .into_iter()
    .find_map(|(kind, used)| used.then_some(kind))
    .unwrap_or(AttributeType::Undefined)
}

fn value_info(proto: ValueInfoProto) -> ValueInfo {
    ValueInfo {
        name: proto.name.unwrap_or_default(),
        value_type: proto.r#type.map_or(ValueType::Unknown, value_type),
    }
}

fn value_type(proto: TypeProto) -> ValueType {
    use type_proto::Value;
    match proto.value {
        None => ValueType::Unknown,
        Some(Value::TensorType(tensor)) => ValueType::Tensor {
            element_type: ElementType::from_onnx(tensor.elem_type.unwrap_or(0)),
            dims: tensor.shape.map(|shape| shape.dim.into_iter().map(dimension).collect()),
        },
        Some(Value::SequenceType(_)) => ValueType::Other("a sequence"),
        Some(Value::MapType(_)) => ValueType::Other("a map"),
        Some(Value::OptionalType(_)) => ValueType::Other("an optional value"),
        Some(Value::SparseTensorType(_)) => ValueType::Other("a sparse tensor"),
        Some(Value::OpaqueType(_)) => ValueType::Other("an opaque value"),
    }
}

fn dimension(proto: tensor_shape_proto::Dimension) -> DimDef {
    use tensor_shape_proto::dimension::Value;
    match proto.value {
        Some(Value::DimValue(extent)) if extent >= 0 => DimDef::Known(extent),
        // Some exporters name every dimension that they do not know `?` or `None`: no name at all.
        Some(Value::DimParam(text)) if !matches!(text.trim(), "" | "?" | "None") => {
            DimDef::Param(text)
        }
        Some(Value::DimValue(_) | Value::DimParam(_)) | None => DimDef::Unknown,
    }
}

#[cfg(test)]
mod tests;
