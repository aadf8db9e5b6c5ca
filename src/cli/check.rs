//! `membar check`: proves that the steps of a scheduled graph are ordered, and names every fault by
//! its class; never repairs one.

use super::Terminal;
use super::arguments::Check;
use membar::ir::Stage;
use membar::ir::verify::{Depth, OrderReport, check_order, verify};
use membar::{Bundle, Graph, ModelFormat};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What was found about one graph.
#[derive(Serialize)]
struct TargetReport {
    /// Steps that a GPU runs; without any there is nothing to prove.
    steps: usize,
    orders: usize,
    /// Conflicts that were looked at one by one; the others follow from these.
    conflicts: usize,
    /// Orders that only make the graph linear.
    linearised: usize,
    /// Microseconds that these may cost a run.
    linearised_cost: f64,
    /// Faults that are errors.
    errors: usize,
    faults: Vec<FaultReport>,
}

#[derive(Serialize)]
struct FaultReport {
    /// `undeclared`, `too-narrow`, `too-wide` or `redundant`; else what rule of the graph is broken.
    class: &'static str,
    error: bool,
    /// The line of the graph's canonical text.
    line: u32,
    message: String,
    /// Microseconds that it may cost a run.
    cost: Option<f64>,
}

/// Runs the command. Errors of order, or of anything that the proof relies on, are a failure.
pub fn run(command: &Check, terminal: &Terminal) -> anyhow::Result<()> {
    let mut reports = BTreeMap::new();
    if command.program.is_dir() {
        let bundle = Bundle::open(&command.program)?;
        for (name, target) in bundle.targets() {
            reports.insert(name.clone(), check(&target.graph)?);
        }
    } else if ModelFormat::of(&command.program)? == ModelFormat::Ir {
        let graph = membar::load_model(&command.program, &Default::default())?;
        reports.insert(graph.name.clone(), check(&graph)?);
    } else {
        anyhow::bail!(
            "`{}` has no order yet; compile it, and check the bundle",
            command.program.display()
        );
    }
    if terminal.json {
        terminal.data(&serde_json::to_string_pretty(&reports)?)?;
    } else {
        terminal.data(&text(&reports))?;
    }
    match reports.values().map(|report| report.errors).sum() {
        0 => Ok(()),
        1 => anyhow::bail!("the order has 1 error"),
        errors => anyhow::bail!("the order has {errors} errors"),
    }
}

fn check(graph: &Graph) -> anyhow::Result<TargetReport> {
    if graph.stage != Stage::Scheduled {
        anyhow::bail!(
            "graph `{}` is at stage {}, and steps have an order at stage {}",
            graph.name,
            graph.stage.word(),
            Stage::Scheduled.word()
        );
    }
    let errors = verify(graph, Depth::Full).err().map_or(Vec::new(), |errors| errors.errors);
    // The proof relies on handles and regions that are right.
    let order = match verify(graph, Depth::Cheap) {
        Ok(()) => check_order(graph),
        Err(_) => OrderReport::default(),
    };
    let mut faults: Vec<FaultReport> = order
        .faults
        .into_iter()
        .map(|fault| FaultReport {
            class: fault.class.word(),
            error: fault.class.is_error(),
            line: fault.line,
            message: fault.message,
            cost: fault.cost,
        })
        .collect();
    for error in errors {
        let known =
            |fault: &FaultReport| fault.line == error.line && fault.message == error.message;
        if !faults.iter().any(known) {
            let (class, line, message) = (error.context, error.line, error.message);
            faults.push(FaultReport { class, error: true, line, message, cost: None });
        }
    }
    faults.sort_by_key(|fault| fault.line);
    Ok(TargetReport {
        steps: order.steps,
        orders: order.orders,
        conflicts: order.conflicts,
        linearised: order.linearised,
        linearised_cost: order.linearised_cost,
        errors: faults.iter().filter(|fault| fault.error).count(),
        faults,
    })
}

fn text(reports: &BTreeMap<String, TargetReport>) -> String {
    let mut text = String::new();
    for (name, report) in reports {
        // Writing to a string cannot fail.
        for fault in &report.faults {
            let cost = fault.cost.map_or(String::new(), |cost| format!(" (up to {cost:.2} µs)"));
            let (line, class, message) = (fault.line, fault.class, &fault.message);
            let _ = writeln!(text, "{name}:{line}: {class}: {message}{cost}");
        }
        let TargetReport { steps, orders, conflicts, linearised, linearised_cost, errors, .. } =
            report;
        let _ = match (errors, steps) {
            (0, 0) => writeln!(text, "{name}: one queue runs the schedule; nothing to prove"),
            (0, _) => writeln!(
                text,
                "{name}: {steps} steps, {orders} orders, {conflicts} conflicts: all ordered"
            ),
            _ => writeln!(text, "{name}: {errors} errors in {orders} orders of {steps} steps"),
        };
        if *linearised > 0 {
            let _ = writeln!(
                text,
                "{name}: {linearised} orders only linearise, which costs up to \
                 {linearised_cost:.2} µs a run"
            );
        }
    }
    text
}
