//! Loaded cubins, their kernels, and launches with their arguments; never an order between them.

use super::context::Context;
use super::error::{CudaError, call};
use super::memory::DeviceMemory;
use bytemuck::Pod;
use cudarc::driver::sys::{
    CUfunction, CUfunction_attribute, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1, CUmodule,
};
use smallvec::SmallVec;
use std::ffi::{CString, c_void};
use std::mem;
use std::sync::Arc;

/// A loaded cubin.
#[derive(Debug)]
pub struct Module {
    context: Arc<Context>,
    raw: CUmodule,
}

// SAFETY: module handles may be used from any thread with the context current.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a cubin. It is native code: load only what was compiled here or comes from somebody
    /// who is trusted.
    ///
    /// # Errors
    /// The driver's: it is no cubin, or one for another architecture.
    pub fn load(context: &Arc<Context>, cubin: &[u8]) -> Result<Arc<Module>, CudaError> {
        context.make_current()?;
        let mut raw = std::ptr::null_mut();
        // Zeros behind the image keep a cut one from being read beyond its end at once.
        let mut image = cubin.to_vec();
        image.resize(cubin.len() + 4096, 0);
        // SAFETY: a context is current. The driver finds the end of an ELF image by itself, within
        // the bytes of a whole one; what is not whole comes from a caller who was told to load
        // trusted code alone.
        let loaded = unsafe { call!(cuModuleLoadData(&mut raw, image.as_ptr().cast::<c_void>())) };
        context.watch(loaded)?;
        Ok(Arc::new(Module { context: context.clone(), raw }))
    }

    /// A kernel of the module.
    ///
    /// # Errors
    /// [`CudaError::NoKernel`] if there is none of that name.
    pub fn function(self: &Arc<Module>, name: &str) -> Result<Function, CudaError> {
        self.context.make_current()?;
        let missing = || CudaError::NoKernel(name.to_string());
        let symbol = CString::new(name).map_err(|_| missing())?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded and the name ends with 0.
        let found = unsafe { call!(cuModuleGetFunction(&mut raw, self.raw, symbol.as_ptr())) };
        self.context.watch(found).map_err(|error| match error {
            CudaError::Lost { .. } => error,
            _ => missing(),
        })?;
        let mut parameters = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the kernel is loaded; the driver writes two sizes, or refuses an index
            // beyond the last parameter.
            let found =
                unsafe { call!(cuFuncGetParamInfo(raw, parameters.len(), &mut offset, &mut size)) };
            if found.is_err() {
                break;
            }
            parameters.push(size);
        }
        Ok(Function { module: self.clone(), raw, name: name.into(), parameters: parameters.into() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: loaded in `load` and unloaded once. A failure cannot be told to anybody.
            let _ = unsafe { call!(cuModuleUnload(self.raw)) };
        }
    }
}

/// A kernel. Keeps its module loaded.
#[derive(Clone, Debug)]
pub struct Function {
    pub(super) module: Arc<Module>,
    pub(super) raw: CUfunction,
    name: Arc<str>,
    /// Sizes of the declared arguments in bytes.
    parameters: Arc<[usize]>,
}

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as for modules.
unsafe impl Sync for Function {}

impl Function {
    /// Sets an attribute to at least a value: other launches of the kernel may need more.
    fn raise(&self, attribute: CUfunction_attribute, value: u32) -> Result<(), CudaError> {
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        let mut found = 0;
        // SAFETY: the kernel is loaded; the driver writes one integer.
        unsafe { call!(cuFuncGetAttribute(&mut found, attribute, self.raw))? };
        if found >= value {
            return Ok(());
        }
        // SAFETY: the kernel is loaded.
        unsafe { call!(cuFuncSetAttribute(self.raw, attribute, value)) }
    }
}

/// Dynamic shared memory that a kernel has without asking, in bytes.
const FREE_SHARED_BYTES: u32 = 48 << 10;

/// Blocks of a cluster that every device with clusters takes.
const FREE_CLUSTER: u32 = 8;

/// The arguments of a kernel, by value, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The bytes of all, each beginning at a word.
    words: SmallVec<[u64; 16]>,
    /// The word where each begins.
    starts: SmallVec<[usize; 8]>,
    /// Bytes of each.
    sizes: SmallVec<[usize; 8]>,
}

impl Arguments {
    /// No arguments.
    pub fn new() -> Arguments {
        Arguments::default()
    }

    /// Adds a pointer to device memory, `offset` bytes in.
    pub fn pointer(self, memory: &DeviceMemory, offset: u64) -> Arguments {
        self.value(memory.address() + offset)
    }

    /// Adds a plain value.
    pub fn value<T: Pod>(mut self, value: T) -> Arguments {
        let bytes = bytemuck::bytes_of(&value);
        let start = self.words.len();
        self.words.resize(start + bytes.len().div_ceil(8), 0);
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.words[start..])[..bytes.len()]
            .copy_from_slice(bytes);
        self.starts.push(start);
        self.sizes.push(bytes.len());
        self
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Pointers to the arguments, as the driver wants them. The driver only reads through them.
    pub(super) fn pointers(&self) -> SmallVec<[*mut c_void; 8]> {
        self.starts.iter().map(|start| self.words[*start..].as_ptr().cast_mut().cast()).collect()
    }
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub function: Function,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x; 1: no clusters.
    pub cluster: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// The arguments. Their number and sizes are checked against what the kernel declares. Memory
    /// that they point to must live until the launch has ended, else the device faults.
    pub arguments: Arguments,
}

impl Launch {
    /// A launch in one dimension without shared memory.
    pub fn linear(function: &Function, blocks: u32, threads: u32, arguments: Arguments) -> Launch {
        Launch {
            function: function.clone(),
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            cluster: 1,
            shared_bytes: 0,
            arguments,
        }
    }

    /// Makes the context of the kernel current, checks that the driver will find as many argument
    /// bytes as it reads, and lets the kernel have what must be asked for.
    pub(super) fn prepare(&self) -> Result<(), CudaError> {
        let (expected, found) = (&self.function.parameters, &self.arguments.sizes);
        if **expected != **found {
            return Err(CudaError::Arguments {
                kernel: self.function.name.to_string(),
                expected: expected.to_vec(),
                found: found.to_vec(),
            });
        }
        self.function.module.context.make_current()?;
        if self.shared_bytes > FREE_SHARED_BYTES {
            let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            self.function.raise(limit, self.shared_bytes)?;
        }
        if self.cluster > FREE_CLUSTER {
            let allowed = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            self.function.raise(allowed, 1)?;
        }
        Ok(())
    }

    /// The dimensions of a cluster as an attribute.
    pub(super) fn cluster_attribute(&self) -> CUlaunchAttributeValue {
        // SAFETY: a union of plain data; all bytes 0 are valid.
        let mut value: CUlaunchAttributeValue = unsafe { mem::zeroed() };
        value.clusterDim =
            CUlaunchAttributeValue_union__bindgen_ty_1 { x: self.cluster, y: 1, z: 1 };
        value
    }
}
