//! `pool`: its attributes, inference and meaning; nothing of any other operator.

use super::window::Window;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Meaning, OpDef, TypeError, check};
use crate::types::TensorType;
use crate::{attribute_words, operator};

operator! {
    /// Pooling over windows in the spatial dimensions of `[N, C, D…]`.
    ///
    /// Results: the pooled tensor and, if `indices` (for `max` alone), the index of each maximum
    /// in the flattened operand, `i64`. Padding never wins a maximum. `before`/`after` are explicit; automatic
    /// padding is resolved before.
    Pool {
        /// What a window becomes.
        kind: PoolKind,
        /// Size of the window.
        kernel: Vec<i64>,
        /// Steps of the window.
        strides: Vec<i64>,
        /// Steps inside the window.
        dilations: Vec<i64>,
        /// Padding before each spatial dimension.
        before: Vec<i64>,
        /// Padding after it.
        after: Vec<i64>,
        /// Whether windows that reach over the end count; one that begins in the padding after the end never does.
        ceil: bool,
        /// Whether `average` divides by the whole window.
        count_padding: bool,
        /// The p of `lp`; 2 otherwise.
        power: i64,
        /// Whether indices are a result too.
        indices: bool,
        /// Whether indices count columns first.
        column_major: bool,
    }
}

attribute_words! {
    /// What a window becomes.
    PoolKind {
        /// Its greatest element.
        Max = "max",
        /// Its mean.
        Average = "average",
        /// `(Σ |x|^p)^(1/p)`.
        Lp = "lp",
    }
}

impl OpDef for Pool {
    const MNEMONIC: &'static str = "pool";

    fn infer(&self, operands: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = check::arity(operands)?;
        check::rank_at_least(operands, 0, 3)?;
        match self.kind {
            PoolKind::Max => check::dtype(operands, 0, "a number", |d| d != DType::Bool)?,
            PoolKind::Average | PoolKind::Lp => {
                check::dtype(operands, 0, "a floating-point type", DType::is_float)?
            }
        };
        let window = self.window();
        window.check(x.rank() - 2)?;
        window.check_padding()?;
        check::length("kernel", self.kernel.len(), x.rank() - 2)?;
        if let Some(size) = self.kernel.iter().find(|size| **size < 1) {
            return Err(TypeError::invalid(format!("a window of {size} elements")));
        }
        if self.indices && self.kind != PoolKind::Max {
            return Err(TypeError::invalid("indices are a result of `max` alone"));
        }
        if self.power < 1 {
            return Err(TypeError::invalid(format!("a power of {}", self.power)));
        }
        let mut shape = x.shape[..2].to_vec();
        for (axis, (extent, kernel)) in x.shape[2..].iter().zip(&self.kernel).enumerate() {
            shape.push(window.count(axis, extent, &Dim::from(*kernel), self.ceil)?);
        }
        let mut results = vec![TensorType::new(x.dtype, shape.clone())];
        if self.indices {
            results.push(TensorType::new(DType::I64, shape));
        }
        Ok(results)
    }

    fn meaning(&self, _operands: &[TensorType]) -> Meaning {
        todo!("pool: meaning")
    }

    fn operations(&self, _operands: &[TensorType], outputs: &[TensorType]) -> Dim {
        self.kernel.iter().map(|size| Dim::from(*size)).product::<Dim>() * outputs[0].elements()
    }
}

impl Pool {
    fn window(&self) -> Window<'_> {
        Window {
            strides: &self.strides,
            dilations: &self.dilations,
            before: &self.before,
            after: &self.after,
        }
    }
}
