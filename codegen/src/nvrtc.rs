//! NVRTC, NVIDIA's run-time compiler: finding it on this machine, and compiling CUDA C++ to
//! cubins. Must never depend on a driver or a GPU.

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use std::ffi::{CStr, CString, OsStr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The variable that names NVRTC's library, or the folder that holds it.
pub const VARIABLE: &str = "MEMBAR_NVRTC";

/// Why NVRTC cannot be used, or a source does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvrtcError {
    /// It is not on this machine.
    #[error("NVRTC, NVIDIA's run-time compiler, was not found; looked in {}", list(.looked))]
    Missing {
        /// The folders.
        looked: Vec<PathBuf>,
    },
    /// Source or options hold a 0 byte.
    #[error("kernel `{0}` holds a 0 byte")]
    ZeroByte(String),
    /// The compiler refused the source.
    #[error("kernel `{name}` does not compile for {target}\n{log}")]
    Compile {
        /// The kernel's file name.
        name: String,
        /// The architecture.
        target: String,
        /// What the compiler says.
        log: String,
    },
    /// Another call failed.
    #[error("{call}: {text}")]
    Call {
        /// NVRTC's function.
        call: &'static str,
        /// Its error.
        text: String,
    },
}

impl NvrtcError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            NvrtcError::Missing { .. } => Some(format!(
                "install it with `pip install nvidia-cuda-nvrtc==13.0.88`, or let {VARIABLE} name \
                 the folder that holds libnvrtc.so.13"
            )),
            NvrtcError::ZeroByte(_) | NvrtcError::Compile { .. } | NvrtcError::Call { .. } => None,
        }
    }
}

/// NVRTC, loaded. It stays loaded until the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nvrtc {
    /// Major and minor version.
    pub version: (i32, i32),
}

impl Nvrtc {
    /// Loads NVRTC: from `MEMBAR_NVRTC`; from where the system finds libraries, `LD_LIBRARY_PATH`
    /// among them; from a CUDA toolkit; or from the Python wheel `nvidia-cuda-nvrtc`, in the active
    /// virtual environment or for the user.
    ///
    /// # Errors
    /// [`NvrtcError::Missing`] with the folders that were looked in.
    pub fn load() -> Result<Nvrtc, NvrtcError> {
        static LOADED: OnceLock<Result<Nvrtc, NvrtcError>> = OnceLock::new();
        LOADED.get_or_init(load).clone()
    }

    /// The compiler for a test: `None` on a machine without it, which the test says on standard error.
    ///
    /// # Panics
    /// If [`VARIABLE`] says where the compiler is, as `cargo xtask test` does, and it is not there:
    /// then no test may be left out.
    #[doc(hidden)]
    pub fn for_test(test: &str) -> Option<Nvrtc> {
        match Nvrtc::load() {
            Ok(nvrtc) => Some(nvrtc),
            Err(error) if std::env::var_os(VARIABLE).is_some() => panic!("{test}: {error}"),
            Err(error) => {
                eprintln!("skipped: {test}: {error}");
                None
            }
        }
    }

    /// Compiles CUDA C++ to a cubin for an architecture such as `sm_90a`.
    ///
    /// `name` stands for the file in messages. There are no headers: the source is all there is.
    ///
    /// # Errors
    /// The source does not compile; the error holds the compiler's log.
    pub fn compile(self, name: &str, source: &str, target: &str) -> Result<Vec<u8>, NvrtcError> {
        Ok(self.compile_both(name, source, target)?.cubin)
    }

    /// As [`Nvrtc::compile`], with the PTX that the cubin was assembled from.
    ///
    /// # Errors
    /// As [`Nvrtc::compile`].
    pub fn compile_both(
        self,
        name: &str,
        source: &str,
        target: &str,
    ) -> Result<Compiled, NvrtcError> {
        let options = options(target);
        let zero_byte = |_| NvrtcError::ZeroByte(name.to_string());
        let text = CString::new(source).map_err(zero_byte)?;
        let file = CString::new(name).map_err(zero_byte)?;
        let options = options
            .into_iter()
            .map(CString::new)
            .collect::<Result<Vec<CString>, _>>()
            .map_err(zero_byte)?;
        let program = Program::new(&text, &file)?;
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: program and options are alive, and the count is that of the list.
        let result = unsafe {
            sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr())
        };
        if result == nvrtcResult::NVRTC_ERROR_COMPILATION {
            let (name, target) = (name.to_string(), target.to_string());
            return Err(NvrtcError::Compile { name, target, log: program.log()? });
        }
        check("nvrtcCompileProgram", result)?;
        Ok(Compiled { cubin: program.cubin()?, ptx: program.ptx()? })
    }
}

/// What the compiler makes of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// An ELF file for one architecture.
    pub cubin: Vec<u8>,
    /// The assembly text.
    pub ptx: String,
}

