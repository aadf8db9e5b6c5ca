//! Elementwise operators: arithmetic, comparisons, activations, conversions. Never shapes other
//! than what broadcasting gives.

use crate::element::ElementType;
use crate::import::context::NodeContext;
use crate::import::environment::DIMS_LIMIT;
use crate::import::fault::NodeError;
use crate::import::symbols::Symbols;
use membar_ir::attribute::Float;
use membar_ir::dtype::DTypeClass;
use membar_ir::ops::{GeluForm, Scalar};
use membar_ir::{DType, Dim, ValueId};

type Outcome = Result<(), NodeError>;

/// A function of one operand.
pub(crate) fn unary(cx: &mut NodeContext<'_, '_>, scalar: Scalar) -> Outcome {
    let x = cx.operand(0)?;
    let result = cx.emit(scalar, &[x])?;
    cx.output(0, result)
}

/// A function of one operand with a parameter: attribute `name`, else `default`.
pub(crate) fn with_alpha(
    cx: &mut NodeContext<'_, '_>,
    default: f32,
    scalar: fn(Float) -> Scalar,
) -> Outcome {
    let alpha = cx.attribute_or("alpha", default)?;
    unary(cx, scalar(alpha.into()))
}

/// A function of two operands that broadcast.
pub(crate) fn binary(cx: &mut NodeContext<'_, '_>, scalar: Scalar) -> Outcome {
    let (x, y) = (cx.operand(0)?, cx.operand(1)?);
    let result = cx.emit(scalar, &[x, y])?;
    cx.output(0, result)
}

/// A function of dimensions; `None` where the result is no dimension.
type Symbolic = fn(&Symbols, &[Dim]) -> Option<Dim>;

/// As [`unary`], followed symbolically on dimensions.
pub(crate) fn unary_dims(
    cx: &mut NodeContext<'_, '_>,
    scalar: Scalar,
    symbolic: Symbolic,
) -> Outcome {
    if on_dims(cx, None, symbolic)? { Ok(()) } else { unary(cx, scalar) }
}

/// As [`binary`], followed symbolically on dimensions.
pub(crate) fn binary_dims(
    cx: &mut NodeContext<'_, '_>,
    scalar: Scalar,
    symbolic: Symbolic,
) -> Outcome {
    if on_dims(cx, None, symbolic)? { Ok(()) } else { binary(cx, scalar) }
}

/// A comparison.
pub(crate) fn compare(
    cx: &mut NodeContext<'_, '_>,
    scalar: Scalar,
    decide: fn(&Symbols, &Dim, &Dim) -> Option<bool>,
) -> Outcome {
    let decided = on_dims(cx, Some(DType::Bool), |symbols, dims| match dims {
        [a, b] => decide(symbols, a, b).map(truth),
        _ => None,
    })?;
    if decided { Ok(()) } else { binary(cx, scalar) }
}

fn truth(value: bool) -> Dim {
    if value { Dim::ONE } else { Dim::ZERO }
}

/// Applies a function to operands that are all dimensions, and broadcast; false if they are not,
/// or a result is no dimension. `dtype` is the result's type, by default that of operand 0.
fn on_dims(
    cx: &mut NodeContext<'_, '_>,
    dtype: Option<DType>,
    function: impl Fn(&Symbols, &[Dim]) -> Option<Dim>,
) -> Result<bool, NodeError> {
    let mut operands = Vec::with_capacity(cx.operand_count());
    let mut scalar = true;
    for index in 0..cx.operand_count() {
        let Some(dims) = cx.known_dims(index) else {
            return Ok(false);
        };
        scalar &= cx.ty(index)?.rank() == 0;
        operands.push(dims);
    }
    let length = operands.iter().map(Vec::len).find(|length| *length != 1).unwrap_or(1);
    if length > DIMS_LIMIT || operands.iter().any(|dims| dims.len() != 1 && dims.len() != length) {
        return Ok(false);
    }
    let dtype = match dtype {
        Some(dtype) => dtype,
        None => cx.ty(0)?.dtype,
    };
    let mut results = Vec::with_capacity(length);
    for index in 0..length {
        let arguments: Vec<Dim> = operands
            .iter()
            .map(|dims| dims[if dims.len() == 1 { 0 } else { index }].clone())
            .collect();
        match function(cx.symbols(), &arguments) {
            Some(result) if fits(&result, dtype) => results.push(result),
            _ => return Ok(false),
        }
    }
    cx.output_dims(0, dtype, scalar, results)?;
    Ok(true)
}

