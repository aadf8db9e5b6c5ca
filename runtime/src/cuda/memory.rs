//! Device memory; must never be read or written beyond its size by a copy.

use super::context::Context;
use super::error::{CudaError, call};
use bytemuck::Pod;
use cudarc::driver::sys::CUdeviceptr;
use std::ffi::c_void;
use std::sync::Arc;

/// A block of device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Arc<Context>,
    address: CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates; the contents are undefined. An empty block has no address.
    ///
    /// # Errors
    /// The device has not enough memory.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<DeviceMemory, CudaError> {
        context.make_current()?;
        let mut address = 0;
        if bytes > 0 {
            // SAFETY: a context is current; the driver writes one address.
            unsafe { call!(cuMemAlloc_v2(&mut address, bytes))? };
        }
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    /// The context that it was allocated in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies from the host, and waits for it.
    ///
    /// # Errors
    /// The elements reach beyond the block, or the driver's.
    pub fn write<T: Pod>(&mut self, offset: usize, elements: &[T]) -> Result<(), CudaError> {
        let source: &[u8] = bytemuck::cast_slice(elements);
        self.check(offset, source.len())?;
        if source.is_empty() {
            return Ok(());
        }
        self.context.make_current()?;
        let target = self.address + offset as u64;
        // SAFETY: the range was checked on both sides; the copy is over when the call returns.
        let copied = unsafe {
            call!(cuMemcpyHtoD_v2(target, source.as_ptr().cast::<c_void>(), source.len()))
        };
        self.context.watch(copied)
    }

    /// Copies to the host, and waits for it.
    ///
    /// # Errors
    /// The elements reach beyond the block, or the driver's.
    pub fn read<T: Pod>(&self, offset: usize, count: usize) -> Result<Vec<T>, CudaError> {
        let mut elements = vec![T::zeroed(); count];
        let target: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        self.check(offset, target.len())?;
        if !target.is_empty() {
            self.context.make_current()?;
            let (from, bytes) = (self.address + offset as u64, target.len());
            // SAFETY: the range was checked on both sides; any bytes are a `Pod`.
            let copied = unsafe {
                call!(cuMemcpyDtoH_v2(target.as_mut_ptr().cast::<c_void>(), from, bytes))
            };
            self.context.watch(copied)?;
        }
        Ok(elements)
    }

    /// Sets every byte, and waits for it.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill(&mut self, byte: u8) -> Result<(), CudaError> {
        if self.is_empty() {
            return Ok(());
        }
        self.context.make_current()?;
        // SAFETY: the block has that many bytes.
        unsafe { call!(cuMemsetD8_v2(self.address, byte, self.bytes))? };
        self.context.synchronize()
    }

    /// That bytes lie inside.
    pub(super) fn check(&self, offset: usize, bytes: usize) -> Result<(), CudaError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(CudaError::OutOfBounds { offset, bytes, size: self.bytes }),
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.is_empty() || self.context.make_current().is_err() {
            return;
        }
        // SAFETY: allocated in `new` and freed once. A failure cannot be told to anybody.
        let _ = unsafe { call!(cuMemFree_v2(self.address)) };
    }
}
