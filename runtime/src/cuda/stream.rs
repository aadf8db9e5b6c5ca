//! Streams and events; never a choice of what runs on them.

use super::context::Context;
use super::error::{CudaError, call};
use super::module::Launch;
use cudarc::driver::sys::{
    CUevent, CUevent_flags, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig, CUstream,
    CUstream_flags,
};
use std::mem;
use std::sync::Arc;

/// A queue of work that runs in order.
#[derive(Debug)]
pub struct Stream {
    context: Arc<Context>,
    pub(super) raw: CUstream,
}

// SAFETY: a stream may be used from any thread with the context current.
unsafe impl Send for Stream {}

impl Stream {
    /// A new stream, which does not wait for the default one.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<Context>) -> Result<Stream, CudaError> {
        context.make_current()?;
        let mut raw = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current; the driver writes one handle.
        unsafe { call!(cuStreamCreate(&mut raw, flags))? };
        Ok(Stream { context: context.clone(), raw })
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Launches a kernel on its own, outside any graph.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self, launch: &Launch) -> Result<(), CudaError> {
        launch.prepare()?;
        let mut pointers = launch.arguments.pointers();
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        // SAFETY: plain data; all bytes 0 are valid.
        let mut attribute: CUlaunchAttribute = unsafe { mem::zeroed() };
        attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value = launch.cluster_attribute();
        let configuration = CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: launch.shared_bytes,
            hStream: self.raw,
            attrs: &mut attribute,
            numAttrs: u32::from(launch.cluster > 1),
        };
        // SAFETY: kernel and stream are alive, `prepare` checked the arguments against the kernel's
        // declaration, the list of attributes has the given length, and the driver copies all of
        // these before it returns.
        self.context.watch(unsafe {
            call!(cuLaunchKernelEx(
                &configuration,
                launch.function.raw,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            ))
        })
    }

    /// Waits for all work of the stream.
    ///
    /// # Errors
    /// The driver's, and those of work that ran since.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.make_current()?;
        // SAFETY: the stream is alive.
        self.context.watch(unsafe { call!(cuStreamSynchronize(self.raw)) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: created in `new` and destroyed once. A failure cannot be told to anybody.
            let _ = unsafe { call!(cuStreamDestroy_v2(self.raw)) };
        }
    }
}

/// A point in a stream, with its time.
#[derive(Debug)]
pub struct Event {
    context: Arc<Context>,
    raw: CUevent,
}

// SAFETY: an event may be used from any thread with the context current.
unsafe impl Send for Event {}

impl Event {
    /// A new event that records time.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<Context>) -> Result<Event, CudaError> {
        Event::create(context, CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// A new event that records no time, and is cheaper to record.
    ///
    /// # Errors
    /// The driver's.
    pub fn untimed(context: &Arc<Context>) -> Result<Event, CudaError> {
        Event::create(context, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn create(context: &Arc<Context>, flags: CUevent_flags) -> Result<Event, CudaError> {
        context.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a context is current; the driver writes one handle.
        unsafe { call!(cuEventCreate(&mut raw, flags as u32))? };
        Ok(Event { context: context.clone(), raw })
    }

    /// Waits until the work before the last [`Event::record`] has ended; at once if there was none.
    ///
    /// # Errors
    /// The driver's, and those of work that ran since.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.make_current()?;
        // SAFETY: the event is alive.
        self.context.watch(unsafe { call!(cuEventSynchronize(self.raw)) })
    }

    /// Marks the present end of a stream's work.
    ///
    /// # Errors
    /// The driver's.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.make_current()?;
        // SAFETY: both are alive.
        unsafe { call!(cuEventRecord(self.raw, stream.raw)) }
    }

    /// Microseconds from an earlier event to this one; waits for this one.
    ///
    /// # Errors
    /// The driver's.
    pub fn microseconds_since(&self, earlier: &Event) -> Result<f64, CudaError> {
        self.context.make_current()?;
        let mut milliseconds = 0f32;
        // SAFETY: both are alive; the driver writes one number.
        self.context.watch(unsafe {
            call!(cuEventSynchronize(self.raw)).and_then(|()| {
                call!(cuEventElapsedTime_v2(&mut milliseconds, earlier.raw, self.raw))
            })
        })?;
        Ok(f64::from(milliseconds) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: created in `new` and destroyed once. A failure cannot be told to anybody.
            let _ = unsafe { call!(cuEventDestroy_v2(self.raw)) };
        }
    }
}
