//! Tests of the text form as a whole: canonical texts, names, errors, damaged texts.

use super::{check_laws, parse};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Number;
use crate::graph::Graph;
use crate::ops::Scalar;
use crate::recipe::Recipe;
use crate::tensor::Tensor;
use crate::types::{ConcreteType, TensorType};

const CANONICAL: &[&str] = &[
    r#"ir 1 stage tensor
graph @empty() {
  return
}
"#,
    r#"ir 1 stage tensor
graph @mlp(%x: f32[B, 512]) where B in 1..=64 {
  %w = weight transpose(file "up.weight" offset 4K : f16[2048, 512]) {perm = [1, 0]} : f16[512, 2048]
  %wide = weight cast(concat(file "a" : f16[4], random seed 7 stream 18446744073709551615 normal(0.02) : f16[4]) {axis = 0} : f16[8]) {to = f32, saturate = false} : f32[8]
  %ones = weight random seed 1 stream 0 constant(1.0) : f32[2048]
  %0 = matmul %x, %w {acc = f32, result = f32} : f32[B, 2048]
  %a = gelu %0 {form = tanh} : f32[B, 2048] from "ffn/gelu", "ffn/\"odd\"\u{a}"
  return logits = %a
}
"#,
    r#"ir 1 stage tensor
graph @"any name, 漢 字"(
  %"past key": f16[B, 8, P, 64] from "past",
  %x: i64[B, S]
) where B in 1..=4, P in 0..=2047, S in 1.., "odd symbol" in -3..=3 {
  state %"past key" -> "present key" {axis = 2, length = P, capacity = 2048}
  state %x -> y
  %v, %i = top_k %x {axis = 1, k = 2, largest = true} : i64[B, 2], i64[B, 2]
  %y = neg %v : i64[B, 2]
  %y#1 = neg %y : i64[B, 2]
  %y#2 = add %y, %y#1 : i64[B, 2]
  %rows = iota {shape = [2*B*S + P - 1, max(S, "odd symbol")], axis = 0, dtype = i64} : i64[2*B*S + P - 1, max(S, "odd symbol")]
  return
    "present key" = %"past key",
    y = %y#2,
    again = %y#2,
    %i
}
"#,
    r#"ir 1 stage tensor
graph @literals() {
  %0 = weight 0.1 : f32[]
  %1 = weight [1.0, -0.0, inf, -inf] : f16[4]
  %2 = weight [] : i64[0, 3]
  %3 = weight [-9223372036854775808, 9223372036854775807] : i64[2]
  %4 = weight [18446744073709551615] : u64[1]
  %5 = weight [true, false, true] : bool[3]
  %6 = weight [-8, 7, 0] : i4[3]
  %7 = weight nan(0x7ff8000000000000) : f64[]
  %8 = weight base64 "AQCAfw==" : f32[]
  %9 = weight [1e-45, 3.4028235e38, 16777217.0] : f64[3]
  %10 = weight base64 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g" : u8[33]
  return
}
"#,
    r#"ir 1 stage placed ordered topology "h200x2"
graph @copies(%x: f32[4] @gpu0.hbm on gpu0) {
  %y = neg %x : f32[4] @gpu0.hbm on gpu0
  %z = neg %x : f32[4] @gpu1.hbm on gpu1 from "z"
  return %y
}
"#,
    r#"ir 1 stage scheduled topology "h200"
graph @mlp(%x: f16[B, 512] @gpu0.hbm in $0[0..64K] on gpu0) where B in 1..=64 {
  buffer $0 = 448K @gpu0.hbm
  buffer $2 = 17 @cpu0.dram
  %w = weight file "up.weight" : f16[512, 2048] @gpu0.hbm on gpu0
  %h = matmul %x, %w {acc = f32, result = f16} : f16[B, 2048] @gpu0.hbm in $0[64K..320K] on gpu0 workspace $2[0..17]
  %a = gelu %h {form = tanh} : f16[B, 2048] @gpu0.hbm in $0[64K..65K; 4 by 2K, 16 by 128] capacity [64, 2048] on gpu0
  order %h -> %a raw $0[64K..320K], war $0[64K..320K] by programmatic
  order %x -> %a linearise by sequence
  order %x -> %h by edge
  return %a
}
"#,
];

