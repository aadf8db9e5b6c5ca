//! Worker processes: a pool that hands each one kernel after another, and what runs in them. A
//! worker that dies costs its kernel alone. Must never run anything but the command it was given.

use super::{compile_one, frame};
use crate::nvrtc::Nvrtc;
use membar_ir::program::Kernel;
use std::ffi::OsString;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The command line of a worker: a program that calls [`serve`] on its standard input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

const DONE: &[u8] = b"done";
const FAILED: &[u8] = b"failed";

/// Compiles what is asked for on `input` and answers on `output` until `input` ends.
///
/// # Errors
/// The streams break, or hold something else.
pub fn serve(input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    while let Some(request) = frame::read::<3>(input)? {
        let [name, source, target] = request.map(String::from_utf8);
        let result = match (name, source, target) {
            (Ok(name), Ok(source), Ok(target)) => Nvrtc::load()
                .map_err(|error| error.to_string())
                .and_then(|compiler| compile_one(compiler, &name, &source, &target)),
            _ => Err("the request is not UTF-8".to_string()),
        };
        match &result {
            Ok(cubin) => frame::write(output, &[DONE, cubin])?,
            Err(log) => frame::write(output, &[FAILED, log.as_bytes()])?,
        }
    }
    Ok(())
}

/// Compiles kernels over `jobs` processes; one result a kernel.
pub(super) fn compile(
    worker: &Worker,
    kernels: &[&Kernel],
    target: &str,
    jobs: usize,
    store: &(dyn Fn(usize, &[u8]) + Sync),
) -> Vec<Result<Vec<u8>, String>> {
    let next = AtomicUsize::new(0);
    let lost = || Err("its process did not answer".to_string());
    let results: Mutex<Vec<Result<Vec<u8>, String>>> =
        Mutex::new(kernels.iter().map(|_| lost()).collect());
    let work = || {
        let mut process = None;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(kernel) = kernels.get(index) else { break };
            let result = ask(worker, &mut process, kernel, target);
            if let Ok(cubin) = &result {
                store(index, cubin);
            }
            // Nothing panics while it holds the lock.
            if let Ok(mut results) = results.lock() {
                results[index] = result;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap_or_default()
}

/// One kernel by a process, which is started where there is none.
fn ask(
    worker: &Worker,
    process: &mut Option<Process>,
    kernel: &Kernel,
    target: &str,
) -> Result<Vec<u8>, String> {
    let running = match process {
        Some(running) => running,
        None => process.insert(Process::start(worker).map_err(|error| {
            format!("its process `{}` cannot start: {error}", worker.program.display())
        })?),
    };
    match running.ask(kernel, target) {
        Ok(result) => result,
        Err(error) => {
            // It is of no use any more; the next kernel gets another.
            let status = process.take().map(Process::end);
            Err(format!("its process ended: {}", status.unwrap_or_else(|| error.to_string())))
        }
    }
}

/// A running worker.
struct Process {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(worker: &Worker) -> io::Result<Process> {
        let mut child = Command::new(&worker.program)
            .args(&worker.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipe = || io::Error::other("it has no pipe");
        let requests = Some(child.stdin.take().ok_or_else(pipe)?);
        let answers = BufReader::new(child.stdout.take().ok_or_else(pipe)?);
        Ok(Process { child, requests, answers })
    }

    fn ask(&mut self, kernel: &Kernel, target: &str) -> io::Result<Result<Vec<u8>, String>> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let requests = self.requests.as_mut().ok_or_else(gone)?;
        let request = [&kernel.name, &kernel.source, target].map(|part: &str| part.as_bytes());
        frame::write(requests, &request)?;
        let [kind, body] = frame::read::<2>(&mut self.answers)?.ok_or_else(gone)?;
        match kind.as_slice() {
            DONE => Ok(Ok(body)),
            FAILED => Ok(Err(String::from_utf8_lossy(&body).into_owned())),
            _ => Err(io::Error::other("it answered something else")),
        }
    }

    /// Stops it; how it ended, in words.
    fn end(mut self) -> String {
        self.requests = None;
        let status = self.child.wait();
        status.map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Without requests it ends by itself.
        self.requests = None;
        let _ = self.child.wait();
    }
}
