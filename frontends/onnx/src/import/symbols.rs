//! Symbolic dimensions of an import: ranges, and which symbols turned out to be which expression.
//! Never looks at operators.

use membar_ir::dim::{Atom, Bounds, Ranges};
use membar_ir::{Dim, Range, Symbol};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The symbols of one import.
///
/// Exporters use different names for one dimension, so a name is a hint. An equation between
/// dimensions replaces one symbol by an expression; dimensions made before are brought up to date
/// by [`Symbols::resolve`] when they are next looked at.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    ranges: Ranges,
    known: BTreeMap<Symbol, Declared>,
    /// Fully resolved: no replaced symbol occurs in a value.
    replacements: BTreeMap<Symbol, Dim>,
    facts: Vec<Fact>,
}

/// How a symbol came to be.
#[derive(Debug, Clone, Copy)]
struct Declared {
    /// Symbols are numbered in the order of their declaration.
    order: usize,
    /// Whether the model gave no name.
    generated: bool,
    /// Whether it is by itself a dimension of an input, so that inputs give it a value.
    plain: bool,
}

/// An equation that an operator asked for.
#[derive(Debug, Clone)]
struct Fact {
    symbol: Symbol,
    value: Dim,
    node: String,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` = `{}` by node `{}`", self.symbol.name(), self.value, self.node)
    }
}

impl Symbols {
    /// Declares a symbol that the model names; `plain` if it is by itself a dimension of an input,
    /// not a part of an expression. A second declaration narrows the range.
    pub(crate) fn declare(&mut self, name: &str, range: Range, plain: bool) {
        self.add(Symbol::new(name), range, false, plain);
    }

    /// A symbol for a dimension of which the model says nothing.
    pub(crate) fn generate(&mut self, wanted: &str, range: Range) -> Dim {
        let mut name = wanted.to_owned();
        let mut number = 2;
        while self.known.contains_key(&Symbol::new(&name)) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        self.add(Symbol::new(&name), range, true, true);
        Dim::symbol(&name)
    }

    fn add(&mut self, symbol: Symbol, range: Range, generated: bool, plain: bool) {
        let order = self.known.len();
        let new = Declared { order, generated, plain: false };
        self.known.entry(symbol.clone()).or_insert(new).plain |= plain;
        let narrowed = self.ranges.get(&symbol).map_or(range, |old| narrow(*old, range));
        self.ranges.insert(symbol, narrowed);
    }

    /// The ranges of the symbols that were not replaced.
    pub(crate) fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// What replaced symbols stand for.
    pub(crate) fn replacements(&self) -> &BTreeMap<Symbol, Dim> {
        &self.replacements
    }

    /// Replaces the symbols that were found to be something else.
    pub(crate) fn resolve(&self, dim: &mut Dim) {
        if self.replacements.is_empty() || dim.as_constant().is_some() {
            return;
        }
        let mut stale = false;
        dim.for_each_symbol(&mut |symbol| stale |= self.replacements.contains_key(symbol));
        if stale {
            *dim = dim.substitute(&self.replacements);
        }
    }

    /// Least and greatest value that a dimension can take.
    pub(crate) fn bounds(&self, dim: &Dim) -> Bounds {
        dim.bounds(&self.ranges)
    }

    /// Whether `left >= right` always (`Some(true)`) or never (`Some(false)`).
    pub(crate) fn at_least(&self, left: &Dim, right: &Dim) -> Option<bool> {
        let bounds = self.bounds(&(left.clone() - right.clone()));
        match bounds {
            Bounds { lo: Some(lo), .. } if lo >= 0 => Some(true),
            Bounds { hi: Some(hi), .. } if hi < 0 => Some(false),
            Bounds { .. } => None,
        }
    }

    /// Whether the two are always or never equal.
    pub(crate) fn equal(&self, left: &Dim, right: &Dim) -> Option<bool> {
        if left == right {
            return Some(true);
        }
        let never = self.at_least(left, &(right.clone() + Dim::ONE)) == Some(true)
            || self.at_least(right, &(left.clone() + Dim::ONE)) == Some(true);
        never.then_some(false)
    }

    /// The lesser, simplified where the ranges decide it.
    pub(crate) fn minimum(&self, left: &Dim, right: &Dim) -> Dim {
        if self.at_least(left, right) == Some(true) {
            right.clone()
        } else if self.at_least(right, left) == Some(true) {
            left.clone()
        } else {
            left.minimum(right)
        }
    }

    /// The greater, simplified where the ranges decide it.
    pub(crate) fn maximum(&self, left: &Dim, right: &Dim) -> Dim {
        if self.at_least(left, right) == Some(true) {
            left.clone()
        } else if self.at_least(right, left) == Some(true) {
            right.clone()
        } else {
            left.maximum(right)
        }
    }

    /// Makes two dimensions equal by replacing a symbol; false if none can be.
    ///
    /// Of the symbols that the equation can be solved for, one is taken that inputs do not give,
    /// then one whose value is a sum (so that lower bounds carry over), then one that the model did
    /// not name, then the latest.
    pub(crate) fn unify(&mut self, left: &Dim, right: &Dim, node: &str) -> bool {
        let (mut left, mut right) = (left.clone(), right.clone());
        self.resolve(&mut left);
        self.resolve(&mut right);
        if left == right {
            return true;
        }
        let equation = without_common_factor(&(left - right));
        let solutions = solutions(&equation).into_iter().filter(|(symbol, value)| {
            let range = self.ranges.get(symbol).copied().unwrap_or(Range::UNBOUNDED);
            let bounds = self.bounds(value);
            bounds.hi.is_none_or(|hi| hi >= range.lo)
                && range.hi.is_none_or(|most| bounds.lo.is_none_or(|lo| lo <= most))
        });
        let best = solutions.min_by_key(|(symbol, value)| {
            let subtracts = value.terms().iter().any(|(_, coefficient)| *coefficient < 0);
            let declared = self.known.get(symbol);
            let named = declared.is_some_and(|declared| !declared.generated);
            let plain = declared.is_some_and(|declared| declared.plain);
            let order = declared.map_or(0, |declared| declared.order);
            (plain, subtracts, named, Reverse(order))
        });
        match best {
            Some((symbol, value)) => self.replace(symbol, value, node),
            None => self.unify_as_multiples(&equation, node),
        }
    }

    /// Solves an equation that holds where symbols are multiples of a divisor in it, as when a
    /// feature map is halved, doubled and added to what it came from: `2 * ((S + 1) // 2) = S` says
    /// that `S` is even. Sizes that are no multiple are refused when a run binds its inputs, even
    /// where they would happen to satisfy the equation.
    fn unify_as_multiples(&mut self, equation: &Dim, node: &str) -> bool {
        let mut divisors = BTreeMap::new();
        collect_divisors(equation, &mut divisors);
        let candidates: Vec<(Symbol, i64)> = divisors.into_iter().collect();
        let each = candidates.iter().map(std::slice::from_ref);
        let mut choices = each.chain(std::iter::once(candidates.as_slice()));
        let holds = |choice: &&[(Symbol, i64)]| {
            let multiple = |(symbol, divisor): &(Symbol, i64)| {
                (symbol.clone(), Dim::from(symbol.clone()) * Dim::from(*divisor))
            };
            equation.substitute(&choice.iter().map(multiple).collect()).is(0)
        };
        let Some(choice) = choices.find(holds) else {
            return false;
        };
        for (symbol, divisor) in choice {
            let range = self.ranges.get(symbol).copied().unwrap_or(Range::UNBOUNDED);
            let lo = range.lo.saturating_add(divisor - 1).div_euclid(*divisor);
            let hi = range.hi.map(|hi| hi.div_euclid(*divisor));
            let part = self.generate(&format!("{}_div_{divisor}", symbol.name()), Range { lo, hi });
            self.replace(symbol.clone(), part * Dim::from(*divisor), node);
        }
        true
    }

    /// Takes a dimension to be at least `least`, by narrowing the range of the symbol that it
    /// depends on. Does nothing where it depends on several, or not monotonically.
    pub(crate) fn require_at_least(&mut self, dim: &Dim, least: i64) {
        let terms = dim.terms();
        let (constant, term) = match terms.as_slice() {
            [term] => (0, term),
            [(empty, constant), term] if empty.is_empty() => (*constant, term),
            _ => return,
        };
        let (monomial, coefficient) = term;
        let ([(atom, 1)], 1..) = (monomial.as_slice(), *coefficient) else {
            return;
        };
        // The least value of the atom, rounded up.
        let wanted = least.saturating_sub(constant).saturating_add(coefficient - 1);
        let wanted = wanted.div_euclid(*coefficient);
        match atom {
            Atom::Symbol(symbol) => {
                let range = self.ranges.entry(symbol.clone()).or_insert(Range::UNBOUNDED);
                range.lo = range.lo.max(wanted);
            }
            Atom::FloorDiv(dividend, divisor) => {
                if let Some(divisor) = divisor.as_constant().filter(|divisor| *divisor > 0) {
                    self.require_at_least(&dividend.clone(), wanted.saturating_mul(divisor));
                }
            }
            Atom::Mod(..) | Atom::Min(..) | Atom::Max(..) => {}
        }
    }

    fn replace(&mut self, symbol: Symbol, value: Dim, node: &str) -> bool {
        let range = self.ranges.remove(&symbol).unwrap_or(Range::UNBOUNDED);
        if let Some(same) = value.as_symbol() {
            let other = self.ranges.get(same).copied().unwrap_or(Range::UNBOUNDED);
            self.ranges.insert(same.clone(), narrow(other, range));
        }
        let step = BTreeMap::from([(symbol.clone(), value.clone())]);
        for earlier in self.replacements.values_mut() {
            *earlier = earlier.substitute(&step);
        }
        self.replacements.insert(symbol.clone(), value.clone());
        self.facts.push(Fact { symbol, value, node: node.to_owned() });
        true
    }

    /// The equations behind two dimensions, for a message; empty if there are none.
    pub(crate) fn explain(&self, left: &Dim, right: &Dim) -> String {
        let mut symbols = BTreeSet::new();
        for dim in [left, right] {
            dim.for_each_symbol(&mut |symbol| {
                symbols.insert(symbol.clone());
            });
        }
        let concerns = |fact: &&Fact| {
            let mut concerns = symbols.contains(&fact.symbol);
            fact.value.for_each_symbol(&mut |symbol| concerns |= symbols.contains(symbol));
            concerns
        };
        let shown = 4;
        let facts: Vec<String> =
            self.facts.iter().filter(concerns).take(shown).map(Fact::to_string).collect();
        if facts.is_empty() {
            String::new()
        } else {
            format!("; found before: {}", facts.join(", "))
        }
    }
}

/// Whether a dimension has grown beyond what any model needs. Files are not trusted: squaring a
/// symbol in a row of nodes would otherwise fill memory, and nesting quotients the stack.
pub(crate) fn is_excessive(dim: &Dim) -> bool {
    fn within(dim: &Dim, depth: u32, budget: &mut u32) -> bool {
        if dim.as_constant().is_some() {
            return true;
        }
        depth < 48
            && dim.terms().iter().flat_map(|(monomial, _)| monomial).all(|(atom, power)| {
                *budget = budget.saturating_sub(*power);
                *budget > 0
                    && match atom {
                        Atom::Symbol(_) => true,
                        Atom::FloorDiv(a, b)
                        | Atom::Mod(a, b)
                        | Atom::Min(a, b)
                        | Atom::Max(a, b) => {
                            within(a, depth + 1, budget) && within(b, depth + 1, budget)
                        }
                    }
            })
    }
    !within(dim, 0, &mut 1000)
}

fn narrow(a: Range, b: Range) -> Range {
    let hi = match (a.hi, b.hi) {
        (Some(x), Some(y)) => Some(x.min(y)),
        (x, y) => x.or(y),
    };
    Range { lo: a.lo.max(b.lo), hi }
}

/// Divides an equation `difference = 0` by the symbols that stand in every term: dimensions of
/// interest are not 0.
fn without_common_factor(difference: &Dim) -> Dim {
    let terms = difference.terms();
    let Some((first, _)) = terms.first() else {
        return difference.clone();
    };
    let mut result = difference.clone();
    for (atom, _) in first {
        let power_in = |monomial: &[(Atom, u32)]| {
            monomial.iter().find(|(other, _)| other == atom).map_or(0, |(_, power)| *power)
        };
        let common = terms.iter().map(|(monomial, _)| power_in(monomial)).min().unwrap_or(0);
        for _ in 0..common {
            if let Some(quotient) = result.exact_div(&Dim::atom(atom.clone())) {
                result = quotient;
            }
        }
    }
    result
}

/// For the symbols that stand in quotients by constants, the least common multiple of these.
fn collect_divisors(dim: &Dim, divisors: &mut BTreeMap<Symbol, i64>) {
    for (atom, _) in dim.terms().iter().flat_map(|(monomial, _)| monomial) {
        let Atom::FloorDiv(dividend, divisor) = atom else {
            continue;
        };
        let Some(divisor) = divisor.as_constant().filter(|divisor| (2..=4096).contains(divisor))
        else {
            continue;
        };
        dividend.for_each_symbol(&mut |symbol| {
            let known = divisors.entry(symbol.clone()).or_insert(1);
            *known =
                (1..=*known).map(|times| times * divisor).find(|m| m % *known == 0).unwrap_or(1);
        });
    }
}

/// Every symbol that `equation = 0` can be solved for exactly, with its value.
fn solutions(equation: &Dim) -> Vec<(Symbol, Dim)> {
    let mut solutions = Vec::new();
    for (monomial, coefficient) in equation.terms() {
        let [(Atom::Symbol(symbol), 1)] = monomial.as_slice() else {
            continue;
        };
        let this = Dim::from(symbol.clone()) * Dim::from(coefficient);
        let rest = this.clone() - equation.clone();
        let mut alone = true;
        rest.for_each_symbol(&mut |other| alone &= other != symbol);
        if let Some(value) = rest.exact_div(&Dim::from(coefficient)).filter(|_| alone) {
            solutions.push((symbol.clone(), value));
        }
    }
    solutions
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITIVE: Range = Range { lo: 1, hi: None };

    fn dim(name: &str) -> Dim {
        Dim::symbol(name)
    }

    fn symbols(names: &[&str]) -> Symbols {
        let mut symbols = Symbols::default();
        for name in names {
            symbols.declare(name, POSITIVE, true);
        }
        symbols
    }

    fn resolved(symbols: &Symbols, dim: &Dim) -> Dim {
        let mut dim = dim.clone();
        symbols.resolve(&mut dim);
        dim
    }

    #[test]
    fn a_total_becomes_the_sum_of_its_parts() {
        let mut symbols = symbols(&["seq", "total", "past"]);
        assert!(symbols.unify(&dim("total"), &(dim("past") + dim("seq")), "add"));
        assert_eq!(resolved(&symbols, &dim("total")), dim("past") + dim("seq"));
        assert_eq!(resolved(&symbols, &dim("past")), dim("past"));
    }

    #[test]
    fn generated_and_later_symbols_go_first() {
        let mut symbols = symbols(&["a", "b"]);
        let fresh = symbols.generate("a", POSITIVE);
        assert_eq!(fresh, dim("a_2"));
        assert!(symbols.unify(&dim("a"), &fresh, "n"));
        assert_eq!(resolved(&symbols, &fresh), dim("a"));
        assert!(symbols.unify(&dim("b"), &fresh, "n"));
        assert_eq!(resolved(&symbols, &dim("b")), dim("a"));
    }

    #[test]
    fn symbols_that_no_input_gives_go_first() {
        let mut symbols = symbols(&["seq", "past"]);
        symbols.declare("p", Range::UNBOUNDED, false);
        symbols.declare("s", Range::UNBOUNDED, false);
        assert!(symbols.unify(&(dim("p") + dim("s")), &(dim("past") + dim("seq")), "n"));
        assert_eq!(resolved(&symbols, &(dim("p") + dim("s"))), dim("past") + dim("seq"));
        assert_eq!(resolved(&symbols, &dim("past")), dim("past"));
    }

    #[test]
    fn products_are_divided_by_what_they_share() {
        let mut symbols = symbols(&["b", "s", "t"]);
        let left = dim("b") * dim("s") * Dim::from(64);
        let right = dim("b") * dim("t") * Dim::from(64);
        assert!(symbols.unify(&left, &right, "n"));
        assert_eq!(resolved(&symbols, &dim("t")), dim("s"));
        let scaled = dim("s") * Dim::from(2);
        assert!(symbols.unify(&scaled, &Dim::from(12), "n"));
        assert_eq!(resolved(&symbols, &dim("t")), Dim::from(6));
    }

    #[test]
    fn what_is_halved_and_doubled_is_even() {
        let mut symbols = symbols(&["b", "h", "w"]);
        let two = Dim::from(2);
        let doubled = |symbol: &str| {
            (dim(symbol) + Dim::ONE).floor_div(&two).unwrap_or_default() * Dim::from(2)
        };
        assert!(symbols.unify(&doubled("h"), &dim("h"), "add"));
        assert_eq!(resolved(&symbols, &dim("h")), dim("h_div_2") * two.clone());
        let area = dim("b") * doubled("w") * dim("h");
        assert!(symbols.unify(&area, &(dim("b") * dim("w") * dim("h")), "reshape"));
        assert_eq!(resolved(&symbols, &dim("w")), dim("w_div_2") * two.clone());
        assert!(!symbols.unify(&(doubled("b") + Dim::ONE), &dim("b"), "add"));
    }

    #[test]
    fn extents_bound_what_they_derive_from() {
        let mut symbols = symbols(&["time"]);
        let frames = dim("time").floor_div(&Dim::from(20)).unwrap_or_default() - Dim::ONE;
        symbols.require_at_least(&frames, 0);
        assert_eq!(symbols.bounds(&dim("time")).lo, Some(20));
        assert_eq!(symbols.maximum(&Dim::ZERO, &frames), frames);
    }

    #[test]
    fn what_cannot_be_equal_is_refused() {
        let mut symbols = symbols(&["s"]);
        assert!(!symbols.unify(&Dim::from(3), &Dim::from(4), "n"));
        assert!(!symbols.unify(&dim("s"), &(dim("s") + Dim::ONE), "n"));
        assert!(!symbols.unify(&dim("s"), &Dim::ZERO, "n"));
        assert!(!symbols.unify(&(dim("s") * Dim::from(2)), &Dim::from(3), "n"));
        assert!(!symbols.unify(&(dim("s") * dim("s")), &Dim::from(4), "n"));
    }

    #[test]
    fn ranges_decide_comparisons() {
        let mut symbols = symbols(&["seq"]);
        symbols.declare("past", Range::UNBOUNDED, true);
        let total = dim("past") + dim("seq");
        assert_eq!(symbols.minimum(&dim("seq"), &total), dim("seq"));
        assert_eq!(symbols.maximum(&(dim("seq") - Dim::ONE), &Dim::ZERO), dim("seq") - Dim::ONE);
        assert_eq!(symbols.equal(&dim("seq"), &Dim::from(-1)), Some(false));
        assert_eq!(symbols.equal(&dim("seq"), &Dim::from(1)), None);
        assert_eq!(symbols.equal(&dim("past"), &dim("past")), Some(true));
    }

    #[test]
    fn explanations_name_the_nodes() {
        let mut symbols = symbols(&["a", "b"]);
        assert!(symbols.unify(&dim("a"), &dim("b"), "/attn/Add"));
        assert!(symbols.explain(&dim("a"), &Dim::ONE).contains("/attn/Add"));
        assert_eq!(symbols.explain(&dim("c"), &Dim::ONE), "");
    }
}
