//! `conv`: its attributes, inference and meaning; nothing of any other operator.

use super::window::Window;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::operator;

operator! {
    /// Convolution in 1, 2, 3 … spatial dimensions; products add up in f32 or wider.
    ///
    /// Operands: x `[N, C, D…]`, weights `[M, C / groups, K…]` and, if `bias`, bias `[M]`; result:
    /// `[N, M, …]`. Integers (i8, u8, i32, any mix) give i32. Lists have one item a spatial dimension.
    Conv {
        /// Steps of the window.
        strides: Vec<i64>,
        /// Steps inside the window.
        dilations: Vec<i64>,
        /// Zeros before each spatial dimension.
        before: Vec<i64>,
        /// Zeros after it.
        after: Vec<i64>,
        /// Groups of channels.
        groups: i64,
        /// Whether there is a bias.
        bias: bool,
    }
}

impl OpDef for Conv {
    const MNEMONIC: &'static str = "conv";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let (x, weights) = if self.bias {
            let [x, weights, _] = check::arity(operands)?;
            (x, weights)
        } else {
            let [x, weights] = check::arity(operands)?;
            (x, weights)
        };
        check::rank_at_least(operands, 0, 3)?;
        check::rank(operands, 1, x.rank())?;
        let dtype = self.result_dtype(operands)?;
        let window = self.window();
        window.check(x.rank() - 2)?;
        window.check_padding()?;
        let groups = check_groups(self.groups)?;
        let channels = weights.shape[1].clone() * groups.clone();
        check::equal(&x.shape[1], &channels, "channels of the operand and of all groups")?;
        check_divisible(&weights.shape[0], &groups)?;
        let mut shape = vec![x.shape[0].clone(), weights.shape[0].clone()];
        for (axis, (extent, kernel)) in x.shape[2..].iter().zip(&weights.shape[2..]).enumerate() {
            shape.push(window.count(axis, extent, kernel, false)?);
        }
        let result = TensorType::new(dtype, shape);
        if self.bias {
            check_bias(operands, &result)?;
        }
        Ok(vec![result])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("conv: meaning")
    }

    fn operations(&self, operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        let [_, weights, ..] = operands else { return Dim::ZERO };
        let taps: Dim = weights.shape[1..].iter().cloned().product();
        Dim::from(2) * taps * outputs[0].elements()
    }
}

impl Conv {
    fn window(&self) -> Window<'_> {
        Window {
            strides: &self.strides,
            dilations: &self.dilations,
            before: &self.before,
            after: &self.after,
        }
    }

    /// Floats stay what they are; integers give i32.
    fn result_dtype(&self, operands: &[TensorType]) -> Result<DType, TypeError> {
        let integer = |dtype| matches!(dtype, DType::I8 | DType::U8 | DType::I32);
        let expected = "a floating-point type, i8, u8 or i32";
        let x = check::dtype(operands, 0, expected, |dtype| dtype.is_float() || integer(dtype))?;
        if x.is_float() {
            check::dtype_is(operands, 1, x)?;
            return Ok(x);
        }
        check::dtype(operands, 1, "i8, u8 or i32", integer)?;
        Ok(DType::I32)
    }
}

/// There is at least one group.
pub(super) fn check_groups(groups: i64) -> Result<Dim, TypeError> {
    if groups < 1 {
        return Err(TypeError::invalid(format!("{groups} groups, expected at least 1")));
    }
    Ok(Dim::from(groups))
}

/// The groups share the channels evenly, as far as is known.
pub(super) fn check_divisible(channels: &Dim, groups: &Dim) -> Result<(), TypeError> {
    match channels.modulo(groups).and_then(|rest| rest.as_constant()) {
        Some(rest) if rest != 0 => {
            Err(TypeError::invalid(format!("{channels} channels in {groups} groups")))
        }
        _ => Ok(()),
    }
}

/// Operand 2 is a bias for the result's channels.
pub(super) fn check_bias(operands: &[TensorType], result: &TensorType) -> Result<(), TypeError> {
    check::dtype_is(operands, 2, result.dtype)?;
    check::rank(operands, 2, 1)?;
    check::equal(&operands[2].shape[0], &result.shape[1], "bias and channels of the result")
}
