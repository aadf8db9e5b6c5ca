//! The ONNX frontend; protobuf types never leave this crate.
