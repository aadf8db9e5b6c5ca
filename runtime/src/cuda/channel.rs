//! A stream with pinned memory through which tensors go to the device and come back, copies
//! overlapping; must never reuse pinned bytes before their copy has ended.

use super::context::Context;
use super::error::{CudaError, call};
use super::memory::DeviceMemory;
use super::record::Pinned;
use super::stream::{Event, Stream};
use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// Where bytes lie in device memory: rows that begin `pitch` bytes after each other. On the host
/// they lie without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first byte.
    pub offset: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// How many rows.
    pub rows: usize,
    /// Bytes from the beginning of one to the next.
    pub pitch: usize,
}

impl Rows {
    /// One run of bytes.
    pub fn contiguous(offset: usize, bytes: usize) -> Rows {
        Rows { offset, row_bytes: bytes, rows: 1, pitch: bytes }
    }

    /// Bytes without the gaps; `None` on overflow.
    pub fn bytes(&self) -> Option<usize> {
        self.row_bytes.checked_mul(self.rows)
    }

    /// Bytes with the gaps; `None` on overflow.
    fn span(&self) -> Option<usize> {
        match self.rows {
            0 => Some(0),
            rows => (rows - 1).checked_mul(self.pitch)?.checked_add(self.row_bytes),
        }
    }

    /// Parts of at most `limit` bytes, each with its place among the bytes without gaps.
    fn pieces(&self, limit: usize) -> Vec<(Range<usize>, Rows)> {
        let mut pieces = Vec::new();
        let total = self.row_bytes * self.rows;
        if total == 0 {
            return pieces;
        }
        let whole = self.rows == 1 || self.pitch == self.row_bytes;
        let (row_bytes, rows) = if whole { (total, 1) } else { (self.row_bytes, self.rows) };
        // The driver takes pitches of up to 2 GiB.
        let together = match row_bytes <= limit && self.pitch < MAX_PITCH {
            true => limit / row_bytes,
            false => 1,
        };
        for first in (0..rows).step_by(together) {
            let count = together.min(rows - first);
            let offset = self.offset + first * self.pitch;
            let start = first * row_bytes;
            if row_bytes > limit {
                for column in (0..row_bytes).step_by(limit) {
                    let bytes = limit.min(row_bytes - column);
                    let host = start + column..start + column + bytes;
                    pieces.push((host, Rows::contiguous(offset + column, bytes)));
                }
            } else {
                let host = start..start + count * row_bytes;
                pieces.push((host, Rows { offset, row_bytes, rows: count, pitch: self.pitch }));
            }
        }
        pieces
    }
}

/// The least pitch that a copy of rows does not take.
const MAX_PITCH: usize = 1 << 31;

/// A stream, and a ring of pinned slots. A copy through a slot is over before the slot is used
/// again.
#[derive(Debug)]
pub struct Channel {
    stream: Stream,
    slots: Vec<Event>,
    slot_bytes: usize,
    next: usize,
    memory: Pinned,
}

