//! The kernel of `conv` on f32: windows gathered to columns, then a matrix product for each image
//! and group; must never read outside an image, padding is zeros in the columns.

use super::reference::tensor;
use crate::cpu::arena::{Matrix, Sizes, product};
use crate::cpu::program::{Call, Run, Selected, Shapes, cast};
use crate::cpu::view::View;
use membar_ir::dtype::DType;
use membar_ir::op::EvalError;
use membar_ir::ops::Conv;
use membar_ir::types::TensorType;
use rayon::prelude::*;

/// Elements of the columns that are made at a time: 4 MiB.
const PANEL: usize = 1 << 20;

/// `conv` on f32; `None` for other types.
pub(crate) fn select(op: &Conv, operands: &[TensorType]) -> Option<Selected> {
    if operands.iter().any(|ty| ty.dtype != DType::F32) {
        return None;
    }
    let op = op.clone();
    Some(Selected::new("conv", operands.len(), move |shapes| prepare(&op, shapes)))
}

/// One spatial dimension.
#[derive(Clone, Copy, Debug)]
struct Space {
    size: usize,
    kernel: usize,
    out: usize,
    stride: usize,
    dilation: usize,
    before: usize,
}

/// A convolution for concrete shapes.
struct Convolution {
    views: Vec<View>,
    spaces: Vec<Space>,
    /// Channels a group, on each side.
    channels: usize,
    filters: usize,
    groups: usize,
    /// Elements of an image's channel, of a filter's channel and of a result's channel.
    image: usize,
    window: usize,
    pixels: usize,
}

fn prepare(op: &Conv, shapes: &Shapes<'_>) -> Result<Run, EvalError> {
    let (x, w, y) = (&shapes.operands[0], &shapes.operands[1], &shapes.outputs[0]);
    let count = |value: i64, what: &str| {
        let invalid = || EvalError::Invalid(format!("{what} of {value}"));
        usize::try_from(value).map_err(|_| invalid())
    };
    let mut spaces = Vec::new();
    for i in 0..x.rank() - 2 {
        spaces.push(Space {
            size: x.shape[i + 2],
            kernel: w.shape[i + 2],
            out: y.shape[i + 2],
            stride: count(op.strides[i], "a stride")?,
            dilation: count(op.dilations[i], "a dilation")?,
            before: count(op.before[i], "padding")?,
        });
    }
    let groups = count(op.groups, "groups")?.max(1);
    let convolution = Convolution {
        views: shapes.operands.to_vec(),
        channels: w.shape[1],
        filters: w.shape[0] / groups,
        groups,
        image: spaces.iter().map(|space| space.size).product(),
        window: spaces.iter().map(|space| space.kernel).product(),
        pixels: spaces.iter().map(|space| space.out).product(),
        spaces,
    };
    let elements = y.elements();
    Ok(Box::new(move |call: &mut Call<'_, '_>| {
        if elements == 0 {
            return Ok(());
        }
        convolution.run(call, elements)
    }))
}

impl Convolution {
    fn run(&self, call: &mut Call<'_, '_>, elements: usize) -> Result<(), EvalError> {
        let mut packed = Vec::with_capacity(self.views.len());
        for (index, view) in self.views.iter().enumerate() {
            // Images and filters mostly have no gaps; then this copies nothing.
            packed.push(if view.is_contiguous() {
                None
            } else {
                Some(tensor(view, call.bytes(index)?)?)
            });
        }
        let mut data: Vec<&[f32]> = Vec::with_capacity(packed.len());
        for (index, packed) in packed.iter().enumerate() {
            data.push(match packed {
                Some(tensor) => cast(tensor.bytes())?,
                None => call.operand(index)?,
            });
        }
        let bias = data.get(2).copied();
        let out = &mut call.output::<f32>(0)?[..elements];
        let group = |(index, out): (usize, &mut [f32])| {
            let group = index % self.groups;
            let x = &data[0][index * self.channels * self.image..];
            let filters = self.filters * self.channels * self.window;
            let w = &data[1][group * filters..(group + 1) * filters];
            self.group(x, w, out, self.groups == 1);
            let Some(bias) = bias else { return };
            for (filter, out) in out.chunks_mut(self.pixels).enumerate() {
                let bias = bias[group * self.filters + filter];
                out.iter_mut().for_each(|y| *y += bias);
            }
        };
        let size = self.filters * self.pixels;
        if self.groups == 1 {
            out.chunks_mut(size).enumerate().for_each(group);
        } else {
            out.par_chunks_mut(size).enumerate().for_each(group);
        }
        Ok(())
    }