/// Constants that a narrow type would wrap are left to the operators.
fn fits(dim: &Dim, dtype: DType) -> bool {
    match (dim.as_constant(), dtype) {
        (Some(value), DType::I32) => i32::try_from(value).is_ok(),
        _ => true,
    }
}

/// Sum of dimensions.
pub(crate) fn add_dims(_: &Symbols, dims: &[Dim]) -> Option<Dim> {
    dims.iter().cloned().reduce(|a, b| a + b)
}

/// Difference of dimensions.
pub(crate) fn sub_dims(_: &Symbols, dims: &[Dim]) -> Option<Dim> {
    dims.iter().cloned().reduce(|a, b| a - b)
}

/// Product of dimensions.
pub(crate) fn mul_dims(_: &Symbols, dims: &[Dim]) -> Option<Dim> {
    dims.iter().cloned().reduce(|a, b| a * b)
}

/// Quotient of dimensions, truncated: the floor where neither is negative.
pub(crate) fn div_dims(symbols: &Symbols, dims: &[Dim]) -> Option<Dim> {
    let [a, b] = dims else {
        return None;
    };
    if let (Some(a), Some(b)) = (a.as_constant(), b.as_constant()) {
        return a.checked_div(b).map(Dim::from);
    }
    let positive = symbols.at_least(a, &Dim::ZERO)? && symbols.at_least(b, &Dim::ZERO)?;
    a.exact_div(b).or_else(|| if positive { a.floor_div(b) } else { None })
}

/// Negated dimension.
pub(crate) fn neg_dims(_: &Symbols, dims: &[Dim]) -> Option<Dim> {
    dims.first().map(|dim| -dim.clone())
}

/// Absolute value of a dimension.
pub(crate) fn abs_dims(symbols: &Symbols, dims: &[Dim]) -> Option<Dim> {
    let dim = dims.first()?;
    let positive = symbols.at_least(dim, &Dim::ZERO)?;
    Some(if positive { dim.clone() } else { -dim.clone() })
}

/// Lesser of dimensions.
pub(crate) fn min_dims(symbols: &Symbols, dims: &[Dim]) -> Option<Dim> {
    dims.iter().cloned().reduce(|a, b| symbols.minimum(&a, &b))
}

/// Greater of dimensions.
pub(crate) fn max_dims(symbols: &Symbols, dims: &[Dim]) -> Option<Dim> {
    dims.iter().cloned().reduce(|a, b| symbols.maximum(&a, &b))
}

/// Truth values: conjunction.
pub(crate) fn and_dims(_: &Symbols, dims: &[Dim]) -> Option<Dim> {
    let [a, b] = dims else {
        return None;
    };
    Some(truth(a.as_constant()? != 0 && b.as_constant()? != 0))
}

/// Truth values: disjunction.
pub(crate) fn or_dims(_: &Symbols, dims: &[Dim]) -> Option<Dim> {
    let [a, b] = dims else {
        return None;
    };
    Some(truth(a.as_constant()? != 0 || b.as_constant()? != 0))
}

/// Truth values: negation.
pub(crate) fn not_dims(_: &Symbols, dims: &[Dim]) -> Option<Dim> {
    Some(truth(dims.first()?.as_constant()? == 0))
}

/// `Max`, `Min`, `Sum`: two or more operands, or one.
pub(crate) fn variadic(
    cx: &mut NodeContext<'_, '_>,
    scalar: Scalar,
    symbolic: Symbolic,
) -> Outcome {
    if on_dims(cx, None, symbolic)? {
        return Ok(());
    }
    if cx.operand_count() == 1 {
        let slot = cx.slot(0)?;
        return cx.output_slot(0, slot);
    }
    let result = folded(cx, scalar)?;
    cx.output(0, result)
}

fn folded(cx: &mut NodeContext<'_, '_>, scalar: Scalar) -> Result<ValueId, NodeError> {
    let operands = cx.all_operands()?;
    let Some((first, rest)) = operands.split_first() else {
        return Err(NodeError::new("no operand"));
    };
    let mut result = *first;
    for operand in rest {
        result = cx.emit(scalar.clone(), &[result, *operand])?;
    }
    Ok(result)
}

