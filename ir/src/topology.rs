//! The machine as a property graph: devices, memories and links; never a decision about placement.

/// The number of a device in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// The number of a memory in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryId(pub u32);

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Its name, as in `devices/NAME.toml`.
    pub name: String,
}
