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

/// The greatest stride, dilation, size of a window or amount of padding, so that places cannot overflow.
pub(super) const LIMIT: i64 = i32::MAX as i64;

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

    /// The places of [`Sweep::taps`] that are not in the padding. A window may be far larger than
    /// what lies beneath it, so its other elements are never enumerated.
    pub fn inside(&self, window: usize) -> Vec<usize> {
        let mut places = vec![0];
        for (axis, start) in self.starts(window).into_iter().enumerate() {
            let extent = self.extents[axis];
            let dilation = self.dilations[axis];
            let covered = self.covered(axis, start, 0, extent as i64);
            let extended = places.iter().flat_map(|place| {
                let coordinates = covered.clone().map(move |k| (start + k * dilation) as usize);
                coordinates.map(move |at| place * extent + at)
            });
            places = extended.collect();
        }
        places
    }

    /// How many elements of the window at its `window`-th place lie over the dimensions or their
    /// padding.
    pub fn padded_taps(&self, window: usize) -> usize {
        let covered = |(axis, start): (usize, i64)| {
            let end = self.extents[axis] as i64 + self.after[axis];
            self.covered(axis, start, -self.before[axis], end).count()
        };
        self.starts(window).into_iter().enumerate().map(covered).product()
    }

    /// The elements of a window that begins at `start` whose coordinates are in `least..end`.
    fn covered(&self, axis: usize, start: i64, least: i64, end: i64) -> std::ops::Range<i64> {
        let dilation = self.dilations[axis];
        let first_at = |coordinate: i64| (coordinate - start + dilation - 1).div_euclid(dilation);
        first_at(least).max(0)..first_at(end).min(self.kernel[axis] as i64)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(list: &[&str]) -> Vec<Dim> {
        list.iter()
            .map(|w| w.parse().map_or_else(|_| Dim::symbol(w), |d: i64| Dim::from(d)))
            .collect()
    }

    #[test]
    fn windows_are_counted_as_they_are_enumerated() -> Result<(), TypeError> {
        for extent in 1..=12i64 {
            for (kernel, stride, dilation, before, after) in [
                (1, 1, 1, 0, 0),
                (3, 2, 1, 1, 1),
                (2, 3, 2, 0, 2),
                (3, 4, 1, 2, 0),
                (2, 2, 1, 0, 0),
            ] {
                let window = Window {
                    strides: &[stride],
                    dilations: &[dilation],
                    before: &[before],
                    after: &[after],
                };
                let reach = (kernel - 1) * dilation + 1;
                let starts = (0..).map(|i| i * stride - before);
                let whole = starts.clone().take_while(|s| s + reach <= extent + after).count();
                // With `ceil`, one more window where elements are left over, unless it begins in
                // the padding after the end.
                let left_over = (extent + before + after - reach).rem_euclid(stride) != 0;
                let next = whole as i64 * stride - before;
                let started = starts.take_while(|s| *s < extent).count();
                let ceil = (whole + usize::from(left_over && next < extent)).min(started);
                for (expected, mode) in [(whole, false), (ceil, true)] {
                    let count = window.count(0, &Dim::from(extent), &Dim::from(kernel), mode);
                    if whole == 0 {
                        assert!(count.is_err());
                    } else {
                        let context = format!("{extent} {kernel} {stride} {dilation} {mode}");
                        assert_eq!(count?, Dim::from(expected as i64), "{context}");
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn symbolic_counts_hold_for_every_value() -> Result<(), Box<dyn std::error::Error>> {
        let window = Window { strides: &[2], dilations: &[1], before: &[1], after: &[1] };
        let (symbol, kernel) = (dims(&["S"]).swap_remove(0), Dim::from(3));
        for ceil in [false, true] {
            let count = window.count(0, &symbol, &kernel, ceil)?;
            for extent in 1..20 {
                let known = window.count(0, &Dim::from(extent), &kernel, ceil)?;
                let bindings = [(crate::dim::Symbol::new("S"), extent)].into();
                assert_eq!(count.evaluate(&bindings).ok(), known.as_constant());
            }
        }
        Ok(())
    }

    #[test]
    fn taps_lie_under_the_window() {
        let window =
            Window { strides: &[2, 1], dilations: &[1, 2], before: &[1, 0], after: &[0, 1] };
        window.check(2).unwrap_or_else(|error| panic!("{error}"));
        let sweep = window.sweep(&[3, 4], &[2, 2], &[2, 3]);
        assert_eq!((sweep.inside(1), sweep.inside(5)), (vec![1, 3], vec![6, 10]));
        // Rows -1 and 0, columns 1 and 3; then rows 1 and 2, columns 2 and 4.
        assert_eq!(sweep.taps(1), [None, None, Some(1), Some(3)]);
        assert_eq!(sweep.taps(5), [Some(6), None, Some(10), None]);
        assert_eq!((sweep.padded_taps(1), sweep.padded_taps(5)), (4, 4));
        let tight = Window { after: &[0, 0], ..window };
        assert_eq!(tight.sweep(&[3, 4], &[2, 2], &[2, 3]).padded_taps(5), 2);
    }

    #[test]
    fn places_inside_are_the_taps_that_are_not_padding() {
        for (stride, dilation, before, after) in [(1, 1, 0, 0), (2, 3, 4, 1), (3, 2, 5, 6)] {
            let window = Window {
                strides: &[stride, 1],
                dilations: &[1, dilation],
                before: &[before, 1],
                after: &[after, 2],
            };
            let counts = [(7 + before + after - 3) as usize / stride as usize + 1, 2];
            let sweep = window.sweep(&[7, 5], &[3, 2], &counts);
            for place in 0..counts[0] * counts[1] {
                let taps: Vec<usize> = sweep.taps(place).into_iter().flatten().collect();
                assert_eq!(sweep.inside(place), taps);
            }
        }
        let window =
            Window { strides: &[1], dilations: &[LIMIT], before: &[LIMIT], after: &[LIMIT] };
        assert_eq!(window.sweep(&[3], &[usize::MAX >> 34], &[9]).inside(0), [0]);
    }

    #[test]
    fn attributes_are_checked() {
        let window = |stride, dilation, before| -> Result<(), TypeError> {
            let window = Window {
                strides: &[stride],
                dilations: &[dilation],
                before: &[before],
                after: &[0],
            };
            window.check(1)?;
            window.check_padding()
        };
        assert!(window(1, 1, 0).is_ok());
        for (stride, dilation, before) in
            [(0, 1, 0), (1, 0, 0), (-1, 1, 0), (1, 1, -1), (i64::MAX, 1, 0), (1, 1, i64::MAX)]
        {
            assert!(window(stride, dilation, before).is_err());
        }
    }
}
