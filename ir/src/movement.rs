//! Moves elements by their width alone: strided copies, copies of runs and index lookup, shared by
//! every operator that rearranges data; never looks at a value.

use crate::op::EvalError;
use crate::tensor::Tensor;
use crate::types::ConcreteType;
use std::borrow::Cow;

/// A tensor's elements at whole bytes each: 4-bit ones are unpacked, others as they lie.
pub(crate) struct Elements<'a> {
    /// Bytes per element.
    pub width: usize,
    /// The bytes.
    pub bytes: Cow<'a, [u8]>,
}

impl Elements<'_> {
    /// The elements of a tensor.
    pub fn of(tensor: &Tensor) -> Elements<'_> {
        match tensor.dtype().bits() {
            4 => {
                Elements { width: 1, bytes: Cow::Owned(unpack(tensor.bytes(), tensor.elements())) }
            }
            bits => Elements { width: bits as usize / 8, bytes: Cow::Borrowed(tensor.bytes()) },
        }
    }
}

/// A tensor whose elements, each at whole bytes as in [`Elements`], `write` fills in over zeros.
pub(crate) fn build(
    ty: &ConcreteType,
    write: impl FnOnce(&mut [u8]) -> Result<(), EvalError>,
) -> Result<Tensor, EvalError> {
    change(Tensor::try_zeros(ty.clone())?, write)
}

/// A tensor whose elements, each at whole bytes as in [`Elements`], `write` changes.
pub(crate) fn change(
    mut tensor: Tensor,
    write: impl FnOnce(&mut [u8]) -> Result<(), EvalError>,
) -> Result<Tensor, EvalError> {
    if tensor.dtype().bits() == 4 {
        let mut elements = unpack(tensor.bytes(), tensor.elements());
        write(&mut elements)?;
        for (byte, pair) in tensor.bytes_mut().iter_mut().zip(elements.chunks(2)) {
            *byte = pair[0] & 0xf | pair.get(1).map_or(0, |high| high << 4);
        }
    } else {
        write(tensor.bytes_mut())?;
    }
    Ok(tensor)
}

fn unpack(bytes: &[u8], elements: usize) -> Vec<u8> {
    let mut unpacked: Vec<u8> = bytes.iter().flat_map(|byte| [byte & 0xf, byte >> 4]).collect();
    unpacked.truncate(elements);
    unpacked
}

/// Strides in elements of a contiguous tensor.
pub(crate) fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].wrapping_mul(shape[axis] as isize);
    }
    strides
}

/// One loop of a strided copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loop {
    /// How often it runs.
    pub extent: usize,
    /// Elements from one to the next in the source; 0 repeats.
    pub from: isize,
    /// Elements from one to the next in the target.
    pub to: isize,
}

/// A copy of a box of elements between two strided places, outermost loop first.
#[derive(Clone, Debug)]
pub(crate) struct StridedCopy {
    /// The first element in the source.
    pub from: isize,
    /// The first element in the target.
    pub to: isize,
    /// The box.
    pub loops: Vec<Loop>,
}

impl StridedCopy {
    /// Copies elements of `width` bytes.
    ///
    /// # Errors
    /// The box does not lie inside the source or the target.
    pub fn run(self, width: usize, source: &[u8], target: &mut [u8]) -> Result<(), EvalError> {
        match width {
            1 => self.run_elements::<1>(source, target),
            2 => self.run_elements::<2>(source, target),
            4 => self.run_elements::<4>(source, target),
            8 => self.run_elements::<8>(source, target),
            _ => Err(EvalError::Invalid(format!("elements of {width} bytes"))),
        }
    }

