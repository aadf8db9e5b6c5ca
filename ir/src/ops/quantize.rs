//! `quantize`: its attributes, inference and meaning; nothing of any other operator.

use super::compose::Compose;
use super::{Broadcast, Scalar};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::ValueId;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::operator;
use crate::scalar::limit;
use crate::types::{Axis, TensorType};

operator! {
    /// `saturate(round(x / scale) + zero point)`, in f32 or wider; ties round to even, and 8-bit
    /// floats only to their own precision. (ONNX QuantizeLinear)
    ///
    /// Operands: x; scale (float); and, if `zero_point`, the zero point of the result's type. Scale and zero point are
    /// scalars, or, with `axis`, `[C]` for that axis of x, or, with `block` too, of x's rank with
    /// ceil(C / block) along the axis.
    Quantize {
        /// Element type of the result: an integer of at most 16 bits, or an 8-bit float.
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
        let widest = if self.dtype.is_float() { 8 } else { 16 };
        if self.dtype == DType::Bool || self.dtype.bits() > widest {
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

    fn meaning(&self, operands: &[TensorType]) -> Meaning {
        Meaning::composite(operands, |graph, inputs| {
            let mut g = Compose(graph);
            let [x, scale] = [inputs[0], inputs[1]];
            let wide = [x, scale].iter().any(|v| g.ty(*v).dtype == DType::F64);
            let compute = if wide { DType::F64 } else { DType::F32 };
            let shape = g.shape(x);
            let x = g.cast(x, compute)?;
            let scale = g.cast(scale, compute)?;
            let scale = spread(&mut g, scale, &shape, self.axis, self.block)?;
            let mut y = g.div(x, scale)?;
            if self.dtype.is_integer() {
                y = g.op(Scalar::Round, &[y])?;
            }
            if let Some(zero_point) = inputs.get(2) {
                let zero_point = g.cast(*zero_point, compute)?;
                let zero_point = spread(&mut g, zero_point, &shape, self.axis, self.block)?;
                y = g.add(y, zero_point)?;
            }
            if self.dtype.is_integer() {
                let [least, greatest] = [false, true]
                    .map(|greatest| limit(self.dtype, greatest).to_float())
                    .map(|value| g.constant(compute, value));
                y = g.op(Scalar::Clip, &[y, least, greatest])?;
            }
            Ok(vec![g.op(Scalar::Cast { to: self.dtype, saturate: self.saturate }, &[y])?])
        })
    }

    fn operations(&self, operands: &[TensorType], _outputs: &[TensorType]) -> Dim {
        // Quotient, rounding, zero point, two limits for each element.
        Dim::from(5) * operands[0].elements()
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

/// A scale or zero point under a shape that broadcasts to `shape`, x's: blocks are repeated.
pub(super) fn spread(
    g: &mut Compose<'_>,
    parameter: ValueId,
    shape: &[Dim],
    axis: Option<Axis>,
    block: Option<i64>,
) -> Result<ValueId, TypeError> {
    let Some(axis) = axis.map(Axis::index) else {
        return Ok(parameter);
    };
    let Some(block) = block else {
        return g.along(parameter, axis, shape.len());
    };
    let blocks = g.shape(parameter);
    let mut column = blocks.clone();
    column.insert(axis + 1, Dim::ONE);
    let column = g.reshape(parameter, column)?;
    let mut repeated = blocks.clone();
    repeated.insert(axis + 1, Dim::from(block));
    let repeated = g.op(Broadcast { shape: repeated }, &[column])?;
    let mut flat = blocks;
    flat[axis] = flat[axis].clone() * Dim::from(block);
    let flat = g.reshape(repeated, flat)?;
    // The last block may reach over the end.
    if g.ty(flat).shape == shape {
        return Ok(flat);
    }
    g.part(flat, axis, (Dim::ZERO, shape[axis].clone(), 1))
}
