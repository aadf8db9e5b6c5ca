//! The launch table of a GPU's program, as JSON: what a program is but the kernels' sources, which a
//! bundle does not hold. Must never be used before it is checked against its graph.

use membar_ir::dim::Symbol;
use membar_ir::program::{DeviceProgram, Kernel, Step};
use serde::{Deserialize, Serialize};

/// `launches.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Launches {
    /// What the kernels were compiled for.
    pub target: String,
    /// The symbols of the dimension block, in order.
    symbols: Vec<String>,
    /// The kernels' entry points, in the order of their numbers.
    kernels: Vec<String>,
    /// The steps.
    steps: Vec<Step>,
}

impl Launches {
    /// The table of a program.
    pub fn of(program: &DeviceProgram) -> Launches {
        let DeviceProgram { target, symbols, kernels, steps } = program;
        Launches {
            target: target.clone(),
            symbols: symbols.iter().map(|symbol| symbol.name().to_string()).collect(),
            kernels: kernels.iter().map(|kernel| kernel.name.clone()).collect(),
            steps: steps.clone(),
        }
    }

    /// The program, its kernels without sources.
    pub fn into_program(self) -> DeviceProgram {
        let kernel = |name| Kernel { name, source: String::new() };
        DeviceProgram {
            target: self.target,
            symbols: self.symbols.iter().map(|name| Symbol::new(name)).collect(),
            kernels: self.kernels.into_iter().map(kernel).collect(),
            steps: self.steps,
        }
    }
}
