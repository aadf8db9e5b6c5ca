//! Windows over spatial dimensions: convolutions and pooling. Automatic padding is resolved here;
//! never a computation on elements.

use super::scalar::convert;
use crate::import::context::NodeContext;
use crate::import::fault::NodeError;
use membar_ir::ops::{Conv, ConvTranspose, Pool, PoolKind, Reduce, ReduceKind, Scalar};
use membar_ir::{Axis, Dim, ValueId};

type Outcome = Result<(), NodeError>;

/// The attributes that all windows have, one item for each spatial dimension.
pub(super) struct Window {
    pub(super) strides: Vec<i64>,
    pub(super) dilations: Vec<i64>,
    pub(super) before: Vec<i64>,
    pub(super) after: Vec<i64>,
}

/// How `auto_pad` fills up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AutoPad {
    /// `pads` says it.
    Explicit,
    /// The odd element goes to the end.
    SameUpper,
    /// The odd element goes to the beginning.
    SameLower,
    /// No padding.
    Valid,
}

/// A list with an item for each spatial dimension, `default` where the attribute is absent.
fn each(
    cx: &NodeContext<'_, '_>,
    name: &str,
    count: usize,
    default: i64,
) -> Result<Vec<i64>, NodeError> {
    match cx.attribute::<&[i64]>(name)? {
        None => Ok(vec![default; count]),
        Some(items) if items.len() == count => Ok(items.to_vec()),
        Some(items) => {
            let found = items.len();
            Err(NodeError::new(format!("`{name}` has {found} items; {count} are expected")))
        }
    }
}

fn auto_pad(cx: &NodeContext<'_, '_>) -> Result<AutoPad, NodeError> {
    Ok(match cx.attribute_or("auto_pad", "NOTSET")? {
        "NOTSET" | "" => AutoPad::Explicit,
        "SAME_UPPER" => AutoPad::SameUpper,
        "SAME_LOWER" => AutoPad::SameLower,
        "VALID" => AutoPad::Valid,
        other => return Err(NodeError::new(format!("auto_pad `{other}`"))),
    })
}

/// `pads`, starts first.
fn explicit(cx: &NodeContext<'_, '_>, count: usize) -> Result<(Vec<i64>, Vec<i64>), NodeError> {
    let pads = each(cx, "pads", 2 * count, 0)?;
    let (before, after) = pads.split_at(count);
    Ok((before.to_vec(), after.to_vec()))
}

/// `total` elements of padding, half of them before.
fn distribute(mode: AutoPad, total: i64) -> (i64, i64) {
    let half = total / 2;
    match mode {
        AutoPad::SameUpper => (half, total - half),
        AutoPad::SameLower | AutoPad::Explicit | AutoPad::Valid => (total - half, half),
    }
}

/// How far a window of `kernel` elements reaches, dilated.
fn reach(kernel: i64, dilation: i64) -> Result<i64, NodeError> {
    let reach = (kernel - 1).checked_mul(dilation).and_then(|reach| reach.checked_add(1));
    reach.ok_or_else(|| NodeError::new(format!("a window of {kernel} elements {dilation} apart")))
}

/// The window of a convolution or a pooling with its padding resolved: `SAME` gives
/// ceil(extent / stride) results. Whether it was `SAME` is said too.
fn window(
    cx: &NodeContext<'_, '_>,
    extents: &[Dim],
    kernel: &[Dim],
) -> Result<(Window, bool), NodeError> {
    let count = extents.len();
    let strides = each(cx, "strides", count, 1)?;
    let dilations = each(cx, "dilations", count, 1)?;
    let mode = auto_pad(cx)?;
    let (mut before, mut after) = match mode {
        AutoPad::Explicit => explicit(cx, count)?,
        AutoPad::Valid | AutoPad::SameUpper | AutoPad::SameLower => {
            (vec![0; count], vec![0; count])
        }
    };
    let same = matches!(mode, AutoPad::SameUpper | AutoPad::SameLower);
    if same {
        for axis in 0..count {
            let size = kernel.get(axis).and_then(Dim::as_constant);
            let size =
                size.ok_or_else(|| NodeError::new("auto_pad for a window of no fixed size"))?;
            let reach = reach(size, dilations[axis])?;
            let total = same_padding(&extents[axis], strides[axis], reach)?;
            (before[axis], after[axis]) = distribute(mode, total);
        }
    }
    Ok((Window { strides, dilations, before, after }, same))
}

/// The padding for ceil(extent / stride) windows.
fn same_padding(extent: &Dim, stride: i64, reach: i64) -> Result<i64, NodeError> {
    if stride == 1 {
        return Ok((reach - 1).max(0));
    }
    let windows = extent.ceil_div(&Dim::from(stride));
    let windows = windows.ok_or_else(|| NodeError::new("a stride of 0"))?;
    let total = (windows - Dim::ONE) * Dim::from(stride) + Dim::from(reach) - extent.clone();
    total.as_constant().map(|total| total.max(0)).ok_or_else(|| {
        NodeError::new(format!(
            "auto_pad with a stride of {stride} over a dimension of `{extent}`; a fixed one is \
             expected"
        ))
    })
}

