//! The mappings of ONNX operators to IR operators, by theme; which name leads where stands in
//! `table`, never here.

pub(super) mod attention;
pub(super) mod einsum;
pub(super) mod index;
pub(super) mod matmul;
pub(super) mod norm;
pub(super) mod reduce;
pub(super) mod scalar;
pub(super) mod shape;
pub(super) mod slice;
