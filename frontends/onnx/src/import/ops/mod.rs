//! The mappings of ONNX operators to IR operators, by theme; which name leads where stands in
//! `table`, never here.

pub(super) mod attention;
pub(super) mod einsum;
pub(super) mod index;
pub(super) mod matmul;
pub(super) mod microsoft;
pub(super) mod microsoft_attention;
pub(super) mod microsoft_grouped;
pub(super) mod microsoft_quant;
pub(super) mod norm;
pub(super) mod quant;
pub(super) mod quant_products;
pub(super) mod reduce;
pub(super) mod scalar;
pub(super) mod shape;
pub(super) mod slice;
pub(super) mod vision;
pub(super) mod vision_norm;
pub(super) mod vision_pad;
pub(super) mod vision_resize;