/// To or from the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Channel {
    /// A channel with this many slots of pinned memory, at least one, of this many bytes, at
    /// least one.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(
        context: &Arc<Context>,
        slots: usize,
        slot_bytes: usize,
    ) -> Result<Channel, CudaError> {
        let (count, slot_bytes) = (slots.max(1), slot_bytes.max(1));
        let memory = Pinned::new(context, count * slot_bytes)?;
        let stream = Stream::new(context)?;
        let slots =
            (0..count).map(|_| Event::untimed(context)).collect::<Result<Vec<Event>, _>>()?;
        Ok(Channel { stream, slots, slot_bytes, next: 0, memory })
    }

    /// The stream on which its copies run.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Copies to the device, in the order of the stream, whatever else uses the memory. The bytes were read when this returns; the
    /// copy may not have ended.
    ///
    /// # Errors
    /// The rows reach beyond the memory or are not as many bytes as given, or the driver's.
    pub fn upload(
        &mut self,
        source: &[u8],
        target: &DeviceMemory,
        rows: &Rows,
    ) -> Result<(), CudaError> {
        check(target, rows, source.len())?;
        for (host, device) in rows.pieces(self.slot_bytes) {
            let slot = self.take()?;
            let start = slot * self.slot_bytes;
            // SAFETY: the slot's last copy has ended, a piece has at most a slot's bytes, and no
            // reference to pinned memory outlives this statement.
            let pinned = unsafe {
                std::slice::from_raw_parts_mut(self.memory.start.add(start).as_ptr(), host.len())
            };
            pinned.copy_from_slice(&source[host]);
            self.copy(Direction::Up, start, target.address(), &device)?;
            self.slots[slot].record(&self.stream)?;
        }
        Ok(())
    }

    /// Copies to the host, in the order of the stream, and waits for it.
    ///
    /// # Errors
    /// As [`Channel::upload`].
    pub fn download(
        &mut self,
        source: &DeviceMemory,
        rows: &Rows,
        target: &mut [u8],
    ) -> Result<(), CudaError> {
        check(source, rows, target.len())?;
        let mut under_way: VecDeque<(usize, Range<usize>)> = VecDeque::new();
        for (host, device) in rows.pieces(self.slot_bytes) {
            if under_way.len() == self.slots.len()
                && let Some((slot, host)) = under_way.pop_front()
            {
                self.finish(slot, &mut target[host])?;
            }
            let slot = self.take()?;
            self.copy(Direction::Down, slot * self.slot_bytes, source.address(), &device)?;
            self.slots[slot].record(&self.stream)?;
            under_way.push_back((slot, host));
        }
        for (slot, host) in under_way {
            self.finish(slot, &mut target[host])?;
        }
        Ok(())
    }

    /// The next slot, whose last copy has ended.
    fn take(&mut self) -> Result<usize, CudaError> {
        let slot = self.next;
        self.next = (slot + 1) % self.slots.len();
        self.slots[slot].synchronize()?;
        Ok(slot)
    }

    /// Waits for a copy to the host, and takes the bytes out of its slot.
    fn finish(&self, slot: usize, target: &mut [u8]) -> Result<(), CudaError> {
        self.slots[slot].synchronize()?;
        let start = slot * self.slot_bytes;
        // SAFETY: the copy has ended, a piece has at most a slot's bytes, and no reference to
        // pinned memory outlives this statement.
        let pinned = unsafe {
            std::slice::from_raw_parts(self.memory.start.add(start).as_ptr(), target.len())
        };
        target.copy_from_slice(pinned);
        Ok(())
    }

    /// Starts one copy between the pinned bytes from `start` and rows that were checked.
    fn copy(
        &self,
        direction: Direction,
        start: usize,
        base: u64,
        rows: &Rows,
    ) -> Result<(), CudaError> {
        let context = self.stream.context();
        context.make_current()?;
        // SAFETY: `start` is the beginning of a slot.
        let host = unsafe { self.memory.start.add(start) }.as_ptr();
        let (device, stream) = (base + rows.offset as u64, self.stream.raw);
        if rows.rows == 1 {
            // SAFETY: the device's bytes were checked, the host's are a part of a slot that is not
            // touched before the event behind this copy; memory is freed after the stream's end.
            return context.watch(unsafe {
                match direction {
                    Direction::Up => {
                        call!(cuMemcpyHtoDAsync_v2(device, host.cast(), rows.row_bytes, stream))
                    }
                    Direction::Down => {
                        call!(cuMemcpyDtoHAsync_v2(host.cast(), device, rows.row_bytes, stream))
                    }
                }
            });
        }
        let (gaps, dense, pointer) = (rows.pitch, rows.row_bytes, host.cast::<c_void>());
        let (on_host, on_device) =
            (CUmemorytype::CU_MEMORYTYPE_HOST, CUmemorytype::CU_MEMORYTYPE_DEVICE);
        let up = direction == Direction::Up;
        let none = std::ptr::null_mut();
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: if up { on_host } else { on_device },
            srcHost: if up { pointer } else { none },
            srcDevice: if up { 0 } else { device },
            srcArray: std::ptr::null_mut(),
            srcPitch: if up { dense } else { gaps },
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: if up { on_device } else { on_host },
            dstHost: if up { none } else { pointer },
            dstDevice: if up { device } else { 0 },
            dstArray: std::ptr::null_mut(),
            dstPitch: if up { gaps } else { dense },
            WidthInBytes: rows.row_bytes,
            Height: rows.rows,
        };
        // SAFETY: as above; the driver copies the description.
        context.watch(unsafe { call!(cuMemcpy2DAsync_v2(&copy, stream)) })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Pinned memory must not be freed while a copy uses it. A failure leaves nothing running.
        let _ = self.stream.synchronize();
    }
}

fn check(memory: &DeviceMemory, rows: &Rows, bytes: usize) -> Result<(), CudaError> {
    let (Some(found), Some(span)) = (rows.bytes(), rows.span()) else {
        return Err(CudaError::OutOfBounds { offset: rows.offset, bytes, size: memory.len() });
    };
    if found != bytes {
        return Err(CudaError::OutOfBounds { offset: rows.offset, bytes, size: found });
    }
    memory.check(rows.offset, span)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of the rows once, in order.
    #[test]
    fn pieces_are_all_bytes_in_order() {
        for (row_bytes, rows, pitch) in [(1, 1, 1), (7, 5, 9), (7, 5, 7), (100, 3, 130), (3, 0, 3)]
        {
            let rows = Rows { offset: 11, row_bytes, rows, pitch };
            for limit in [1, 2, 8, 15, 64, 1000] {
                let mut next = 0;
                for (host, device) in rows.pieces(limit) {
                    assert_eq!(host.start, next);
                    assert_eq!(Some(host.len()), device.bytes());
                    assert!(host.len() <= limit, "{device:?}");
                    for (row, start) in host.clone().step_by(device.row_bytes).enumerate() {
                        let (index, column) = (start / row_bytes, start % row_bytes);
                        let place = device.offset + row * device.pitch;
                        assert_eq!(place, 11 + index * pitch + column);
                    }
                    next = host.end;
                }
                assert_eq!(Some(next), rows.bytes());
            }
        }
    }
}
