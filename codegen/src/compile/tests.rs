//! Whole compilations in this process, with NVRTC where there is one; never a GPU.

use super::*;
use membar_ir::program::{DeviceProgram, Kernel};

/// A program of these sources. `None`, with a line that says so, where NVRTC is missing.
fn program(name: &str, sources: &[&str]) -> Option<DeviceProgram> {
    if let Err(error) = Nvrtc::load() {
        eprintln!("skipped: {error}");
        return None;
    }
    let kernel = |(index, source): (usize, &&str)| Kernel {
        name: format!("{name}_{index}"),
        source: source.to_string(),
    };
    Some(DeviceProgram {
        target: "sm_90a".to_string(),
        symbols: Vec::new(),
        kernels: sources.iter().enumerate().map(kernel).collect(),
        steps: Vec::new(),
    })
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("membar-compile-{name}-{}", std::process::id()))
}

const GOOD: &str = "extern \"C\" __global__ void f(float* y) { y[threadIdx.x] = 1.0f; }\n";

#[test]
fn equal_sources_are_compiled_once_and_damaged_entries_again()
-> Result<(), Box<dyn std::error::Error>> {
    let Some(program) = program("once", &[GOOD, "extern \"C\" __global__ void g() {}", GOOD])
    else {
        return Ok(());
    };
    let folder = scratch("cache");
    let options = KernelOptions { cache: Some(folder.clone()), ..KernelOptions::default() };
    let first = compile_kernels(&program, &options)?;
    assert_eq!(first.len(), 3);
    assert!(first.iter().all(|cubin| cubin.starts_with(b"\x7fELF")));
    assert!(Arc::ptr_eq(&first[0], &first[2]) && first[0] != first[1]);
    let entries = || -> std::io::Result<Vec<PathBuf>> {
        fs::read_dir(folder.join("kernels-1"))?.map(|entry| Ok(entry?.path())).collect()
    };
    assert_eq!(entries()?.len(), 2);
    for entry in entries()? {
        fs::write(entry, b"damaged")?;
    }
    assert_eq!(compile_kernels(&program, &options)?, first);
    let sizes = entries()?.into_iter().map(|entry| Ok(fs::metadata(entry)?.len()));
    assert!(sizes.collect::<std::io::Result<Vec<u64>>>()?.iter().all(|size| *size > 100));
    fs::remove_dir_all(&folder)?;
    Ok(())
}

#[test]
fn every_faulty_kernel_is_named_with_its_log_and_its_source() {
    let Some(program) = program("faulty", &["int x = ;", GOOD, "nonsense"]) else { return };
    let error = compile_kernels(&program, &KernelOptions::default());
    let Err(CompileKernelsError::Kernels(faults)) = &error else { panic!("{error:?}") };
    let names: Vec<&str> = faults.iter().map(|fault| fault.kernel.as_str()).collect();
    assert_eq!(names, ["faulty_0", "faulty_2"]);
    for fault in faults {
        assert!(fault.log.contains("error"), "{fault}");
        let source = fault.source_file.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let expected = program.kernels.iter().find(|kernel| kernel.name == fault.kernel);
        assert_eq!(source.as_ref(), expected.map(|kernel| &kernel.source));
    }
    forget(faults);
}

/// Removes what the faults wrote, and their folder if no other test has files there.
fn forget(faults: &[KernelFault]) {
    for path in faults.iter().filter_map(|fault| fault.source_file.as_ref()) {
        let _ = fs::remove_file(path);
        let _ = path.parent().map(fs::remove_dir);
    }
}

#[test]
fn workers_answer_what_they_are_asked() -> Result<(), Box<dyn std::error::Error>> {
    if program("none", &[]).is_none() {
        return Ok(());
    }
    let mut requests = Vec::new();
    for source in [GOOD, "nonsense"] {
        frame::write(&mut requests, &[b"f", source.as_bytes(), b"sm_80"])?;
    }
    let mut answers = Vec::new();
    serve(&mut requests.as_slice(), &mut answers)?;
    let mut answers = answers.as_slice();
    let [kind, cubin] = frame::read::<2>(&mut answers)?.ok_or("no answer")?;
    assert!(kind == b"done" && cubin.starts_with(b"\x7fELF"));
    let [kind, log] = frame::read::<2>(&mut answers)?.ok_or("no answer")?;
    assert!(kind == b"failed" && String::from_utf8_lossy(&log).contains("nonsense"));
    assert!(frame::read::<2>(&mut answers)?.is_none());
    Ok(())
}

#[test]
fn a_worker_that_dies_costs_its_kernel_alone() {
    let Some(program) = program("dies", &[GOOD, "extern \"C\" __global__ void g() {}"]) else {
        return;
    };
    // A program that ends at once without an answer, and one that there is not.
    for (name, reason) in [("true", "ended"), ("/no/such/program", "cannot start")] {
        let worker = Worker { program: name.into(), arguments: Vec::new() };
        let options = KernelOptions { jobs: 2, cache: None, worker: Some(worker) };
        let error = compile_kernels(&program, &options);
        let Err(CompileKernelsError::Kernels(faults)) = &error else { panic!("{error:?}") };
        assert_eq!(faults.len(), 2);
        assert!(faults[0].log.contains(reason), "{}", faults[0]);
        forget(faults);
    }
}
