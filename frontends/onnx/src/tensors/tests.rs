//! Tests of constants: typed fields, raw data, external files. None reads a file outside its own
//! folder.

use super::*;
use crate::Model;
use crate::testing::*;
use prost::Message;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn loaded(proto: TensorProto) -> (TensorDef, Bytes) {
    let model = load(&constants(vec![proto])).unwrap();
    let tensor = model.graph.initializers[0].clone();
    let bytes = model.data(&tensor).unwrap();
    (tensor, bytes)
}

fn int32(data_type: i32, dims: &[i64], values: &[i32]) -> TensorProto {
    TensorProto { int32_data: values.to_vec(), ..tensor("w", data_type, dims) }
}

#[test]
fn typed_fields_become_little_endian_bytes() {
    let one = |dtype, bytes: &[u8], proto: TensorProto| {
        let (tensor, data) = loaded(proto);
        assert_eq!(tensor.element_type, ElementType::Supported(dtype));
        assert_eq!(&data[..], bytes, "{dtype}");
    };
    let f32s = vec![1.5, -2.0];
    one(
        DType::F32,
        &[0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0],
        TensorProto { float_data: f32s, ..tensor("w", 1, &[2]) },
    );
    one(
        DType::F64,
        &1.5f64.to_le_bytes(),
        TensorProto { double_data: vec![1.5], ..tensor("w", 11, &[]) },
    );
    one(
        DType::I64,
        &(-3i64).to_le_bytes(),
        TensorProto { int64_data: vec![-3], ..tensor("w", 7, &[1]) },
    );
    one(
        DType::U64,
        &u64::MAX.to_le_bytes(),
        TensorProto { uint64_data: vec![u64::MAX], ..tensor("w", 13, &[1]) },
    );
    one(
        DType::U32,
        &7u32.to_le_bytes(),
        TensorProto { uint64_data: vec![7], ..tensor("w", 12, &[1]) },
    );
    one(DType::I32, &[0xfe, 0xff, 0xff, 0xff], int32(6, &[1], &[-2]));
    one(DType::F16, &[0x00, 0x3c], int32(10, &[1], &[0x3c00]));
    one(DType::Bf16, &[0x80, 0xbf], int32(16, &[1], &[0xbf80]));
    one(DType::I16, &[0xff, 0xff], int32(5, &[1], &[-1]));
    one(DType::U16, &[0xff, 0xff], int32(4, &[1], &[0xffff]));
    one(DType::I8, &[0x80, 0x80, 0x7f], int32(3, &[3], &[-128, 128, 127]));
    one(DType::U8, &[200], int32(2, &[1], &[200]));
    one(DType::Bool, &[1, 0], int32(9, &[2], &[1, 0]));
    one(DType::F8E4m3fn, &[0x7e], int32(17, &[1], &[0x7e]));
    one(DType::F8E5m2, &[0xfb], int32(19, &[1], &[0xfb]));
    one(DType::I4, &[0x21, 0x03], int32(22, &[3], &[0x21, 0x03]));
    one(DType::U4, &[0xf0], int32(21, &[2], &[0xf0]));
}

#[test]
fn raw_data_in_memory_is_shared() {
    let raw = |data: &[u8], dtype, dims: &[i64]| TensorProto {
        raw_data: Some(data.to_vec().into()),
        ..tensor("w", dtype, dims)
    };
    assert_eq!(&loaded(raw(&[1, 2, 3, 4], 5, &[2])).1[..], [1, 2, 3, 4]);
    assert_eq!(loaded(raw(&[0x21, 3], 22, &[3])).0.element_count(), 3);
    assert!(loaded(raw(&[], 1, &[4, 0])).1.is_empty());
    assert!(loaded(tensor("w", 1, &[0])).1.is_empty());
    assert_eq!(loaded(raw(&[0, 0, 0, 0], 1, &[])).0.shape, [0u64; 0]);
}

