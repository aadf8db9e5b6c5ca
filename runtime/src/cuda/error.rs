//! What the driver reports, with its own name and text; never a guess at the cause.

use cudarc::driver::sys::{self, CUresult};
use std::ffi::CStr;

/// A failure of the CUDA driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// The driver's library is not on this machine.
    #[error("there is no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded)")]
    NoDriver,
    /// The driver is too old for the graphs and cubins that Membar makes.
    #[error(
        "the NVIDIA driver supports CUDA {}.{}, but 13.0 is needed: driver 580 or newer",
        .found / 1000, .found % 1000 / 10
    )]
    OldDriver {
        /// The version as the driver counts: 1000 for a major, 10 for a minor one.
        found: i32,
    },
    /// There is no device of that number.
    #[error("there is no CUDA device {asked}; {count} are here")]
    NoDevice {
        /// The number.
        asked: i32,
        /// How many there are.
        count: i32,
    },
    /// A call failed.
    #[error("{call}: {name}: {text}")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The error's name.
        name: String,
        /// The error's text.
        text: String,
    },
    /// Bytes beyond the end of device memory.
    #[error("{bytes} bytes at {offset} of device memory of {size} bytes")]
    OutOfBounds {
        /// First byte.
        offset: usize,
        /// How many.
        bytes: usize,
        /// Size of the memory.
        size: usize,
    },
    /// A module has no such function.
    #[error("there is no kernel `{0}` in the module")]
    NoKernel(String),
    /// A launch with other arguments than the kernel declares.
    #[error("kernel `{kernel}` takes arguments of {expected:?} bytes, but gets {found:?}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// Sizes of the declared arguments.
        expected: Vec<usize>,
        /// Sizes of the given arguments.
        found: Vec<usize>,
    },
}

/// Turns a result into an error that names the call.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let text = |get: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: the driver is loaded, since a call returned `result`; it writes a pointer to a
        // string of its own that lives for ever, or null.
        unsafe {
            if get(result, &mut text) != CUresult::CUDA_SUCCESS || text.is_null() {
                return "unknown error".to_string();
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    };
    Err(CudaError::Call {
        call,
        name: text(sys::cuGetErrorName),
        text: text(sys::cuGetErrorString),
    })
}

/// Calls a function of the driver and checks its result.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::cuda::error::check(
            stringify!($function),
            cudarc::driver::sys::$function($($argument),*),
        )
    };
}

pub(super) use call;
