//! Development tasks, `cargo xtask COMMAND`: parses the command line and calls the task.
//! Nothing that the product needs at run time may live in this crate.

mod compare;
mod demo;
mod fetch;
mod format;
mod gpu;
mod models;
mod process;
mod python;
mod repository;
mod steps;
mod test;
mod tidy;

use std::process::ExitCode;

/// A subcommand: its name, how it is called, what it does, and the function that does it.
struct Task {
    name: &'static str,
    usage: &'static str,
    summary: &'static str,
    run: fn(&[String]) -> anyhow::Result<()>,
}

const TASKS: &[Task] = &[
    Task {
        name: "demo",
        usage: "demo",
        summary: "fetches a trained sentence encoder, compiles it and compares sentences with it",
        run: demo::run,
    },
    Task {
        name: "test",
        usage: "test [--fast]",
        summary: "sets up what the tests need, then runs every check; --fast trusts an earlier set-up",
        run: test::run,
    },
    Task {
        name: "setup",
        usage: "setup [--fast]",
        summary: "the set-up of `test` alone",
        run: test::set_up,
    },
    Task {
        name: "tidy",
        usage: "tidy",
        summary: "checks the sources against the rules of the repository",
        run: tidy::run,
    },
    Task {
        name: "gpu-stage",
        usage: "gpu-stage",
        summary: "puts what a machine with a GPU needs to run the GPU suite into target/gpu",
        run: gpu::stage,
    },
    Task {
        name: "format",
        usage: "format [--check]",
        summary: "formats every Rust file, those that macros declare too",
        run: format::run,
    },
    Task {
        name: "fetch",
        usage: "fetch [MODEL...]",
        summary: "downloads trained models into target/models; without a name, lists them",
        run: fetch::run,
    },
    Task {
        name: "compare-onnxruntime",
        usage: "compare-onnxruntime [MODEL]",
        summary: "times a model (default: minilm-l3) under Membar and onnxruntime, alternating",
        run: compare::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprint!("error: no task is called `{name}`\n\n{}", usage());
        return ExitCode::from(2);
    };
    if rest.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        println!("usage: cargo xtask {}\n\n{}", task.usage, task.summary);
        return ExitCode::SUCCESS;
    }
    match (task.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask TASK\n\n");
    for task in TASKS {
        text.push_str(&format!("  {:<20} {}\n", task.usage, task.summary));
    }
    text
}