    /// One image and group: `out[filters, pixels] = w · columns`.
    fn group(&self, x: &[f32], w: &[f32], out: &mut [f32], parallel: bool) {
        let depth = self.channels * self.window;
        let width = (PANEL / depth.max(1)).clamp(16, self.pixels.max(16)).min(self.pixels);
        let mut columns = vec![0f32; depth * width];
        for first in (0..self.pixels).step_by(width) {
            let width = width.min(self.pixels - first);
            let columns = &mut columns[..depth * width];
            let row = |(index, row): (usize, &mut [f32])| self.column(x, index, first, row);
            if parallel {
                columns.par_chunks_mut(width).enumerate().with_min_len(8).for_each(row);
            } else {
                columns.chunks_mut(width).enumerate().for_each(row);
            }
            product(
                Sizes { m: self.filters, n: width, k: depth },
                Matrix { data: &mut out[first..], row_stride: self.pixels, column_stride: 1 },
                Matrix { data: w, row_stride: depth, column_stride: 1 },
                Matrix { data: columns, row_stride: width, column_stride: 1 },
                false,
                parallel,
            );
        }
    }

    /// What element `index` of a filter meets at each pixel from `first` on.
    fn column(&self, x: &[f32], index: usize, first: usize, row: &mut [f32]) {
        let x = &x[index / self.window * self.image..][..self.image];
        let rank = self.spaces.len();
        let mut taps = vec![0usize; rank];
        let mut pixel = vec![0usize; rank];
        let (mut rest, mut position) = (index % self.window, first);
        for axis in (0..rank).rev() {
            let space = self.spaces[axis];
            taps[axis] = rest % space.kernel;
            rest /= space.kernel;
            pixel[axis] = position % space.out;
            position /= space.out;
        }
        for value in row {
            // The element's place in the image; `None` in the padding.
            let mut at = Some(0usize);
            for axis in 0..rank {
                let space = self.spaces[axis];
                let padded = pixel[axis] * space.stride + taps[axis] * space.dilation;
                let inside = padded.checked_sub(space.before).filter(|place| *place < space.size);
                at = at.zip(inside).map(|(at, place)| at * space.size + place);
            }
            *value = at.map_or(0.0, |at| x[at]);
            for axis in (0..rank).rev() {
                pixel[axis] += 1;
                if pixel[axis] < self.spaces[axis].out {
                    break;
                }
                pixel[axis] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Random, check_op};

    #[test]
    fn convolutions_agree_with_the_reference() {
        let mut random = Random::new(71);
        // Image, filters, groups, strides, dilations, before, after.
        type Case<'a> = (&'a [usize], &'a [usize], i64, [&'a [i64]; 4]);
        let cases: &[Case<'_>] = &[
            (&[2, 3, 9], &[5, 3, 3], 1, [&[1], &[1], &[1], &[1]]),
            (&[2, 3, 7, 9], &[4, 3, 3, 2], 1, [&[1, 1], &[1, 1], &[0, 0], &[0, 0]]),
            (&[1, 4, 9, 8], &[6, 2, 3, 3], 2, [&[2, 1], &[1, 2], &[1, 2], &[0, 1]]),
            (&[2, 5, 8, 8], &[5, 1, 3, 3], 5, [&[1, 2], &[1, 1], &[1, 1], &[1, 1]]),
            (
                &[1, 2, 4, 5, 6],
                &[3, 2, 2, 3, 1],
                1,
                [&[1, 2, 1], &[1, 1, 1], &[1, 0, 0], &[0, 1, 0]],
            ),
            (&[1, 3, 40, 40], &[8, 3, 1, 1], 1, [&[1, 1], &[1, 1], &[0, 0], &[0, 0]]),
        ];
        for (image, filters, groups, [strides, dilations, before, after]) in cases {
            for bias in [false, true] {
                let mut operands =
                    vec![random.tensor(DType::F32, image), random.tensor(DType::F32, filters)];
                if bias {
                    operands.push(random.tensor(DType::F32, &filters[..1]));
                }
                let op = Conv {
                    strides: strides.to_vec(),
                    dilations: dilations.to_vec(),
                    before: before.to_vec(),
                    after: after.to_vec(),
                    groups: *groups,
                    bias,
                };
                check_op(op, &operands);
            }
        }
    }
}
