//! Topology files: reading with every fault reported, writing, and the files built in; never a
//! figure that a file does not give.

use super::{Device, DeviceId, DeviceKind, Link, LinkKind, Memory, MemoryKind, Topology};
use crate::dtype::DType;
use crate::schedule::Mechanism;
use crate::text::is_identifier;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Why a topology file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// It is not TOML of the expected keys; the message shows the place.
    #[error("topology: {0}")]
    Syntax(String),
    /// It contradicts itself; one message a fault, all of them.
    #[error("topology `{name}`: {}", .faults.join("; "))]
    Faults {
        /// The topology.
        name: String,
        /// What is wrong.
        faults: Vec<String>,
    },
}

macro_rules! builtin {
    ($($name:literal),*) => {
        const FILES: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../devices/", $name, ".toml")),
        )),*];

        impl Topology {
            /// The names of the built-in topologies.
            pub const BUILTIN: &'static [&'static str] = &[$($name),*];
        }
    };
}

builtin!("h200", "h200x2", "h200x4", "h200x8", "h100", "a100", "cpu");

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(rename = "device", default)]
    devices: Vec<DeviceEntry>,
    #[serde(rename = "memory", default)]
    memories: Vec<MemoryEntry>,
    #[serde(rename = "link", default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<LinkEntry>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    order_costs: BTreeMap<String, f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceEntry {
    name: String,
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    arch: String,
    units: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    max_cluster: u32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    max_threads: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    shared_memory: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    cache: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    matrix_rates: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    vector_rates: BTreeMap<String, f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryEntry {
    name: String,
    kind: String,
    home: String,
    capacity: u64,
    bandwidth: f64,
    coherence: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    name: String,
    kind: String,
    between: [String; 2],
    bandwidth: f64,
    latency: f64,
    #[serde(default)]
    reach: Vec<String>,
}

fn one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Topology {
    /// A topology that comes with the program, by its file's name.
    pub fn builtin(name: &str) -> Option<Topology> {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
        // A test loads every one.
        Topology::from_toml(text).ok()
    }

    /// Reads a topology file.
    ///
    /// # Errors
    /// It is not TOML, a key is unknown or missing, or the parts do not fit together.
    pub fn from_toml(text: &str) -> Result<Topology, TopologyError> {
        let file: File =
            toml::from_str(text).map_err(|error| TopologyError::Syntax(error.to_string()))?;
        let mut builder = Builder {
            topology: Topology::empty(file.name.clone()),
            names: BTreeSet::new(),
            faults: Vec::new(),
        };
        builder.build(file);
        let Builder { topology, faults, .. } = builder;
        if faults.is_empty() {
            return Ok(topology);
        }
        Err(TopologyError::Faults { name: topology.name, faults })
    }

    /// The topology as a file that reads back as an equal one.
    ///
    /// # Errors
    /// A number that the format does not have: a size of 2⁶³ bytes or more.
    pub fn to_toml(&self) -> Result<String, TopologyError> {
        let name = |id: DeviceId| self.device(id).map_or(String::new(), |d| d.name.clone());
        let rates = |rates: &BTreeMap<DType, f64>| {
            rates.iter().map(|(dtype, rate)| (dtype.name().to_string(), *rate)).collect()
        };
        let file = File {
            name: self.name.clone(),
            devices: self
                .devices()
                .map(|(_, device)| DeviceEntry {
                    name: device.name.clone(),
                    kind: word(DeviceKind::WORDS, device.kind),
                    arch: device.arch.clone(),
                    units: device.units,
                    max_cluster: device.max_cluster,
                    max_threads: device.max_threads,
                    shared_memory: device.shared_memory,
                    cache: device.cache,
                    matrix_rates: rates(&device.matrix_rates),
                    vector_rates: rates(&device.vector_rates),
                })
                .collect(),
            memories: self
                .memories()
                .map(|(_, memory)| MemoryEntry {
                    name: memory.name.clone(),
                    kind: word(MemoryKind::WORDS, memory.kind),
                    home: name(memory.home),
                    capacity: memory.capacity,
                    bandwidth: memory.bandwidth,
                    coherence: memory.coherence.clone(),
                })
                .collect(),
            links: self
                .links()
                .map(|(_, link)| LinkEntry {
                    name: link.name.clone(),
                    kind: word(LinkKind::WORDS, link.kind),
                    between: link.between.map(name),
                    bandwidth: link.bandwidth,
                    latency: link.latency,
                    reach: link.reach.iter().map(|device| name(*device)).collect(),
                })
                .collect(),
            order_costs: self
                .order_costs
                .iter()
                .map(|(mechanism, cost)| (mechanism.word().to_string(), *cost))
                .collect(),
        };
        toml::to_string(&file).map_err(|error| TopologyError::Syntax(error.to_string()))
    }
}

fn word<T: Copy + PartialEq>(words: &[(&str, T)], value: T) -> String {
    words.iter().find(|(_, v)| *v == value).map_or(String::new(), |(word, _)| word.to_string())
}

