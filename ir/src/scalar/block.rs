//! Evaluation of scalar expressions over blocks of elements, in f32 and truth values alone; never
//! another result than `evaluate` gives one by one, whose functions it shares.

use super::evaluate::{float_binary_f32, float_unary_f32, holds, truth_binary};
use super::{Binary, Expr, Unary};
use crate::dtype::DType;
use crate::element::Number;

/// Elements of one operand or result.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Floats, in their compute type f32.
    Floats(Vec<f32>),
    /// Truth values.
    Truths(Vec<bool>),
}

/// A constant has no type before it meets an operand.
enum Value {
    Block(Block),
    Constant(Number),
}

/// The values of an expression for a block of elements, not yet rounded to the result's type;
/// `None` if it needs other types than f32 and bool, or has no operand.
pub fn evaluate_block(expr: &Expr, operands: &[Block]) -> Option<Block> {
    match value(expr, operands)? {
        Value::Block(block) => Some(block),
        Value::Constant(_) => None,
    }
}

fn value(expr: &Expr, operands: &[Block]) -> Option<Value> {
    let go = |e: &Expr| value(e, operands);
    let block = match expr {
        Expr::Operand(i) => operands.get(usize::from(*i))?.clone(),
        Expr::Constant(x) => return Some(Value::Constant(Number::Float(x.0))),
        Expr::Integer(x) => return Some(Value::Constant(Number::Signed(*x))),
        Expr::Greatest(_) | Expr::Least(_) => return None,
        Expr::Unary(function, a) => match (function, go(a)?) {
            (Unary::Not, Value::Block(Block::Truths(a))) => {
                Block::Truths(a.into_iter().map(|x| !x).collect())
            }
            (Unary::IsNan, Value::Block(Block::Floats(a))) => {
                Block::Truths(a.into_iter().map(f32::is_nan).collect())
            }
            (Unary::IsInf, Value::Block(Block::Floats(a))) => {
                Block::Truths(a.into_iter().map(f32::is_infinite).collect())
            }
            (Unary::Not | Unary::BitNot, _) => return None,
            (function, Value::Block(Block::Floats(mut a))) => {
                a.iter_mut().for_each(|x| *x = float_unary_f32(*function, *x));
                Block::Floats(a)
            }
            _ => return None,
        },
        Expr::Binary(function, a, b) => match unify(go(a)?, go(b)?)? {
            (Block::Floats(a), Block::Floats(b)) if function.is_comparison() => {
                let pairs = a.iter().zip(&b);
                Block::Truths(pairs.map(|(x, y)| holds(*function, x.partial_cmp(y))).collect())
            }
            (Block::Floats(mut a), Block::Floats(b)) => {
                for (x, y) in a.iter_mut().zip(&b) {
                    *x = float_binary_f32(*function, *x, *y);
                }
                Block::Floats(a)
            }
            (Block::Truths(a), Block::Truths(b)) => {
                Block::Truths(a.iter().zip(&b).map(|(x, y)| truths(*function, *x, *y)).collect())
            }
            _ => return None,
        },
        Expr::Select(condition, a, b) => {
            let Value::Block(Block::Truths(condition)) = go(condition)? else {
                return None;
            };
            match unify(go(a)?, go(b)?)? {
                (Block::Floats(a), Block::Floats(b)) => Block::Floats(choose(condition, a, b)),
                (Block::Truths(a), Block::Truths(b)) => Block::Truths(choose(condition, a, b)),
                _ => return None,
            }
        }
        Expr::Cast { to, saturate, value } => match (go(value)?, to) {
            (Value::Block(Block::Floats(a)), DType::Bool) => {
                Block::Truths(a.into_iter().map(|x| x != 0.0).collect())
            }
            (Value::Block(Block::Truths(a)), to) if to.compute() == DType::F32 => {
                Block::Floats(a.into_iter().map(|x| f32::from(u8::from(x))).collect())
            }
            (Value::Block(Block::Floats(mut a)), to) if to.compute() == DType::F32 => {
                let round = |x: f32| Number::Float(x.into()).round_to(*to, *saturate).to_float();
                if *to != DType::F32 {
                    a.iter_mut().for_each(|x| *x = round(*x) as f32);
                }
                Block::Floats(a)
            }
            _ => return None,
        },
    };
    Some(Value::Block(block))
}

fn truths(function: Binary, x: bool, y: bool) -> bool {
    if function.is_comparison() {
        holds(function, Some(x.cmp(&y)))
    } else {
        truth_binary(function, x, y)
    }
}

fn choose<T>(condition: Vec<bool>, a: Vec<T>, b: Vec<T>) -> Vec<T> {
    condition
        .into_iter()
        .zip(a.into_iter().zip(b))
        .map(|(c, (a, b))| if c { a } else { b })
        .collect()
}

/// Both as blocks: a constant takes the type of the other; two constants are left to the slow way.
fn unify(a: Value, b: Value) -> Option<(Block, Block)> {
    let like = |number: Number, block: &Block| match block {
        Block::Floats(x) => Block::Floats(vec![number.to_float() as f32; x.len()]),
        Block::Truths(x) => Block::Truths(vec![number.to_bool(); x.len()]),
    };
    match (a, b) {
        (Value::Block(a), Value::Block(b)) => Some((a, b)),
        (Value::Block(a), Value::Constant(b)) => {
            let b = like(b, &a);
            Some((a, b))
        }
        (Value::Constant(a), Value::Block(b)) => Some((like(a, &b), b)),
        (Value::Constant(_), Value::Constant(_)) => None,
    }
}
