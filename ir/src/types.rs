//! Tensor types: element type and symbolic shape; never a layout or a place in memory.

use crate::attribute::Attribute;
use crate::dim::{Bindings, Dim, DimError};
use crate::dtype::DType;
use crate::text::{Cursor, SyntaxError};
use std::fmt;

/// The type of a value: element type and shape, outermost dimension first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// A type of that element type and shape.
    pub fn new(dtype: DType, shape: impl Into<Vec<Dim>>) -> TensorType {
        TensorType { dtype, shape: shape.into() }
    }

    /// A type whose dimensions are all known.
    pub fn fixed(dtype: DType, shape: &[i64]) -> TensorType {
        TensorType { dtype, shape: shape.iter().map(|d| Dim::from(*d)).collect() }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> Dim {
        self.shape.iter().cloned().product()
    }

    /// Size in bytes, packed.
    pub fn bytes(&self) -> Dim {
        let elements = self.elements();
        match i64::from(self.dtype.bits()) {
            4 => elements.ceil_div(&Dim::from(2)).unwrap_or(Dim::ZERO),
            bits => elements * Dim::from(bits / 8),
        }
    }

    /// The dimensions as numbers, if all are known without bindings and none is negative.
    pub fn static_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(|d| usize::try_from(d.as_constant()?).ok()).collect()
    }

    /// The shape under bindings.
    ///
    /// # Errors
    /// A symbol without a value, or a dimension that overflows or comes out negative.
    pub fn concrete(&self, bindings: &Bindings) -> Result<ConcreteType, ShapeError> {
        let shape = self
            .shape
            .iter()
            .map(|dim| {
                let value = dim.evaluate(bindings)?;
                usize::try_from(value).map_err(|_| ShapeError::Negative(dim.clone(), value))
            })
            .collect::<Result<Vec<usize>, ShapeError>>()?;
        ConcreteType::new(self.dtype, shape)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, dim) in self.shape.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{dim}")?;
        }
        f.write_str("]")
    }
}

/// A tensor type whose dimensions are numbers; its size in bytes is known to fit `isize`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConcreteType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

impl ConcreteType {
    /// A checked concrete type.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`] if the size in bytes does not fit `isize`.
    pub fn new(dtype: DType, shape: Vec<usize>) -> Result<ConcreteType, ShapeError> {
        let too_large = || ShapeError::TooLarge { dtype, shape: shape.clone() };
        // Zero-sized dimensions must not hide an overflow of the others: strides use them.
        let mut elements = 1usize;
        for extent in shape.iter().filter(|extent| **extent != 0) {
            elements = elements.checked_mul(*extent).ok_or_else(too_large)?;
        }
        let bytes = dtype.byte_len(elements).ok_or_else(too_large)?;
        isize::try_from(bytes).map_err(|_| too_large())?;
        Ok(ConcreteType { dtype, shape })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in bytes, packed.
    pub fn byte_len(&self) -> usize {
        // `new` has checked the product.
        self.dtype.byte_len(self.elements()).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ConcreteType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// Why a shape has no numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A dimension has no value.
    #[error(transparent)]
    Dim(#[from] DimError),
    /// A dimension came out negative.
    #[error("dimension `{0}` is {1}, but a dimension cannot be negative")]
    Negative(Dim, i64),
    /// The tensor does not fit the address space.
    #[error("a tensor {dtype}{shape:?} does not fit the address space")]
    TooLarge {
        /// Element type.
        dtype: DType,
        /// Dimensions.
        shape: Vec<usize>,
    },
}

/// The index of a dimension, counted from the outermost, 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axis(pub u32);

impl Axis {
    /// The axis as an index into a shape.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The axis that `axis` names for that rank, counting from the end if negative (as ONNX and
    /// NumPy do); `None` if it is out of range.
    pub fn normalise(axis: i64, rank: usize) -> Option<Axis> {
        let rank = i64::try_from(rank).ok()?;
        let index = if axis < 0 { axis.checked_add(rank)? } else { axis };
        (0..rank).contains(&index).then_some(Axis(index as u32))
    }
}

impl From<usize> for Axis {
    fn from(index: usize) -> Axis {
        Axis(index as u32)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Attribute for Axis {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Axis, SyntaxError> {
        let value = cursor.integer()?;
        u32::try_from(value).map(Axis).map_err(|_| cursor.error("an axis"))
    }
}