/// `Mean`: of operands that broadcast.
pub(crate) fn mean(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let sum = folded(cx, Scalar::Add)?;
    let dtype = cx.type_of(sum).dtype;
    let count = cx.scalar(dtype, cx.operand_count() as f64)?;
    let result = cx.emit(Scalar::Div, &[sum, count])?;
    cx.output(0, result)
}

/// `Where`.
pub(crate) fn where_(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let dtype = cx.ty(1)?.dtype;
    let chosen = on_dims(cx, Some(dtype), |_, dims| match dims {
        [condition, then, otherwise] => {
            if then == otherwise {
                return Some(then.clone());
            }
            Some(if condition.as_constant()? != 0 { then.clone() } else { otherwise.clone() })
        }
        _ => None,
    })?;
    if chosen {
        return Ok(());
    }
    let operands = [cx.operand(0)?, cx.operand(1)?, cx.operand(2)?];
    let result = cx.emit(Scalar::Select, &operands)?;
    cx.output(0, result)
}

/// `Cast`: to an element type; 8-bit floats saturate by default.
pub(crate) fn cast(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let to = element_type(cx.required("to")?)?;
    cast_to(cx, to)
}

/// The element type of a number in an attribute.
pub(crate) fn element_type(code: i64) -> Result<DType, NodeError> {
    let element_type = ElementType::from_onnx(i32::try_from(code).unwrap_or(0));
    element_type.dtype().ok_or_else(|| NodeError::new(format!("the element type {element_type}")))
}

/// `CastLike`.
pub(crate) fn cast_like(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let to = cx.ty(1)?.dtype;
    cast_to(cx, to)
}

fn cast_to(cx: &mut NodeContext<'_, '_>, to: DType) -> Outcome {
    let saturate = cx.flag("saturate", true)?;
    let from = cx.ty(0)?;
    if from.dtype == to {
        let slot = cx.slot(0)?;
        return cx.output_slot(0, slot);
    }
    let whole = |dtype: DType| matches!(dtype, DType::I64 | DType::I32);
    if let (true, Some(dims)) = (whole(to), cx.known_dims(0))
        && dims.iter().all(|dim| fits(dim, to))
    {
        return cx.output_dims(0, to, from.rank() == 0, dims);
    }
    if let (DType::Bool, Some(dims)) = (to, cx.known_dims(0)) {
        let decided: Option<Vec<Dim>> = dims
            .iter()
            .map(|dim| cx.symbols().equal(dim, &Dim::ZERO).map(|zero| truth(!zero)))
            .collect();
        if let Some(decided) = decided {
            return cx.output_dims(0, to, from.rank() == 0, decided);
        }
    }
    let x = cx.operand(0)?;
    let result = convert(cx, x, to, saturate)?;
    cx.output(0, result)
}

/// Converts a value, unless it has the type already.
pub(crate) fn convert(
    cx: &mut NodeContext<'_, '_>,
    value: ValueId,
    to: DType,
    saturate: bool,
) -> Result<ValueId, NodeError> {
    if cx.type_of(value).dtype == to {
        return Ok(value);
    }
    // Saturation means something for 8-bit floats alone; one spelling keeps equal casts equal.
    let saturate = saturate || !matches!(to, DType::F8E4m3fn | DType::F8E5m2);
    cx.emit(Scalar::Cast { to, saturate }, &[value])
}

/// `Pow`: the result has the base's type, whatever the exponent's.
pub(crate) fn pow(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let (base, exponent) = (cx.operand(0)?, cx.operand(1)?);
    let (from, to) = (cx.type_of(base).dtype, cx.type_of(exponent).dtype);
    let common = if to.is_float() && !from.is_float() { to } else { from };
    let base = convert(cx, base, common, true)?;
    let exponent = convert(cx, exponent, common, true)?;
    let power = cx.emit(Scalar::Pow, &[base, exponent])?;
    let result = convert(cx, power, from, true)?;
    cx.output(0, result)
}

