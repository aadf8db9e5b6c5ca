//! The list of operators: the only one. Each has a file of its own; the scalar functions share
//! the table in `scalar_table`. Never behaviour of a single operator.

use crate::attribute::Attributes;
use crate::dim::{Bindings, Dim, DimError};
use crate::op::{Meaning, OpDef, TypeError};
use crate::text::{Cursor, SyntaxError};
use crate::types::TensorType;
use std::fmt;

macro_rules! operators {
    ($($(#[$meta:meta])* $module:ident :: $name:ident),* $(,)?) => {
        $(mod $module; pub use $module::*;)*

        /// An operator with its attributes.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op {
            /// An elementwise function of the scalar table.
            Scalar(Scalar),
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name)),*
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op { Op::$name(op) }
        })*

        impl From<Scalar> for Op {
            fn from(scalar: Scalar) -> Op { Op::Scalar(scalar) }
        }

        /// Runs `$body` with `$op` bound to the operator's struct.
        macro_rules! for_op {
            ($value:expr, $op:ident => $body:expr) => {
                match $value {
                    Op::Scalar($op) => $body,
                    $(Op::$name($op) => $body),*
                }
            };
        }

        impl Op {
            /// The mnemonics of all operators but the scalar functions, in the order of the list.
            pub const STRUCTURED: &'static [&'static str] = &[$($name::MNEMONIC),*];

            /// The name in IR text.
            pub fn mnemonic(&self) -> &'static str {
                match self {
                    Op::Scalar(scalar) => scalar.mnemonic(),
                    $(Op::$name(_) => $name::MNEMONIC),*
                }
            }

            /// Reads the attributes that follow a mnemonic. `None` if there is no such operator.
            pub fn parse(
                mnemonic: &str,
                cursor: &mut Cursor<'_>,
            ) -> Option<Result<Op, SyntaxError>> {
                $(if mnemonic == $name::MNEMONIC {
                    return Some($name::parse_attributes(cursor).map(Op::$name));
                })*
                Scalar::parse(mnemonic, cursor).map(|scalar| scalar.map(Op::Scalar))
            }
        }
    };
}

operators! {
    // Made from nothing.
    iota::Iota,
    dims::Dims,
    // Movements.
    reshape::Reshape,
    transpose::Transpose,
    broadcast::Broadcast,
    slice::Slice,
    concat::Concat,
    append::Append,
    pad::Pad,
    bitcast::Bitcast,
    // Indexing.
    gather::Gather,
    gather_elements::GatherElements,
    gather_nd::GatherNd,
    scatter_elements::ScatterElements,
    scatter_nd::ScatterNd,
    tensor_scatter::TensorScatter,
    // Products and reductions.
    matmul::Matmul,
    reduce::Reduce,
    arg_reduce::ArgReduce,
    cumulative::Cumulative,
    top_k::TopK,
    // Normalisations.
    softmax::Softmax,
    log_softmax::LogSoftmax,
    layer_norm::LayerNorm,
    rms_norm::RmsNorm,
    group_norm::GroupNorm,
    batch_norm::BatchNorm,
    local_response_norm::LocalResponseNorm,
    // Attention.
    attention::Attention,
    rotary_embedding::RotaryEmbedding,
    // Quantisation.
    quantize::Quantize,
    dequantize::Dequantize,
    // Vision.
    conv::Conv,
    conv_transpose::ConvTranspose,
    pool::Pool,
    resize::Resize,
    grid_sample::GridSample,
    // Groups.
    fused::Fused,
}

mod compose;
mod scalar_table;
mod values;
mod window;
pub use scalar_table::*;

impl Op {
    /// The types of the outputs. See [`OpDef::infer`].
    pub fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        for_op!(self, op => op.infer(operands))
    }

    /// What the operator computes. See [`OpDef::meaning`].
    pub fn meaning(&self, operands: &[TensorType]) -> Meaning {
        for_op!(self, op => op.meaning(operands))
    }

    /// Arithmetic operations. See [`OpDef::operations`].
    pub fn operations(&self, operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        for_op!(self, op => op.operations(operands, outputs))
    }

    /// The operator with every symbol among its attributes replaced by its value.
    ///
    /// # Errors
    /// A symbol has no value, or a dimension overflows.
    pub fn bind(&self, bindings: &Bindings) -> Result<Op, DimError> {
        let mut op = self.clone();
        let mut result = Ok(());
        op.visit_dims(&mut |dim| match dim.evaluate(bindings) {
            Ok(value) => *dim = Dim::from(value),
            Err(error) => result = Err(error),
        });
        result.map(|()| op)
    }

    /// The attributes as text, ` {name = value, …}`, or nothing if there are none.
    pub fn attributes(&self) -> impl fmt::Display + '_ {
        AttributesOf(self)
    }

    /// Calls `visit` on each dimension among the attributes.
    pub fn visit_dims(&mut self, visit: &mut dyn FnMut(&mut Dim)) {
        for_op!(self, op => op.visit_attribute_dims(visit))
    }
}

struct AttributesOf<'a>(&'a Op);

impl fmt::Display for AttributesOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for_op!(self.0, op => op.print_attributes(f))
    }
}

/// The mnemonic and the attributes, without operands.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.mnemonic(), self.attributes())
    }
}