/// The compiler's options for a target.
pub(crate) fn options(target: &str) -> Vec<String> {
    vec![
        format!("--gpu-architecture={target}"),
        "--std=c++17".to_string(),
        "-default-device".to_string(),
    ]
}

/// A kernel's name as that of a file: other characters than letters, digits and `_` replaced.
pub fn file_name(kernel: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    kernel.chars().map(plain).collect()
}

/// A program inside NVRTC.
struct Program(nvrtcProgram);

impl Program {
    fn new(text: &CStr, file: &CStr) -> Result<Program, NvrtcError> {
        let mut raw = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: both strings end with 0 and are copied; there are no headers.
        let result = unsafe {
            sys::nvrtcCreateProgram(&mut raw, text.as_ptr(), file.as_ptr(), 0, none, none)
        };
        check("nvrtcCreateProgram", result)?;
        Ok(Program(raw))
    }

    fn log(&self) -> Result<String, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program is alive; NVRTC writes one size, then at most as many bytes.
        let bytes = unsafe {
            check("nvrtcGetProgramLogSize", sys::nvrtcGetProgramLogSize(self.0, &mut size))?;
            let mut bytes = vec![0u8; size];
            let target = bytes.as_mut_ptr().cast();
            check("nvrtcGetProgramLog", sys::nvrtcGetProgramLog(self.0, target))?;
            bytes
        };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).trim_end().to_string())
    }

    fn cubin(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: as in `log`.
        unsafe {
            check("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize(self.0, &mut size))?;
            let mut bytes = vec![0u8; size];
            let target = bytes.as_mut_ptr().cast();
            check("nvrtcGetCUBIN", sys::nvrtcGetCUBIN(self.0, target))?;
            Ok(bytes)
        }
    }

    fn ptx(&self) -> Result<String, NvrtcError> {
        let mut size = 0;
        // SAFETY: as in `log`.
        let bytes = unsafe {
            check("nvrtcGetPTXSize", sys::nvrtcGetPTXSize(self.0, &mut size))?;
            let mut bytes = vec![0u8; size];
            let target = bytes.as_mut_ptr().cast();
            check("nvrtcGetPTX", sys::nvrtcGetPTX(self.0, target))?;
            bytes
        };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once and destroyed once. A failure cannot be told to anybody.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn check(call: &'static str, result: nvrtcResult) -> Result<(), NvrtcError> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: NVRTC returns a string of its own that lives for ever.
    let text = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(result)) };
    Err(NvrtcError::Call { call, text: text.to_string_lossy().into_owned() })
}

fn load() -> Result<Nvrtc, NvrtcError> {
    let folders = folders();
    // What the system finds by itself comes after what the user named, and before all else.
    let named = std::env::var_os(VARIABLE).is_some();
    let found = (named && preload(&folders[0]))
        || is_present()
        || folders.iter().any(|folder| preload(folder));
    if !found {
        return Err(NvrtcError::Missing { looked: folders });
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is loaded; it writes two numbers.
    check("nvrtcVersion", unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
    Ok(Nvrtc { version: (major, minor) })
}

fn is_present() -> bool {
    // SAFETY: it opens the library, whose initialisers are NVIDIA's.
    unsafe { sys::is_culib_present() }
}

/// Opens the libraries of a folder by their paths and keeps them open, so that they are found by
/// name afterwards; the built-in functions first, which NVRTC looks for by name.
fn preload(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    let mut libraries: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            name.starts_with("libnvrtc") && name.contains(".so") && !name.contains(".alt.")
        })
        .collect();
    libraries.sort_by_key(|path| (!path.to_string_lossy().contains("builtins"), path.clone()));
    for path in libraries {
        // SAFETY: the library is NVRTC by its name, in a folder of the user's; its initialisers
        // are NVIDIA's.
        if let Ok(library) = unsafe { libloading::Library::new(&path) } {
            std::mem::forget(library);
        }
    }
    is_present()
}

/// The folders to look in, in order.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(named) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let parent = named.parent().map(Path::to_path_buf);
        folders.push(if named.is_dir() { named } else { parent.unwrap_or_default() });
    }
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        folders.extend(std::env::var_os(variable).map(|root| Path::new(&root).join("lib64")));
    }
    folders.push(PathBuf::from("/usr/local/cuda/lib64"));
    let environment = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local"));
    let roots = [environment, home, Some("/usr/local".into()), Some("/usr".into())];
    for root in roots.into_iter().flatten() {
        for python in children(&root.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                for cuda in children(&python.join(packages).join("nvidia"), "cu") {
                    folders.push(cuda.join("lib"));
                }
            }
        }
    }
    folders
}

/// Folders below `folder` whose names begin so, sorted.
fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().and_then(OsStr::to_str).is_some_and(|n| n.starts_with(prefix))
        })
        .collect();
    found.sort();
    found
}

fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}
