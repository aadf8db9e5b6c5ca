//! Tests of both formats through the public functions; they read and write real files and must
//! never trust one format to check the other.

use super::*;
use membar_ir::types::ConcreteType;
use std::fs;

/// A tensor of any type whose bytes are drawn from a seed; truth values are 0 or 1.
fn random_tensor(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let ty = ConcreteType::new(dtype, shape.to_vec()).expect("a small shape");
    let mut tensor = Tensor::zeros(ty);
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    for byte in tensor.bytes_mut() {
        // Knuth's 64-bit linear congruential generator; the high bits are the good ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = (state >> 56) as u8;
        *byte = if dtype == DType::Bool { drawn & 1 } else { drawn };
    }
    tensor
}

fn random_tensors(dtypes: impl Iterator<Item = DType>) -> Tensors {
    let mut tensors = Tensors::new();
    for (seed, dtype) in (1..).zip(dtypes) {
        tensors.insert(format!("{dtype}"), random_tensor(dtype, &[3, 5, 7], seed));
        tensors.insert(format!("scalar {dtype}"), random_tensor(dtype, &[], seed));
        tensors.insert(format!("empty/{dtype}:0"), random_tensor(dtype, &[2, 0], seed));
    }
    tensors
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary folder")
}

fn error(path: &Path) -> String {
    match read(path) {
        Ok(tensors) => format!("read {:?}", tensors.keys()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn npz_keeps_every_type_that_numpy_has() {
    let folder = scratch();
    let path = folder.path().join("all.npz");
    let tensors = random_tensors(DType::ALL.into_iter().filter(|dtype| npy::holds(*dtype)));
    assert_eq!(tensors.len(), 3 * 12);
    write(&path, &tensors).expect("writes");
    assert_eq!(read(&path).expect("reads"), tensors);
}

#[test]
fn safetensors_keeps_every_type() {
    let folder = scratch();
    let path = folder.path().join("all.safetensors");
    let tensors = random_tensors(DType::ALL.into_iter());
    write(&path, &tensors).expect("writes");
    assert_eq!(read(&path).expect("reads"), tensors);
}

#[test]
fn unusual_names_survive() {
    let folder = scratch();
    let names = ["/a/b:0", "../up", "a\\b", "", "ä ö", "x.npy", "a\nb", "__init__"];
    let tensors: Tensors = (1..)
        .zip(names)
        .map(|(seed, name)| (name.to_owned(), random_tensor(DType::F32, &[3], seed)))
        .collect();
    for ending in ["npz", "safetensors"] {
        let path = folder.path().join("names").with_extension(ending);
        write(&path, &tensors).expect("writes");
        assert_eq!(read(&path).expect("reads"), tensors);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 2);
}

#[test]
fn equal_tensors_give_equal_bytes() {
    let folder = scratch();
    let tensors = random_tensors(DType::ALL.into_iter().filter(|dtype| npy::holds(*dtype)));
    for ending in ["npz", "safetensors"] {
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name).with_extension(ending));
        write(&one, &tensors).expect("writes");
        write(&two, &tensors).expect("writes");
        assert_eq!(fs::read(one).expect("reads"), fs::read(two).expect("reads"));
    }
}

#[test]
fn types_that_npz_lacks_are_refused_before_anything_is_written() {
    let folder = scratch();
    let path = folder.path().join("out.npz");
    for dtype in DType::ALL.into_iter().filter(|dtype| !npy::holds(*dtype)) {
        let tensors = Tensors::from([("x".to_owned(), random_tensor(dtype, &[3], 1))]);
        let message = write(&path, &tensors).expect_err("no such type").to_string();
        assert!(message.contains("array `x`"), "{message}");
        assert!(message.contains("write a `.safetensors` file instead"), "{message}");
        assert!(!path.exists());
    }
}

#[test]
fn unknown_endings_and_missing_files_are_named() {
    for path in ["inputs.json", "inputs", "npz", ".npz"] {
        assert!(error(Path::new(path)).contains("expected `.npz` or `.safetensors`"), "{path}");
    }
    for path in ["missing/a.npz", "missing/a.safetensors"] {
        assert!(error(Path::new(path)).contains(path));
    }
}

/// Every fixture has a description that was written by another program.
#[test]
fn fixtures_have_the_types_and_shapes_of_their_descriptions() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models");
    let mut arrays = 0;
    for entry in fs::read_dir(models).expect("the fixtures are part of the repository") {
        let folder = entry.expect("readable").path();
        let description = fs::read_to_string(folder.join("meta.json")).expect("description");
        let description: serde_json::Value = serde_json::from_str(&description).expect("JSON");
        let data_sets = description["data_sets"].as_array().expect("data sets");
        for (index, data_set) in (1..).zip(data_sets) {
            for kind in ["inputs", "outputs"] {
                let suffix = if index == 1 { String::new() } else { format!("_{index}") };
                let path = folder.join(format!("{kind}{suffix}.npz"));
                let found: BTreeMap<String, serde_json::Value> = read(&path)
                    .expect("a valid file")
                    .iter()
                    .map(|(name, tensor)| {
                        let ty = (numpy_name(tensor.dtype()), tensor.shape());
                        (name.clone(), serde_json::json!(ty))
                    })
                    .collect();
                arrays += found.len();
                assert_eq!(serde_json::json!(found), data_set[kind], "{}", path.display());
            }
        }
    }
    assert!(arrays > 500, "only {arrays} arrays");
}

fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::I64 => "int64",
        DType::I32 => "int32",
        other => other.name(),
    }
}

/// Small files of both formats, with the paths that they are to be written to.
fn small_files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let tensors = random_tensors([DType::F32, DType::Bool].into_iter());
    ["npz", "safetensors"]
        .map(|ending| {
            let path = folder.join("small").with_extension(ending);
            write(&path, &tensors).expect("writes");
            let bytes = fs::read(&path).expect("reads");
            (path, bytes)
        })
        .into()
}

#[test]
fn every_truncation_is_an_error() {
    let folder = scratch();
    for (path, bytes) in small_files(folder.path()) {
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).expect("writes");
            assert!(read(&path).is_err(), "{length} bytes of {}", path.display());
        }
    }
}

#[test]
fn no_flipped_bit_panics() {
    let folder = scratch();
    for (path, mut bytes) in small_files(folder.path()) {
        for position in 0..bytes.len() {
            let bit = 1 << (position % 8);
            bytes[position] ^= bit;
            fs::write(&path, &bytes).expect("writes");
            // Many flips are in elements or names, so either result is right.
            if let Ok(tensors) = read(&path) {
                assert!(tensors.len() <= 6);
            }
            bytes[position] ^= bit;
        }
    }
}

#[test]
fn deflate_bombs_are_refused() {
    use std::io::Write;
    let folder = scratch();
    let path = folder.path().join("bomb.npz");
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1048576,), }";
    let array = npy::tests::array(1, header, &vec![0; 1 << 20]);
    let mut archive = zip::ZipWriter::new(fs::File::create(&path).expect("creates"));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated);
    archive.start_file("x.npy", options).expect("starts");
    archive.write_all(&array).expect("writes");
    archive.finish().expect("finishes");
    assert_eq!(read(&path).expect("an honest file")["x"].elements(), 1 << 20);

    // The archive's directory says 2 GiB in place of 1 MiB and a bit.
    let mut bytes = fs::read(&path).expect("reads");
    let honest = (array.len() as u32).to_le_bytes();
    let at = (0..bytes.len() - 4)
        .rev()
        .find(|&at| bytes[at..at + 4] == honest)
        .expect("the directory has the size");
    bytes[at..at + 4].copy_from_slice(&(1u32 << 31).to_le_bytes());
    fs::write(&path, &bytes).expect("writes");
    let message = error(&path);
    assert!(message.contains("claims to unpack to 2147483648 bytes"), "{message}");
}

#[test]
fn members_that_are_no_arrays_are_named() {
    use std::io::Write;
    let folder = scratch();
    let path = folder.path().join("odd.npz");
    let mut archive = zip::ZipWriter::new(fs::File::create(&path).expect("creates"));
    archive.start_file("notes.txt", zip::write::SimpleFileOptions::default()).expect("starts");
    archive.write_all(b"hello").expect("writes");
    archive.finish().expect("finishes");
    assert!(error(&path).contains("array `notes.txt`"), "{}", error(&path));
}

fn safetensors_file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn hostile_safetensors_are_refused() {
    let folder = scratch();
    let path = folder.path().join("odd.safetensors");
    let packed = |dtype: &str, shape: &str, name: &str| {
        format!(
            r#"{{"__metadata__":{{"membar.packed":"{{\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape}}}}}"}},"x":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}}"#
        )
    };
    for (header, expected) in [
        (r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#.to_owned(), "not a valid"),
        (r#"{"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}"#.to_owned(), "stored as 9"),
        (r#"{"x":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]}}"#.to_owned(), "F8_E8M0"),
        (
            r#"{"x":{"dtype":"U8","shape":[9223372036854775807,4],"data_offsets":[0,2]}}"#
                .to_owned(),
            "not a valid",
        ),
        (packed("i4", "[3]", "x"), "read"),
        (packed("i4", "[5]", "x"), "2 bytes"),
        (packed("f32", "[1]", "x"), "f32 stored as U8"),
        (packed("i4", "[3]", "y"), "names `y`, which is not there"),
        (packed("i3", "[3]", "x"), "membar.packed"),
        (packed("i4", "[-3]", "x"), "membar.packed"),
        (packed("i4", "[9223372036854775807,9]", "x"), "does not fit the address space"),
    ] {
        fs::write(&path, safetensors_file(&header, &[9, 1])).expect("writes");
        let message = error(&path);
        assert!(message.contains(expected), "{header}: {message}");
    }
}
