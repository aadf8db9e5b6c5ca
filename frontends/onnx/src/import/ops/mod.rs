//! The mappings of ONNX operators to IR operators, by theme; which name leads where stands in
//! `table`, never here.

pub(super) mod index;
pub(super) mod scalar;
pub(super) mod shape;
pub(super) mod slice;
