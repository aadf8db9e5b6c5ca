//! What machine this is; never a decision about it.

use membar_ir::topology::{DeviceKind, Topology};

/// The machine that the program runs on, as a topology. The bandwidth and the rates of one core are
/// those of the built-in `cpu`: they are not measured. `None` if that is damaged, which a test
/// excludes.
pub fn this_machine() -> Option<Topology> {
    let mut topology = Topology::builtin("cpu")?;
    topology.name = "this-machine".to_string();
    let cpu = topology.first_of(DeviceKind::Cpu)?;
    if let Ok(cores) = std::thread::available_parallelism() {
        let device = topology.device_mut(cpu)?;
        let share = cores.get() as f64 / f64::from(device.units.max(1));
        device.units = cores.get() as u32;
        let rates = device.vector_rates.values_mut().chain(device.matrix_rates.values_mut());
        rates.for_each(|rate| *rate *= share);
    }
    let memories: Vec<_> = topology.memories_of(cpu).collect();
    if let (Some(bytes), Some(memory)) = (memory_bytes(), memories.first()) {
        topology.memory_mut(*memory)?.capacity = bytes;
    }
    Some(topology)
}

/// Main memory in bytes, where the system tells.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_cpu_with_memory() {
        let topology = this_machine();
        let cpu = topology.as_ref().and_then(|t| t.first_of(DeviceKind::Cpu));
        let memory = topology.as_ref().zip(cpu).and_then(|(t, cpu)| t.memories_of(cpu).next());
        assert!(memory.is_some());
    }
}
