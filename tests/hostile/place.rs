//! A folder for a test's files, and the binary run in it under limits; must never let a run that
//! hangs, or allocates wildly, end otherwise than in a failed test.

use membar::Tensor;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// No bad input takes long: a debug build on a busy machine stays far below.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Address space for a run, in KiB. The code and the threads' stacks need a part of one GiB.
const MEMORY_LIMIT_KIB: u64 = 4 << 20;

/// A folder that is removed when the test ends.
pub struct Place {
    folder: tempfile::TempDir,
}

/// What a run of the binary did.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("out")).unwrap();
        Place { folder }
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes tensors as `NAME`.
    pub fn tensors(&self, name: &str, tensors: &[(&str, Tensor)]) -> PathBuf {
        let tensors: BTreeMap<String, Tensor> =
            tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect();
        membar::tensor_files::write(&self.path(name), &tensors).unwrap();
        self.path(name)
    }

    /// Runs the binary in the folder.
    pub fn membar(&self, arguments: &[&str]) -> Outcome {
        // The shell's `ulimit` bounds the memory: a wild allocation aborts, which is no exit code.
        let script = format!("ulimit -v {MEMORY_LIMIT_KIB}; exec \"$0\" \"$@\"");
        let out = std::fs::File::create(self.path(".stdout")).unwrap();
        let err = std::fs::File::create(self.path(".stderr")).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_membar")])
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > TIME_LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("membar {arguments:?} did not end within {TIME_LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let read = |name: &str| {
            String::from_utf8_lossy(&std::fs::read(self.path(name)).unwrap()).into_owned()
        };
        Outcome { code: status.code(), stdout: read(".stdout"), stderr: read(".stderr") }
    }

    /// Runs the binary; it must succeed.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> Outcome {
        let outcome = self.membar(arguments);
        assert_eq!(outcome.code, Some(0), "membar {arguments:?}: {}", outcome.stderr);
        outcome
    }

    /// Runs the binary; it must fail with the code, say each of the facts, and leave `out/` empty.
    #[track_caller]
    pub fn refused(&self, code: i32, arguments: &[&str], facts: &[&str]) -> Outcome {
        let outcome = self.membar(arguments);
        let context = format!("membar {arguments:?}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{context}");
        assert_eq!(outcome.code, Some(code), "{context}");
        assert!(outcome.stderr.contains("error: "), "{context}");
        for fact in facts {
            assert!(outcome.stderr.contains(fact), "no `{fact}` in {context}");
        }
        assert_eq!(listing(&self.path("out")), [""; 0], "left behind by {context}");
        outcome
    }

    /// Writes the model and compiles it to `out/bundle`, which must fail with exit code 1.
    #[track_caller]
    pub fn compile_refused(&self, model: impl AsRef<[u8]>, facts: &[&str]) -> Outcome {
        self.file("model.onnx", model);
        self.refused(1, &["compile", "model.onnx", "-o", "out/bundle"], facts)
    }
}

/// The names in a folder, hidden ones too, sorted.
pub fn listing(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Numbers below the given bound, the same in every run (xorshift64).
pub fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    }
}