#[test]
fn data_must_match_type_and_shape() {
    let raw = |data: &[u8], dtype, dims: &[i64]| TensorProto {
        raw_data: Some(data.to_vec().into()),
        ..tensor("w", dtype, dims)
    };
    for (proto, message) in [
        (
            raw(&[0; 7], 1, &[2]),
            "has 7 bytes of data in `raw_data`, but its type f32 and shape [2] need 8",
        ),
        (
            raw(&[0; 3], 22, &[3]),
            "has 3 bytes of data in `raw_data`, but its type i4 and shape [3] need 2",
        ),
        (
            tensor("w", 1, &[3]),
            "has 0 elements of data in `float_data`, but its type f32 and shape [3] need 3",
        ),
        (
            int32(1, &[3], &[1, 2, 3]),
            "has 0 elements of data in `float_data`, but its type f32 and shape [3] need 3",
        ),
        (
            int32(6, &[2, 3], &[1, 2, 3]),
            "has 3 elements of data in `int32_data`, but its type i32 and shape [2, 3] need 6",
        ),
        (int32(2, &[1], &[256]), "element 0 is 256, which is not a value of u8"),
        (raw(&[1, 2], 9, &[2]), "element 1 is 2, which is not a value of bool"),
        (tensor("w", 1, &[2, -1]), "dimension 1 is -1, which is negative"),
        (
            tensor("w", 1, &[1 << 40, 1 << 40, 0]),
            "the size of shape [1099511627776, 1099511627776, 0] overflows",
        ),
        (tensor("w", 11, &[1 << 62]), "the size of shape [4611686018427387904] overflows"),
        (
            TensorProto { float_data: vec![0.0], ..raw(&[0; 4], 1, &[1]) },
            "has data both in `raw_data` and in `float_data`",
        ),
        (
            TensorProto { data_location: Some(2), ..tensor("w", 1, &[1]) },
            "has the unknown data location 2",
        ),
        (
            TensorProto { segment: Some(tensor_proto::Segment::default()), ..raw(&[], 1, &[0]) },
            "is stored in segments, which is not supported",
        ),
    ] {
        assert_eq!(error(&constants(vec![proto])), format!("tensor `w`: {message}"));
    }
}

#[test]
fn unsupported_types_are_errors_when_used() {
    for (code, name) in [(8, "string"), (14, "complex64"), (99, "element type 99")] {
        let model = load(&constants(vec![tensor("w", code, &[2])])).unwrap();
        let tensor = &model.graph.initializers[0];
        assert_eq!(tensor.data, DataLocation::Unsupported);
        assert_eq!(
            model.data(tensor).unwrap_err().to_string(),
            format!("tensor `w`: has elements of type {name}, which is not supported")
        );
    }
}

/// Writes the model into the folder and loads it from there.
fn from_folder(folder: &Path, tensors: Vec<TensorProto>) -> Result<Model, ImportError> {
    let path = folder.join("model.onnx");
    fs::write(&path, constants(tensors).encode_to_vec()).unwrap();
    Model::load(path)
}

fn at(location: &str, more: &[(&str, &str)]) -> Vec<TensorProto> {
    let entries: Vec<_> = [("location", location)].iter().chain(more).copied().collect();
    vec![external("w", &[2], &entries)]
}

/// The message for one wrong tensor, without the part that names file and tensor.
fn problem(folder: &Path, tensors: Vec<TensorProto>) -> String {
    let text = from_folder(folder, tensors).unwrap_err().to_string();
    text.split_once("tensor `w`: ").expect("the tensor is named").1.to_owned()
}

#[test]
fn raw_data_of_a_file_is_described_by_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let raw = TensorProto { raw_data: Some(vec![9, 8, 7, 6, 5].into()), ..tensor("w", 2, &[5]) };
    let model = from_folder(folder.path(), vec![raw]).unwrap();
    let tensor = &model.graph.initializers[0];
    let DataLocation::File { path, offset, length } = &tensor.data else {
        panic!("{:?}", tensor.data);
    };
    let file = fs::read(path).unwrap();
    let start = *offset as usize;
    assert_eq!(file[start..start + *length as usize], [9, 8, 7, 6, 5]);
    assert_eq!(model.data(tensor).unwrap(), Bytes::from_static(&[9, 8, 7, 6, 5]));
    assert_eq!(model.path(), Some(path.as_path()));
}

#[test]
fn external_data_is_described_and_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("sub/data"), (0..20).collect::<Vec<u8>>()).unwrap();
    symlink("sub/data", folder.path().join("link")).unwrap();
    for location in ["sub/data", "./sub/data", "link"] {
        let tensors = at(location, &[("offset", "12"), ("length", "8")]);
        let model = from_folder(folder.path(), tensors).unwrap();
        let tensor = &model.graph.initializers[0];
        assert_eq!(model.data(tensor).unwrap()[..], [12, 13, 14, 15, 16, 17, 18, 19]);
        let expected = folder.path().canonicalize().unwrap().join("sub/data");
        assert!(matches!(&tensor.data, DataLocation::File { path, .. } if *path == expected));
    }
    // Without a length the rest of the file is meant, of which the tensor is a part.
    let model = from_folder(folder.path(), at("sub/data", &[("offset", "1")])).unwrap();
    assert_eq!(model.data(&model.graph.initializers[0]).unwrap().len(), 8);
}

