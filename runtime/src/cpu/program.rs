//! What the executor asks of a kernel: to be prepared for concrete shapes, then run on views; must
//! never know a particular kernel (see `library`).

use super::arena::Source;
use super::view::View;
use bytemuck::Pod;
use membar_ir::kernel::{InPlace, KernelSpec};
use membar_ir::op::EvalError;

/// A kernel that the library chose for an operator.
pub(crate) struct Selected {
    pub spec: KernelSpec,
    /// Whether outputs may have gaps.
    pub strided_outputs: bool,
    pub prepare: Prepare,
}

/// Prepares a kernel for concrete operands and outputs.
pub(crate) type Prepare = Box<dyn Fn(&Shapes<'_>) -> Result<Run, EvalError> + Send + Sync>;

/// A prepared kernel.
pub(crate) type Run = Box<dyn Fn(&mut Call<'_, '_>) -> Result<(), EvalError> + Send + Sync>;

/// The concrete shapes of one step.
pub(crate) struct Shapes<'a> {
    pub operands: &'a [View],
    pub outputs: &'a [View],
}

impl Selected {
    /// A kernel of that name which takes operands with gaps.
    pub fn new(
        name: &str,
        operands: usize,
        prepare: impl Fn(&Shapes<'_>) -> Result<Run, EvalError> + Send + Sync + 'static,
    ) -> Selected {
        let spec = KernelSpec {
            name: name.to_string(),
            strided_operands: (0..operands as u32).collect(),
            ..KernelSpec::default()
        };
        Selected { spec, strided_outputs: false, prepare: Box::new(prepare) }
    }

    /// Lets an operand and an output share their bytes.
    pub fn in_place(mut self, operand: usize, output: usize) -> Selected {
        self.spec.in_place.push(InPlace { operand: operand as u32, output: output as u32 });
        self
    }
}

/// The views of one step.
pub(crate) struct Call<'c, 'a> {
    pub sources: &'c [Source<'a>],
    pub outputs: &'c mut [&'a mut [u8]],
}

impl<'a> Call<'_, 'a> {
    /// The elements of an operand that is not in place.
    pub fn operand<T: Pod>(&self, index: usize) -> Result<&'a [T], EvalError> {
        match self.sources[index] {
            Source::Shared(bytes) => cast(bytes),
            Source::InPlace(_) => {
                Err(EvalError::Invalid(format!("operand {index} cannot be in place here")))
            }
        }
    }

    /// The bytes of an operand that is not in place.
    pub fn bytes(&self, index: usize) -> Result<&'a [u8], EvalError> {
        self.operand(index)
    }

    /// The bytes of an operand, in place or not.
    pub fn any_bytes(&self, index: usize) -> &[u8] {
        match self.sources[index] {
            Source::Shared(bytes) => bytes,
            Source::InPlace(output) => self.outputs[output],
        }
    }

    /// Whether an operand shares the bytes of an output.
    pub fn is_in_place(&self, index: usize) -> bool {
        matches!(self.sources[index], Source::InPlace(_))
    }

    /// The elements of an output, for writing.
    pub fn output<T: Pod>(&mut self, index: usize) -> Result<&mut [T], EvalError> {
        let bytes: &mut [u8] = self.outputs[index];
        bytemuck::try_cast_slice_mut(bytes).map_err(misaligned)
    }
}

/// Bytes as elements.
pub(crate) fn cast<T: Pod>(bytes: &[u8]) -> Result<&[T], EvalError> {
    bytemuck::try_cast_slice(bytes).map_err(misaligned)
}

fn misaligned(error: bytemuck::PodCastError) -> EvalError {
    EvalError::Invalid(format!("its bytes are not aligned for its element type ({error})"))
}
