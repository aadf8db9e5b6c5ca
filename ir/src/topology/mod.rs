//! The machine as a property graph: devices, memories and links; never a decision about placement.

mod file;

pub use file::TopologyError;

use crate::dtype::DType;
use crate::schedule::Mechanism;
use petgraph::graph::{EdgeIndex, NodeIndex, UnGraph};
use std::collections::BTreeMap;

/// The number of a device in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// The number of a memory in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryId(pub u32);

/// The number of a link in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// Something that runs kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name, an identifier: `gpu0`.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// What code is compiled for, such as `sm_90a`; empty where there is nothing to choose.
    pub arch: String,
    /// Streaming multiprocessors, cores or tiles.
    pub units: u32,
    /// Most blocks in a cluster.
    pub max_cluster: u32,
    /// Most threads in a block.
    pub max_threads: u32,
    /// Shared memory that one block may have, in bytes.
    pub shared_memory: u64,
    /// Last-level cache, in bytes.
    pub cache: u64,
    /// Matrix units' peak by operand type, in 10¹² operations (a multiply-add is two) a second.
    pub matrix_rates: BTreeMap<DType, f64>,
    /// Scalar and vector units' peak by type, in 10¹² operations a second.
    pub vector_rates: BTreeMap<DType, f64>,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A GPU.
    Gpu,
    /// The host's processors.
    Cpu,
    /// Anything else, an NPU's tile say; the CPU executor can stand in for it.
    Other,
}

impl DeviceKind {
    /// Every kind with its word in topology files.
    pub const WORDS: &'static [(&'static str, DeviceKind)] =
        &[("gpu", DeviceKind::Gpu), ("cpu", DeviceKind::Cpu), ("other", DeviceKind::Other)];
}

/// Something that holds bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Its name, an identifier: `gpu0.hbm`.
    pub name: String,
    /// What it is.
    pub kind: MemoryKind,
    /// The device that it is attached to.
    pub home: DeviceId,
    /// Size in bytes.
    pub capacity: u64,
    /// Bandwidth between it and its home, in 10⁹ bytes a second.
    pub bandwidth: f64,
    /// The name of its coherence domain: accesses by agents of one domain are made visible to each
    /// other at that domain's scope; between domains, at system scope.
    pub coherence: String,
}

/// What a memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Stacked memory of a GPU.
    Hbm,
    /// Main memory of a host.
    Dram,
    /// Memory behind CXL.
    Cxl,
}

impl MemoryKind {
    /// Every kind with its word in topology files.
    pub const WORDS: &'static [(&'static str, MemoryKind)] =
        &[("hbm", MemoryKind::Hbm), ("dram", MemoryKind::Dram), ("cxl", MemoryKind::Cxl)];
}

/// A connection of two devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name, an identifier.
    pub name: String,
    /// What it is.
    pub kind: LinkKind,
    /// The two devices.
    pub between: [DeviceId; 2],
    /// Bandwidth in each direction, in 10⁹ bytes a second.
    pub bandwidth: f64,
    /// Time from a store on one side until a load on the other sees it, in microseconds.
    pub latency: f64,
    /// Those of the two devices whose kernels can load and store the other's memories.
    pub reach: Vec<DeviceId>,
}

/// What a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkKind {
    /// Between GPUs, through a switch or not.
    Nvlink,
    /// Between a host and a device.
    Pcie,
    /// Chip to chip, coherent.
    C2c,
}

impl LinkKind {
    /// Every kind with its word in topology files.
    pub const WORDS: &'static [(&'static str, LinkKind)] =
        &[("nvlink", LinkKind::Nvlink), ("pcie", LinkKind::Pcie), ("c2c", LinkKind::C2c)];
}

/// A machine. Devices, memories and links are numbered as their file lists them.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Its name, as in `devices/NAME.toml`.
    pub name: String,
    /// What each mechanism of order costs on the machine, in microseconds.
    pub order_costs: BTreeMap<Mechanism, f64>,
    graph: UnGraph<Vertex, Connection>,
    devices: Vec<NodeIndex>,
    memories: Vec<NodeIndex>,
    links: Vec<EdgeIndex>,
}

#[derive(Clone, Debug)]
enum Vertex {
    Device(Device),
    Memory(Memory),
}

#[derive(Clone, Debug)]
enum Connection {
    /// A memory's home.
    Home,
    Link(Link),
}

/// Equal parts under equal numbers.
impl PartialEq for Topology {
    fn eq(&self, other: &Topology) -> bool {
        self.name == other.name
            && self.order_costs == other.order_costs
            && self.devices().eq(other.devices())
            && self.memories().eq(other.memories())
            && self.links().eq(other.links())
    }
}

