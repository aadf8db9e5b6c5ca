//! `quantize`: its attributes, inference and meaning; nothing of any other operator.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::{Axis, TensorType};
use crate::operator;

operator! {
    /// `saturate(round(x / scale) + zero point)`; ties round to even. (ONNX QuantizeLinear)
    ///
    /// Operands: x; scale (float); and, if `zero_point`, the zero point of the result's type. Scale and zero point are
    /// scalars, or, with `axis`, `[C]` for that axis of x, or, with `block` too, of x's rank with
    /// ceil(C / block) along the axis.
    Quantize {
        /// Element type of the result: an integer or 8-bit float.
        dtype: DType,
        /// Per-axis or blocked.
        axis: Option<Axis>,
        /// Elements along the axis that share a scale.
        block: Option<i64>,
        /// Whether there is a zero point.
        zero_point: bool,
        /// Whether 8-bit floats saturate.
        saturate: bool,
    }
}

impl OpDef for Quantize {
    const MNEMONIC: &'static str = "quantize";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        check::count(operands, 2 + usize::from(self.zero_point))?;
        let x = &operands[0];
        check::dtype(operands, 0, "a float or i32", |d| d.is_float() || d == DType::I32)?;
        check::dtype(operands, 1, "a float", DType::is_float)?;
        if !self.dtype.is_integer() && self.dtype.bits() != 8 || self.dtype == DType::Bool {
            return Err(TypeError::invalid(format!("quantisation to {}", self.dtype)));
        }
        if self.zero_point {
            check::dtype_is(operands, 2, self.dtype)?;
        }
        for parameter in &operands[1..] {
            parameter_shape(&x.shape, &parameter.shape, self.axis, self.block)?;
        }
        Ok(vec![TensorType::new(self.dtype, x.shape.clone())])
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("quantize: meaning")
    }
}

/// Checks the shape of a scale or zero point: a scalar; `[C]` with an axis of extent C; with a
/// block, x's shape with ceil(C / block) along the axis.
pub(super) fn parameter_shape(
    x: &[Dim],
    parameter: &[Dim],
    axis: Option<Axis>,
    block: Option<i64>,
) -> Result<(), TypeError> {
    let mut expected = Vec::new();
    match (axis, block) {
        (None, None) => {}
        (None, Some(_)) => return Err(TypeError::invalid("a block size without an axis")),
        (Some(axis), block) => {
            check::axis(axis, x.len())?;
            let extent = &x[axis.index()];
            match block {
                None => expected.push(extent.clone()),
                Some(block) if block < 1 => {
                    return Err(TypeError::invalid(format!("blocks of {block} elements")));
                }
                Some(block) => {
                    expected = x.to_vec();
                    expected[axis.index()] =
                        extent.ceil_div(&Dim::from(block)).unwrap_or(Dim::ZERO);
                }
            }
        }
    }
    if parameter.len() != expected.len() {
        return Err(TypeError::invalid(format!(
            "scale or zero point of rank {}, expected {}",
            parameter.len(),
            expected.len()
        )));
    }
    let pairs = parameter.iter().zip(&expected);
    pairs.into_iter().try_for_each(|(p, e)| check::equal(p, e, "scale or zero point"))
}