#[test]
fn external_data_stays_in_the_folder() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("model");
    fs::create_dir(&folder).unwrap();
    fs::create_dir(outer.path().join("model-2")).unwrap();
    fs::write(outer.path().join("secret"), [0; 8]).unwrap();
    fs::write(outer.path().join("model-2/secret"), [0; 8]).unwrap();
    symlink("../secret", folder.join("link")).unwrap();
    symlink("..", folder.join("up")).unwrap();
    symlink("../model-2", folder.join("sibling")).unwrap();
    let absolute = outer.path().join("secret");
    for location in [
        "../secret",
        "sub/../../secret",
        "..",
        absolute.to_str().unwrap(),
        "link",
        "up/secret",
        "sibling/secret",
        "a\0b",
    ] {
        assert_eq!(
            problem(&folder, at(location, &[])),
            format!("external data: the location `{location}` is outside the model's folder")
        );
    }
}

#[test]
fn external_regions_must_lie_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data"), [0; 12]).unwrap();
    let path = folder.path().canonicalize().unwrap().join("data");
    for offset in ["5", "13", "18446744073709551615"] {
        assert_eq!(
            problem(folder.path(), at("data", &[("offset", offset)])),
            format!(
                "external data: 8 bytes from byte {offset} on go past the end of {}, \
                 which has 12",
                path.display()
            )
        );
    }
    assert_eq!(
        problem(folder.path(), at("data", &[("length", "12")])),
        "has 12 bytes of data in its external file, but its type f32 and shape [2] need 8"
    );
    for (key, text) in [("offset", "-1"), ("offset", "x"), ("length", "1e3")] {
        assert_eq!(
            problem(folder.path(), at("data", &[(key, text)])),
            format!("external data: {key} is `{text}`, expected a number of bytes")
        );
    }
    assert_eq!(
        problem(folder.path(), at("", &[])),
        "external data: location is empty, expected the name of a file in the model's folder"
    );
    fs::create_dir(folder.path().join("dir")).unwrap();
    assert!(problem(folder.path(), at("dir", &[])).ends_with("not a regular file"));
}

#[test]
fn a_missing_data_file_is_an_error_only_when_read() {
    let folder = tempfile::tempdir().unwrap();
    symlink("nowhere", folder.path().join("dangling")).unwrap();
    for location in ["absent", "sub/absent", "dangling"] {
        let model = from_folder(folder.path(), at(location, &[("offset", "64")])).unwrap();
        let tensor = &model.graph.initializers[0];
        let expected = folder.path().canonicalize().unwrap().join(location);
        assert_eq!(
            tensor.data,
            DataLocation::Missing { path: expected.clone(), offset: 64, length: 8 }
        );
        let error = model.data(tensor).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("tensor `w`: external data: {} does not exist", expected.display())
        );
        assert!(error.hint().unwrap().contains("--random-weights"));
    }
    let error = error(&constants(at("data", &[])));
    assert!(error.contains("has no folder in which `data` could be looked for"), "{error}");
}

#[test]
fn files_past_two_gigabytes_load() {
    const LARGE: u64 = (1 << 31) + 12;
    let folder = tempfile::tempdir().unwrap();
    // A sparse data file.
    let data = fs::File::create(folder.path().join("data")).unwrap();
    data.set_len(LARGE).unwrap();
    let offset = (LARGE - 8).to_string();
    let model = from_folder(folder.path(), at("data", &[("offset", &offset)])).unwrap();
    assert_eq!(model.data(&model.graph.initializers[0]).unwrap()[..], [0; 8]);

    // A sparse model: the keys and lengths in front of a tensor's raw data, then a hole.
    let mut head = tensor("w", 2, &[LARGE as i64]).encode_to_vec();
    prefix(9, LARGE, &mut head);
    let mut graph = Vec::new();
    prefix(5, head.len() as u64 + LARGE, &mut graph);
    graph.extend(head);
    let mut file = model_head();
    prefix(7, graph.len() as u64 + LARGE, &mut file);
    file.extend(graph);
    let path = folder.path().join("large.onnx");
    fs::write(&path, &file).unwrap();
    let length = file.len() as u64 + LARGE;
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
    let model = Model::load(&path).unwrap();
    let tensor = &model.graph.initializers[0];
    assert!(matches!(
        tensor.data,
        DataLocation::File { length: LARGE, offset, .. } if offset == file.len() as u64
    ));
    assert_eq!(model.data(tensor).unwrap().len() as u64, LARGE);
}

fn model_head() -> Vec<u8> {
    let mut head = constants(vec![]);
    head.graph = None;
    head.encode_to_vec()
}

/// Key and length of a protobuf field whose content follows.
fn prefix(field: u32, length: u64, out: &mut Vec<u8>) {
    prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(length, out);
}
