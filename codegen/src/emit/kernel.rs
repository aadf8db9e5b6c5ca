//! A kernel in the making: its parameters with the arguments of its launch, its lines, and the
//! shapes and places of the step's operands. Must never know an operator.

use super::dims::{DimScope, storage_type};
use super::headers::PRELUDE;
use membar_ir::dim::{Dim, Ranges, Symbol};
use membar_ir::graph::{Graph, NodeId, ValueId};
use membar_ir::ops::Op;
use membar_ir::program::{Argument, KernelId, Launch};
use membar_ir::schedule::Layout;
use membar_ir::types::TensorType;

/// An index type of 32 bits serves tensors of at most so many elements: a grid may step beyond the
/// end without overflow.
const NARROW_ELEMENTS: u64 = 1 << 30;

/// Extents that tiled kernels take are below this: positions are 32-bit numbers, and tiles may end
/// beyond the extent.
pub(crate) const GREATEST_EXTENT: u64 = (1 << 31) - 1024;

/// A step that is to become kernels.
pub(crate) struct StepContext<'a> {
    pub op: &'a Op,
    /// Position in the schedule, which fault records name.
    pub position: u32,
    pub operands: Vec<TensorRef>,
    pub outputs: Vec<TensorRef>,
    pub ranges: &'a Ranges,
    pub symbols: &'a [Symbol],
    pub units: u32,
    /// `90` for `sm_90a`.
    pub capability: u32,
}

/// An operand or output as a kernel sees it.
#[derive(Clone, Debug)]
pub(crate) struct TensorRef {
    pub ty: TensorType,
    /// The shape whose strides the elements have: `ty.shape`, or a capacity.
    pub storage: Vec<Dim>,
    /// Its bytes, to see whether two values are in the same place; `None` for weights.
    pub place: Option<(u32, u64)>,
}

impl TensorRef {
    pub fn of(graph: &Graph, value: ValueId) -> TensorRef {
        let data = graph.value(value);
        let storage = match &data.layout {
            Layout::Contiguous => data.ty.shape.clone(),
            Layout::Capacity(shape) => shape.clone(),
        };
        TensorRef {
            ty: data.ty.clone(),
            storage,
            place: data.region.as_ref().map(|region| (region.buffer.0, region.offset)),
        }
    }

    /// Elements from one to the next in each dimension.
    pub fn strides(&self) -> Vec<Dim> {
        let mut strides = vec![Dim::ONE; self.storage.len()];
        for axis in (1..self.storage.len()).rev() {
            strides[axis - 1] = strides[axis].clone() * self.storage[axis].clone();
        }
        strides
    }

    /// Whether there are no gaps between elements.
    pub fn is_contiguous(&self) -> bool {
        // The outermost extent does not matter for strides.
        self.storage.iter().zip(&self.ty.shape).skip(1).all(|(storage, extent)| storage == extent)
    }
}

impl<'a> StepContext<'a> {
    pub fn new(
        graph: &'a Graph,
        node: NodeId,
        op: &'a Op,
        position: u32,
        symbols: &'a [Symbol],
        (units, capability): (u32, u32),
    ) -> StepContext<'a> {
        let refs = |values: &[ValueId]| values.iter().map(|v| TensorRef::of(graph, *v)).collect();
        let data = graph.node(node);
        StepContext {
            op,
            position,
            operands: refs(data.operands()),
            outputs: refs(data.outputs()),
            ranges: &graph.symbols,
            symbols,
            units,
            capability,
        }
    }

    pub fn operand_types(&self) -> Vec<TensorType> {
        self.operands.iter().map(|operand| operand.ty.clone()).collect()
    }

    pub fn output_types(&self) -> Vec<TensorType> {
        self.outputs.iter().map(|output| output.ty.clone()).collect()
    }

    /// The greatest value of a dimension; `None` if it has no bound.
    pub fn greatest(&self, dim: &Dim) -> Option<u64> {
        dim.bounds(self.ranges).hi.map(|hi| u64::try_from(hi).unwrap_or(0))
    }

    /// The same, if it is an extent that tiled kernels take.
    pub fn extent(&self, dim: &Dim) -> Option<u64> {
        self.greatest(dim).filter(|extent| *extent < GREATEST_EXTENT)
    }

    /// The greatest number of elements of a product of dimensions.
    pub fn greatest_product(&self, dims: &[Dim]) -> u64 {
        let factors = dims.iter().map(|dim| self.greatest(dim).unwrap_or(u64::MAX));
        factors.fold(1u64, u64::saturating_mul)
    }

    /// Whether all element positions fit 32-bit arithmetic.
    fn is_narrow(&self) -> bool {
        let all = self.operands.iter().chain(&self.outputs);
        all.map(|tensor| self.greatest_product(&tensor.storage))
            .all(|elements| elements <= NARROW_ELEMENTS)
    }
}

