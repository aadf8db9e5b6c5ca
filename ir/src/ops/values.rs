//! Whole tensors as plain numbers and back, for reference evaluations; never a single operator's
//! arithmetic.

use crate::dtype::{DType, DTypeClass};
use crate::element::Number;
use crate::tensor::{Tensor, TensorError};
use crate::types::ConcreteType;

/// The elements as `f64`.
pub(super) fn floats(tensor: &Tensor) -> Vec<f64> {
    if let Ok(elements) = tensor.as_slice::<f32>() {
        return elements.iter().map(|x| f64::from(*x)).collect();
    }
    tensor.numbers().map(Number::to_float).collect()
}

/// The elements of an integer tensor.
pub(super) fn integers(tensor: &Tensor) -> Vec<i128> {
    tensor.numbers().map(Number::to_integer).collect()
}

/// A tensor from values: floats are rounded; integers too, halves to even, and then saturate.
pub(super) fn store(ty: &ConcreteType, values: &[f64]) -> Result<Tensor, TensorError> {
    if ty.dtype == DType::F32 {
        let values: Vec<f32> = values.iter().map(|x| *x as f32).collect();
        return Tensor::from_elements(&ty.shape, &values);
    }
    let class = ty.dtype.class();
    let (least, greatest) = (lowest(ty.dtype).to_float(), greatest_integer(ty.dtype));
    let numbers = values.iter().map(|x| match class {
        DTypeClass::Float | DTypeClass::Bool => Number::Float(*x),
        DTypeClass::Signed | DTypeClass::Unsigned => {
            Number::Float(libm::rint(*x).clamp(least, greatest))
        }
    });
    Tensor::from_numbers(ty.clone(), numbers)
}

/// The least value of a type: minus infinity for floats that have it.
pub(super) fn lowest(dtype: DType) -> Number {
    match dtype.class() {
        DTypeClass::Float => Number::Float(f64::NEG_INFINITY),
        DTypeClass::Signed => Number::Signed(i64::MIN >> (64 - dtype.bits())),
        DTypeClass::Unsigned => Number::Unsigned(0),
        DTypeClass::Bool => Number::Bool(false),
    }
}

/// The greatest integer of a type that is an `f64` too.
fn greatest_integer(dtype: DType) -> f64 {
    let greatest = match dtype.class() {
        DTypeClass::Signed => u64::MAX >> (65 - dtype.bits()),
        _ => u64::MAX >> (64 - dtype.bits()),
    };
    let nearest = greatest as f64;
    if nearest as i128 > i128::from(greatest) { nearest.next_down() } else { nearest }
}