    fn run_elements<const W: usize>(
        mut self,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<(), EvalError> {
        if self.loops.iter().any(|l| l.extent == 0) {
            return Ok(());
        }
        let (source, _) = source.as_chunks::<W>();
        let (target, _) = target.as_chunks_mut::<W>();
        self.check("source", source.len(), self.from, |l| l.from)?;
        self.check("target", target.len(), self.to, |l| l.to)?;
        self.merge();
        let Some((inner, outer)) = self.loops.split_last() else {
            target[self.to as usize] = source[self.from as usize];
            return Ok(());
        };
        let (extent, stride) = (inner.extent, inner.from);
        match (inner.from, inner.to) {
            (1, 1) => walk(outer, self.from, self.to, &mut |from, to| {
                target[to..to + extent].copy_from_slice(&source[from..from + extent]);
            }),
            (0, 1) => walk(outer, self.from, self.to, &mut |from, to| {
                target[to..to + extent].fill(source[from]);
            }),
            (_, 1) => match outer.iter().position(|l| l.from == 1) {
                Some(position) => {
                    let mut outer = outer.to_vec();
                    let crossing = outer.remove(position);
                    walk(&outer, self.from, self.to, &mut |from, to| {
                        let plane = StridedCopy {
                            from: from as isize,
                            to: to as isize,
                            loops: vec![crossing, *inner],
                        };
                        plane.transpose(source, target);
                    });
                }
                None => walk(outer, self.from, self.to, &mut |from, to| {
                    for (i, element) in target[to..to + extent].iter_mut().enumerate() {
                        *element = source[(from as isize + i as isize * stride) as usize];
                    }
                }),
            },
            _ => walk(&self.loops, self.from, self.to, &mut |from, to| target[to] = source[from]),
        }
        Ok(())
    }

    /// The least and the greatest element touched exist.
    fn check(
        &self,
        place: &str,
        length: usize,
        start: isize,
        stride: impl Fn(&Loop) -> isize,
    ) -> Result<(), EvalError> {
        let (mut least, mut greatest) = (start as i128, start as i128);
        for l in &self.loops {
            let reach = stride(l) as i128 * (l.extent as i128 - 1);
            least += reach.min(0);
            greatest += reach.max(0);
        }
        if least >= 0 && greatest < length as i128 {
            return Ok(());
        }
        Err(EvalError::Invalid(format!(
            "elements {least}..={greatest} of a {place} of {length} elements"
        )))
    }

    /// Drops loops that run once and joins loops that continue each other.
    fn merge(&mut self) {
        let mut merged: Vec<Loop> = Vec::with_capacity(self.loops.len());
        for l in self.loops.iter().filter(|l| l.extent != 1) {
            let whole = |stride: isize| stride.wrapping_mul(l.extent as isize);
            match merged.last_mut() {
                Some(last) if last.from == whole(l.from) && last.to == whole(l.to) => {
                    *last = Loop { extent: last.extent * l.extent, ..*l };
                }
                _ => merged.push(*l),
            }
        }
        self.loops = merged;
    }

    /// Copies a plane of two loops, the first contiguous in the source, the second in the target.
    /// Tiles go through a small buffer, so that both are touched a cache line at a time even where
    /// strides are powers of two.
    fn transpose<const W: usize>(&self, source: &[[u8; W]], target: &mut [[u8; W]]) {
        const TILE: usize = 32;
        let [crossing, inner] = self.loops[..] else { return };
        let line_from = |row: usize| (self.from + row as isize * inner.from) as usize;
        let line_to = |column: usize| (self.to + column as isize * crossing.to) as usize;
        if crossing.extent * inner.extent <= TILE * TILE / 16 {
            for column in 0..crossing.extent {
                for row in 0..inner.extent {
                    target[line_to(column) + row] = source[line_from(row) + column];
                }
            }
            return;
        }
        let mut tile = [[[0u8; W]; TILE]; TILE];
        for first_row in (0..inner.extent).step_by(TILE) {
            let rows = TILE.min(inner.extent - first_row);
            for first_column in (0..crossing.extent).step_by(TILE) {
                let columns = TILE.min(crossing.extent - first_column);
                for (row, line) in tile.iter_mut().enumerate().take(rows) {
                    let from = line_from(first_row + row) + first_column;
                    line[..columns].copy_from_slice(&source[from..from + columns]);
                }
                for column in 0..columns {
                    let to = line_to(first_column + column) + first_row;
                    for (element, line) in target[to..to + rows].iter_mut().zip(&tile) {
                        *element = line[column];
                    }
                }
            }
        }
    }
}

/// Calls `visit` with every pair of places of the loops. Places have been checked not to be
/// negative.
fn walk(loops: &[Loop], from: isize, to: isize, visit: &mut impl FnMut(usize, usize)) {
    let Some((first, rest)) = loops.split_first() else {
        return visit(from as usize, to as usize);
    };
    let (mut from, mut to) = (from, to);
    for _ in 0..first.extent {
        walk(rest, from, to, visit);
        from = from.wrapping_add(first.from);
        to = to.wrapping_add(first.to);
    }
}

/// Copies runs of `run` elements of `width` bytes from each first place, in elements of the
/// source, to each second, in elements of the target. Places must have been checked.
pub(crate) fn copy_runs(
    width: usize,
    run: usize,
    source: &[u8],
    target: &mut [u8],
    places: impl Iterator<Item = (usize, usize)>,
) {
    match width * run {
        0 => {}
        1 => copy_chunks::<1>(source, target, run, places),
        2 => copy_chunks::<2>(source, target, run, places),
        4 => copy_chunks::<4>(source, target, run, places),
        8 => copy_chunks::<8>(source, target, run, places),
        bytes => {
            for (from, to) in places {
                let (from, to) = (from * width, to * width);
                target[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
            }
        }
    }
}

/// Runs of `W` bytes are copied as one value.
fn copy_chunks<const W: usize>(
    source: &[u8],
    target: &mut [u8],
    run: usize,
    places: impl Iterator<Item = (usize, usize)>,
) {
    let width = W / run;
    for (from, to) in places {
        let (from, to) = (from * width, to * width);
        let mut element = [0u8; W];
        element.copy_from_slice(&source[from..from + W]);
        target[to..to + W].copy_from_slice(&element);
    }
}

/// The slices at `indices` along an axis, in their order. Indices must have been checked.
pub(crate) fn take(tensor: &Tensor, axis: usize, indices: &[usize]) -> Result<Tensor, EvalError> {
    let mut shape = tensor.shape().to_vec();
    let outer: usize = shape[..axis].iter().product();
    let run: usize = shape[axis + 1..].iter().product();
    let extent = std::mem::replace(&mut shape[axis], indices.len());
    let ty = ConcreteType::new(tensor.dtype(), shape)?;
    let source = Elements::of(tensor);
    build(&ty, |target| {
        let places = (0..outer).flat_map(|o| indices.iter().map(move |i| (o * extent + i) * run));
        let places = places.enumerate().map(|(to, from)| (from, to * run));
        copy_runs(source.width, run, &source.bytes, target, places);
        Ok(())
    })
}

/// Row-major places of a box of elements under given strides: one sum of index times stride for
/// each element of `shape`.
pub(crate) fn places(shape: &[usize], strides: &[isize]) -> impl Iterator<Item = usize> {
    let (shape, strides) = (shape.to_vec(), strides.to_vec());
    let mut index = vec![0usize; shape.len()];
    let mut place = 0isize;
    let elements: usize = shape.iter().product();
    (0..elements).map(move |_| {
        let current = place;
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            place += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            place -= strides[axis] * shape[axis] as isize;
            index[axis] = 0;
        }
        current as usize
    })
}

/// The values of an index operand, i32 or i64, as they were given.
pub(crate) fn indices(tensor: &Tensor) -> Result<Vec<i64>, EvalError> {
    if let Ok(indices) = tensor.as_slice::<i32>() {
        return Ok(indices.iter().map(|index| i64::from(*index)).collect());
    }
    Ok(tensor.as_slice::<i64>()?.to_vec())
}

/// An index into a dimension, counted from the end if negative.
pub(crate) fn resolve(index: i64, extent: usize) -> Result<usize, EvalError> {
    let counted = if index < 0 { i128::from(index) + extent as i128 } else { i128::from(index) };
    match usize::try_from(counted) {
        Ok(counted) if counted < extent => Ok(counted),
        _ => Err(EvalError::Index { index, extent }),
    }
}

/// Where each of `count` index tuples leads in dimensions of `extents`, in units of the slice that
/// a tuple selects.
pub(crate) fn resolve_tuples(
    indices: &[i64],
    count: usize,
    extents: &[usize],
) -> Result<Vec<usize>, EvalError> {
    let length = extents.len();
    (0..count)
        .map(|tuple| {
            let tuple = &indices[tuple * length..][..length];
            tuple.iter().zip(extents).try_fold(0, |place, (index, extent)| {
                Ok(place * extent + resolve(*index, *extent)?)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn numbered(shape: &[usize]) -> Result<Tensor, EvalError> {
        let elements: usize = shape.iter().product();
        Ok(Tensor::from_elements(shape, &(0..elements as i32).collect::<Vec<_>>())?)
    }

    fn copied(copy: StridedCopy, source: &Tensor, shape: &[usize]) -> Result<Tensor, EvalError> {
        let elements = Elements::of(source);
        let ty = ConcreteType::new(source.dtype(), shape.to_vec())?;
        build(&ty, |target| copy.run(elements.width, &elements.bytes, target))
    }

    #[test]
    fn planes_larger_than_a_tile_are_transposed() -> Result<(), EvalError> {
        let (rows, columns) = (37, 71);
        let copy = StridedCopy {
            from: 0,
            to: 0,
            loops: vec![
                Loop { extent: columns, from: 1, to: rows as isize },
                Loop { extent: rows, from: columns as isize, to: 1 },
            ],
        };
        let result = copied(copy, &numbered(&[rows, columns])?, &[columns, rows])?;
        for (place, element) in result.as_slice::<i32>()?.iter().enumerate() {
            assert_eq!(*element as usize, place % rows * columns + place / rows);
        }
        Ok(())
    }

    #[test]
    fn boxes_outside_are_refused() -> Result<(), EvalError> {
        let source = numbered(&[6])?;
        for (from, stride) in [(0, -1), (3, 1), (-1, 1), (0, 2)] {
            let copy =
                StridedCopy { from, to: 0, loops: vec![Loop { extent: 4, from: stride, to: 1 }] };
            assert!(copied(copy, &source, &[4]).is_err(), "{from} {stride}");
        }
        Ok(())
    }

    #[test]
    fn four_bit_elements_keep_their_neighbours() -> Result<(), EvalError> {
        let ty = ConcreteType::new(DType::U4, vec![5])?;
        let source = Tensor::from_bytes(ty, &[0x21, 0x43, 0x05])?;
        let taken = take(&source, 0, &[4, 0, 3])?;
        assert_eq!(taken.bytes(), [0x15, 0x04]);
        Ok(())
    }

    #[test]
    fn indices_count_from_both_ends() {
        assert_eq!(resolve(-3, 3), Ok(0));
        assert_eq!(resolve(2, 3), Ok(2));
        for index in [3, -4, i64::MIN, i64::MAX] {
            assert_eq!(resolve(index, 3), Err(EvalError::Index { index, extent: 3 }));
        }
        assert!(resolve(0, 0).is_err());
    }
}