/// Collects faults while it builds; its topology counts only if there are none.
struct Builder {
    topology: Topology,
    names: BTreeSet<String>,
    faults: Vec<String>,
}

impl Builder {
    fn build(&mut self, file: File) {
        if file.name.is_empty() {
            self.faults.push("the name is empty".to_string());
        }
        if file.devices.is_empty() {
            self.faults.push("there is no device; expected at least one `[[device]]`".to_string());
        }
        for entry in file.devices {
            self.device(entry);
        }
        for entry in file.memories {
            self.memory(entry);
        }
        for entry in file.links {
            self.link(entry);
        }
        for (name, cost) in file.order_costs {
            self.not_negative("order_costs", &name, cost);
            if let Some(mechanism) = self.word("order_costs", "mechanism", Mechanism::WORDS, &name)
            {
                self.topology.order_costs.insert(mechanism, cost);
            }
        }
        for (id, device) in self.topology.devices() {
            if self.topology.memories_of(id).next().is_none() {
                let fault =
                    format!("device `{}` has no memory; expected at least one", device.name);
                self.faults.push(fault);
            }
        }
    }

    fn device(&mut self, entry: DeviceEntry) {
        let name = &entry.name;
        self.new_name("device", name);
        let kind = self.word(name, "kind", DeviceKind::WORDS, &entry.kind);
        for (what, value) in [
            ("units", entry.units),
            ("max_cluster", entry.max_cluster),
            ("max_threads", entry.max_threads),
        ] {
            if value == 0 {
                self.faults.push(format!("`{name}`: {what} is 0; expected at least 1"));
            }
        }
        let device = Device {
            name: name.clone(),
            kind: kind.unwrap_or(DeviceKind::Other),
            arch: entry.arch,
            units: entry.units,
            max_cluster: entry.max_cluster,
            max_threads: entry.max_threads,
            shared_memory: entry.shared_memory,
            cache: entry.cache,
            matrix_rates: self.rates(name, entry.matrix_rates),
            vector_rates: self.rates(name, entry.vector_rates),
        };
        self.topology.add_device(device);
    }

    fn memory(&mut self, entry: MemoryEntry) {
        let name = &entry.name;
        self.new_name("memory", name);
        let kind = self.word(name, "kind", MemoryKind::WORDS, &entry.kind);
        self.positive(name, "bandwidth", entry.bandwidth);
        if entry.capacity == 0 {
            self.faults.push(format!("`{name}`: capacity is 0; expected bytes"));
        }
        if !is_identifier(&entry.coherence) {
            let found = &entry.coherence;
            self.faults.push(format!("`{name}`: coherence `{found}` is not an identifier"));
        }
        let home = self.known_device(name, "home", &entry.home);
        if let (Some(kind), Some(home)) = (kind, home) {
            self.topology.add_memory(Memory {
                name: name.clone(),
                kind,
                home,
                capacity: entry.capacity,
                bandwidth: entry.bandwidth,
                coherence: entry.coherence,
            });
        }
    }

    fn link(&mut self, entry: LinkEntry) {
        let name = &entry.name;
        self.new_name("link", name);
        let kind = self.word(name, "kind", LinkKind::WORDS, &entry.kind);
        self.positive(name, "bandwidth", entry.bandwidth);
        self.not_negative(name, "latency", entry.latency);
        let [a, b] = [0, 1].map(|i| self.known_device(name, "between", &entry.between[i]));
        if a.is_some() && a == b {
            self.faults.push(format!("`{name}`: between has one device twice; expected two"));
        }
        let mut reach = Vec::new();
        for device in &entry.reach {
            if entry.between.contains(device) {
                reach.extend(self.topology.device_named(device));
            } else {
                let fault = format!("`{name}`: reach has `{device}`, which is not one of between");
                self.faults.push(fault);
            }
        }
        if let (Some(kind), Some(a), Some(b)) = (kind, a, b) {
            self.topology.add_link(Link {
                name: name.clone(),
                kind,
                between: [a, b],
                bandwidth: entry.bandwidth,
                latency: entry.latency,
                reach,
            });
        }
    }

    fn new_name(&mut self, what: &str, name: &str) {
        if !is_identifier(name) {
            let fault =
                format!("{what} `{name}`: expected a name of letters, digits, `_` and inner dots");
            self.faults.push(fault);
        }
        if !self.names.insert(name.to_string()) {
            self.faults.push(format!("the name `{name}` stands twice; each must be unique"));
        }
    }

    fn known_device(&mut self, owner: &str, key: &str, name: &str) -> Option<DeviceId> {
        let device = self.topology.device_named(name);
        if device.is_none() {
            let devices: Vec<_> =
                self.topology.devices().map(|(_, device)| device.name.clone()).collect();
            let fault = format!(
                "`{owner}`: {key} names device `{name}`, which is not there; devices: {}",
                devices.join(", ")
            );
            self.faults.push(fault);
        }
        device
    }

