//! The models of `tests/fixtures` as graphs, with sizes and inputs that fit them; never expected
//! outputs.

use crate::support;
use membar::ir::dim::Bindings;
use membar::ir::graph::ValueId;
use membar::ir::testing::Random;
use membar::tensor_files::{self, Tensors};
use membar::{CompileOptions, Graph, ImportOptions, Number, Range, Session, Symbol, Tensor};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A model with its data sets' inputs.
pub struct Fixture {
    pub name: String,
    /// The graph as it is imported.
    pub graph: Graph,
    pub data_sets: Vec<Tensors>,
    pub atol: f64,
    pub rtol: f64,
}

/// Names of all models.
pub fn names() -> Vec<String> {
    let folder = support::root().join("tests/fixtures/models");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(names.len() >= 34, "only {} models", names.len());
    names
}

/// Runs a check on each of `names`; every one that fails is named at the end.
pub fn each(names: &[String], check: impl Fn(&Fixture) -> Result<(), String>) {
    let failures: Vec<String> = names
        .iter()
        .filter_map(|name| check(&Fixture::load(name)).err().map(|e| format!("{name}: {e}")))
        .collect();
    assert!(failures.is_empty(), "{} models fail:\n{}", failures.len(), failures.join("\n"));
}

impl Fixture {
    pub fn load(name: &str) -> Fixture {
        let folder = support::root().join("tests/fixtures/models").join(name);
        let graph = membar::load_model(&folder.join("model.onnx"), &ImportOptions::default())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = |number: usize| match number {
            1 => folder.join("inputs.npz"),
            _ => folder.join(format!("inputs_{number}.npz")),
        };
        let files: Vec<PathBuf> = (1..).map(file).take_while(|path| path.exists()).collect();
        assert!(!files.is_empty(), "{name} has no data sets");
        let read = |path: &PathBuf| {
            tensor_files::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let text = std::fs::read_to_string(folder.join("meta.json")).expect("meta.json");
        let meta: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let bound = |key: &str, default: f64| {
            meta.get(key).and_then(serde_json::Value::as_f64).unwrap_or(default)
        };
        Fixture {
            name: name.to_string(),
            graph,
            data_sets: files.iter().map(read).collect(),
            atol: bound("atol", 1e-4),
            rtol: bound("rtol", 1e-3),
        }
    }

    /// The sizes of each data set.
    pub fn sizes(&self) -> Vec<Bindings> {
        let bind = |inputs| membar::bind(&self.graph, inputs).unwrap_or_else(|e| panic!("{e}"));
        self.data_sets.iter().map(bind).collect()
    }

    /// Ranges from the model's lower ends to the greatest sizes of the data sets and one more,
    /// images apart. Windows and selections need a least size that no type tells, so models with
    /// such begin at the least sizes of the data sets.
    pub fn ranges(&self) -> BTreeMap<Symbol, Range> {
        let sizes = self.sizes();
        let range = |(symbol, declared): (&Symbol, &Range)| {
            let most = sizes.iter().map(|sizes| sizes[symbol]).max().unwrap_or(1);
            let most = if most < 16 { most + 1 } else { most };
            let least =
                sizes.iter().map(|sizes| sizes[symbol]).min().filter(|_| self.has_windows());
            let least = least.unwrap_or(declared.lo);
            (symbol.clone(), Range::new(least, declared.hi.map_or(most, |hi| hi.min(most))))
        };
        let mut ranges: BTreeMap<Symbol, Range> = self.graph.symbols.iter().map(range).collect();
        for (symbol, terms) in self.sums() {
            let sum = |end: fn(&Range) -> i64| terms.iter().map(|t| end(&ranges[t])).sum::<i64>();
            let (lo, hi) = (sum(|r| r.lo), sum(|r| r.hi.unwrap_or(r.lo)));
            ranges.insert(symbol, Range::new(lo, hi));
        }
        ranges
    }

    fn has_windows(&self) -> bool {
        let windows = ["conv", "pool", "top_k"];
        let mut ops = self.graph.nodes().filter_map(|node| self.graph.node(node).op());
        ops.any(|op| windows.contains(&op.mnemonic()))
    }

    /// Options that compile for these ranges.
    pub fn options(&self) -> CompileOptions {
        CompileOptions { dims: self.ranges(), ..CompileOptions::default() }
    }

    /// A session for these ranges.
    pub fn session(&self, options: &CompileOptions) -> Result<Session, String> {
        let compiled =
            membar::compile(self.graph.clone(), options).map_err(|error| error.to_string())?;
        compiled.session().map_err(|error| error.to_string())
    }

    /// Symbols that the model declares apart but that are others, or the sum of two, in all data
    /// sets: the length of a mask, say.
    pub fn sums(&self) -> Vec<(Symbol, Vec<Symbol>)> {
        let sizes = self.sizes();
        let mut sums: Vec<(Symbol, Vec<Symbol>)> = Vec::new();
        let symbols: Vec<&Symbol> = self.graph.symbols.keys().collect();
        for symbol in symbols.iter().filter(|_| sizes.len() > 1) {
            let free = |other: &&&Symbol| {
                **other != *symbol && !sums.iter().any(|(sum, _)| sum == **other)
            };
            let others: Vec<&Symbol> = symbols.iter().filter(free).copied().collect();
            let pairs = others.iter().flat_map(|a| {
                others.iter().filter(move |b| a < b).map(move |b| vec![(*a).clone(), (*b).clone()])
            });
            let single = others.iter().map(|a| vec![(*a).clone()]);
            let holds = |terms: &Vec<Symbol>| {
                sizes.iter().all(|s| s[*symbol] == terms.iter().map(|t| s[t]).sum::<i64>())
            };
            if let Some(terms) = single.chain(pairs).find(holds) {
                sums.push(((*symbol).clone(), terms));
            }
        }
        sums
    }

    /// Sizes that `pick` chooses from the ranges, those that depend on others apart.
    pub fn pick_sizes(&self, mut pick: impl FnMut(i64, i64) -> i64) -> Bindings {
        let (ranges, sums) = (self.ranges(), self.sums());
        let range = |(symbol, range): (&Symbol, &Range)| {
            (symbol.clone(), pick(range.lo, range.hi.unwrap_or(range.lo)))
        };
        let mut sizes: Bindings = ranges.iter().map(range).collect();
        for (symbol, terms) in sums {
            let sum = terms.iter().map(|term| sizes[term]).sum();
            sizes.insert(symbol, sum);
        }
        sizes
    }

    /// Inputs of these sizes: what the data sets show is random, and positions, lengths and masks
    /// fit a cache that has `past` elements (that of the inputs' shapes where they show it).
    pub fn inputs(&self, random: &mut Random, sizes: &Bindings, past: i64) -> Tensors {
        let past = self.past(sizes).unwrap_or(past);
        let new = self.new_elements(sizes);
        let mut inputs = Tensors::new();
        for input in self.graph.inputs() {
            let name = self.name_of(*input);
            let ty = self.graph.ty(*input).concrete(sizes).unwrap_or_else(|e| panic!("{e}"));
            let tensor = if ty.dtype.is_float() {
                random.floats(ty.dtype, &ty.shape, -2.0, 2.0)
            } else {
                let (lo, hi) = self.observed(&name);
                let last = ty.shape.last().copied().unwrap_or(1).max(1);
                let number = |index: usize| match name.as_str() {
                    "position_ids" | "pos" => past + (index % last) as i64,
                    "attention_mask" | "encoder_attention_mask" => 1,
                    "write_indices" => past,
                    "nonpad_kv_seqlen" | "tl" => past + new,
                    "sl" => past + new - 1,
                    _ => random.integer(lo, hi),
                };
                let numbers: Vec<i64> = (0..ty.elements()).map(number).collect();
                let numbers = numbers.into_iter().map(Number::Signed);
                Tensor::from_numbers(ty, numbers).expect("as many as elements")
            };
            inputs.insert(name, tensor);
        }
        inputs
    }

    pub fn name_of(&self, value: ValueId) -> String {
        self.graph.value(value).name.as_deref().unwrap_or_default().to_string()
    }

    /// The least and the greatest number that the data sets have for an input.
    fn observed(&self, name: &str) -> (i64, i64) {
        let numbers = || self.data_sets.iter().flat_map(|inputs| inputs[name].to_integers());
        (numbers().min().unwrap_or(0), numbers().max().unwrap_or(0))
    }

    /// The length of the cache that the inputs bring, if they do.
    fn past(&self, sizes: &Bindings) -> Option<i64> {
        let cache = self.graph.inputs().iter().find(|input| {
            let name = self.name_of(**input);
            name.starts_with("past") || name == "pk"
        })?;
        self.graph.ty(*cache).shape[2].evaluate(sizes).ok()
    }

    /// How many elements of a sequence are new: the second dimension of the first input.
    fn new_elements(&self, sizes: &Bindings) -> i64 {
        let shape = &self.graph.ty(self.graph.inputs()[0]).shape;
        shape.get(1).and_then(|dim| dim.evaluate(sizes).ok()).unwrap_or(1)
    }

    /// Compares outputs by name; those that only `expected` has are not compared.
    pub fn compare(&self, found: &Tensors, expected: &Tensors) -> Result<(), String> {
        if found.is_empty() {
            return Err("no outputs".into());
        }
        for (name, tensor) in found {
            let expected = expected.get(name).ok_or_else(|| format!("output `{name}`?"))?;
            let finite = expected.to_floats().iter().all(|number| !number.is_nan());
            if !finite {
                return Err(format!("output `{name}` is not a number: the inputs do not fit"));
            }
            support::all_close(tensor, expected, self.atol, self.rtol)
                .map_err(|error| format!("output `{name}`: {error}"))?;
        }
        Ok(())
    }
}
