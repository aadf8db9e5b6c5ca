//! Concrete tensors: a checked type and contiguous, row-major, aligned bytes; never a view with
//! strides.

use crate::dtype::DType;
use crate::element::{Bool, Element, F8E4m3fn, F8E5m2, Number};
use crate::types::{ConcreteType, ShapeError};
use bytes::Bytes;
use half::{bf16, f16};
use std::fmt;
use std::sync::Arc;

/// A tensor in memory. Clones share the bytes; writing to a shared one copies it first.
#[derive(Clone)]
pub struct Tensor {
    ty: ConcreteType,
    storage: Storage,
}

#[derive(Clone)]
enum Storage {
    /// 16-byte aligned; the last word may be longer than the tensor.
    Owned(Arc<Vec<u128>>),
    /// Foreign bytes, a memory map say, aligned for the element type.
    Shared(Bytes),
}

/// Why bytes or numbers do not make a tensor, or a tensor not a slice.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TensorError {
    /// The shape is impossible.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Another number of bytes or elements than the shape asks for.
    #[error("{found} {unit} for a tensor {ty}, which has {expected}")]
    Length {
        /// The type.
        ty: ConcreteType,
        /// What is counted.
        unit: &'static str,
        /// What the type asks for.
        expected: usize,
        /// What there was.
        found: usize,
    },
    /// More memory than there is.
    #[error("there is no memory for a tensor {ty} of {} bytes", .ty.byte_len())]
    Memory {
        /// The type.
        ty: ConcreteType,
    },
    /// Another element type than asked for.
    #[error("a tensor of {found} where {expected} is expected")]
    DType {
        /// Asked for.
        expected: DType,
        /// Found.
        found: DType,
    },
}

impl Tensor {
    /// All bits zero, of a size that a file or a user chose.
    ///
    /// # Errors
    /// [`TensorError::Memory`] if there is no memory for it.
    pub fn try_zeros(ty: ConcreteType) -> Result<Tensor, TensorError> {
        // `vec!` gives untouched pages but aborts without memory, so it is asked for first.
        let mut probe: Vec<u128> = Vec::new();
        match probe.try_reserve_exact(ty.byte_len().div_ceil(16)) {
            Ok(()) => drop(probe),
            Err(_) => return Err(TensorError::Memory { ty }),
        }
        Ok(Tensor::zeros(ty))
    }