impl Topology {
    /// All devices.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceId, &Device)> + '_ {
        (0..).map(DeviceId).map_while(|id| Some((id, self.device(id)?)))
    }

    /// All memories.
    pub fn memories(&self) -> impl Iterator<Item = (MemoryId, &Memory)> + '_ {
        (0..).map(MemoryId).map_while(|id| Some((id, self.memory(id)?)))
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> + '_ {
        (0..).map(LinkId).map_while(|id| Some((id, self.link(id)?)))
    }

    /// A device, if there is one of that number.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        match &self.graph[*self.devices.get(id.0 as usize)?] {
            Vertex::Device(device) => Some(device),
            Vertex::Memory(_) => None,
        }
    }

    /// A device, to change its properties.
    pub fn device_mut(&mut self, id: DeviceId) -> Option<&mut Device> {
        match &mut self.graph[*self.devices.get(id.0 as usize)?] {
            Vertex::Device(device) => Some(device),
            Vertex::Memory(_) => None,
        }
    }

    /// A memory, if there is one of that number.
    pub fn memory(&self, id: MemoryId) -> Option<&Memory> {
        match &self.graph[*self.memories.get(id.0 as usize)?] {
            Vertex::Memory(memory) => Some(memory),
            Vertex::Device(_) => None,
        }
    }

    /// A memory, to change its properties.
    pub fn memory_mut(&mut self, id: MemoryId) -> Option<&mut Memory> {
        match &mut self.graph[*self.memories.get(id.0 as usize)?] {
            Vertex::Memory(memory) => Some(memory),
            Vertex::Device(_) => None,
        }
    }

    /// A link, if there is one of that number.
    pub fn link(&self, id: LinkId) -> Option<&Link> {
        match &self.graph[*self.links.get(id.0 as usize)?] {
            Connection::Link(link) => Some(link),
            Connection::Home => None,
        }
    }

    /// The device of that name.
    pub fn device_named(&self, name: &str) -> Option<DeviceId> {
        self.devices().find(|(_, device)| device.name == name).map(|(id, _)| id)
    }

    /// The memory of that name.
    pub fn memory_named(&self, name: &str) -> Option<MemoryId> {
        self.memories().find(|(_, memory)| memory.name == name).map(|(id, _)| id)
    }

    /// The first device of a kind.
    pub fn first_of(&self, kind: DeviceKind) -> Option<DeviceId> {
        self.devices().find(|(_, device)| device.kind == kind).map(|(id, _)| id)
    }

    /// The memories attached to a device, in order.
    pub fn memories_of(&self, device: DeviceId) -> impl Iterator<Item = MemoryId> + '_ {
        self.memories().filter(move |(_, memory)| memory.home == device).map(|(id, _)| id)
    }

    /// The links between two devices, in order.
    pub fn links_between(&self, a: DeviceId, b: DeviceId) -> Vec<LinkId> {
        let links = self.links();
        let joins = links.filter(|(_, link)| link.between == [a, b] || link.between == [b, a]);
        joins.map(|(id, _)| id).collect()
    }

    /// Whether kernels on a device can load and store a memory: its own, or one behind a link that
    /// lets them.
    pub fn reaches(&self, device: DeviceId, memory: MemoryId) -> bool {
        let (Some(device_at), Some(memory_at)) =
            (self.devices.get(device.0 as usize), self.memories.get(memory.0 as usize))
        else {
            return false;
        };
        // A memory's one neighbour is its home.
        self.graph.neighbors(*memory_at).any(|home| {
            home == *device_at
                || self.graph.edges_connecting(*device_at, home).any(|edge| {
                    matches!(edge.weight(), Connection::Link(link) if link.reach.contains(&device))
                })
        })
    }

    fn empty(name: String) -> Topology {
        Topology {
            name,
            order_costs: BTreeMap::new(),
            graph: UnGraph::default(),
            devices: Vec::new(),
            memories: Vec::new(),
            links: Vec::new(),
        }
    }

    fn add_device(&mut self, device: Device) -> DeviceId {
        self.devices.push(self.graph.add_node(Vertex::Device(device)));
        DeviceId((self.devices.len() - 1) as u32)
    }

    /// The home must be there.
    fn add_memory(&mut self, memory: Memory) -> MemoryId {
        let home = self.devices[memory.home.0 as usize];
        let at = self.graph.add_node(Vertex::Memory(memory));
        self.graph.add_edge(home, at, Connection::Home);
        self.memories.push(at);
        MemoryId((self.memories.len() - 1) as u32)
    }

    /// Both devices must be there.
    fn add_link(&mut self, link: Link) -> LinkId {
        let [a, b] = link.between.map(|device| self.devices[device.0 as usize]);
        self.links.push(self.graph.add_edge(a, b, Connection::Link(link)));
        LinkId((self.links.len() - 1) as u32)
    }
}