#[test]
fn canonical_texts_print_as_themselves() {
    for text in CANONICAL {
        match parse(text) {
            Ok(graph) => {
                assert_eq!(&graph.to_string(), text);
                assert_eq!(check_laws(&graph), Ok(()));
            }
            Err(error) => panic!("{error}\n{text}"),
        }
    }
}

#[test]
fn other_spellings_mean_the_same() {
    let odd = "ir 1 stage tensor // comment\ngraph@g(%x:f32[ ])where S in 0..{%\"y\"=neg %x:\n\
               f32[]%z#7=add %y,%q:f32[] %q=neg %x : f32[] return%y,w=%z#7}//end";
    let canonical = "ir 1 stage tensor\ngraph @g(%x: f32[]) where S in 0.. {\n  \
                     %y = neg %x : f32[]\n  %q = neg %x : f32[]\n  %z = add %y, %q : f32[]\n  \
                     return\n    %y,\n    w = %z\n}\n";
    assert_eq!(parse(odd).map(|g| g.to_string()).as_deref(), Ok(canonical));
}

#[test]
fn errors_name_the_place_and_what_is_expected() {
    let body = |body: &str| format!("ir 1 stage tensor\ngraph @g(%x: f32[4]) {{\n{body}\n}}\n");
    let header = |header: &str| format!("{header}\ngraph @g() {{\n  return\n}}\n");
    for (text, expected) in [
        ("".to_string(), "1:1: expected `ir`, found the end of the text"),
        (header("ir 2 stage tensor"), "1:4: expected version 1 of the text form, found `2`"),
        (
            header("ir 1 stage lost"),
            "1:12: expected `tensor` or `placed` or `scheduled`, found `lost`",
        ),
        (
            header("ir 1 stage placed topology \"moon\""),
            "1:28: expected the name of the machine given, or one of h200, h200x2, h200x4, h200x8, \
             h100, a100, cpu, found `\"moon`",
        ),
        (
            body("  %y = neg %z : f32[4]\n  return"),
            "3:12: expected a value that a line defines, found `%z`",
        ),
        (
            body("  %x = neg %x : f32[4]\n  return"),
            "3:3: expected a value not defined before, found `%x`",
        ),
        (
            body("  %y = nag %x : f32[4]\n  return"),
            "3:8: expected `weight` or the name of an operator, found `nag`",
        ),
        (
            body("  %y = gelu %x {shape = tanh} : f32[4]\n  return"),
            "3:17: expected attribute `form`, found `shape`",
        ),
        (body("  %y, %z = neg %x : f32[4]\n  return"), "4:3: expected `,`, found `return`"),
        (
            body("  %y = neg %x : f32[4] @gpu0.hbm\n  return"),
            "3:25: expected no memory, since the first line names no topology, found `gpu0`",
        ),
        (
            body("  %y = weight [1, 2] : f32[3]\n  return"),
            "3:24: expected a type that the elements before it have as many values of, each in range \
             (`f32[3]` is not), found `f32`",
        ),
        (
            body("  %y = weight 300 : u8[]\n  return"),
            "3:21: expected a type that the elements before it have as many values of, each in range \
             (`u8[]` is not), found `u8`",
        ),
        (body("  return %0"), "3:10: expected a value that a line defines, found `%0`"),
        (
            body("  %0 = neg %x : f32[4]\n  return %0"),
            "4:10: expected a name before a value that has none: `name = %0`, found `%0`",
        ),
        (body("  return %x,"), "4:1: expected a word, found `}`"),
        (body("  return %x } x"), "3:15: expected the end of the text, found `x`"),
        (
            body("  buffer $0 = 4 @cpu\n  return"),
            "3:18: expected no memory, since the first line names no topology, found `cpu`",
        ),
    ] {
        match parse(&text) {
            Ok(graph) => panic!("parsed:\n{text}as\n{graph}"),
            Err(error) => assert_eq!(error.to_string(), expected, "{text}"),
        }
    }
}