    fn word<T: Copy>(
        &mut self,
        owner: &str,
        key: &str,
        words: &[(&str, T)],
        found: &str,
    ) -> Option<T> {
        let value = words.iter().find(|(word, _)| *word == found).map(|(_, value)| *value);
        if value.is_none() {
            let list: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let list = list.join(", ");
            self.faults.push(format!("`{owner}`: {key} is `{found}`; expected one of {list}"));
        }
        value
    }

    fn rates(&mut self, owner: &str, entries: BTreeMap<String, f64>) -> BTreeMap<DType, f64> {
        let mut rates = BTreeMap::new();
        for (name, rate) in entries {
            self.positive(owner, &name, rate);
            match name.parse::<DType>() {
                Ok(dtype) => {
                    rates.insert(dtype, rate);
                }
                Err(error) => self.faults.push(format!("`{owner}`: {error}")),
            }
        }
        rates
    }

    fn positive(&mut self, owner: &str, key: &str, value: f64) {
        if !(value.is_finite() && value > 0.0) {
            self.faults.push(format!("`{owner}`: {key} is {value}; expected more than 0"));
        }
    }

    fn not_negative(&mut self, owner: &str, key: &str, value: f64) {
        if !(value.is_finite() && value >= 0.0) {
            self.faults.push(format!("`{owner}`: {key} is {value}; expected 0 or more"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_topologies_load_and_read_back() {
        for (name, text) in FILES {
            match Topology::from_toml(text) {
                Ok(topology) => {
                    assert_eq!(&topology.name, name);
                    let again = topology.to_toml().and_then(|text| Topology::from_toml(&text));
                    assert_eq!(again, Ok(topology));
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
        assert!(Topology::builtin("moon").is_none());
    }

    #[test]
    fn peers_and_host_memory_are_within_reach() {
        let Some(topology) = Topology::builtin("h200x2") else { unreachable!() };
        let mut reach = Vec::new();
        for (device, data) in topology.devices() {
            for (memory, held) in topology.memories() {
                if topology.reaches(device, memory) {
                    reach.push((data.name.as_str(), held.name.as_str()));
                }
            }
        }
        let expected = [
            ("gpu0", "gpu0.hbm"),
            ("gpu0", "gpu1.hbm"),
            ("gpu0", "cpu0.dram"),
            ("gpu1", "gpu0.hbm"),
            ("gpu1", "gpu1.hbm"),
            ("gpu1", "cpu0.dram"),
            ("cpu0", "cpu0.dram"),
        ];
        assert_eq!(reach, expected);
        let pair = topology.first_of(DeviceKind::Gpu).zip(topology.first_of(DeviceKind::Cpu));
        let links = pair.map(|(gpu, cpu)| topology.links_between(cpu, gpu));
        let names = links.into_iter().flatten().flat_map(|link| topology.link(link));
        assert_eq!(names.map(|link| link.name.as_str()).collect::<Vec<_>>(), ["pcie0"]);
    }

    #[test]
    fn every_fault_of_a_file_is_reported() {
        let text = r#"
            name = "odd"
            [[device]]
            name = "gpu0"
            kind = "gpu"
            units = 0
            vector_rates = { f31 = 1.0, f32 = -1.0 }
            [[device]]
            name = "gpu0"
            kind = "toaster"
            units = 1
            [[memory]]
            name = "two words"
            kind = "hbm"
            home = "gpu7"
            capacity = 0
            bandwidth = nan
            coherence = "gpu0"
            [[link]]
            name = "loop"
            kind = "pcie"
            between = ["gpu0", "gpu0"]
            bandwidth = 1.0
            latency = -1.0
            reach = ["cpu0"]
            [order_costs]
            hope = 1.0
        "#;
        let Err(TopologyError::Faults { faults, .. }) = Topology::from_toml(text) else {
            unreachable!()
        };
        for expected in [
            "`gpu0`: units is 0; expected at least 1",
            "`gpu0`: `f31` is not an element type",
            "`gpu0`: f32 is -1; expected more than 0",
            "the name `gpu0` stands twice; each must be unique",
            "`gpu0`: kind is `toaster`; expected one of gpu, cpu, other",
            "memory `two words`: expected a name of letters, digits, `_` and inner dots",
            "`two words`: home names device `gpu7`, which is not there; devices: gpu0, gpu0",
            "`two words`: capacity is 0; expected bytes",
            "`two words`: bandwidth is NaN; expected more than 0",
            "`loop`: between has one device twice; expected two",
            "`loop`: latency is -1; expected 0 or more",
            "`loop`: reach has `cpu0`, which is not one of between",
            "`order_costs`: mechanism is `hope`; expected one of sequence, edge, programmatic",
            "device `gpu0` has no memory; expected at least one",
        ] {
            assert!(faults.iter().any(|fault| fault == expected), "{expected}\nin {faults:#?}");
        }
        for syntax in
            ["name = 1", "name = \"x\"\nspeed = 3", "[[device]]\nname = \"d\"\nunits = -1"]
        {
            assert!(matches!(Topology::from_toml(syntax), Err(TopologyError::Syntax(_))));
        }
    }
}
