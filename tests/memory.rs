//! Compiling does not hold a model's weights in memory: `membar compile` of a model with gigabytes
//! of external data, its anonymous memory sampled from the system while it runs. The data is a
//! sparse file with a few bytes in it, so nothing here may depend on what the weights are.
//!
//! `MEMBAR_MEMORY_TEST_GIB=16 cargo test --release --test memory` measures a larger model.

#![cfg(target_os = "linux")] // The sampling reads /proc, and holes are Linux's.

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Rows and columns of each weight: 256 MiB of f32.
const SIDE: u64 = 8192;
const WEIGHT_BYTES: u64 = SIDE * SIDE * 4;

/// The size of the model in GiB, unless the environment says another.
const GIB: u64 = 2;

/// The weight that is stored transposed, so that its recipe has to turn it.
const TRANSPOSED: u64 = 3;

#[test]
fn weights_are_never_in_memory() -> Result<(), Box<dyn Error>> {
    let gib = match std::env::var("MEMBAR_MEMORY_TEST_GIB") {
        Ok(text) => text.parse()?,
        Err(_) => GIB,
    };
    // A sixteenth of the weights, and never less than what a few chunks of a weight need.
    let limit = (gib << 30).div_euclid(16).max(256 << 20);
    let weights = gib * (1 << 30) / WEIGHT_BYTES;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let data = File::create(folder.path().join("weights.bin"))?;
    data.set_len(weights * WEIGHT_BYTES)?;
    for index in 0..weights {
        // The second row's first element; the second column's, where the weight is turned.
        data.write_all_at(&marker(index).to_le_bytes(), index * WEIGHT_BYTES + SIDE * 4)?;
    }
    let model = folder.path().join("large.onnx");
    fs::write(&model, large_model(weights))?;

    let bundle = folder.path().join("large.bundle");
    let peak = peak_anonymous_memory(&model, &bundle)?;
    println!("{gib} GiB of weights: RssAnon at most {} MiB", peak >> 20);
    assert!(peak > 0, "no sample was taken");
    assert!(peak < limit, "RssAnon reached {peak} bytes, the limit is {limit}");

    // The weights arrived, and holes stayed holes.
    let written = File::open(bundle.join("weights.safetensors"))?;
    let mut bytes = [0; 8];
    written.read_exact_at(&mut bytes, 0)?;
    let length = u64::from_le_bytes(bytes);
    let mut header = vec![0; usize::try_from(length)?];
    written.read_exact_at(&mut header, 8)?;
    let header: serde_json::Value = serde_json::from_slice(&header)?;
    for index in 0..weights {
        let (name, element) = match index {
            TRANSPOSED => (format!("w{index}_turned"), 1),
            _ => (format!("w{index}"), SIDE),
        };
        let begin = header[&name]["data_offsets"][0].as_u64().ok_or(name)?;
        let mut bytes = [0; 4];
        written.read_exact_at(&mut bytes, 8 + length + begin + element * 4)?;
        assert_eq!(f32::from_le_bytes(bytes), marker(index), "weight {index}");
    }
    let metadata = written.metadata()?;
    assert!(metadata.blocks() * 512 < 64 << 20, "the file takes {} blocks", metadata.blocks());
    Ok(())
}

fn marker(index: u64) -> f32 {
    index as f32 + 1.5
}

/// Compiles, and gives the greatest RssAnon seen, in bytes.
fn peak_anonymous_memory(model: &Path, bundle: &Path) -> Result<u64, Box<dyn Error>> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_membar"))
        .arg("compile")
        .arg(model)
        .arg("-o")
        .arg(bundle)
        .stdout(Stdio::null())
        .spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        if let Some(result) = child.try_wait()? {
            assert!(result.success(), "membar compile failed: {result}");
            return Ok(peak);
        }
        // A process that has just ended has no such line.
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        if let Some(kibibytes) = line.and_then(|line| line.trim().strip_suffix(" kB")) {
            peak = peak.max(kibibytes.trim().parse::<u64>()? * 1024);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// `x · w0 · w1 · …`, one of them through a Transpose, all in `weights.bin`.
fn large_model(weights: u64) -> Vec<u8> {
    let mut graph = Message::default();
    let mut previous = "x".to_string();
    for index in 0..weights {
        let mut name = format!("w{index}");
        graph.message(5, &initializer(&name, index * WEIGHT_BYTES));
        if index == TRANSPOSED {
            let turned = format!("{name}_turned");
            graph.message(1, &node("Transpose", &[&name], &turned));
            name = turned;
        }
        let result = format!("x{index}");
        graph.message(1, &node("MatMul", &[&previous, &name], &result));
        previous = result;
    }
    graph.text(2, "large");
    graph.message(11, &value("x"));
    graph.message(12, &value(&previous));

    let mut opset = Message::default();
    opset.number(2, 20);
    let mut model = Message::default();
    model.number(1, 9);
    model.message(7, &graph);
    model.message(8, &opset);
    model.0
}

fn node(op: &str, inputs: &[&str], output: &str) -> Message {
    let mut node = Message::default();
    inputs.iter().for_each(|input| node.text(1, input));
    node.text(2, output);
    node.text(4, op);
    node
}

fn initializer(name: &str, offset: u64) -> Message {
    let mut tensor = Message::default();
    tensor.number(1, SIDE);
    tensor.number(1, SIDE);
    tensor.number(2, 1);
    tensor.text(8, name);
    let entries = [
        ("location", "weights.bin".to_string()),
        ("offset", offset.to_string()),
        ("length", WEIGHT_BYTES.to_string()),
    ];
    for (key, value) in entries {
        let mut entry = Message::default();
        entry.text(1, key);
        entry.text(2, &value);
        tensor.message(13, &entry);
    }
    tensor.number(14, 1);
    tensor
}

/// `f32[1, SIDE]`.
fn value(name: &str) -> Message {
    let mut shape = Message::default();
    for extent in [1, SIDE] {
        let mut dim = Message::default();
        dim.number(1, extent);
        shape.message(1, &dim);
    }
    let mut tensor = Message::default();
    tensor.number(1, 1);
    tensor.message(2, &shape);
    let mut ty = Message::default();
    ty.message(1, &tensor);
    let mut value = Message::default();
    value.text(1, name);
    value.message(2, &ty);
    value
}

/// A protobuf message, field by field, numbered as in `onnx.proto`.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
