//! The table of ONNX operators: the only place where their names stand. What a mapping does is in
//! `ops`, never here.

use super::context::NodeContext;
use super::fault::NodeError;
use super::ops::{
    attention, einsum, index, matmul, microsoft, microsoft_attention, microsoft_grouped,
    microsoft_quant, norm, quant, quant_products, reduce, scalar, shape, slice, vision,
    vision_norm, vision_pad, vision_resize,
};
use super::symbols::Symbols;
use crate::error::shown_domain;
use crate::model::NodeDef;
use membar_ir::ops::{ArgKind, CumulativeKind, GeluForm, ReduceKind, Scalar};
use std::collections::HashMap;
use std::sync::OnceLock;

/// How the nodes of one ONNX operator are imported.
pub(crate) struct OpMapping {
    /// Normalised domain.
    pub(crate) domain: &'static str,
    /// Operator type.
    pub(crate) op_type: &'static str,
    /// Versions of the operator set in which the operator exists in a form that is supported.
    pub(crate) opsets: (i64, i64),
    /// What forms are supported, where not all are; for messages.
    pub(crate) supported: &'static str,
    /// Adds the node to the graph.
    pub(crate) import: fn(&mut NodeContext<'_, '_>) -> Result<(), NodeError>,
}

/// The mapping of a node, or why there is none.
pub(crate) fn find(node: &NodeDef) -> Result<&'static OpMapping, String> {
    static BY_NAME: OnceLock<HashMap<(&str, &str), &OpMapping>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        OPS.iter().map(|mapping| ((mapping.domain, mapping.op_type), mapping)).collect()
    });
    let name = (node.domain.as_str(), node.op_type.as_str());
    if let Some(mapping) = by_name.get(&name) {
        let (first, last) = mapping.opsets;
        if (first..=last).contains(&node.opset) {
            return Ok(mapping);
        }
        return Err(format!("is supported in opsets {first} to {last}"));
    }
    let refused = REFUSED.iter().find(|(op_type, _)| ("", *op_type) == name);
    Err(match refused {
        Some((_, reason)) => (*reason).to_owned(),
        None => format!("no such operator of `{}` is supported", shown_domain(&node.domain)),
    })
}

const fn op(
    op_type: &'static str,
    first: i64,
    import: fn(&mut NodeContext<'_, '_>) -> Result<(), NodeError>,
    supported: &'static str,
) -> OpMapping {
    OpMapping { domain: "", op_type, opsets: (first, 28), supported, import }
}

const fn until(
    op_type: &'static str,
    first: i64,
    last: i64,
    import: fn(&mut NodeContext<'_, '_>) -> Result<(), NodeError>,
    supported: &'static str,
) -> OpMapping {
    OpMapping { domain: "", op_type, opsets: (first, last), supported, import }
}

const fn microsoft(
    op_type: &'static str,
    import: fn(&mut NodeContext<'_, '_>) -> Result<(), NodeError>,
    supported: &'static str,
) -> OpMapping {
    OpMapping { domain: "com.microsoft", op_type, opsets: (1, 1), supported, import }
}

