//! Cases over several processes, for devices on which one case can spoil the process for the next:
//! a worker that reports an error which stays with the device is replaced, so that the other cases
//! go on. Never knows what a case does.

use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How many processes; set, the suite runs by this module instead of as a Rust test.
pub const PROCESSES: &str = "MEMBAR_TEST_PROCESSES";

/// Seconds for all cases together; those that are not begun then are reported as such.
const SECONDS: &str = "MEMBAR_TEST_SECONDS";

/// Where the failures go in full.
const REPORT: &str = "MEMBAR_TEST_REPORT";

/// A part of the names of the cases that run.
const FILTER: &str = "MEMBAR_TEST_FILTER";

/// Set in a worker.
const WORKER: &str = "MEMBAR_TEST_WORKER";

/// A case may take so long.
const CASE_LIMIT: Duration = Duration::from_secs(60);

/// The beginning of a line that answers; other lines are noise of the case.
const ANSWER: &str = "membar-answer ";

/// Errors after which a CUDA context is of no use, by the driver's names.
const STICKY: [&str; 9] = [
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ASSERT",
];

#[derive(Serialize, Deserialize)]
struct Answer {
    name: String,
    error: Option<String>,
}

/// Runs the named cases by `run` if the environment asks for processes; `None`: it does not.
pub fn run(
    suite: &str,
    names: &dyn Fn() -> anyhow::Result<Vec<String>>,
    run: &dyn Fn(&str) -> anyhow::Result<()>,
) -> Option<ExitCode> {
    let processes = std::env::var(PROCESSES).ok()?;
    if std::env::var_os(WORKER).is_some() {
        return Some(work(run));
    }
    let result = processes
        .parse()
        .map_err(anyhow::Error::from)
        .and_then(|processes: usize| lead(suite, names()?, processes.max(1)));
    Some(match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {suite}: {error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Answers each name on standard input, until one spoils the process.
fn work(run: &dyn Fn(&str) -> anyhow::Result<()>) -> ExitCode {
    for name in std::io::stdin().lines().map_while(Result::ok) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&name)));
        let error = match result {
            Ok(result) => result.err().map(|error| format!("{error:#}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| t.to_string()));
                Some(format!("panicked: {}", text.unwrap_or_default()))
            }
        };
        let spoilt = error.as_ref().is_some_and(|error| STICKY.iter().any(|s| error.contains(s)));
        let answer = serde_json::to_string(&Answer { name, error }).unwrap_or_default();
        println!("\n{ANSWER}{answer}");
        if spoilt {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// Hands the cases out and reports; whether all passed.
fn lead(suite: &str, mut names: Vec<String>, processes: usize) -> anyhow::Result<bool> {
    if let Ok(part) = std::env::var(FILTER) {
        names.retain(|name| name.contains(&part));
    }
    let begin = Instant::now();
    let seconds = std::env::var(SECONDS).ok().map(|text| text.parse()).transpose()?;
    let deadline = begin + Duration::from_secs(seconds.unwrap_or(3600));
    let queue = Mutex::new(names.iter().rev().cloned().collect::<Vec<String>>());
    let answers = Mutex::new(Vec::new());
    let restarts = Mutex::new(0usize);
    std::thread::scope(|scope| {
        for _ in 0..processes.min(names.len()) {
            scope.spawn(|| {
                let mut worker = None;
                while Instant::now() < deadline {
                    let Some(name) = queue.lock().ok().and_then(|mut queue| queue.pop()) else {
                        break;
                    };
                    let fresh = worker.is_none();
                    let answer = ask(&mut worker, &name, deadline);
                    if worker.is_none() && !fresh {
                        let _ = restarts.lock().map(|mut count| *count += 1);
                    }
                    let _ = answers.lock().map(|mut answers| answers.push(answer));
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap_or_default();
    answers.sort_by(|a: &Answer, b| a.name.cmp(&b.name));
    let failures: Vec<&Answer> = answers.iter().filter(|answer| answer.error.is_some()).collect();
    let mut full = String::new();
    for Answer { name, error } in &failures {
        let error = error.as_deref().unwrap_or_default();
        let first = error.lines().next().unwrap_or_default();
        println!("FAIL {name}: {first}");
        full += &format!("FAIL {name}: {error}\n\n");
    }
    let left = queue.into_inner().unwrap_or_default();
    for name in &left {
        println!("NOT RUN {name}");
    }
    let passed = answers.len() - failures.len();
    let summary = format!(
        "{suite}: {} cases, {passed} passed, {} failed, {} not run, {:.1} s, {} workers replaced",
        names.len(),
        failures.len(),
        left.len(),
        begin.elapsed().as_secs_f64(),
        restarts.into_inner().unwrap_or_default(),
    );
    println!("{summary}");
    if let Some(path) = std::env::var_os(REPORT).map(PathBuf::from) {
        std::fs::write(path, format!("{summary}\n\n{full}"))?;
    }
    Ok(passed == names.len())
}

/// A process that answers.
struct Worker {
    child: Child,
    names: ChildStdin,
    answers: Receiver<Answer>,
}

impl Worker {
    fn start() -> std::io::Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(WORKER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = || std::io::Error::other("it has no pipe");
        let names = child.stdin.take().ok_or_else(pipe)?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(pipe)?).lines();
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let answer = line.strip_prefix(ANSWER).map(serde_json::from_str);
                if let Some(Ok(answer)) = answer
                    && send.send(answer).is_err()
                {
                    break;
                }
            }
        });
        Ok(Worker { child, names, answers })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One case by a worker; where it is lost, or spoilt, there is none afterwards.
fn ask(worker: &mut Option<Worker>, name: &str, deadline: Instant) -> Answer {
    let failed = |error: String| Answer { name: name.to_string(), error: Some(error) };
    let running = match worker {
        Some(running) => running,
        None => match Worker::start() {
            Ok(started) => worker.insert(started),
            Err(error) => return failed(format!("no process can be started: {error}")),
        },
    };
    let limit = CASE_LIMIT.min(deadline.saturating_duration_since(Instant::now()));
    // A process that has ended answers nothing, which is seen below.
    let _ = writeln!(running.names, "{name}").and_then(|()| running.names.flush());
    let answer = match running.answers.recv_timeout(limit) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => failed(format!("no answer in {limit:.0?}")),
        Err(RecvTimeoutError::Disconnected) => {
            let status = running.child.wait();
            let status = status.map_or_else(|error| error.to_string(), |s| s.to_string());
            failed(format!("the process ended: {status}"))
        }
    };
    let lost = |error: &String| {
        error.starts_with("no answer")
            || error.starts_with("the process ended")
            || STICKY.iter().any(|sticky| error.contains(sticky))
    };
    if answer.error.as_ref().is_some_and(lost) {
        *worker = None;
    }
    answer
}