#[test]
fn nesting_is_limited() {
    let recipe = format!("{}1.0 : f32[]{}", "neg(".repeat(5000), ") : f32[]".repeat(5000));
    let text =
        format!("ir 1 stage tensor\ngraph @g() {{\n  %w = weight {recipe} : f32[]\n  return\n}}\n");
    let error = parse(&text).map(|_| ()).map_err(|error| error.expected);
    assert_eq!(error, Err("nesting of at most 64 levels".to_string()));
}

#[test]
fn numbers_in_the_text_decide_no_allocation() {
    for literal in ["base64 \"AAAA\"", "1.0", "[1.0]"] {
        let text = format!(
            "ir 1 stage tensor\ngraph @g() {{\n  %w = weight {literal} : f32[1000000, 1000000]\n  return\n}}\n"
        );
        assert!(parse(&text).is_err());
    }
}

/// Truncations, flipped bits, deletions and doublings: an error or another graph, which holds the
/// laws unless it was wrong to begin with; never a panic.
#[test]
fn damaged_texts_never_panic() {
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % bound.max(1) as u64) as usize
    };
    let mut parsed = 0;
    for text in CANONICAL {
        for _ in 0..400 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=next(2) {
                let at = next(bytes.len());
                match next(4) {
                    0 => bytes.truncate(at),
                    1 if !bytes.is_empty() => bytes[at] ^= 1 << next(7),
                    2 => drop(bytes.drain(at..(at + next(6)).min(bytes.len()))),
                    _ => {
                        let piece = bytes[at..(at + next(12)).min(bytes.len())].to_vec();
                        let to = next(bytes.len());
                        drop(bytes.splice(to..to, piece));
                    }
                }
            }
            let damaged = String::from_utf8_lossy(&bytes);
            if let Ok(graph) = parse(&damaged) {
                parsed += 1;
                if let Err(error) = check_laws(&graph) {
                    panic!("{error}\nfrom\n{damaged}");
                }
            }
        }
    }
    assert!(parsed > 100, "{parsed}");
}

#[test]
fn every_literal_reads_back_to_the_bit() {
    for dtype in DType::ALL {
        let Ok(ty) = ConcreteType::new(dtype, vec![3, 3]) else { unreachable!() };
        let bytes: Vec<u8> = (0..ty.byte_len()).map(|i| (i * 89 + 37) as u8).collect();
        let Ok(raw) = Tensor::from_bytes(ty.clone(), &bytes) else { unreachable!() };
        let values = [0.1, -1.0, 2.5, 1e-3, 100.0, 7.0, 0.0, -0.0, f64::NAN];
        let numbers = values.into_iter().map(Number::Float);
        let Ok(rounded) = Tensor::from_numbers(ty, numbers) else { unreachable!() };
        let mut graph = Graph::new("literals");
        graph.add_weight(None, Recipe::literal(raw));
        graph.add_weight(None, Recipe::literal(rounded));
        assert_eq!(check_laws(&graph), Ok(()));
    }
}

#[test]
fn names_are_kept_whatever_they_are() {
    let names =
        ["x", "x", "x#1", "", "0", "a..b", "a.", ".a", "floordiv", "\u{1b}\"\\", "x", "é", "in"];
    let mut graph = Graph::new("a..b");
    let ty = TensorType::new(DType::F32, vec![Dim::symbol("S.")]);
    let x = graph.add_input("in put", ty);
    for name in names {
        let Ok(y) = graph.apply(Scalar::Neg, &[x]) else { unreachable!() };
        graph.set_name(y, name);
        let Ok(z) = graph.apply(Scalar::Neg, &[x]) else { unreachable!() };
        let node = graph.value(z).producer();
        graph.node_mut(node).origin = vec![name.into()];
    }
    let values: Vec<_> = graph.values().collect();
    graph.set_outputs(names.into_iter().zip(values));
    assert_eq!(check_laws(&graph), Ok(()));
}
