//! What a graph is compiled for, and the machine that stands for it where none is described; never
//! a figure of a machine.

use membar_ir::architecture::{Architecture, ArchitectureError};
use membar_ir::graph::{Graph, Stage};
use membar_ir::topology::{DeviceId, DeviceKind, Topology};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What a graph is compiled for. The CPU comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The CPU, by the executor's own kernels.
    #[default]
    Cpu,
    /// NVIDIA GPUs of an architecture.
    Cuda(Architecture),
}

impl Target {
    /// The kind of device that it needs.
    pub fn device_kind(self) -> DeviceKind {
        match self {
            Target::Cpu => DeviceKind::Cpu,
            Target::Cuda(_) => DeviceKind::Gpu,
        }
    }

    /// The target of a graph that is placed already: that of its first node's device. `None` for
    /// graphs that are not, or whose device has no architecture that there is code for.
    pub fn of_placed(graph: &Graph) -> Option<Target> {
        if graph.stage < Stage::Placed {
            return None;
        }
        let topology = graph.topology.as_ref()?;
        let device = graph.nodes().find_map(|id| graph.node(id).device)?;
        let device = topology.device(device)?;
        match device.kind {
            DeviceKind::Gpu => device.arch.parse().ok().map(Target::Cuda),
            DeviceKind::Cpu | DeviceKind::Other => Some(Target::Cpu),
        }
    }

    /// The machine that it is compiled for: the given one, whose first GPU counts as one of the
    /// architecture, or one of that architecture. `None` if a built-in topology is damaged.
    pub(crate) fn machine(self, given: Option<Arc<Topology>>) -> Option<Arc<Topology>> {
        let builtin = |name: &str| Topology::builtin(name).map(Arc::new);
        let architecture = match self {
            Target::Cpu => return given.or_else(|| builtin("cpu")),
            Target::Cuda(architecture) => architecture,
        };
        // Newer GPUs have no file of their own; an H200 is the nearest.
        let nearest = if architecture.major < 9 { "a100" } else { "h200" };
        let mut topology = given.or_else(|| builtin(nearest))?;
        let name = architecture.to_string();
        let gpu = topology.first_of(DeviceKind::Gpu);
        let differs = |id: &DeviceId| topology.device(*id).is_some_and(|gpu| gpu.arch != name);
        if let Some(gpu) = gpu.filter(differs)
            && let Some(device) = Arc::make_mut(&mut topology).device_mut(gpu)
        {
            device.arch = name;
        }
        Some(topology)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cpu => f.write_str("cpu"),
            Target::Cuda(architecture) => architecture.fmt(f),
        }
    }
}

impl FromStr for Target {
    type Err = ArchitectureError;

    fn from_str(text: &str) -> Result<Target, ArchitectureError> {
        if text == "cpu" { Ok(Target::Cpu) } else { text.parse().map(Target::Cuda) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_the_architecture_that_was_asked_for() {
        for (target, name) in
            [("cpu", "cpu"), ("sm_80", "a100"), ("sm_86", "a100"), ("sm_90", "h200")]
        {
            let target: Result<Target, _> = target.parse();
            let machine = target.clone().ok().and_then(|target| target.machine(None));
            assert_eq!(machine.as_ref().map(|machine| machine.name.as_str()), Some(name));
            let gpu = machine.as_ref().and_then(|m| m.device(m.first_of(DeviceKind::Gpu)?));
            let expected = target.ok().filter(|t| *t != Target::Cpu).map(|t| t.to_string());
            assert_eq!(gpu.map(|gpu| gpu.arch.clone()), expected);
        }
        let given = Topology::builtin("h200x2").map(Arc::new);
        let hopper: Result<Target, _> = "sm_90a".parse();
        assert_eq!(hopper.ok().and_then(|target| target.machine(given.clone())), given);
    }
}
