//! A list of named steps with a heading, a time and a result each. It must never swallow a failure.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// The steps that ran, in order.
#[derive(Default)]
pub struct Steps {
    finished: Vec<Step>,
}

struct Step {
    name: &'static str,
    time: Duration,
    passed: bool,
}

impl Steps {
    /// Runs one step under a heading; reports its error and time. Gives whether it passed.
    pub fn run(&mut self, name: &'static str, body: impl FnOnce() -> Result<()>) -> bool {
        eprintln!("\n=== {name}");
        let start = Instant::now();
        let result = body();
        let step = Step { name, time: start.elapsed(), passed: result.is_ok() };
        if let Err(error) = result {
            eprintln!("error: {error:#}");
        }
        eprintln!("{}", step.describe());
        let passed = step.passed;
        self.finished.push(step);
        passed
    }

    /// Prints a table of all steps.
    ///
    /// # Errors
    /// When a step failed; the message names the first and counts the others.
    pub fn finish(self) -> Result<()> {
        eprintln!("\n=== summary");
        for step in &self.finished {
            eprintln!("{}", step.describe());
        }
        let mut failed = self.finished.iter().filter(|step| !step.passed);
        match (failed.next(), failed.count()) {
            (None, _) => Ok(()),
            (Some(first), 0) => bail!("step `{}` failed", first.name),
            (Some(first), others) => bail!("step `{}` failed, and {others} after it", first.name),
        }
    }
}

impl Step {
    fn describe(&self) -> String {
        let verdict = if self.passed { "ok" } else { "FAILED" };
        format!("{verdict:<6} {:7.1} s  {}", self.time.as_secs_f64(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_failure_is_named_and_the_others_counted() {
        let mut steps = Steps::default();
        assert!(steps.run("fine", || Ok(())));
        assert!(!steps.run("broken", || bail!("no")));
        assert!(steps.run("fine again", || Ok(())));
        assert!(!steps.run("broken too", || bail!("no")));
        let error = steps.finish().expect_err("two steps failed").to_string();
        assert_eq!(error, "step `broken` failed, and 1 after it");
    }

    #[test]
    fn all_passed_is_no_error() {
        let mut steps = Steps::default();
        steps.run("fine", || Ok(()));
        assert!(steps.finish().is_ok());
    }
}
