//! Positions of elements as C++ text: unravelling a number into coordinates, and coordinates into an
//! offset. Must never read or write an element.

use super::kernel::{KernelBuilder, TensorRef};
use membar_ir::dim::Dim;
use membar_ir::types::TensorType;

/// The position of an element of a tensor of that shape.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub shape: Vec<Dim>,
    /// The coordinates.
    pub axes: Vec<String>,
    /// The number of the element in row-major order, where it is at hand.
    pub linear: Option<String>,
}

impl Index {
    /// Declares the coordinates of element `linear` of a shape.
    pub fn unravel(kernel: &mut KernelBuilder<'_>, linear: &str, shape: &[Dim]) -> Index {
        let mut axes = vec![String::new(); shape.len()];
        let mut rest = linear.to_string();
        let outermost = shape.iter().position(|dim| !dim.is(1)).unwrap_or(0);
        for (axis, dim) in shape.iter().enumerate().rev() {
            axes[axis] = if dim.is(1) {
                "0".to_string()
            } else if axis == outermost {
                rest.clone()
            } else {
                let extent = kernel.dim(dim);
                let coordinate = kernel.bind("idx", "i", format!("{rest} % {extent}"));
                rest = kernel.bind("idx", "r", format!("{rest} / {extent}"));
                coordinate
            };
        }
        Index { shape: shape.to_vec(), axes, linear: Some(linear.to_string()) }
    }

    /// Given coordinates.
    pub fn at(shape: &[Dim], axes: Vec<String>) -> Index {
        Index { shape: shape.to_vec(), axes, linear: None }
    }

    /// The position in an operand that broadcasts to this shape.
    pub fn broadcast_to(&self, operand: &TensorType) -> Index {
        let skip = self.axes.len() - operand.rank().min(self.axes.len());
        if operand.shape == self.shape {
            return self.clone();
        }
        let axes = operand.shape.iter().zip(&self.axes[skip..]);
        let axes = axes.map(|(dim, axis)| if dim.is(1) { "0".to_string() } else { axis.clone() });
        let same = operand.shape[..] == self.shape[skip..]
            && self.shape[..skip].iter().all(|dim| dim.is(1));
        Index {
            shape: operand.shape.clone(),
            axes: axes.collect(),
            linear: self.linear.clone().filter(|_| same),
        }
    }

    /// The same coordinates with that of one axis replaced, in another shape.
    pub fn with_axis(&self, shape: &[Dim], axis: usize, coordinate: String) -> Index {
        let mut axes = self.axes.clone();
        axes[axis] = coordinate;
        Index::at(shape, axes)
    }

    /// The offset in elements from a tensor's beginning.
    pub fn offset(&self, kernel: &KernelBuilder<'_>, tensor: &TensorRef) -> String {
        if let Some(linear) = &self.linear
            && tensor.is_contiguous()
        {
            return linear.clone();
        }
        let terms: Vec<String> = self
            .axes
            .iter()
            .zip(tensor.strides())
            .filter(|(axis, _)| axis.as_str() != "0")
            .map(|(axis, stride)| match stride.as_constant() {
                Some(1) => axis.clone(),
                _ => format!("{axis} * {}", kernel.dim(&stride)),
            })
            .collect();
        if terms.is_empty() { "0".to_string() } else { terms.join(" + ") }
    }
}

/// The number of an element in row-major order of a shape.
pub(crate) fn ravel(kernel: &KernelBuilder<'_>, axes: &[String], shape: &[Dim]) -> String {
    let mut text = String::new();
    for (axis, dim) in axes.iter().zip(shape) {
        text = if text.is_empty() || text == "0" {
            axis.clone()
        } else {
            format!("({text}) * {} + {axis}", kernel.dim(dim))
        };
    }
    if text.is_empty() { "0".to_string() } else { text }
}