/// The operand's dimensions from 2 on; there must be one at least.
fn spatial(cx: &mut NodeContext<'_, '_>, index: usize) -> Result<Vec<Dim>, NodeError> {
    let ty = cx.ty(index)?;
    match ty.shape.get(2..) {
        Some(spatial) if !spatial.is_empty() => Ok(spatial.to_vec()),
        _ => Err(NodeError::new(format!("an operand of rank {}; 3 is the least", ty.rank()))),
    }
}

/// `kernel_shape`, where it is given, is what the weights have.
fn check_kernel(cx: &mut NodeContext<'_, '_>, kernel: &[Dim]) -> Outcome {
    if cx.attribute::<&[i64]>("kernel_shape")?.is_none() {
        return Ok(());
    }
    let sizes = each(cx, "kernel_shape", kernel.len(), 1)?;
    for (size, dim) in sizes.iter().zip(kernel) {
        cx.unify(&Dim::from(*size), dim, "kernel_shape and the weights")?;
    }
    Ok(())
}

/// A convolution of values of which operands `x` and `weights` of the node are the shapes.
pub(super) fn convolution(
    cx: &mut NodeContext<'_, '_>,
    (x, weights): (usize, usize),
    values: &[ValueId],
) -> Result<ValueId, NodeError> {
    let (extents, kernel) = (spatial(cx, x)?, spatial(cx, weights)?);
    check_kernel(cx, &kernel)?;
    let (Window { strides, dilations, before, after }, _) = window(cx, &extents, &kernel)?;
    let groups = cx.attribute_or("group", 1)?;
    let bias = values.len() == 3;
    cx.emit(Conv { strides, dilations, before, after, groups, bias }, values)
}

/// `Conv`.
pub(crate) fn conv(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let mut operands = vec![cx.operand(0)?, cx.operand(1)?];
    operands.extend(cx.optional(2)?);
    let result = convolution(cx, (0, 1), &operands)?;
    cx.output(0, result)
}

/// `ConvTranspose`. A result larger than what the windows cover ends in zeros.
pub(crate) fn conv_transpose(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let (extents, kernel) = (spatial(cx, 0)?, spatial(cx, 1)?);
    check_kernel(cx, &kernel)?;
    let count = extents.len();
    let strides = each(cx, "strides", count, 1)?;
    let dilations = each(cx, "dilations", count, 1)?;
    let output_padding = each(cx, "output_padding", count, 0)?;
    let mode = auto_pad(cx)?;
    let (mut before, mut after) = match mode {
        AutoPad::Explicit => explicit(cx, count)?,
        AutoPad::Valid | AutoPad::SameUpper | AutoPad::SameLower => {
            (vec![0; count], vec![0; count])
        }
    };
    let sizes = match cx.attribute::<&[i64]>("output_shape")? {
        // Some exporters write the batch and the channels too.
        Some(sizes) if sizes.len() == count + 2 => Some(sizes[2..].to_vec()),
        Some(_) => Some(each(cx, "output_shape", count, 0)?),
        None => None,
    };
    let same = matches!(mode, AutoPad::SameUpper | AutoPad::SameLower);
    if sizes.is_some() || same {
        for axis in 0..count {
            let size = match &sizes {
                Some(sizes) => Dim::from(sizes[axis]),
                None => extents[axis].clone() * Dim::from(strides[axis]),
            };
            let whole = (extents[axis].clone() - Dim::ONE) * Dim::from(strides[axis])
                + Dim::from(output_padding[axis])
                + (kernel[axis].clone() - Dim::ONE) * Dim::from(dilations[axis])
                + Dim::ONE;
            let total = (whole - size).as_constant().ok_or_else(|| {
                let extent = &extents[axis];
                NodeError::new(format!("a fixed output_shape for a dimension of `{extent}`"))
            })?;
            (before[axis], after[axis]) = match total {
                ..0 => (0, total),
                0.. => distribute(mode, total),
            };
        }
    }
    let mut operands = vec![cx.operand(0)?, cx.operand(1)?];
    operands.extend(cx.optional(2)?);
    let groups = cx.attribute_or("group", 1)?;
    let bias = operands.len() == 3;
    let op = ConvTranspose { strides, dilations, before, after, output_padding, groups, bias };
    let result = cx.emit(op, &operands)?;
    cx.output(0, result)
}