    /// All bits zero, of a size that is known to be small, or in memory already.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn zeros(ty: ConcreteType) -> Tensor {
        let words = vec![0u128; ty.byte_len().div_ceil(16)];
        Tensor { ty, storage: Storage::Owned(Arc::new(words)) }
    }

    /// A tensor from its packed little-endian bytes, copied.
    pub fn from_bytes(ty: ConcreteType, bytes: &[u8]) -> Result<Tensor, TensorError> {
        Self::check_length(&ty, "bytes", ty.byte_len(), bytes.len())?;
        let mut tensor = Tensor::try_zeros(ty)?;
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    /// A tensor over foreign bytes, without a copy where their alignment allows it.
    pub fn from_shared(ty: ConcreteType, bytes: Bytes) -> Result<Tensor, TensorError> {
        Self::check_length(&ty, "bytes", ty.byte_len(), bytes.len())?;
        let alignment = (ty.dtype.bits() as usize / 8).max(1);
        if (bytes.as_ptr() as usize).is_multiple_of(alignment) {
            return Ok(Tensor { ty, storage: Storage::Shared(bytes) });
        }
        Tensor::from_bytes(ty, &bytes)
    }

    /// A tensor from its elements in row-major order.
    pub fn from_elements<T: Element>(
        shape: &[usize],
        elements: &[T],
    ) -> Result<Tensor, TensorError> {
        let ty = ConcreteType::new(T::DTYPE, shape.to_vec())?;
        Self::check_length(&ty, "elements", ty.elements(), elements.len())?;
        Tensor::from_bytes(ty, bytemuck::cast_slice(elements))
    }

    /// A tensor from numbers in row-major order, rounded as [`Number::round_to`] does.
    pub fn from_numbers(
        ty: ConcreteType,
        numbers: impl IntoIterator<Item = Number>,
    ) -> Result<Tensor, TensorError> {
        let mut tensor = Tensor::try_zeros(ty)?;
        let expected = tensor.elements();
        let mut found = 0;
        for number in numbers {
            if found < expected {
                tensor.set(found, number);
            }
            found += 1;
        }
        Self::check_length(&tensor.ty, "elements", expected, found)?;
        Ok(tensor)
    }

    /// A scalar (rank 0).
    pub fn scalar<T: Element>(value: T) -> Tensor {
        let mut tensor = Tensor::zeros(ConcreteType { dtype: T::DTYPE, shape: Vec::new() });
        tensor.set(0, value.to_number());
        tensor
    }

    fn check_length(
        ty: &ConcreteType,
        unit: &'static str,
        expected: usize,
        found: usize,
    ) -> Result<(), TensorError> {
        if expected == found {
            return Ok(());
        }
        Err(TensorError::Length { ty: ty.clone(), unit, expected, found })
    }

    /// Element type and shape.
    pub fn ty(&self) -> &ConcreteType {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.ty.shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.ty.elements()
    }

    /// The packed bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Owned(words) => &bytemuck::cast_slice(words)[..self.ty.byte_len()],
            Storage::Shared(bytes) => bytes,
        }
    }

    /// The packed bytes, for writing; copies them first if they are shared.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let length = self.ty.byte_len();
        if let Storage::Shared(bytes) = &self.storage {
            let mut words = vec![0u128; length.div_ceil(16)];
            bytemuck::cast_slice_mut(&mut words)[..length].copy_from_slice(bytes);
            self.storage = Storage::Owned(Arc::new(words));
        }
        match &mut self.storage {
            Storage::Owned(words) => {
                &mut bytemuck::cast_slice_mut(Arc::make_mut(words).as_mut_slice())[..length]
            }
            // Replaced above.
            Storage::Shared(_) => &mut [],
        }
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// [`TensorError::DType`] if they are of another type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        self.check_dtype(T::DTYPE)?;
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// The elements in row-major order, for writing.
    ///
    /// # Errors
    /// [`TensorError::DType`] if they are of another type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        self.check_dtype(T::DTYPE)?;
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    fn check_dtype(&self, expected: DType) -> Result<(), TensorError> {
        let found = self.dtype();
        if expected == found { Ok(()) } else { Err(TensorError::DType { expected, found }) }
    }

    /// The element at a row-major index. Slow: for reference code and small tensors.
    ///
    /// # Panics
    /// If `index` is not below [`Tensor::elements`].
    pub fn get(&self, index: usize) -> Number {
        fn at<T: Element>(bytes: &[u8], index: usize) -> Number {
            bytemuck::cast_slice::<u8, T>(bytes)[index].to_number()
        }
        let bytes = self.bytes();
        match self.dtype() {
            DType::F64 => at::<f64>(bytes, index),
            DType::F32 => at::<f32>(bytes, index),
            DType::F16 => at::<f16>(bytes, index),
            DType::Bf16 => at::<bf16>(bytes, index),
            DType::F8E4m3fn => at::<F8E4m3fn>(bytes, index),
            DType::F8E5m2 => at::<F8E5m2>(bytes, index),
            DType::I64 => at::<i64>(bytes, index),
            DType::I32 => at::<i32>(bytes, index),
            DType::I16 => at::<i16>(bytes, index),
            DType::I8 => at::<i8>(bytes, index),
            DType::U64 => at::<u64>(bytes, index),
            DType::U32 => at::<u32>(bytes, index),
            DType::U16 => at::<u16>(bytes, index),
            DType::U8 => at::<u8>(bytes, index),
            DType::Bool => at::<Bool>(bytes, index),
            DType::U4 => Number::Unsigned(u64::from(nibble(bytes, index))),
            DType::I4 => Number::Signed(i64::from((nibble(bytes, index) << 4) as i8 >> 4)),
        }
    }

    /// Sets the element at a row-major index, rounded as [`Number::round_to`] does. Slow, as
    /// [`Tensor::get`] is; copies shared bytes first.
    ///
    /// # Panics
    /// If `index` is not below [`Tensor::elements`].
    pub fn set(&mut self, index: usize, number: Number) {
        fn put<T: Element>(bytes: &mut [u8], index: usize, number: Number) {
            bytemuck::cast_slice_mut::<u8, T>(bytes)[index] = T::from_number(number);
        }
        let dtype = self.dtype();
        let bytes = self.bytes_mut();
        match dtype {
            DType::F64 => put::<f64>(bytes, index, number),
            DType::F32 => put::<f32>(bytes, index, number),
            DType::F16 => put::<f16>(bytes, index, number),
            DType::Bf16 => put::<bf16>(bytes, index, number),
            DType::F8E4m3fn => put::<F8E4m3fn>(bytes, index, number),
            DType::F8E5m2 => put::<F8E5m2>(bytes, index, number),
            DType::I64 => put::<i64>(bytes, index, number),
            DType::I32 => put::<i32>(bytes, index, number),
            DType::I16 => put::<i16>(bytes, index, number),
            DType::I8 => put::<i8>(bytes, index, number),
            DType::U64 => put::<u64>(bytes, index, number),
            DType::U32 => put::<u32>(bytes, index, number),
            DType::U16 => put::<u16>(bytes, index, number),
            DType::U8 => put::<u8>(bytes, index, number),
            DType::Bool => put::<Bool>(bytes, index, number),
            DType::U4 | DType::I4 => {
                let value = (number.to_integer() as u8) & 0xf;
                let byte = &mut bytes[index / 2];
                *byte = if index.is_multiple_of(2) {
                    (*byte & 0xf0) | value
                } else {
                    (*byte & 0x0f) | (value << 4)
                };
            }
        }
    }

    /// All elements in row-major order. Slow, as [`Tensor::get`] is.
    pub fn numbers(&self) -> impl Iterator<Item = Number> + '_ {
        (0..self.elements()).map(|index| self.get(index))
    }

    /// All elements as the nearest `f64`, in row-major order.
    pub fn to_floats(&self) -> Vec<f64> {
        match self.dtype() {
            DType::F64 => bytemuck::cast_slice(self.bytes()).to_vec(),
            DType::F32 => {
                bytemuck::cast_slice::<u8, f32>(self.bytes()).iter().map(|x| (*x).into()).collect()
            }
            _ => self.numbers().map(Number::to_float).collect(),
        }
    }

    /// All elements as integers modulo 2^64, in row-major order; floats as
    /// [`Number::to_integer`] converts them.
    pub fn to_integers(&self) -> Vec<i64> {
        match self.dtype() {
            DType::I64 => bytemuck::cast_slice(self.bytes()).to_vec(),
            DType::I8 => {
                bytemuck::cast_slice::<u8, i8>(self.bytes()).iter().map(|x| (*x).into()).collect()
            }
            DType::U8 => self.bytes().iter().map(|x| (*x).into()).collect(),
            _ => self.numbers().map(|number| number.to_integer() as i64).collect(),
        }
    }

    /// The same bytes under another shape of as many elements.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Tensor, TensorError> {
        let ty = ConcreteType::new(self.dtype(), shape.to_vec())?;
        Self::check_length(&ty, "elements", ty.elements(), self.elements())?;
        Ok(Tensor { ty, storage: self.storage.clone() })
    }

    /// The same bytes under another type of as many bytes; copied only if they are not aligned
    /// for it.
    pub fn reinterpreted(&self, ty: ConcreteType) -> Result<Tensor, TensorError> {
        match &self.storage {
            Storage::Shared(bytes) => Tensor::from_shared(ty, bytes.clone()),
            Storage::Owned(_) => {
                Self::check_length(&ty, "bytes", ty.byte_len(), self.ty.byte_len())?;
                Ok(Tensor { ty, storage: self.storage.clone() })
            }
        }
    }
}

