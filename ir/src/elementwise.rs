//! Reference evaluation of elementwise operators over tensors that broadcast; the functions
//! themselves are `scalar`'s, never here.

use crate::dtype::DType;
use crate::element::{Bool, Number};
use crate::interp::broadcast_strides;
use crate::op::ScalarMeaning;
use crate::scalar::{self, Block};
use crate::tensor::{Tensor, TensorError};
use crate::types::ConcreteType;

/// Elements evaluated at a time.
const BLOCK: usize = 4096;

/// The value of a scalar meaning for operands that broadcast to `ty`.
///
/// Where f32 and truth values suffice, whole blocks are evaluated at a time; else single elements.
///
/// # Errors
/// None that an operator accepted by inference can cause.
pub(crate) fn elementwise(
    meaning: &ScalarMeaning,
    operands: &[Tensor],
    ty: ConcreteType,
) -> Result<Tensor, TensorError> {
    let dtypes: Vec<DType> = operands.iter().map(Tensor::dtype).collect();
    let (shape, strides) = coalesce(operands, &ty.shape);
    let (run, outer) = shape.split_last().map_or((1, &shape[..]), |(run, outer)| (*run, outer));
    let steps: Vec<usize> =
        strides.iter().map(|strides| strides.last().copied().unwrap_or(0)).collect();
    let in_blocks = |dtype: &DType| dtype.compute() == DType::F32 || *dtype == DType::Bool;
    let mut blocks = !dtypes.is_empty() && dtypes.iter().all(in_blocks);
    let mut result = Tensor::try_zeros(ty)?;
    let mut index = vec![0usize; outer.len()];
    let mut elements = vec![Number::Bool(false); operands.len()];
    for row in 0..result.elements().checked_div(run).unwrap_or(0) {
        let offset = |strides: &Vec<usize>| index.iter().zip(strides).map(|(i, s)| i * s).sum();
        let starts: Vec<usize> = strides.iter().map(offset).collect();
        for first in (0..run).step_by(BLOCK) {
            let count = BLOCK.min(run - first);
            let position = row * run + first;
            let at = |operand: usize, i: usize| starts[operand] + (first + i) * steps[operand];
            if blocks {
                let loaded = operands
                    .iter()
                    .enumerate()
                    .map(|(o, operand)| load(operand, (0..count).map(|i| at(o, i))));
                let loaded: Vec<Block> = loaded.collect::<Result<_, _>>()?;
                match scalar::evaluate_block(&meaning.expr, &loaded) {
                    Some(block) => {
                        store(&mut result, position, &block)?;
                        continue;
                    }
                    None => blocks = false,
                }
            }
            for i in 0..count {
                for (o, (element, operand)) in elements.iter_mut().zip(operands).enumerate() {
                    *element = operand.get(at(o, i));
                }
                let value = scalar::evaluate(&meaning.expr, &elements, &dtypes, meaning.result);
                result.set(position + i, value);
            }
        }
        for axis in (0..outer.len()).rev() {
            index[axis] += 1;
            if index[axis] < outer[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(result)
}

/// The shape with as few dimensions as possible, and each operand's strides over it: neighbouring
/// dimensions join where every operand runs through them in one stride.
fn coalesce(operands: &[Tensor], shape: &[usize]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let all: Vec<Vec<usize>> =
        operands.iter().map(|operand| broadcast_strides(operand.shape(), shape)).collect();
    let mut joined: Vec<usize> = Vec::new();
    let mut strides: Vec<Vec<usize>> = vec![Vec::new(); operands.len()];
    for (axis, extent) in shape.iter().enumerate() {
        if *extent == 1 {
            continue;
        }
        let through = |(all, strides): (&Vec<usize>, &Vec<usize>)| {
            strides.last().is_some_and(|outer| *outer == all[axis] * extent)
        };
        if !joined.is_empty() && all.iter().zip(&strides).all(through) {
            if let Some(last) = joined.last_mut() {
                *last *= extent;
            }
            strides.iter_mut().for_each(|strides| {
                strides.pop();
            });
        } else {
            joined.push(*extent);
        }
        for (strides, all) in strides.iter_mut().zip(&all) {
            strides.push(all[axis]);
        }
    }
    (joined, strides)
}

fn load(operand: &Tensor, indices: impl Iterator<Item = usize>) -> Result<Block, TensorError> {
    Ok(match operand.dtype() {
        DType::Bool => {
            let elements = operand.as_slice::<Bool>()?;
            Block::Truths(indices.map(|i| elements[i].0 != 0).collect())
        }
        DType::F32 => {
            let elements = operand.as_slice::<f32>()?;
            Block::Floats(indices.map(|i| elements[i]).collect())
        }
        _ => Block::Floats(indices.map(|i| operand.get(i).to_float() as f32).collect()),
    })
}

fn store(result: &mut Tensor, position: usize, block: &Block) -> Result<(), TensorError> {
    let dtype = result.dtype();
    match block {
        Block::Floats(floats) if dtype == DType::F32 => {
            result.as_mut_slice::<f32>()?[position..][..floats.len()].copy_from_slice(floats);
        }
        Block::Floats(floats) => {
            for (i, x) in floats.iter().enumerate() {
                let number = scalar::round_result(Number::Float((*x).into()), dtype);
                result.set(position + i, number);
            }
        }
        Block::Truths(truths) => {
            for (i, x) in truths.iter().enumerate() {
                result.set(position + i, scalar::round_result(Number::Bool(*x), dtype));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::Float;
    use crate::op::{Meaning, OpDef};
    use crate::ops::{GeluForm, Scalar};
    use crate::testing::{Random, tensor};

    /// Each element by itself, without blocks or joined dimensions.
    fn one_by_one(meaning: &ScalarMeaning, operands: &[Tensor], ty: ConcreteType) -> Tensor {
        let dtypes: Vec<DType> = operands.iter().map(Tensor::dtype).collect();
        let strides: Vec<_> =
            operands.iter().map(|t| broadcast_strides(t.shape(), &ty.shape)).collect();
        let shape = ty.shape.clone();
        let mut result = Tensor::zeros(ty);
        for position in 0..result.elements() {
            let (mut rest, mut at) = (position, vec![0; operands.len()]);
            for axis in (0..shape.len()).rev() {
                at.iter_mut().zip(&strides).for_each(|(at, s)| *at += rest % shape[axis] * s[axis]);
                rest /= shape[axis];
            }
            let elements: Vec<_> = operands.iter().zip(&at).map(|(t, i)| t.get(*i)).collect();
            let value = scalar::evaluate(&meaning.expr, &elements, &dtypes, meaning.result);
            result.set(position, value);
        }
        result
    }

    #[track_caller]
    fn check(scalar: Scalar, operands: &[Tensor]) {
        let types: Vec<_> = operands.iter().map(|t| crate::interp::static_type(t.ty())).collect();
        let Ok(inferred) = scalar.infer(&types) else { panic!("{scalar:?} refuses its operands") };
        let Ok(ty) = inferred[0].concrete(&Default::default()) else { unreachable!() };
        let Meaning::Scalar(meaning) = scalar.meaning(&types) else { unreachable!() };
        let expected = one_by_one(&meaning, operands, ty.clone());
        let found = elementwise(&meaning, operands, ty);
        // Bits, but for those of NaN.
        let same = found.is_ok_and(|found| {
            found.ty() == expected.ty()
                && found.numbers().zip(expected.numbers()).all(|(a, b)| match (a, b) {
                    (Number::Float(a), Number::Float(b)) => {
                        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
                    }
                    _ => a == b,
                })
        });
        assert!(same, "{scalar:?} over {operands:?}");
    }

    #[test]
    fn blocks_and_single_elements_agree_bit_for_bit() {
        let alpha = Float(0.7);
        let unary = [
            Scalar::Neg,
            Scalar::Sign,
            Scalar::Round,
            Scalar::Rsqrt,
            Scalar::Exp,
            Scalar::Erf,
            Scalar::IsNan,
            Scalar::IsInf { negative: true, positive: false },
            Scalar::IsInf { negative: true, positive: true },
            Scalar::IsInf { negative: false, positive: false },
            Scalar::Elu { alpha },
            Scalar::Celu { alpha },
            Scalar::ThresholdedRelu { alpha },
            Scalar::Shrink { lambda: alpha, bias: alpha },
            Scalar::Mish,
            Scalar::Gelu { form: GeluForm::Tanh },
            Scalar::Cast { to: DType::F16, saturate: true },
            Scalar::Cast { to: DType::F8E5m2, saturate: false },
            Scalar::Cast { to: DType::F8E4m3fn, saturate: true },
            Scalar::Cast { to: DType::Bool, saturate: true },
            Scalar::Cast { to: DType::I32, saturate: true },
            Scalar::Cast { to: DType::F64, saturate: true },
        ];
        let binary = [
            Scalar::Add,
            Scalar::Div,
            Scalar::Pow,
            Scalar::Min,
            Scalar::Max,
            Scalar::FloorMod,
            Scalar::TruncMod,
            Scalar::Less,
            Scalar::NotEqual,
        ];
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F8E5m2, DType::F64] {
            let mut x = Random::new(1).floats(dtype, &[5, 1, 3, 7], -4.0, 4.0);
            for (i, special) in
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 6e4].iter().enumerate()
            {
                x.set(i, Number::Float(*special));
            }
            for scalar in &unary {
                check(scalar.clone(), std::slice::from_ref(&x));
            }
            for shape in [&[5, 2, 3, 7][..], &[7], &[3, 1], &[2, 1, 1], &[], &[1, 1]] {
                let y = Random::new(2).floats(dtype, shape, -3.0, 3.0);
                for scalar in &binary {
                    check(scalar.clone(), &[x.clone(), y.clone()]);
                    check(scalar.clone(), &[y.clone(), x.clone()]);
                }
            }
        }
        let condition = Random::new(3).tensor(DType::Bool, &[3, 7]);
        let x = Random::new(4).tensor(DType::F32, &[5, 3, 1]);
        let scalar = tensor(&[], &[f32::NEG_INFINITY]);
        check(Scalar::Select, &[condition.clone(), x.clone(), scalar]);
        check(Scalar::Select, &[condition.clone(), condition.clone(), condition.clone()]);
        check(Scalar::Xor, &[condition.clone(), condition.clone()]);
        check(Scalar::Greater, &[condition.clone(), condition.clone()]);
        check(Scalar::Not, std::slice::from_ref(&condition));
        check(Scalar::Cast { to: DType::Bf16, saturate: true }, &[condition]);
        let large = Random::new(5).tensor(DType::F32, &[3, 5000]);
        let column = Random::new(6).tensor(DType::F32, &[3, 1]);
        check(Scalar::Sub, &[large, column]);
        let integers = Random::new(7).tensor(DType::I16, &[3, 5]);
        check(Scalar::FloorMod, &[integers.clone(), integers]);
        let empty = tensor::<f32>(&[0, 3], &[]);
        check(Scalar::Relu, &[empty]);
    }
}
