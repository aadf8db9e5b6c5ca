//! Devices and their primary contexts; never memory or work.

use super::error::{CudaError, call};
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute};
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

/// The least driver version: CUDA 13.0.
const LEAST_VERSION: i32 = 13_000;

/// Whether the driver's library can be loaded.
pub fn is_driver_present() -> bool {
    // SAFETY: it opens and closes the library, whose initialisers are NVIDIA's.
    unsafe { sys::is_culib_present() }
}

/// A CUDA device of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    raw: CUdevice,
    /// Its number, from 0.
    pub number: i32,
}

impl Device {
    /// How many devices there are.
    ///
    /// # Errors
    /// There is no driver, it is too old, or it cannot be initialised.
    pub fn count() -> Result<i32, CudaError> {
        initialise()?;
        let mut count = 0;
        // SAFETY: the driver is initialised; it writes one integer.
        unsafe { call!(cuDeviceGetCount(&mut count))? };
        Ok(count)
    }

    /// The device of that number.
    ///
    /// # Errors
    /// As [`Device::count`]; [`CudaError::NoDevice`] if there is none of that number.
    pub fn get(number: i32) -> Result<Device, CudaError> {
        let count = Device::count()?;
        if !(0..count).contains(&number) {
            return Err(CudaError::NoDevice { asked: number, count });
        }
        let mut raw = 0;
        // SAFETY: the driver is initialised and the number in range.
        unsafe { call!(cuDeviceGet(&mut raw, number))? };
        Ok(Device { raw, number })
    }

    /// Its name, such as "NVIDIA H200".
    ///
    /// # Errors
    /// The driver's.
    pub fn name(self) -> Result<String, CudaError> {
        let mut name = [0; 256];
        // SAFETY: the driver writes at most the given number of bytes, with a final 0.
        unsafe {
            call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, self.raw))?;
            Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// Compute capability: 9 and 0 for an H200.
    ///
    /// # Errors
    /// The driver's.
    pub fn compute_capability(self) -> Result<(i32, i32), CudaError> {
        use CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        Ok((self.attribute(MAJOR)?, self.attribute(MINOR)?))
    }

    /// Number of streaming multiprocessors.
    ///
    /// # Errors
    /// The driver's.
    pub fn multiprocessors(self) -> Result<u32, CudaError> {
        let count = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(count.unsigned_abs())
    }

    fn attribute(self, attribute: CUdevice_attribute) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: the driver writes one integer.
        unsafe { call!(cuDeviceGetAttribute(&mut value, attribute, self.raw))? };
        Ok(value)
    }
}

/// Version of CUDA that the driver supports: 13000 for 13.0.
fn initialise() -> Result<(), CudaError> {
    if !is_driver_present() {
        return Err(CudaError::NoDriver);
    }
    let mut found = 0;
    // SAFETY: the library is there; the version can be asked before initialisation.
    unsafe { call!(cuDriverGetVersion(&mut found))? };
    if found < LEAST_VERSION {
        return Err(CudaError::OldDriver { found });
    }
    // SAFETY: the flags must be 0; initialising again does nothing.
    unsafe { call!(cuInit(0)) }
}

/// The primary context of a device, shared with whatever else uses it in this process.
#[derive(Debug)]
pub struct Context {
    raw: CUcontext,
    device: Device,
    /// The error after which the device is of no use.
    lost: OnceLock<CudaError>,
}

// SAFETY: a context may be made current on any thread; the driver locks for itself.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the context of a device.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: Device) -> Result<Arc<Context>, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the device exists; the driver writes one handle.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut raw, device.raw))? };
        Ok(Arc::new(Context { raw, device, lost: OnceLock::new() }))
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Free and total device memory in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        self.make_current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: a context is current; the driver writes two sizes.
        unsafe { call!(cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok((free, total))
    }

    /// Waits for all work of the context.
    ///
    /// # Errors
    /// The driver's, and those of work that ran since.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.make_current()?;
        // SAFETY: a context is current.
        self.watch(unsafe { call!(cuCtxSynchronize()) })
    }

    /// Why the device is of no use any more, if it is.
    pub fn lost(&self) -> Option<&CudaError> {
        self.lost.get()
    }

    /// Remembers an error after which no call succeeds.
    pub(super) fn watch<T>(&self, result: Result<T, CudaError>) -> Result<T, CudaError> {
        if let Err(error @ CudaError::Lost { .. }) = &result {
            return Err(self.lost.get_or_init(|| error.clone()).clone());
        }
        result
    }

    /// Makes the context current on this thread; after the loss of the device, says so again.
    pub(super) fn make_current(&self) -> Result<(), CudaError> {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { call!(cuCtxSetCurrent(self.raw)) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `new`. A failure cannot be told to anybody, and leaves the
        // context as it is.
        let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device.raw)) };
    }
}
