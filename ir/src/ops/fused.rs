//! `fused`: its attributes, inference and meaning; nothing of any other operator.

use super::Op;
use crate::attribute::{Attribute, Float};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Number;
use crate::graph::{Graph, ValueId};
use crate::op::{Meaning, OpDef, TypeError};
use crate::operator;
use crate::recipe::Recipe;
use crate::tensor::Tensor;
use crate::text::{Cursor, SyntaxError};
use crate::types::{ConcreteType, TensorType};
use std::fmt;

operator! {
    /// Several operators that one kernel computes: `body = [matmul(x0, x1) {…}, add(p0, x2)]`.
    ///
    /// Operands: `x0`, `x1`, … of the parts; result: that of the last part. Values inside a group
    /// need not be rounded to their element types.
    Fused {
        /// The operators, each behind those whose results it reads.
        body: Vec<Part>,
    }
}

/// An operator of a group, with what it reads. It has one result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// The operator.
    pub op: Op,
    /// Where its operands come from.
    pub operands: Vec<PartOperand>,
}

/// Where an operand of a part of a group comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartOperand {
    /// The group's operand of that position: `x3`.
    Operand(u32),
    /// The result of that part: `p3`.
    Part(u32),
    /// A float scalar: `f32 0.125`.
    Scalar(DType, Float),
}

impl Attribute for Part {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.op.mnemonic())?;
        for (i, operand) in self.operands.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match operand {
                PartOperand::Operand(position) => write!(f, "x{position}")?,
                PartOperand::Part(position) => write!(f, "p{position}")?,
                PartOperand::Scalar(dtype, value) => {
                    write!(f, "{dtype} ")?;
                    value.print(f)?;
                }
            }
        }
        write!(f, "){}", self.op.attributes())
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Part, SyntaxError> {
        cursor.nested(|cursor| {
            let mnemonic = cursor.word()?;
            let operands = cursor.list('(', ')', parse_operand)?;
            let op = Op::parse(mnemonic, cursor)
                .unwrap_or_else(|| Err(cursor.error("the name of an operator")))?;
            Ok(Part { op, operands })
        })
    }

    fn visit_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
        self.op.visit_dims(visit);
    }
}

fn parse_operand(cursor: &mut Cursor<'_>) -> Result<PartOperand, SyntaxError> {
    let start = cursor.save();
    let word = cursor.word()?;
    for (letter, make) in [
        ('x', PartOperand::Operand as fn(u32) -> PartOperand),
        ('p', PartOperand::Part as fn(u32) -> PartOperand),
    ] {
        let number = word.strip_prefix(letter);
        // One spelling a number: no leading zeros.
        let canonical = number.filter(|n| *n == "0" || !n.starts_with('0'));
        if let Some(Ok(number)) = canonical.map(str::parse) {
            return Ok(make(number));
        }
    }
    cursor.restore(start);
    let dtype = cursor.dtype()?;
    cursor.float().map(|value| PartOperand::Scalar(dtype, Float(value)))
}

impl Fused {
    /// The types of the parts' results.
    ///
    /// # Errors
    /// A part reads what is not there or comes later, its operator does not take what it reads, or
    /// it has several results.
    pub fn part_types(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let mut types: Vec<TensorType> = Vec::with_capacity(self.body.len());
        for (number, part) in self.body.iter().enumerate() {
            let mut read = Vec::with_capacity(part.operands.len());
            for operand in &part.operands {
                read.push(match operand {
                    PartOperand::Operand(i) => operands.get(*i as usize).cloned(),
                    PartOperand::Part(i) => types.get(*i as usize).cloned(),
                    PartOperand::Scalar(dtype, _) if dtype.is_float() => {
                        Some(TensorType::new(*dtype, Vec::new()))
                    }
                    PartOperand::Scalar(..) => None,
                });
            }
            let read: Option<Vec<TensorType>> = read.into_iter().collect();
            let read = read.ok_or_else(|| {
                TypeError::invalid(format!("part {number} reads what is not there"))
            })?;
            let results = part.op.infer(&read)?;
            let [result] = results.as_slice() else {
                return Err(TypeError::invalid(format!("part {number} has several results")));
            };
            types.push(result.clone());
        }
        Ok(types)
    }