/// `Mod`: with the sign of the divisor, or of the dividend where `fmod` is set.
pub(crate) fn modulo(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let fmod = cx.flag("fmod", false)?;
    if !fmod && cx.opset() < 28 && cx.ty(0)?.dtype.is_float() {
        return Err(NodeError::new("floats need `fmod` = 1 before opset 28"));
    }
    let scalar = if fmod { Scalar::TruncMod } else { Scalar::FloorMod };
    let done = on_dims(cx, None, |symbols, dims| match dims {
        [a, b] => {
            let positive = symbols.at_least(a, &Dim::ZERO) == Some(true)
                && symbols.at_least(b, &Dim::ZERO) == Some(true);
            if fmod && !positive { None } else { a.modulo(b) }
        }
        _ => None,
    })?;
    if done { Ok(()) } else { binary(cx, scalar) }
}

/// `Clip`: limits as attributes before opset 11, as operands since.
pub(crate) fn clip(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let x = cx.operand(0)?;
    let dtype = cx.type_of(x).dtype;
    let (least, greatest) = if cx.opset() < 11 {
        let mut limit = |name| match cx.attribute::<f32>(name)? {
            Some(value) => cx.scalar(dtype, value.into()).map(Some),
            None => Ok(None),
        };
        (limit("min")?, limit("max")?)
    } else {
        (cx.optional(1)?, cx.optional(2)?)
    };
    let result = match (least, greatest) {
        (Some(least), Some(greatest)) => cx.emit(Scalar::Clip, &[x, least, greatest])?,
        (Some(least), None) => cx.emit(Scalar::Max, &[x, least])?,
        (None, Some(greatest)) => cx.emit(Scalar::Min, &[x, greatest])?,
        (None, None) => {
            let slot = cx.slot(0)?;
            return cx.output_slot(0, slot);
        }
    };
    cx.output(0, result)
}

/// `BitShift`. Signed numbers keep their sign to the right, by however many bits they go.
pub(crate) fn bit_shift(cx: &mut NodeContext<'_, '_>) -> Outcome {
    match cx.required::<&str>("direction")? {
        "LEFT" => binary(cx, Scalar::ShiftLeft),
        "RIGHT" => {
            let (x, mut bits) = (cx.operand(0)?, cx.operand(1)?);
            let dtype = cx.type_of(x).dtype;
            if dtype.class() == DTypeClass::Signed {
                let zero = cx.scalar(dtype, 0.0)?;
                let most = cx.scalar(dtype, f64::from(dtype.bits() - 1))?;
                let negative = cx.emit(Scalar::Less, &[bits, zero])?;
                let far = cx.emit(Scalar::Greater, &[bits, most])?;
                let all = cx.emit(Scalar::Or, &[negative, far])?;
                bits = cx.emit(Scalar::Select, &[all, most, bits])?;
            }
            let result = cx.emit(Scalar::ShiftRight, &[x, bits])?;
            cx.output(0, result)
        }
        other => Err(NodeError::new(format!("direction `{other}`"))),
    }
}

/// `Gelu`.
pub(crate) fn gelu(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let form = match cx.attribute_or("approximate", "none")? {
        "none" => GeluForm::Erf,
        "tanh" => GeluForm::Tanh,
        other => return Err(NodeError::new(format!("approximation `{other}`"))),
    };
    unary(cx, Scalar::Gelu { form })
}

/// `IsInf`.
pub(crate) fn is_inf(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let negative = cx.flag("detect_negative", true)?;
    let positive = cx.flag("detect_positive", true)?;
    unary(cx, Scalar::IsInf { negative, positive })
}

/// `Selu`, whose defaults are those of opset 6.
pub(crate) fn selu(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let alpha = cx.attribute_or("alpha", 1.673_263_2_f32)?.into();
    let gamma = cx.attribute_or("gamma", 1.050_701_f32)?.into();
    unary(cx, Scalar::Selu { alpha, gamma })
}

/// `HardSigmoid`.
pub(crate) fn hard_sigmoid(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let alpha = cx.attribute_or("alpha", 0.2_f32)?.into();
    let beta = cx.attribute_or("beta", 0.5_f32)?.into();
    unary(cx, Scalar::HardSigmoid { alpha, beta })
}

/// `Shrink`.
pub(crate) fn shrink(cx: &mut NodeContext<'_, '_>) -> Outcome {
    let lambda = cx.attribute_or("lambd", 0.5_f32)?.into();
    let bias = cx.attribute_or("bias", 0.0_f32)?.into();
    unary(cx, Scalar::Shrink { lambda, bias })
}
