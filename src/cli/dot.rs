//! A graph in Graphviz's language, for drawings; never parsed back.

use membar::Graph;
use membar::ir::graph::NodeKind;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The drawing: inputs and weights as boxes, operators as ellipses, types on the edges.
pub fn dot(graph: &Graph) -> String {
    let order = graph.order();
    let number: BTreeMap<_, _> = order.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let mut text = format!("digraph {} {{\n  rankdir = TB;\n", quoted(&graph.name));
    for id in &order {
        let node = graph.node(*id);
        let name = node.outputs().first().and_then(|v| graph.value(*v).name.as_deref());
        let (label, shape) = match &node.kind {
            NodeKind::Input => (name.unwrap_or("input").to_string(), "box"),
            NodeKind::Weight(_) => (name.unwrap_or("weight").to_string(), "note"),
            NodeKind::Op(op) => (op.mnemonic().to_string(), "ellipse"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  n{} [label={}, shape={shape}];", number[id], quoted(&label));
        for operand in node.operands() {
            let value = graph.value(*operand);
            let (from, to) = (number[&value.producer()], number[id]);
            let label = quoted(&value.ty.to_string());
            let _ = writeln!(text, "  n{from} -> n{to} [label={label}];");
        }
    }
    for (index, output) in graph.outputs().iter().enumerate() {
        let from = number[&graph.value(output.value).producer()];
        let label = quoted(&output.name);
        let _ = writeln!(text, "  out{index} [label={label}, shape=box];");
        let _ = writeln!(text, "  n{from} -> out{index};");
    }
    text + "}\n"
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