fn pool(cx: &mut NodeContext<'_, '_>, kind: PoolKind) -> Outcome {
    let extents = spatial(cx, 0)?;
    cx.required::<&[i64]>("kernel_shape")?;
    let kernel = each(cx, "kernel_shape", extents.len(), 1)?;
    let dims: Vec<Dim> = kernel.iter().copied().map(Dim::from).collect();
    let (Window { strides, dilations, before, after }, same) = window(cx, &extents, &dims)?;
    // The number of windows that SAME gives does not depend on rounding.
    let ceil = cx.flag("ceil_mode", false)? && !same;
    let indices = kind == PoolKind::Max && cx.wants(1);
    let op = Pool {
        kind,
        kernel,
        strides,
        dilations,
        before,
        after,
        ceil,
        count_padding: kind == PoolKind::Average && cx.flag("count_include_pad", false)?,
        power: if kind == PoolKind::Lp { cx.attribute_or("p", 2)? } else { 2 },
        indices,
        column_major: indices && cx.flag("storage_order", false)?,
    };
    let x = cx.operand(0)?;
    let results = cx.emit_all(op, &[x])?;
    for (index, result) in results.into_iter().enumerate() {
        cx.output(index, result)?;
    }
    Ok(())
}

/// `MaxPool`, with the indices of the maxima where they are wanted.
pub(crate) fn max_pool(cx: &mut NodeContext<'_, '_>) -> Outcome {
    pool(cx, PoolKind::Max)
}

/// `AveragePool`.
pub(crate) fn average_pool(cx: &mut NodeContext<'_, '_>) -> Outcome {
    pool(cx, PoolKind::Average)
}

/// `LpPool`.
pub(crate) fn lp_pool(cx: &mut NodeContext<'_, '_>) -> Outcome {
    pool(cx, PoolKind::Lp)
}

/// A reduction whose axes stay.
pub(super) fn over(
    cx: &mut NodeContext<'_, '_>,
    kind: ReduceKind,
    value: ValueId,
    axes: std::ops::Range<usize>,
) -> Result<ValueId, NodeError> {
    cx.emit(Reduce { kind, axes: axes.map(Axis::from).collect(), keep: true }, &[value])
}

/// `GlobalAveragePool`, `GlobalMaxPool`: a reduction of all spatial dimensions.
pub(crate) fn global_pool(cx: &mut NodeContext<'_, '_>, kind: ReduceKind) -> Outcome {
    let rank = 2 + spatial(cx, 0)?.len();
    let x = cx.operand(0)?;
    let result = over(cx, kind, x, 2..rank)?;
    cx.output(0, result)
}

/// `GlobalLpPool`.
pub(crate) fn global_lp_pool(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let rank = 2 + spatial(cx, 0)?.len();
    let power = cx.attribute_or("p", 2)?;
    let x = cx.operand(0)?;
    let dtype = cx.type_of(x).dtype;
    let result = lp_norm(cx, x, 2..rank, power)?;
    let result = convert(cx, result, dtype, true)?;
    cx.output(0, result)
}

/// `(Σ |x|^p)^(1/p)` over axes, which stay, in the compute type.
pub(super) fn lp_norm(
    cx: &mut NodeContext<'_, '_>,
    x: ValueId,
    axes: std::ops::Range<usize>,
    power: i64,
) -> Result<ValueId, NodeError> {
    if power < 1 {
        return Err(NodeError::new(format!("p = {power}")));
    }
    let compute = cx.type_of(x).dtype.compute();
    let x = convert(cx, x, compute, true)?;
    let powers = match power {
        1 => cx.emit(Scalar::Abs, &[x])?,
        2 => cx.emit(Scalar::Mul, &[x, x])?,
        _ => {
            let size = cx.emit(Scalar::Abs, &[x])?;
            let exponent = cx.scalar(compute, power as f64)?;
            cx.emit(Scalar::Pow, &[size, exponent])?
        }
    };
    let sum = over(cx, ReduceKind::Sum, powers, axes)?;
    match power {
        1 => Ok(sum),
        2 => cx.emit(Scalar::Sqrt, &[sum]),
        _ => {
            let exponent = cx.scalar(compute, 1.0 / power as f64)?;
            cx.emit(Scalar::Pow, &[sum, exponent])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_covers_the_extent() {
        for (extent, stride, reach, expected) in
            [(5, 2, 3, 2), (6, 2, 3, 1), (7, 3, 2, 1), (4, 2, 1, 0), (32, 1, 2, 1)]
        {
            let total = same_padding(&Dim::from(extent), stride, reach).ok();
            assert_eq!(total, Some(expected), "{extent} {stride} {reach}");
        }
        let symbolic = Dim::symbol("H");
        assert_eq!(same_padding(&symbolic, 1, 3).ok(), Some(2));
        assert!(same_padding(&symbolic, 2, 3).is_err());
        let even = Dim::symbol("H") * Dim::from(2);
        assert_eq!(same_padding(&even, 2, 3).ok(), Some(1));
    }

    #[test]
    fn the_odd_element_goes_where_the_mode_says() {
        assert_eq!(distribute(AutoPad::SameUpper, 3), (1, 2));
        assert_eq!(distribute(AutoPad::SameLower, 3), (2, 1));
        assert_eq!(distribute(AutoPad::Explicit, 3), (2, 1));
    }
}