/// A kernel with the launch of it.
pub(crate) struct Emitted {
    pub family: String,
    /// The translation unit with [`ENTRY`] for the entry point's name.
    pub source: String,
    /// The launch; its kernel's number is filled in later.
    pub launch: Launch,
}

/// Stands for the entry point's name until the text is complete.
pub(crate) const ENTRY: &str = "@entry@";

/// A launch's geometry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub blocks: u32,
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

/// A kernel being written.
pub(crate) struct KernelBuilder<'a> {
    pub step: &'a StepContext<'a>,
    pub dims: DimScope,
    parameters: Vec<String>,
    arguments: Vec<Argument>,
    headers: Vec<&'static str>,
    lines: Vec<String>,
    /// The numbers of the open blocks, outermost first.
    blocks: Vec<u32>,
    fresh: u32,
    waits_itself: bool,
}

impl<'a> KernelBuilder<'a> {
    pub fn new(step: &'a StepContext<'a>) -> KernelBuilder<'a> {
        KernelBuilder {
            step,
            dims: DimScope::new(step.symbols),
            parameters: vec!["const i64* dims".to_string()],
            arguments: vec![Argument::Dims],
            headers: Vec::new(),
            lines: Vec::new(),
            blocks: vec![0],
            fresh: 0,
            waits_itself: false,
        }
    }

    /// Adds a `.cuh` of this crate behind the prelude, once.
    pub fn header(&mut self, text: &'static str) {
        if !self.headers.contains(&text) {
            self.headers.push(text);
        }
    }

    /// A parameter and its argument.
    pub fn parameter(&mut self, declaration: &str, argument: Argument) {
        if !self.parameters.iter().any(|known| known == declaration) {
            self.parameters.push(declaration.to_string());
            self.arguments.push(argument);
        }
    }

    /// The pointer to an operand, a parameter if it was none yet.
    ///
    /// Pointers are never `__restrict__`: the compiler would read them through the path that does
    /// not see what a kernel before this one has just written.
    pub fn operand(&mut self, index: usize) -> String {
        let name = format!("x{index}");
        let operand = &self.step.operands[index];
        let ty = storage_type(operand.ty.dtype);
        self.parameter(&format!("const {ty}* {name}"), Argument::Operand(index as u32));
        name
    }

    /// The pointer to an output, a parameter if it was none yet.
    pub fn output(&mut self, index: usize) -> String {
        let name = format!("y{index}");
        let ty = storage_type(self.step.outputs[index].ty.dtype);
        self.parameter(&format!("{ty}* {name}"), Argument::Output(index as u32));
        name
    }

    /// The fault record, a parameter if it was none yet.
    pub fn faults(&mut self) -> &'static str {
        self.parameter("Faults* faults", Argument::Faults);
        self.parameter("u32 step", Argument::U32(self.step.position));
        "faults"
    }

    /// Declares `shared`, the dynamic shared memory at a multiple of `alignment`, of which the launch
    /// gives `expected` bytes and the kernel needs `found`.
    pub fn shared(&mut self, alignment: u32, found: &str, expected: u32) {
        self.line(format!("static_assert({found} == {expected}, \"what the launch gives\");"));
        self.line(format!("extern __shared__ __align__({alignment}) unsigned char shared[];"));
    }

    /// Says that the lines hold the wait for the steps before.
    pub fn waits_itself(&mut self) {
        self.waits_itself = true;
    }

    pub fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "    ".repeat(self.blocks.len()), text.as_ref()));
    }

    /// A line that opens a block.
    pub fn open(&mut self, text: impl AsRef<str>) {
        self.line(format!("{} {{", text.as_ref()).trim_start());
        self.open_again();
    }

    /// Closes a block.
    pub fn close(&mut self) {
        self.close_with("}");
    }

    /// Closes a block with this text.
    pub fn close_with(&mut self, text: &str) {
        self.blocks.pop();
        self.line(text);
    }

    /// Goes on inside a block that [`KernelBuilder::close_with`] has opened.
    pub fn open_again(&mut self) {
        self.fresh += 1;
        self.blocks.push(self.fresh);
    }

    /// The innermost open block.
    pub fn block(&self) -> u32 {
        self.blocks.last().copied().unwrap_or(0)
    }

    /// Whether what was declared in a block is visible here.
    pub fn is_open(&self, block: u32) -> bool {
        self.blocks.contains(&block)
    }

    /// A name that is not in use.
    pub fn name(&mut self, prefix: &str) -> String {
        self.fresh += 1;
        format!("{prefix}_{}", self.fresh)
    }

    /// A new constant of that type.
    pub fn bind(&mut self, ty: &str, prefix: &str, value: impl AsRef<str>) -> String {
        let name = self.name(prefix);
        self.line(format!("const {ty} {name} = {};", value.as_ref()));
        name
    }

    /// A dimension as text.
    pub fn dim(&self, dim: &Dim) -> String {
        self.dims.text(dim)
    }

    /// The product of dimensions as text.
    pub fn product(&self, dims: &[Dim]) -> String {
        self.dims.text(&dims.iter().cloned().fold(Dim::ONE, |a, b| a * b))
    }

    /// The text that was written while `write` ran, taken out.
    pub fn aside<R>(&mut self, write: impl FnOnce(&mut Self) -> R) -> (R, Vec<String>) {
        let before = self.lines.len();
        let result = write(self);
        (result, self.lines.split_off(before))
    }

    /// Puts lines that were taken out.
    pub fn put(&mut self, lines: Vec<String>) {
        self.lines.extend(lines);
    }

    /// The kernel: its prologue (release of the next step, dimensions, wait), then the lines.
    pub fn finish(self, family: &str, geometry: Geometry) -> Emitted {
        let index = if self.step.is_narrow() { "int" } else { "i64" };
        let mut source = String::from(PRELUDE);
        for header in &self.headers {
            source.push('\n');
            source.push_str(header);
        }
        source.push_str(&format!("\ntypedef {index} idx;\n\n"));
        source.push_str(&format!(
            "extern \"C\" __global__ void __launch_bounds__({}) {ENTRY}({}) {{\n",
            geometry.threads,
            self.parameters.join(", ")
        ));
        source.push_str("    let_next_step_start();\n");
        for line in self.dims.declarations() {
            source.push_str(&format!("    {line}\n"));
        }
        if !self.waits_itself {
            source.push_str("    wait_for_steps_before();\n");
        }
        for line in &self.lines {
            source.push_str(line);
            source.push('\n');
        }
        source.push_str("}\n");
        let launch = Launch {
            kernel: KernelId(0),
            grid: [geometry.blocks.max(1), 1, 1],
            block: [geometry.threads, 1, 1],
            cluster: 1,
            shared_bytes: geometry.shared_bytes,
            arguments: self.arguments,
        };
        Emitted { family: family.to_string(), source, launch }
    }
}
