//! Windows that slide over spatial dimensions, as `conv`, `conv_transpose` and `pool` use them:
//! sizes, checks and places; never a computation on elements.

use crate::dim::Dim;
use crate::op::{TypeError, check};

/// The attributes of a sliding window, one item for each spatial dimension.
pub(super) struct Window<'a> {
    /// Steps of the window, at least 1.
    pub strides: &'a [i64],
    /// Steps inside the window, at least 1.
    pub dilations: &'a [i64],
    /// Padding before each dimension.
    pub before: &'a [i64],
    /// Padding after it.
    pub after: &'a [i64],
}

/// The greatest stride, dilation or amount of padding, so that places cannot overflow.
const LIMIT: i64 = i32::MAX as i64;

impl<'a> Window<'a> {
    /// Every list has an item for each of `spatial` dimensions, and strides and dilations advance.
    pub fn check(&self, spatial: usize) -> Result<(), TypeError> {
        check::length("strides", self.strides.len(), spatial)?;
        check::length("dilations", self.dilations.len(), spatial)?;
        check::length("before", self.before.len(), spatial)?;
        check::length("after", self.after.len(), spatial)?;
        for (name, list) in [("strides", self.strides), ("dilations", self.dilations)] {
            if let Some(value) = list.iter().find(|value| !(1..=LIMIT).contains(*value)) {
                return Err(TypeError::invalid(format!(
                    "`{name}` has the item {value}, expected 1..={LIMIT}"
                )));
            }
        }
        for amount in self.before.iter().chain(self.after) {
            if !(-LIMIT..=LIMIT).contains(amount) {
                return Err(TypeError::invalid(format!("padding by {amount} elements")));
            }
        }
        Ok(())
    }

    /// No padding is negative.
    pub fn check_padding(&self) -> Result<(), TypeError> {
        match self.before.iter().chain(self.after).find(|amount| **amount < 0) {
            Some(amount) => Err(TypeError::invalid(format!("padding by {amount} elements"))),
            None => Ok(()),
        }
    }

    /// How far a window of `kernel` elements reaches, dilated.
    pub fn reach(&self, axis: usize, kernel: &Dim) -> Dim {
        (kernel.clone() - Dim::ONE) * Dim::from(self.dilations[axis]) + Dim::ONE
    }

    /// How many windows fit a dimension of `extent` with its padding. With `ceil` those count too
    /// that reach over the end, as long as they begin before the padding after it.
    ///
    /// # Errors
    /// The window is larger than the padded dimension.
    pub fn count(
        &self,
        axis: usize,
        extent: &Dim,
        kernel: &Dim,
        ceil: bool,
    ) -> Result<Dim, TypeError> {
        let [before, after, stride] =
            [self.before[axis], self.after[axis], self.strides[axis]].map(Dim::from);
        let reach = self.reach(axis, kernel);
        let begin = extent.clone() + before;
        let room = begin.clone() + after - reach.clone();
        if room.as_constant().is_some_and(|room| room < 0) {
            return Err(TypeError::invalid(format!(
                "a window of {reach} elements in spatial dimension {axis}, which has {extent} \
                 and {} of padding",
                self.before[axis].saturating_add(self.after[axis])
            )));
        }
        // ceil(room / stride) + 1 windows, of which those stay that begin before `begin`; the
        // lesser is taken of the numerators because their difference is often a constant.
        let count = if ceil {
            (room + stride.clone()).minimum(&begin).ceil_div(&stride)
        } else {
            (room + stride.clone()).floor_div(&stride)
        };
        count.ok_or_else(|| TypeError::invalid("a stride of 0"))
    }

    /// The window's way over dimensions of known extents.
    pub fn sweep(
        &self,
        extents: &'a [usize],
        kernel: &'a [usize],
        counts: &'a [usize],
    ) -> Sweep<'a> {
        Sweep {
            strides: self.strides,
            dilations: self.dilations,
            before: self.before,
            after: self.after,
            extents,
            kernel,
            counts,
        }
    }
}

/// A window that slides over dimensions of known extents, `counts` times in each.
pub(super) struct Sweep<'a> {
    strides: &'a [i64],
    dilations: &'a [i64],
    before: &'a [i64],
    after: &'a [i64],
    extents: &'a [usize],
    kernel: &'a [usize],
    counts: &'a [usize],
}

impl Sweep<'_> {
    /// For each element of the window at its `window`-th place, both row-major, the row-major
    /// place in the dimensions beneath it; `None` in the padding.
    pub fn taps(&self, window: usize) -> Vec<Option<usize>> {
        let mut taps = vec![Some(0)];
        for (axis, start) in self.starts(window).into_iter().enumerate() {
            let extent = self.extents[axis];
            let coordinates: Vec<Option<usize>> = self
                .coordinates(axis, start)
                .map(|at| usize::try_from(at).ok().filter(|at| *at < extent))
                .collect();
            let extended = taps.iter().flat_map(|tap| {
                coordinates.iter().map(move |at| tap.zip(*at).map(|(tap, at)| tap * extent + at))
            });
            taps = extended.collect();
        }
        taps
    }

    /// How many elements of the window at its `window`-th place lie over the dimensions or their
    /// padding.
    pub fn padded_taps(&self, window: usize) -> usize {
        let inside = |(axis, start): (usize, i64)| {
            let end = self.extents[axis] as i64 + self.after[axis];
            self.coordinates(axis, start)
                .filter(|at| (-self.before[axis]..end).contains(at))
                .count()
        };
        self.starts(window).into_iter().enumerate().map(inside).product()
    }

    /// The coordinates of a window's first element.
    fn starts(&self, window: usize) -> Vec<i64> {
        let mut starts = vec![0; self.counts.len()];
        let mut rest = window;
        for (axis, count) in self.counts.iter().enumerate().rev() {
            starts[axis] = (rest % count) as i64 * self.strides[axis] - self.before[axis];
            rest /= count;
        }
        starts
    }

    fn coordinates(&self, axis: usize, start: i64) -> impl Iterator<Item = i64> {
        let dilation = self.dilations[axis];
        (0..self.kernel[axis] as i64).map(move |k| start + k * dilation)
    }
}
