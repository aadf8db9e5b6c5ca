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
    /// A kernel or the device itself failed in a way that no call after it survives. Every later
    /// call on the device reports the same.
    #[error(
        "the CUDA device was lost, and this process cannot use it any more: {call}: {name}: {text}"
    )]
    Lost {
        /// The driver's function that reported it; kernels fail some time before.
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
    /// Memory of another device.
    #[error("memory of CUDA device {found}, not of device {expected}")]
    OtherDevice {
        /// Where it is.
        found: i32,
        /// Where it must be.
        expected: i32,
    },
    /// A tensor map that the device cannot have.
    #[error("a tensor map cannot be made: {reason}")]
    TensorMap {
        /// Why.
        reason: String,
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
    let (name, text) = (text(sys::cuGetErrorName), text(sys::cuGetErrorString));
    Err(match is_sticky(result) {
        true => CudaError::Lost { call, name, text },
        false => CudaError::Call { call, name, text },
    })
}

/// Whether the context is of no use after this error: `cuda.h` says of these that the process must
/// end and begin again.
fn is_sticky(result: CUresult) -> bool {
    matches!(
        result,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
    )
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
