//! Executes scheduled programs: the CPU executor, sessions with states, and graph bundles; must
//! never depend on passes or frontends.

pub mod bundle;
pub mod cpu;
pub mod cuda;
mod executor;
mod placement;
pub mod session;
pub mod weights;

pub use bundle::{Bundle, BundleError};
pub use cpu::library::CpuLibrary;
pub use executor::ExecutorError;
pub use session::{RunOptions, Session, SessionError, bind};
