//! Dimensions and element types as C++ text. Must never decide where a value lies.

use membar_ir::dim::{Atom, Dim, Symbol};
use membar_ir::dtype::DType;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The symbols of the dimension block, and which of them a kernel reads.
#[derive(Debug, Default)]
pub(crate) struct DimScope {
    positions: BTreeMap<Symbol, usize>,
    used: RefCell<BTreeSet<usize>>,
}

impl DimScope {
    /// A scope over a dimension block that holds these symbols.
    pub fn new(symbols: &[Symbol]) -> DimScope {
        let positions = symbols.iter().cloned().enumerate().map(|(i, symbol)| (symbol, i));
        DimScope { positions: positions.collect(), used: RefCell::default() }
    }

    /// A dimension as an expression of the kernel's index type.
    pub fn text(&self, dim: &Dim) -> String {
        if let Some(value) = dim.as_constant() {
            return literal(value);
        }
        let terms: Vec<String> = dim
            .terms()
            .into_iter()
            .map(|(monomial, coefficient)| {
                let mut factors = Vec::new();
                if coefficient != 1 || monomial.is_empty() {
                    factors.push(literal(coefficient));
                }
                for (atom, power) in &monomial {
                    let atom = self.atom(atom);
                    factors.extend((0..*power).map(|_| atom.clone()));
                }
                factors.join(" * ")
            })
            .collect();
        if terms.len() == 1 && !terms[0].contains(' ') {
            return terms[0].clone();
        }
        format!("({})", terms.join(" + "))
    }

    fn atom(&self, atom: &Atom) -> String {
        match atom {
            Atom::Symbol(symbol) => match self.positions.get(symbol) {
                Some(position) => {
                    self.used.borrow_mut().insert(*position);
                    format!("d{position}")
                }
                // The verifier of structure refuses symbols that are not declared.
                None => "0".to_string(),
            },
            Atom::FloorDiv(a, b) => self.call("dim_div", a, b),
            Atom::Mod(a, b) => self.call("dim_mod", a, b),
            Atom::Min(a, b) => self.call("min", a, b),
            Atom::Max(a, b) => self.call("max", a, b),
        }
    }

    fn call(&self, function: &str, a: &Dim, b: &Dim) -> String {
        format!("{function}(idx({}), idx({}))", self.text(a), self.text(b))
    }

    /// Declarations of the symbols that were used.
    pub fn declarations(&self) -> Vec<String> {
        let used = self.used.borrow();
        used.iter().map(|i| format!("const idx d{i} = idx(dims[{i}]);")).collect()
    }
}

fn literal(value: i64) -> String {
    match i32::try_from(value) {
        Ok(value) if value >= 0 => value.to_string(),
        Ok(value) if value > i32::MIN => format!("({value})"),
        _ if value == i64::MIN => "(-9223372036854775807LL - 1)".to_string(),
        _ => format!("{value}LL"),
    }
}

/// The C++ type of elements in memory.
pub(crate) fn storage_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "truth",
        other => other.name(),
    }
}

/// The C++ type that `load` gives, and that arithmetic is carried out in.
pub(crate) fn compute_type(dtype: DType) -> &'static str {
    match dtype.compute() {
        DType::Bool => "bool",
        DType::I4 => "i8",
        DType::U4 => "u8",
        other => other.name(),
    }
}