/// All operators, by theme and name.
#[rustfmt::skip]
pub(crate) static OPS: &[OpMapping] = &[
    // Elementwise functions of one operand.
    op("Abs", 7, |cx| scalar::unary_dims(cx, Scalar::Abs, scalar::abs_dims), ""),
    op("Acos", 7, |cx| scalar::unary(cx, Scalar::Acos), ""),
    op("Acosh", 9, |cx| scalar::unary(cx, Scalar::Acosh), ""),
    op("Asin", 7, |cx| scalar::unary(cx, Scalar::Asin), ""),
    op("Asinh", 9, |cx| scalar::unary(cx, Scalar::Asinh), ""),
    op("Atan", 7, |cx| scalar::unary(cx, Scalar::Atan), ""),
    op("Atanh", 9, |cx| scalar::unary(cx, Scalar::Atanh), ""),
    op("BitwiseNot", 18, |cx| scalar::unary(cx, Scalar::BitNot), ""),
    op("Ceil", 7, |cx| scalar::unary(cx, Scalar::Ceil), ""),
    op("Celu", 12, |cx| scalar::with_alpha(cx, 1.0, |alpha| Scalar::Celu { alpha }), ""),
    op("Cos", 7, |cx| scalar::unary(cx, Scalar::Cos), ""),
    op("Cosh", 9, |cx| scalar::unary(cx, Scalar::Cosh), ""),
    op("Elu", 7, |cx| scalar::with_alpha(cx, 1.0, |alpha| Scalar::Elu { alpha }), ""),
    op("Erf", 9, |cx| scalar::unary(cx, Scalar::Erf), ""),
    op("Exp", 7, |cx| scalar::unary(cx, Scalar::Exp), ""),
    op("Floor", 7, |cx| scalar::unary(cx, Scalar::Floor), ""),
    op("Gelu", 20, scalar::gelu, "approximate = none or tanh"),
    op("HardSigmoid", 7, scalar::hard_sigmoid, ""),
    op("HardSwish", 14, |cx| scalar::unary(cx, Scalar::HardSwish), ""),
    op("IsInf", 10, scalar::is_inf, ""),
    op("IsNaN", 9, |cx| scalar::unary(cx, Scalar::IsNan), ""),
    op("LeakyRelu", 7, |cx| scalar::with_alpha(cx, 0.01, |alpha| Scalar::LeakyRelu { alpha }), ""),
    op("Log", 7, |cx| scalar::unary(cx, Scalar::Log), ""),
    op("Mish", 18, |cx| scalar::unary(cx, Scalar::Mish), ""),
    op("Neg", 7, |cx| scalar::unary_dims(cx, Scalar::Neg, scalar::neg_dims), ""),
    op("Not", 7, |cx| scalar::unary_dims(cx, Scalar::Not, scalar::not_dims), ""),
    op("Reciprocal", 7, |cx| scalar::unary(cx, Scalar::Reciprocal), ""),
    op("Relu", 7, |cx| scalar::unary(cx, Scalar::Relu), ""),
    op("Round", 11, |cx| scalar::unary(cx, Scalar::Round), ""),
    op("Selu", 7, scalar::selu, ""),
    op("Shrink", 9, scalar::shrink, ""),
    op("Sigmoid", 7, |cx| scalar::unary(cx, Scalar::Sigmoid), ""),
    op("Sign", 9, |cx| scalar::unary(cx, Scalar::Sign), ""),
    op("Sin", 7, |cx| scalar::unary(cx, Scalar::Sin), ""),
    op("Sinh", 9, |cx| scalar::unary(cx, Scalar::Sinh), ""),
    op("Softplus", 7, |cx| scalar::unary(cx, Scalar::Softplus), ""),
    op("Softsign", 7, |cx| scalar::unary(cx, Scalar::Softsign), ""),
    op("Sqrt", 7, |cx| scalar::unary(cx, Scalar::Sqrt), ""),
    op("Swish", 24, |cx| scalar::with_alpha(cx, 1.0, |beta| Scalar::Swish { beta }), ""),
    op("Tan", 7, |cx| scalar::unary(cx, Scalar::Tan), ""),
    op("Tanh", 7, |cx| scalar::unary(cx, Scalar::Tanh), ""),
    op("ThresholdedRelu", 10, |cx| scalar::with_alpha(cx, 1.0, |alpha| Scalar::ThresholdedRelu { alpha }), ""),
    // Elementwise functions of several operands.
    op("Add", 7, |cx| scalar::binary_dims(cx, Scalar::Add, scalar::add_dims), ""),
    op("And", 7, |cx| scalar::binary_dims(cx, Scalar::And, scalar::and_dims), ""),
    op("BitShift", 11, scalar::bit_shift, ""),
    op("BitwiseAnd", 18, |cx| scalar::binary(cx, Scalar::BitAnd), ""),
    op("BitwiseOr", 18, |cx| scalar::binary(cx, Scalar::BitOr), ""),
    op("BitwiseXor", 18, |cx| scalar::binary(cx, Scalar::BitXor), ""),
    op("Cast", 7, scalar::cast, "between numbers and truth values"),
    op("CastLike", 15, scalar::cast_like, "between numbers and truth values"),
    op("Clip", 7, scalar::clip, ""),
    op("Div", 7, |cx| scalar::binary_dims(cx, Scalar::Div, scalar::div_dims), ""),
    op("Equal", 7, |cx| scalar::compare(cx, Scalar::Equal, Symbols::equal), ""),
    op("Greater", 7, |cx| scalar::compare(cx, Scalar::Greater, |s, a, b| Some(!s.at_least(b, a)?)), ""),
    op("GreaterOrEqual", 12, |cx| scalar::compare(cx, Scalar::GreaterOrEqual, Symbols::at_least), ""),
    op("Less", 7, |cx| scalar::compare(cx, Scalar::Less, |s, a, b| Some(!s.at_least(a, b)?)), ""),
    op("LessOrEqual", 12, |cx| scalar::compare(cx, Scalar::LessOrEqual, |s, a, b| s.at_least(b, a)), ""),
    op("Max", 7, |cx| scalar::variadic(cx, Scalar::Max, scalar::max_dims), ""),
    op("Mean", 7, scalar::mean, ""),
    op("Min", 7, |cx| scalar::variadic(cx, Scalar::Min, scalar::min_dims), ""),
    op("Mod", 10, scalar::modulo, ""),
    op("Mul", 7, |cx| scalar::binary_dims(cx, Scalar::Mul, scalar::mul_dims), ""),
    op("Or", 7, |cx| scalar::binary_dims(cx, Scalar::Or, scalar::or_dims), ""),
    op("PRelu", 7, |cx| scalar::binary(cx, Scalar::Prelu), ""),
    op("Pow", 7, scalar::pow, ""),
    op("Sub", 7, |cx| scalar::binary_dims(cx, Scalar::Sub, scalar::sub_dims), ""),
    op("Sum", 7, |cx| scalar::variadic(cx, Scalar::Add, scalar::add_dims), ""),
    op("Where", 9, scalar::where_, ""),
    op("Xor", 7, |cx| scalar::binary(cx, Scalar::Xor), ""),
    // Shapes and what is made from them.
    op("BitCast", 26, shape::bit_cast, "types of the same width"),
    op("Concat", 7, shape::concat, ""),
    op("Constant", 7, shape::constant, "numbers and truth values, dense"),
    op("ConstantOfShape", 9, shape::constant_of_shape, "a shape computed from shapes and constants"),
    op("Dropout", 7, shape::dropout, "inference"),
    op("Expand", 8, shape::expand, "a shape computed from shapes and constants"),
    op("Flatten", 7, shape::flatten, ""),
    op("Identity", 7, shape::identity, ""),
    op("If", 7, shape::if_, "a condition computed from shapes and constants"),
    op("Range", 11, shape::range, "limits computed from shapes and constants, a constant step"),
    op("Reshape", 7, shape::reshape, "a shape computed from shapes and constants"),
    op("Shape", 7, shape::shape, ""),
    op("Size", 7, shape::size, ""),
    op("Slice", 7, slice::slice, "limits computed from shapes and constants, constant axes and steps"),
    op("Split", 7, slice::split, "sizes computed from shapes and constants"),
    op("Squeeze", 7, shape::squeeze, "constant axes"),
    op("Tile", 7, shape::tile, "repeats computed from shapes and constants"),
    op("Transpose", 7, shape::transpose, ""),
    op("Unsqueeze", 7, shape::unsqueeze, "constant axes"),
    // Indexing.
    op("EyeLike", 9, index::eye_like, ""),
    op("Gather", 7, index::gather, ""),
    op("GatherElements", 11, index::gather_elements, ""),
    op("GatherND", 11, index::gather_nd, ""),
    op("OneHot", 9, index::one_hot, "a depth computed from shapes and constants"),
    until("Scatter", 9, 10, index::scatter_elements, ""),
    op("ScatterElements", 11, index::scatter_elements, ""),
    op("ScatterND", 11, index::scatter_nd, ""),
    op("TensorScatter", 24, index::tensor_scatter, ""),
    op("TopK", 7, index::top_k, "k computed from shapes and constants"),
    op("Trilu", 14, index::trilu, "k computed from shapes and constants"),
    // Products.
    op("Einsum", 12, einsum::einsum, ""),
    op("Gemm", 7, matmul::gemm, ""),
    op("MatMul", 7, matmul::matmul, ""),
    // Reductions and what runs along an axis.
    op("ArgMax", 7, |cx| reduce::arg(cx, ArgKind::Max), ""),
    op("ArgMin", 7, |cx| reduce::arg(cx, ArgKind::Min), ""),
    op("CumProd", 26, |cx| reduce::cumulative(cx, CumulativeKind::Prod), "a constant axis"),
    op("CumSum", 11, |cx| reduce::cumulative(cx, CumulativeKind::Sum), "a constant axis"),
    op("Hardmax", 7, reduce::hardmax, ""),
    op("LogSoftmax", 7, |cx| reduce::softmax(cx, reduce::log_softmax_op), ""),
    op("ReduceL1", 7, reduce::l1, "constant axes"),
    op("ReduceL2", 7, |cx| reduce::squares(cx, true), "constant axes, floats"),
    op("ReduceLogSum", 7, reduce::log_sum, "constant axes, floats"),
    op("ReduceLogSumExp", 7, reduce::log_sum_exp, "constant axes, floats"),
    op("ReduceMax", 7, |cx| reduce::simple(cx, ReduceKind::Max, Some(|s, a, b| s.maximum(&a, &b))), "constant axes"),
    op("ReduceMean", 7, |cx| reduce::simple(cx, ReduceKind::Mean, None), "constant axes"),
    op("ReduceMin", 7, |cx| reduce::simple(cx, ReduceKind::Min, Some(|s, a, b| s.minimum(&a, &b))), "constant axes"),
    op("ReduceProd", 7, |cx| reduce::simple(cx, ReduceKind::Prod, Some(|_, a, b| a * b)), "constant axes"),
    op("ReduceSum", 7, reduce::sum, "constant axes"),
    op("ReduceSumSquare", 7, |cx| reduce::squares(cx, false), "constant axes"),
    op("Softmax", 7, |cx| reduce::softmax(cx, reduce::softmax_op), ""),
    // Normalisations.
    op("GroupNormalization", 18, norm::group_norm, ""),
    op("LayerNormalization", 17, norm::layer_norm, ""),
    op("RMSNormalization", 23, norm::rms_norm, ""),
    op("SimplifiedLayerNormalization", 7, norm::simplified_layer_norm, "the first result"),
    // Attention.
    op("Attention", 23, attention::attention, "a known head size, or a scale"),
    op("RotaryEmbedding", 23, attention::rotary_embedding, ""),
    // Vision.
    op("AveragePool", 7, vision::average_pool, ""),
    op("BatchNormalization", 7, vision_norm::batch_norm, "inference"),
    op("Conv", 7, vision::conv, ""),
    op("ConvTranspose", 7, vision::conv_transpose, ""),
    op("DepthToSpace", 7, vision_pad::depth_to_space, ""),
    op("GlobalAveragePool", 7, |cx| vision::global_pool(cx, ReduceKind::Mean), ""),
    op("GlobalLpPool", 7, vision::global_lp_pool, ""),
    op("GlobalMaxPool", 7, |cx| vision::global_pool(cx, ReduceKind::Max), ""),
    op("GridSample", 16, vision_resize::grid_sample, ""),
    op("InstanceNormalization", 7, vision_norm::instance_norm, "a fixed number of channels"),
    op("LRN", 7, vision_norm::local_response_norm, ""),
    op("LpNormalization", 7, vision_norm::lp_normalization, "p = 1 or 2"),
    op("LpPool", 7, vision::lp_pool, ""),
    op("MaxPool", 7, vision::max_pool, ""),
    op("MeanVarianceNormalization", 9, vision_norm::mean_variance_norm, ""),
    op("Pad", 7, vision_pad::pad, "amounts computed from shapes and constants, of a known sign"),
    op("Resize", 10, vision_resize::resize, "constant scales, or sizes computed from shapes and constants"),
    op("SpaceToDepth", 7, vision_pad::space_to_depth, ""),
    until("Upsample", 7, 9, vision_resize::upsample, "constant scales"),
    // Quantisation.
    op("ConvInteger", 10, quant_products::conv_integer, ""),
    op("DequantizeLinear", 10, quant::dequantize, "integers of at most 16 bits, i32, 8-bit floats"),
    op("DynamicQuantizeLinear", 11, quant::dynamic_quantize, ""),
    op("MatMulInteger", 10, quant_products::matmul_integer, ""),
    op("QLinearConv", 10, quant_products::qlinear_conv, ""),
    op("QLinearMatMul", 10, quant_products::qlinear_matmul, ""),
    op("QuantizeLinear", 10, quant::quantize, "integers of at most 16 bits, 8-bit floats"),
    // Operators of onnxruntime.
    microsoft("Attention", microsoft_attention::packed_attention, "the projections in one matrix; padding masks of rank 1 to 3"),
    microsoft("BiasGelu", |cx| microsoft::biased(cx, GeluForm::Erf), ""),
    microsoft("DynamicQuantizeMatMul", quant_products::dynamic_quantize_matmul, ""),
    microsoft("EmbedLayerNormalization", microsoft::embed_layer_norm, ""),
    microsoft("FastGelu", |cx| microsoft::biased(cx, GeluForm::Tanh), ""),
    microsoft("FusedMatMul", microsoft::fused_matmul, ""),
    microsoft("GatherBlockQuantized", microsoft_quant::gather_block_quantized, "4 or 8 bits"),
    microsoft("Gelu", |cx| microsoft::biased(cx, GeluForm::Erf), ""),
    microsoft("GroupQueryAttention", microsoft_grouped::group_query_attention, "a cache in floats that the results extend; no smooth softmax"),
    microsoft("MatMulIntegerToFloat", quant_products::matmul_integer_to_float, ""),
    microsoft("MatMulNBits", microsoft_quant::matmul_n_bits, "4 or 8 bits, columns in their order"),
    microsoft("MultiHeadAttention", microsoft_attention::multi_head_attention, "a cache that the results extend; padding masks of rank 1 to 3"),
    microsoft("QuickGelu", microsoft::quick_gelu, ""),
    microsoft("RotaryEmbedding", microsoft_grouped::rotary_embedding, ""),
    microsoft("SimplifiedLayerNormalization", norm::simplified_layer_norm, "the first result"),
    microsoft("SkipLayerNormalization", microsoft::skip_layer_norm, ""),
    microsoft("SkipSimplifiedLayerNormalization", microsoft::skip_rms_norm, "results 0 and 3"),
];

