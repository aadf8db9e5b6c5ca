//! Weights on a device: one packed allocation, filled by overlapping pinned copies; must never
//! change a weight's bytes.

use super::channel::{Channel, Rows};
use super::context::Context;
use super::error::CudaError;
use super::memory::DeviceMemory;
use membar_ir::graph::ValueId;
use membar_ir::tensor::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far weights begin apart: what the tensor memory accelerator and wide loads ask for, with
/// room to spare.
const ALIGNMENT: usize = 256;

/// Pinned slots for uploads: while one is copied the next is filled.
const SLOTS: usize = 4;
/// Bytes of a slot; larger ones are no faster.
const SLOT_BYTES: usize = 4 << 20;

/// Reports bytes that are done, and bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// The weights of a session.
#[derive(Debug, Default)]
pub(super) struct DeviceWeights {
    places: BTreeMap<ValueId, Place>,
}

/// Where a weight lies.
#[derive(Clone, Debug)]
struct Place {
    memory: Arc<DeviceMemory>,
    offset: usize,
    bytes: usize,
}

impl Place {
    fn is_at(&self, other: &Place) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory) && self.offset == other.offset
    }
}

impl DeviceWeights {
    /// Uploads weights. Those that share their bytes on the host share them here too.
    pub fn new(
        context: &Arc<Context>,
        weights: &BTreeMap<ValueId, Tensor>,
        progress: Progress<'_>,
    ) -> Result<DeviceWeights, CudaError> {
        let mut ranges: Vec<(ValueId, usize, usize)> = Vec::new();
        let mut first: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut uploads: Vec<(&Tensor, usize)> = Vec::new();
        let (mut end, mut total) = (0usize, 0u64);
        for (value, tensor) in weights {
            let bytes = tensor.bytes();
            let offset = *first.entry((bytes.as_ptr().addr(), bytes.len())).or_insert_with(|| {
                uploads.push((tensor, end));
                total += bytes.len() as u64;
                let offset = end;
                end = (end + bytes.len()).next_multiple_of(ALIGNMENT);
                offset
            });
            ranges.push((*value, offset, bytes.len()));
        }
        let memory = Arc::new(DeviceMemory::new(context, end)?);
        if total > 0 {
            let slot = SLOT_BYTES.min(total as usize);
            let mut channel = Channel::new(context, SLOTS, slot)?;
            let mut done = 0;
            progress(0, total);
            for (tensor, offset) in uploads {
                for (part, bytes) in (0..).zip(tensor.bytes().chunks(SLOT_BYTES)) {
                    let rows = Rows::contiguous(offset + part * SLOT_BYTES, bytes.len());
                    channel.upload(bytes, &memory, &rows)?;
                    done += bytes.len() as u64;
                    progress(done, total);
                }
            }
            channel.stream().synchronize()?;
        }
        let place = |(value, offset, bytes)| {
            let memory = memory.clone();
            (value, Place { memory, offset, bytes })
        };
        Ok(DeviceWeights { places: ranges.into_iter().map(place).collect() })
    }

    /// Gives weights of the same sizes as before new values, through the same addresses where that
    /// changes no other weight; the others move.
    pub fn update(
        &mut self,
        channel: &mut Channel,
        values: &BTreeMap<ValueId, Tensor>,
    ) -> Result<(), CudaError> {
        for (value, tensor) in values {
            let Some(place) = self.places.get(value).cloned() else { continue };
            let same = |other: &Tensor| {
                other.bytes().as_ptr() == tensor.bytes().as_ptr() || other.bytes() == tensor.bytes()
            };
            let is_alone = self.places.iter().all(|(other, found)| {
                other == value || !found.is_at(&place) || values.get(other).is_some_and(same)
            });
            let place = match is_alone {
                true => place,
                false => {
                    let context = channel.stream().context().clone();
                    let memory = Arc::new(DeviceMemory::new(&context, place.bytes)?);
                    Place { memory, offset: 0, bytes: place.bytes }
                }
            };
            let rows = Rows::contiguous(place.offset, place.bytes);
            channel.upload(tensor.bytes(), &place.memory, &rows)?;
            self.places.insert(*value, place);
        }
        Ok(())
    }

    /// Lets a weight lie elsewhere from now on; `false` if the value is no weight.
    pub fn relocate(
        &mut self,
        value: ValueId,
        memory: Arc<DeviceMemory>,
        offset: usize,
    ) -> Result<bool, CudaError> {
        let Some(place) = self.places.get_mut(&value) else { return Ok(false) };
        memory.check(offset, place.bytes)?;
        let (found, expected) =
            (memory.context().device().number, place.memory.context().device().number);
        if found != expected {
            return Err(CudaError::OtherDevice { found, expected });
        }
        *place = Place { memory, offset, bytes: place.bytes };
        Ok(true)
    }

    /// Where a weight begins; `None` if the value is no weight.
    pub fn address(&self, value: ValueId) -> Option<u64> {
        self.places.get(&value).map(|place| place.memory.address() + place.offset as u64)
    }

    /// The memory, and where a weight lies in it.
    pub fn find(&self, value: ValueId) -> Option<(&DeviceMemory, Rows)> {
        let place = self.places.get(&value)?;
        Some((&place.memory, Rows::contiguous(place.offset, place.bytes)))
    }

    /// Size of the memory of all weights in bytes, each counted once.
    pub fn bytes(&self) -> usize {
        let memories =
            self.places.values().map(|place| (place.memory.address(), place.memory.len()));
        memories.collect::<BTreeMap<u64, usize>>().values().sum()
    }
}
