//! Records in pinned host memory that kernels write and the host reads without a copy; must never
//! give out a reference to memory that a kernel may be writing.

use super::context::Context;
use super::error::{CudaError, call};
use bytemuck::Pod;
use cudarc::driver::sys::{CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// Pinned host memory that the device reaches.
#[derive(Debug)]
pub(super) struct Pinned {
    context: Arc<Context>,
    pub(super) start: NonNull<u8>,
}

// SAFETY: plain bytes that the object owns.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Allocates at least one byte; all are 0.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Pinned, CudaError> {
        context.make_current()?;
        let bytes = bytes.max(1);
        let mut start: *mut c_void = std::ptr::null_mut();
        let flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: a context is current; the driver writes one address.
        unsafe { call!(cuMemHostAlloc(&mut start, bytes, flags))? };
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(CudaError::OutOfBounds { offset: 0, bytes, size: 0 });
        };
        // SAFETY: the block has that many bytes, and nothing else knows of it yet.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Pinned { context: context.clone(), start })
    }

    /// The address for kernels.
    fn device_address(&self) -> Result<u64, CudaError> {
        self.context.make_current()?;
        let mut address = 0;
        // SAFETY: the block is mapped for the device; the driver writes one address.
        unsafe {
            call!(cuMemHostGetDevicePointer_v2(&mut address, self.start.as_ptr().cast(), 0))?;
        }
        Ok(address)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: allocated in `new` and freed once. A failure cannot be told to anybody.
            let _ = unsafe { call!(cuMemFreeHost(self.start.as_ptr().cast())) };
        }
    }
}

/// A record that kernels write and the host reads.
#[derive(Debug)]
pub struct HostRecord<T> {
    memory: Pinned,
    address: u64,
    empty: T,
}

impl<T: Pod> HostRecord<T> {
    /// A record of zeros.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<Context>) -> Result<HostRecord<T>, CudaError> {
        let memory = Pinned::new(context, size_of::<T>())?;
        let address = memory.device_address()?;
        Ok(HostRecord { memory, address, empty: T::zeroed() })
    }

    /// The address for kernels.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// What the kernels wrote, and sets it to zeros again. To be asked when no kernel runs that
    /// writes it; meanwhile the result may be of different kernels.
    pub fn take(&mut self) -> T {
        let start = self.memory.start.cast::<T>();
        // SAFETY: the block has at least the size of the record and the alignment of a page; any
        // bytes are a `Pod`. The device may write meanwhile, hence volatile.
        unsafe {
            let found = start.read_volatile();
            start.write_volatile(self.empty);
            found
        }
    }
}