    /// The group as a graph of its parts.
    ///
    /// # Errors
    /// As [`Fused::part_types`].
    pub fn build(
        &self,
        graph: &mut Graph,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, TypeError> {
        let mut parts: Vec<ValueId> = Vec::with_capacity(self.body.len());
        for part in &self.body {
            let mut read = Vec::with_capacity(part.operands.len());
            for operand in &part.operands {
                let missing = || TypeError::invalid("a part reads what is not there");
                read.push(match operand {
                    PartOperand::Operand(i) => {
                        operands.get(*i as usize).copied().ok_or_else(missing)?
                    }
                    PartOperand::Part(i) => parts.get(*i as usize).copied().ok_or_else(missing)?,
                    PartOperand::Scalar(dtype, value) => {
                        let ty = ConcreteType::new(*dtype, Vec::new());
                        let number = [Number::Float(value.0)];
                        let tensor = ty.ok().and_then(|ty| Tensor::from_numbers(ty, number).ok());
                        graph.add_weight(None, Recipe::literal(tensor.ok_or_else(missing)?))
                    }
                });
            }
            parts.push(graph.apply(part.op.clone(), &read)?);
        }
        Ok(parts.last().copied().into_iter().collect())
    }
}

impl OpDef for Fused {
    const MNEMONIC: &'static str = "fused";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let types = self.part_types(operands)?;
        let result = types.last().cloned();
        Ok(vec![result.ok_or_else(|| TypeError::invalid("a group without parts"))?])
    }

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| self.build(graph, inputs))
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        let Ok(types) = self.part_types(operands) else { return Dim::ZERO };
        let mut total = Dim::ZERO;
        for (part, result) in self.body.iter().zip(&types) {
            let read: Vec<TensorType> = part
                .operands
                .iter()
                .filter_map(|operand| match operand {
                    PartOperand::Operand(i) => operands.get(*i as usize).cloned(),
                    PartOperand::Part(i) => types.get(*i as usize).cloned(),
                    PartOperand::Scalar(dtype, _) => Some(TensorType::new(*dtype, Vec::new())),
                })
                .collect();
            total = total + part.op.operations(&read, std::slice::from_ref(result));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, evaluate_one, symbolic};

    fn parse(text: &str) -> Fused {
        match Op::parse("fused", &mut Cursor::new(text)) {
            Some(Ok(Op::Fused(op))) => op,
            other => panic!("{text}: {other:?}"),
        }
    }

    const BODY: &str = "{body = [matmul(x0, x1) {acc = f32, result = f32}, mul(p0, f32 0.5), \
                        add(p1, x2), gelu(p2) {form = tanh}]}";

    #[test]
    fn a_group_is_its_parts_one_after_another() {
        let op = parse(BODY);
        assert_eq!(Op::from(op.clone()).to_string(), format!("fused {BODY}"));
        let mut random = Random::new(5);
        let [x, w, b] = [&[3, 5][..], &[5, 7], &[7]].map(|s| random.tensor(DType::F32, s));
        let product = evaluate_one(
            super::super::Matmul { acc: DType::F32, result: DType::F32 },
            &[x.clone(), w.clone()],
        );
        let half = Tensor::from_elements(&[], &[0.5f32]).unwrap_or_else(|e| panic!("{e}"));
        let scaled = evaluate_one(super::super::Scalar::Mul, &[product, half]);
        let sum = evaluate_one(super::super::Scalar::Add, &[scaled, b.clone()]);
        let form = super::super::GeluForm::Tanh;
        let expected = evaluate_one(super::super::Scalar::Gelu { form }, &[sum]);
        assert_close(&evaluate_one(op, &[x, w, b]), &expected, 5);
    }

    #[test]
    fn parts_read_only_what_is_there() {
        let ty = symbolic(DType::F32, &["N"]);
        for text in [
            "{body = []}",
            "{body = [neg(x1)]}",
            "{body = [neg(p0)]}",
            "{body = [add(x0, i32 1.0)]}",
            "{body = [top_k(x0) {axis = 0, k = 1, largest = true}]}",
        ] {
            assert!(parse(text).infer(std::slice::from_ref(&ty)).is_err(), "{text}");
        }
    }
}
