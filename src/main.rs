//! The command line: parses it, calls the command, and turns errors into messages and exit codes:
//! 0 done, 1 the work failed, 2 wrong usage. Data goes to standard output, all else to standard
//! error.

mod cli;

use clap::Parser;
use cli::arguments::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Cli::parse();
    let output = cli::Terminal::new(&arguments);
    let result = match &arguments.command {
        Command::Compile(command) => cli::compile::run(command, &output),
        Command::Run(command) => cli::run::run(command, &output),
        Command::Bench(command) => cli::bench::run(command, &output),
        Command::Inspect(command) => cli::inspect::run(command, &output),
        Command::Check(command) => cli::check::run(command, &output),
        Command::Topology(command) => cli::topology::run(command, &output),
        Command::CompileKernels => cli::compile_kernels(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output.fail(&error),
    }
}
