//! Windows that slide over spatial dimensions, as `conv`, `conv_transpose` and `pool` use them:
//! sizes and checks; never a computation on elements.

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

impl Window<'_> {
    /// Every list has an item for each of `spatial` dimensions, and strides and dilations advance.
    pub fn check(&self, spatial: usize) -> Result<(), TypeError> {
        check::length("strides", self.strides.len(), spatial)?;
        check::length("dilations", self.dilations.len(), spatial)?;
        check::length("before", self.before.len(), spatial)?;
        check::length("after", self.after.len(), spatial)?;
        for (name, list) in [("strides", self.strides), ("dilations", self.dilations)] {
            if let Some(value) = list.iter().find(|value| **value < 1) {
                return Err(TypeError::invalid(format!(
                    "`{name}` has the item {value}, expected at least 1"
                )));
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
}