const DATA_DEPENDENT: &str = "the shape of its result depends on data";
const LOOP: &str = "loops are not supported; export the model with the loop unrolled";
const RECURRENT: &str = "recurrent layers are not supported";
const SEQUENCE: &str = "sequences and optional values are not supported";
const STRING: &str = "strings are not supported";
const RANDOM: &str = "random numbers at run time are not supported";

/// Operators of ONNX that are refused, each with the reason.
pub(crate) static REFUSED: &[(&str, &str)] = &[
    ("Bernoulli", RANDOM),
    ("Compress", DATA_DEPENDENT),
    ("ConcatFromSequence", SEQUENCE),
    ("GRU", RECURRENT),
    ("LSTM", RECURRENT),
    ("Loop", LOOP),
    ("Multinomial", RANDOM),
    ("NonMaxSuppression", DATA_DEPENDENT),
    ("NonZero", DATA_DEPENDENT),
    ("Optional", SEQUENCE),
    ("OptionalGetElement", SEQUENCE),
    ("OptionalHasElement", SEQUENCE),
    ("RNN", RECURRENT),
    ("RandomNormal", RANDOM),
    ("RandomNormalLike", RANDOM),
    ("RandomUniform", RANDOM),
    ("RandomUniformLike", RANDOM),
    ("RegexFullMatch", STRING),
    ("Scan", LOOP),
    ("SequenceAt", SEQUENCE),
    ("SequenceConstruct", SEQUENCE),
    ("SequenceEmpty", SEQUENCE),
    ("SequenceErase", SEQUENCE),
    ("SequenceInsert", SEQUENCE),
    ("SequenceLength", SEQUENCE),
    ("SequenceMap", SEQUENCE),
    ("SplitToSequence", SEQUENCE),
    ("StringConcat", STRING),
    ("StringNormalizer", STRING),
    ("StringSplit", STRING),
    ("TfIdfVectorizer", STRING),
    ("Unique", DATA_DEPENDENT),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operator_stands_once() {
        let mut names: Vec<_> = OPS.iter().map(|op| (op.domain, op.op_type)).collect();
        names.extend(REFUSED.iter().map(|(op_type, _)| ("", *op_type)));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