fn nibble(bytes: &[u8], index: usize) -> u8 {
    (bytes[index / 2] >> (4 * (index % 2))) & 0xf
}

/// Equal types and equal bits.
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.ty == other.ty && self.bytes() == other.bytes()
    }
}

impl Eq for Tensor {}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}", self.ty)?;
        let shown = 8;
        for number in self.numbers().take(shown) {
            match number {
                Number::Float(x) => write!(f, " {x}")?,
                Number::Signed(x) => write!(f, " {x}")?,
                Number::Unsigned(x) => write!(f, " {x}")?,
                Number::Bool(x) => write!(f, " {x}")?,
            }
        }
        f.write_str(if self.elements() > shown { " …)" } else { ")" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_type_can_be_set_and_read() {
        for dtype in DType::ALL {
            let Ok(ty) = ConcreteType::new(dtype, vec![3]) else { unreachable!() };
            let mut tensor = Tensor::zeros(ty);
            for (index, value) in [1, 0, 1].into_iter().enumerate() {
                tensor.set(index, Number::Signed(value));
            }
            let values: Vec<f64> = tensor.numbers().map(Number::to_float).collect();
            assert_eq!(values, [1.0, 0.0, 1.0], "{dtype}");
        }
    }

    #[test]
    fn writing_leaves_clones_alone() {
        let Ok(a) = Tensor::from_elements(&[2], &[1f32, 2.0]) else { unreachable!() };
        let mut b = a.clone();
        b.set(0, Number::Float(9.0));
        assert_eq!(a.get(0), Number::Float(1.0));
        assert_eq!(b.get(0), Number::Float(9.0));
    }

    #[test]
    fn sizes_are_checked() {
        assert!(ConcreteType::new(DType::F32, vec![1 << 40, 1 << 40]).is_err());
        assert!(ConcreteType::new(DType::F32, vec![0, 1 << 40, 1 << 40]).is_err());
        let Ok(ty) = ConcreteType::new(DType::F32, vec![2]) else { unreachable!() };
        assert!(Tensor::from_bytes(ty, &[0; 7]).is_err());
    }
}
