//! Where the elements of a tensor lie in its bytes: element type, shape and strides; must never
//! hold the bytes themselves.

use membar_ir::dtype::DType;
use membar_ir::types::ConcreteType;
use smallvec::SmallVec;

/// A list with an item for each dimension.
pub(crate) type Extents = SmallVec<[usize; 6]>;

/// A tensor's elements within bytes: element `index` lies at `Σ index · strides`, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub dtype: DType,
    pub shape: Extents,
    pub strides: Extents,
}

impl View {
    /// Row-major without gaps.
    pub fn contiguous(ty: &ConcreteType) -> View {
        View {
            dtype: ty.dtype,
            shape: Extents::from_slice(&ty.shape),
            strides: row_major(&ty.shape),
        }
    }

    /// The leading corner of a larger row-major tensor.
    pub fn corner(ty: &ConcreteType, capacity: &[usize]) -> View {
        View {
            dtype: ty.dtype,
            shape: Extents::from_slice(&ty.shape),
            strides: row_major(capacity),
        }
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn ty(&self) -> ConcreteType {
        ConcreteType { dtype: self.dtype, shape: self.shape.to_vec() }
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut stride = 1;
        for (extent, actual) in self.shape.iter().zip(&self.strides).rev() {
            if *extent == 0 {
                return true;
            }
            if *extent != 1 && *actual != stride {
                return false;
            }
            stride *= extent;
        }
        true
    }

    /// How many bytes from the first to behind the last element; `None` on overflow.
    pub fn byte_span(&self) -> Option<usize> {
        if self.elements() == 0 {
            return Some(0);
        }
        let mut last = 0usize;
        for (extent, stride) in self.shape.iter().zip(&self.strides) {
            last = last.checked_add((extent - 1).checked_mul(*stride)?)?;
        }
        self.dtype.byte_len(last.checked_add(1)?)
    }

    /// The strides with which it is read as if it had shape `to`, NumPy's way: 0 where it repeats.
    pub fn broadcast(&self, to: &[usize]) -> Extents {
        let mut strides: Extents = SmallVec::from_elem(0, to.len());
        let skipped = to.len() - self.rank();
        for axis in 0..self.rank() {
            if self.shape[axis] != 1 {
                strides[skipped + axis] = self.strides[axis];
            }
        }
        strides
    }
}

/// The strides of a row-major tensor without gaps.
pub(crate) fn row_major(shape: &[usize]) -> Extents {
    let mut strides: Extents = SmallVec::from_elem(1, shape.len());
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// A walk over the elements of a shape in row-major order with one offset for each of several
/// stride lists; neighbouring dimensions are merged where all lists allow it.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    /// Merged extents, outermost first; at least one.
    pub shape: Extents,
    /// Merged strides, a list for each operand.
    pub strides: Vec<Extents>,
}

impl Walk {
    /// A walk over `shape` with these strides.
    pub fn new(shape: &[usize], strides: &[Extents]) -> Walk {
        let mut merged: Extents = SmallVec::new();
        let mut lists: Vec<Extents> = vec![SmallVec::new(); strides.len()];
        for axis in 0..shape.len() {
            if shape[axis] == 1 {
                continue;
            }
            let joins = merged.last().is_some()
                && lists.iter().zip(strides).all(|(list, strides)| {
                    list.last().is_some_and(|outer| *outer == strides[axis] * shape[axis])
                });
            if joins {
                let last = merged.len() - 1;
                merged[last] *= shape[axis];
                for (list, strides) in lists.iter_mut().zip(strides) {
                    list[last] = strides[axis];
                }
            } else {
                merged.push(shape[axis]);
                for (list, strides) in lists.iter_mut().zip(strides) {
                    list.push(strides[axis]);
                }
            }
        }
        if merged.is_empty() {
            merged.push(1);
            lists.iter_mut().for_each(|list| list.push(0));
        }
        Walk { shape: merged, strides: lists }
    }

    /// The extent of the innermost merged dimension.
    pub fn inner(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// Calls `visit(offset, start, length, stride)` for each run of operand `list` along the
    /// innermost dimension within elements `from..from + count` of the row-major order: `start` is
    /// the run's first position counted from `from`.
    pub fn runs(
        &self,
        list: usize,
        from: usize,
        count: usize,
        mut visit: impl FnMut(usize, usize, usize, usize),
    ) {
        // There may be no element to start from: a cache is empty before the first run.
        if count == 0 {
            return;
        }
        let strides = &self.strides[list];
        let inner = self.inner();
        let innermost = self.shape.len() - 1;
        let mut index: Extents = SmallVec::from_elem(0, self.shape.len());
        let mut rest = from;
        for axis in (0..self.shape.len()).rev() {
            index[axis] = rest % self.shape[axis];
            rest /= self.shape[axis];
        }
        let mut base: usize =
            index[..innermost].iter().zip(strides).map(|(i, stride)| i * stride).sum();
        let mut done = 0;
        while done < count {
            let length = (inner - index[innermost]).min(count - done);
            visit(base + index[innermost] * strides[innermost], done, length, strides[innermost]);
            done += length;
            index[innermost] = 0;
            for axis in (0..innermost).rev() {
                index[axis] += 1;
                base += strides[axis];
                if index[axis] < self.shape[axis] {
                    break;
                }
                base -= strides[axis] * self.shape[axis];
                index[axis] = 0;
            }
        }
    }

    /// Calls `visit(offsets, length)` for each run along the innermost merged dimension, with the
    /// offset of its first element in each list.
    pub fn rows(&self, mut visit: impl FnMut(&[usize], usize)) {
        let innermost = self.shape.len() - 1;
        let count: usize = self.shape[..innermost].iter().product();
        let mut offsets: Extents = SmallVec::from_elem(0, self.strides.len());
        let mut index: Extents = SmallVec::from_elem(0, innermost);
        if self.inner() == 0 {
            return;
        }
        for _ in 0..count {
            visit(&offsets, self.inner());
            for axis in (0..innermost).rev() {
                index[axis] += 1;
                let ends = index[axis] == self.shape[axis];
                for (offset, strides) in offsets.iter_mut().zip(&self.strides) {
                    *offset += strides[axis];
                    if ends {
                        *offset -= strides[axis] * self.shape[axis];
                    }
                }
                if !ends {
                    break;
                }
                index[axis] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_merge_what_lies_together() {
        let strides = [row_major(&[2, 3, 4]), SmallVec::from_slice(&[0, 4, 1])];
        let walk = Walk::new(&[2, 3, 4], &strides);
        assert_eq!(walk.shape.as_slice(), [2, 12]);
        assert_eq!(walk.strides[1].as_slice(), [0, 1]);
        let mut runs = Vec::new();
        walk.runs(1, 10, 5, |offset, start, length, stride| {
            runs.push((offset, start, length, stride));
        });
        assert_eq!(runs, [(10, 0, 2, 1), (0, 2, 3, 1)]);
    }

    #[test]
    fn gaps_are_seen() {
        let Ok(ty) = ConcreteType::new(DType::F32, vec![2, 3, 4]) else { unreachable!() };
        assert!(View::contiguous(&ty).is_contiguous());
        let corner = View::corner(&ty, &[2, 5, 4]);
        assert!(!corner.is_contiguous());
        assert_eq!(corner.byte_span(), Some((20 + 12) * 4));
        let Ok(one) = ConcreteType::new(DType::F32, vec![1, 3, 4]) else { unreachable!() };
        assert!(View::corner(&one, &[1, 5, 4]).is_contiguous());
    }
}
