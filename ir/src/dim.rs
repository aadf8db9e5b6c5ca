//! Symbolic dimensions: integer polynomials over named symbols; never holds a run's values
//! (those are [`Bindings`]).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

/// The name of a symbolic dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(Arc<str>);

impl Symbol {
    /// A symbol of that name. Text form writes names that are not identifiers in quotes.
    pub fn new(name: &str) -> Symbol {
        Symbol(name.into())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// The values that a symbol may take: `lo..=hi`, or unbounded above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// Least value.
    pub lo: i64,
    /// Greatest value; `None` if no bound is known.
    pub hi: Option<i64>,
}

impl Range {
    /// `0..`, what a dimension is before anything else is known.
    pub const UNBOUNDED: Range = Range { lo: 0, hi: None };

    /// `lo..=hi`.
    pub fn new(lo: i64, hi: i64) -> Range {
        Range { lo, hi: Some(hi) }
    }
}

/// Declared ranges of symbols, in name order.
pub type Ranges = BTreeMap<Symbol, Range>;

/// Values of symbols for one run.
pub type Bindings = BTreeMap<Symbol, i64>;

/// What a monomial multiplies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// A named symbol.
    Symbol(Symbol),
    /// Quotient rounded towards minus infinity.
    FloorDiv(Dim, Dim),
    /// Remainder with the divisor's sign, `a - b * floordiv(a, b)`.
    Mod(Dim, Dim),
    /// The lesser.
    Min(Dim, Dim),
    /// The greater.
    Max(Dim, Dim),
}

/// A product of atoms; each atom with its power (at least 1), in atom order. Empty is 1.
pub type Monomial = Vec<(Atom, u32)>;

/// An integer polynomial, in canonical form, so that equal polynomials compare equal.
///
/// Arithmetic saturates at the limits of `i64`; sizes are checked again where memory is planned.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Dim(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Constant(i64),
    /// Terms in monomial order, no zero coefficient, not a constant.
    Polynomial(Arc<Vec<(Monomial, i64)>>),
}

impl Dim {
    /// 0.
    pub const ZERO: Dim = Dim(Repr::Constant(0));
    /// 1.
    pub const ONE: Dim = Dim(Repr::Constant(1));

    /// A dimension that is the value of a symbol.
    pub fn symbol(name: &str) -> Dim {
        Dim::atom(Atom::Symbol(Symbol::new(name)))
    }

    /// A single atom. Prefer [`Dim::floor_div`] and its like, which simplify.
    pub fn atom(atom: Atom) -> Dim {
        Dim(Repr::Polynomial(Arc::new(vec![(vec![(atom, 1)], 1)])))
    }

    /// The value, if it is known without bindings.
    pub fn as_constant(&self) -> Option<i64> {
        match &self.0 {
            Repr::Constant(value) => Some(*value),
            Repr::Polynomial(_) => None,
        }
    }

    /// The symbol, if this is a plain symbol.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match &self.0 {
            Repr::Polynomial(terms) => match terms.as_slice() {
                [(monomial, 1)] => match monomial.as_slice() {
                    [(Atom::Symbol(symbol), 1)] => Some(symbol),
                    _ => None,
                },
                _ => None,
            },
            Repr::Constant(_) => None,
        }
    }

    /// Whether this is the constant `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_constant() == Some(value)
    }

    /// The terms as (monomial, coefficient), constants as the empty monomial; none for 0.
    pub fn terms(&self) -> Vec<(Monomial, i64)> {
        match &self.0 {
            Repr::Constant(0) => Vec::new(),
            Repr::Constant(value) => vec![(Vec::new(), *value)],
            Repr::Polynomial(terms) => terms.as_ref().clone(),
        }
    }

    fn from_terms(terms: impl IntoIterator<Item = (Monomial, i64)>) -> Dim {
        let mut sum: BTreeMap<Monomial, i64> = BTreeMap::new();
        for (monomial, coefficient) in terms {
            let entry = sum.entry(monomial).or_insert(0);
            *entry = entry.saturating_add(coefficient);
        }
        sum.retain(|_, coefficient| *coefficient != 0);
        match sum.len() {
            0 => Dim::ZERO,
            1 if sum.contains_key(&Vec::new()) => Dim(Repr::Constant(sum[&Vec::new()])),
            _ => Dim(Repr::Polynomial(Arc::new(sum.into_iter().collect()))),
        }
    }

    /// `self / other` rounded down. `None` if `other` is the constant 0.
    pub fn floor_div(&self, other: &Dim) -> Option<Dim> {
        if other.is(0) {
            return None;
        }
        if let (Some(a), Some(b)) = (self.as_constant(), other.as_constant()) {
            return Some(Dim::from(floor_div(a, b)));
        }
        if let Some(quotient) = self.exact_div(other) {
            return Some(quotient);
        }
        if let Some(divisor) = other.as_constant().filter(|divisor| *divisor > 0) {
            return Some(self.floor_div_constant(divisor));
        }
        Some(Dim::atom(Atom::FloorDiv(self.clone(), other.clone())))
    }

    /// The quotient by a positive constant, in a form that equal quotients share wherever exporters
    /// and operators write them differently: strided windows give `floordiv(S - 1, 2) + 1`, or
    /// `-floordiv(-S, 2)`, or `floordiv(S + 1, 2)`.
    fn floor_div_constant(&self, divisor: i64) -> Dim {
        // What the divisor divides leaves the quotient: (4a + b + 5) // 4 = a + 1 + (b + 1) // 4.
        let mut whole = Vec::new();
        let mut rest = Vec::new();
        for (monomial, coefficient) in self.terms() {
            let quotient = floor_div(coefficient, divisor);
            let remainder = floor_mod(coefficient, divisor);
            if monomial.is_empty() || remainder == 0 {
                whole.push((monomial.clone(), quotient));
                rest.push((monomial, remainder));
            } else {
                rest.push((monomial, coefficient));
            }
        }
        let whole = Dim::from_terms(whole);
        let rest = Dim::from_terms(rest);
        let terms = rest.terms();
        let Some((_, first)) = terms.iter().find(|(monomial, _)| !monomial.is_empty()) else {
            return whole;
        };
        // (-a) // n = -((a + n - 1) // n)
        if *first < 0 {
            let rounded_up = (-rest + Dim::from(divisor - 1)).floor_div_constant(divisor);
            return whole - rounded_up;
        }
        // (a // m + b) // n = (a + m * b) // (m * n)
        for (monomial, coefficient) in &terms {
            let ([(Atom::FloorDiv(inner, by), 1)], 1) = (monomial.as_slice(), *coefficient) else {
                continue;
            };
            let by_constant = by.as_constant().filter(|by| *by > 0);
            let product = by_constant.and_then(|by| by.checked_mul(divisor));
            if let Some(product) = product {
                let others = rest - Dim::from_terms([(monomial.clone(), 1)]);
                let dividend = inner.clone() + by.clone() * others;
                return whole + dividend.floor_div_constant(product);
            }
        }
        // (2a + 1) // 4 = a // 2
        let common = terms
            .iter()
            .filter(|(monomial, _)| !monomial.is_empty())
            .fold(divisor, |common, (_, coefficient)| gcd(common, *coefficient));
        if common > 1 {
            let reduced = terms.into_iter().map(|(m, c)| (m, floor_div(c, common)));
            return whole + Dim::from_terms(reduced).floor_div_constant(divisor / common);
        }
        whole + Dim::atom(Atom::FloorDiv(rest, Dim::from(divisor)))
    }

    /// `self / other` rounded up. `None` if `other` is the constant 0.
    pub fn ceil_div(&self, other: &Dim) -> Option<Dim> {
        Some(-(-self.clone()).floor_div(other)?)
    }

    /// `self - other * floor_div(self, other)`. `None` if `other` is the constant 0.
    pub fn modulo(&self, other: &Dim) -> Option<Dim> {
        if other.is(0) {
            return None;
        }
        if let (Some(a), Some(b)) = (self.as_constant(), other.as_constant()) {
            return Some(Dim::from(floor_mod(a, b)));
        }
        if self.exact_div(other).is_some() {
            return Some(Dim::ZERO);
        }
        Some(Dim::atom(Atom::Mod(self.clone(), other.clone())))
    }

    /// The lesser of two dimensions.
    pub fn minimum(&self, other: &Dim) -> Dim {
        self.extremum(other, Ordering::Less)
    }

    /// The greater of two dimensions.
    pub fn maximum(&self, other: &Dim) -> Dim {
        self.extremum(other, Ordering::Greater)
    }

    fn extremum(&self, other: &Dim, keep: Ordering) -> Dim {
        if self == other {
            return self.clone();
        }
        if let Some(difference) = (self.clone() - other.clone()).as_constant() {
            let first = difference.cmp(&0) == keep;
            return if first { self.clone() } else { other.clone() };
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        Dim::atom(match keep {
            Ordering::Less => Atom::Min(a.clone(), b.clone()),
            _ => Atom::Max(a.clone(), b.clone()),
        })
    }

    /// The exact quotient as a polynomial, if there is one: every symbol value gives
    /// `self = quotient * other`.
    pub fn exact_div(&self, other: &Dim) -> Option<Dim> {
        if other.is(0) {
            return None;
        }
        let divisor = other.terms();
        let (lead, lead_coefficient) = leading(&divisor)?;
        let mut rest = self.clone();
        let mut quotient = Dim::ZERO;
        // Each step cancels the leading term, so the number of steps is bounded by the terms
        // of the dividend and of the products; the limit stops pathological inputs.
        for _ in 0..64 {
            let terms = rest.terms();
            let Some((monomial, coefficient)) = leading(&terms) else {
                return Some(quotient);
            };
            if coefficient.checked_rem(lead_coefficient)? != 0 {
                return None;
            }
            let factor = divide_monomial(monomial, lead)?;
            let step = Dim::from_terms([(factor, coefficient.checked_div(lead_coefficient)?)]);
            rest = rest - step.clone() * other.clone();
            quotient = quotient + step;
        }
        None
    }

    /// The value under bindings; an error names the first symbol that has none.
    pub fn evaluate(&self, bindings: &Bindings) -> Result<i64, DimError> {
        let terms = match &self.0 {
            Repr::Constant(value) => return Ok(*value),
            Repr::Polynomial(terms) => terms,
        };
        let overflow = || DimError::Overflow(self.clone());
        let mut sum = 0i64;
        for (monomial, coefficient) in terms.iter() {
            let mut product = *coefficient;
            for (atom, power) in monomial {
                let value = atom.evaluate(bindings)?;
                for _ in 0..*power {
                    product = product.checked_mul(value).ok_or_else(overflow)?;
                }
            }
            sum = sum.checked_add(product).ok_or_else(overflow)?;
        }
        Ok(sum)
    }

    /// Least and greatest value over the ranges, by interval arithmetic: sound, not always tight.
    /// A missing upper bound is `None`; a symbol without a declared range is unbounded.
    pub fn bounds(&self, ranges: &Ranges) -> Bounds {
        let terms = match &self.0 {
            Repr::Constant(value) => return Bounds::exactly(*value),
            Repr::Polynomial(terms) => terms,
        };
        let mut sum = Bounds::exactly(0);
        for (monomial, coefficient) in terms.iter() {
            let mut product = Bounds::exactly(*coefficient);
            for (atom, power) in monomial {
                let bounds = atom.bounds(ranges);
                for _ in 0..*power {
                    product = product.times(bounds);
                }
            }
            sum = sum.plus(product);
        }
        sum
    }

    /// Replaces symbols by dimensions.
    pub fn substitute(&self, replacements: &BTreeMap<Symbol, Dim>) -> Dim {
        let terms = match &self.0 {
            Repr::Constant(_) => return self.clone(),
            Repr::Polynomial(terms) => terms,
        };
        let mut sum = Dim::ZERO;
        for (monomial, coefficient) in terms.iter() {
            let mut product = Dim::from(*coefficient);
            for (atom, power) in monomial {
                let value = atom.substitute(replacements);
                for _ in 0..*power {
                    product = product * value.clone();
                }
            }
            sum = sum + product;
        }
        sum
    }

    /// Calls `visit` on every symbol, in canonical order; a symbol may come more than once.
    pub fn for_each_symbol(&self, visit: &mut dyn FnMut(&Symbol)) {
        if let Repr::Polynomial(terms) = &self.0 {
            for (atom, _) in terms.iter().flat_map(|(monomial, _)| monomial) {
                match atom {
                    Atom::Symbol(symbol) => visit(symbol),
                    Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                        a.for_each_symbol(visit);
                        b.for_each_symbol(visit);
                    }
                }
            }
        }
    }

    /// Solves `self = value` for `symbol` where it stands alone and linearly; other symbols must
    /// be bound. `None` if it does not, or if no integer solves it.
    pub fn solve(&self, symbol: &Symbol, value: i64, bindings: &Bindings) -> Option<i64> {
        let mut coefficient = 0i64;
        let mut rest = Vec::new();
        for (monomial, c) in self.terms() {
            match monomial.as_slice() {
                [(Atom::Symbol(s), 1)] if s == symbol => coefficient = c,
                _ => rest.push((monomial, c)),
            }
        }
        let rest = Dim::from_terms(rest);
        let mut alone = true;
        rest.for_each_symbol(&mut |s| alone &= s != symbol);
        if !alone || coefficient == 0 {
            return None;
        }
        let difference = value.checked_sub(rest.evaluate(bindings).ok()?)?;
        (difference.checked_rem(coefficient)? == 0).then_some(difference / coefficient)
    }
}

impl Atom {
    fn evaluate(&self, bindings: &Bindings) -> Result<i64, DimError> {
        let pair = |a: &Dim, b: &Dim| Ok((a.evaluate(bindings)?, b.evaluate(bindings)?));
        Ok(match self {
            Atom::Symbol(symbol) => {
                *bindings.get(symbol).ok_or_else(|| DimError::Unbound(symbol.clone()))?
            }
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) => {
                let (x, y) = pair(a, b)?;
                if y == 0 {
                    return Err(DimError::DivisionByZero(b.clone()));
                }
                match self {
                    Atom::FloorDiv(..) => floor_div(x, y),
                    _ => floor_mod(x, y),
                }
            }
            Atom::Min(a, b) => pair(a, b).map(|(x, y)| x.min(y))?,
            Atom::Max(a, b) => pair(a, b).map(|(x, y)| x.max(y))?,
        })
    }

    fn bounds(&self, ranges: &Ranges) -> Bounds {
        match self {
            Atom::Symbol(symbol) => {
                let range = ranges.get(symbol).copied().unwrap_or(Range::UNBOUNDED);
                Bounds { lo: Some(range.lo), hi: range.hi }
            }
            Atom::FloorDiv(a, b) => {
                let (a, b) = (a.bounds(ranges), b.bounds(ranges));
                let Some(least) = b.lo.filter(|lo| *lo > 0) else {
                    return Bounds::ANY;
                };
                let lo = a.lo.map(|lo| match (lo < 0, b.hi) {
                    (true, _) => floor_div(lo, least),
                    (false, Some(hi)) => floor_div(lo, hi),
                    (false, None) => 0,
                });
                let hi = a.hi.map(|hi| match (hi < 0, b.hi) {
                    (false, _) => floor_div(hi, least),
                    (true, Some(most)) => floor_div(hi, most),
                    (true, None) => -1,
                });
                Bounds { lo, hi }
            }
            Atom::Mod(_, b) => match b.bounds(ranges) {
                Bounds { lo: Some(lo), hi } if lo > 0 => {
                    Bounds { lo: Some(0), hi: hi.map(|hi| hi - 1) }
                }
                _ => Bounds::ANY,
            },
            Atom::Min(a, b) => {
                let (a, b) = (a.bounds(ranges), b.bounds(ranges));
                let lo = a.lo.zip(b.lo).map(|(x, y)| x.min(y));
                let hi = match (a.hi, b.hi) {
                    (Some(x), Some(y)) => Some(x.min(y)),
                    (x, y) => x.or(y),
                };
                Bounds { lo, hi }
            }
            Atom::Max(a, b) => {
                let (a, b) = (a.bounds(ranges), b.bounds(ranges));
                let lo = match (a.lo, b.lo) {
                    (Some(x), Some(y)) => Some(x.max(y)),
                    (x, y) => x.or(y),
                };
                Bounds { lo, hi: a.hi.zip(b.hi).map(|(x, y)| x.max(y)) }
            }
        }
    }

    fn substitute(&self, replacements: &BTreeMap<Symbol, Dim>) -> Dim {
        let sub = |dim: &Dim| dim.substitute(replacements);
        let kept = |atom: Atom| Dim::atom(atom);
        match self {
            Atom::Symbol(symbol) => match replacements.get(symbol) {
                Some(dim) => dim.clone(),
                None => kept(self.clone()),
            },
            Atom::FloorDiv(a, b) => {
                let (a, b) = (sub(a), sub(b));
                a.floor_div(&b).unwrap_or_else(|| kept(Atom::FloorDiv(a, b)))
            }
            Atom::Mod(a, b) => {
                let (a, b) = (sub(a), sub(b));
                a.modulo(&b).unwrap_or_else(|| kept(Atom::Mod(a, b)))
            }
            Atom::Min(a, b) => sub(a).minimum(&sub(b)),
            Atom::Max(a, b) => sub(a).maximum(&sub(b)),
        }
    }
}

/// Least and greatest value of a dimension; `None` where there is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Least value.
    pub lo: Option<i64>,
    /// Greatest value.
    pub hi: Option<i64>,
}

impl Bounds {
    const ANY: Bounds = Bounds { lo: None, hi: None };

    fn exactly(value: i64) -> Bounds {
        Bounds { lo: Some(value), hi: Some(value) }
    }

    fn plus(self, other: Bounds) -> Bounds {
        let add = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        Bounds { lo: add(self.lo, other.lo), hi: add(self.hi, other.hi) }
    }

    fn times(self, other: Bounds) -> Bounds {
        // A missing bound stands for an infinity, whose product with 0 is 0.
        let product = |a: (Option<i64>, i128), b: (Option<i64>, i128)| -> i128 {
            match (a.0, b.0) {
                (Some(x), Some(y)) => x as i128 * y as i128,
                (Some(0), None) | (None, Some(0)) => 0,
                (x, y) => {
                    let sign = |v: Option<i64>, infinite: i128| match v {
                        Some(v) => (v as i128).signum(),
                        None => infinite,
                    };
                    sign(x, a.1) * sign(y, b.1) * INFINITE
                }
            }
        };
        const INFINITE: i128 = i128::MAX / 4;
        let (a, b) = ([(self.lo, -1), (self.hi, 1)], [(other.lo, -1), (other.hi, 1)]);
        let mut all = [0i128; 4];
        for (i, value) in all.iter_mut().enumerate() {
            *value = product(a[i / 2], b[i % 2]);
        }
        let finite = |v: i128| i64::try_from(v).ok();
        Bounds {
            lo: all.iter().min().copied().and_then(finite),
            hi: all.iter().max().copied().and_then(finite),
        }
    }
}

/// Why a dimension has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DimError {
    /// A symbol has no value.
    #[error("dimension `{}` has no value", .0.name())]
    Unbound(Symbol),
    /// The value does not fit 64 bits.
    #[error("the value of dimension `{0}` overflows 64 bits")]
    Overflow(Dim),
    /// A divisor came out as zero.
    #[error("the divisor `{0}` is zero")]
    DivisionByZero(Dim),
}

fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    let inexact = a.wrapping_rem(b) != 0;
    if inexact && ((a < 0) != (b < 0)) { quotient - 1 } else { quotient }
}

/// The greatest common divisor of a positive and any other number.
fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b.wrapping_abs(), a.wrapping_rem(b).wrapping_abs()) }
}

fn floor_mod(a: i64, b: i64) -> i64 {
    a.wrapping_sub(b.wrapping_mul(floor_div(a, b)))
}

/// The term of highest degree, ties by monomial order. Multiplication is monotone under it.
fn leading(terms: &[(Monomial, i64)]) -> Option<(&Monomial, i64)> {
    let degree = |m: &Monomial| m.iter().map(|(_, power)| *power).sum::<u32>();
    terms
        .iter()
        .max_by(|(a, _), (b, _)| degree(a).cmp(&degree(b)).then_with(|| lexicographic(a, b)))
        .map(|(monomial, coefficient)| (monomial, *coefficient))
}

fn lexicographic(a: &Monomial, b: &Monomial) -> Ordering {
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    loop {
        match (left.peek(), right.peek()) {
            (None, None) => return Ordering::Equal,
            (Some(_), None) => return Ordering::Greater,
            (None, Some(_)) => return Ordering::Less,
            (Some((x, p)), Some((y, q))) => match x.cmp(y) {
                // The earlier atom counts for more, so who has it has the larger monomial.
                Ordering::Less => return Ordering::Greater,
                Ordering::Greater => return Ordering::Less,
                Ordering::Equal if p != q => return p.cmp(q),
                Ordering::Equal => {
                    left.next();
                    right.next();
                }
            },
        }
    }
}

fn divide_monomial(a: &Monomial, b: &Monomial) -> Option<Monomial> {
    let mut quotient = a.clone();
    for (atom, power) in b {
        let position = quotient.iter().position(|(x, _)| x == atom)?;
        quotient[position].1 = quotient[position].1.checked_sub(*power)?;
    }
    quotient.retain(|(_, power)| *power > 0);
    Some(quotient)
}

fn multiply_monomials(a: &Monomial, b: &Monomial) -> Monomial {
    let mut powers: BTreeMap<Atom, u32> = BTreeMap::new();
    for (atom, power) in a.iter().chain(b) {
        *powers.entry(atom.clone()).or_insert(0) += power;
    }
    powers.into_iter().collect()
}

impl Default for Dim {
    fn default() -> Dim {
        Dim::ZERO
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim(Repr::Constant(value))
    }
}

impl From<Symbol> for Dim {
    fn from(symbol: Symbol) -> Dim {
        Dim::atom(Atom::Symbol(symbol))
    }
}

impl Add for Dim {
    type Output = Dim;
    fn add(self, other: Dim) -> Dim {
        match (&self.0, &other.0) {
            (Repr::Constant(a), Repr::Constant(b)) => Dim::from(a.saturating_add(*b)),
            _ => Dim::from_terms(self.terms().into_iter().chain(other.terms())),
        }
    }
}

impl Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        Dim::from(-1) * self
    }
}

impl Sub for Dim {
    type Output = Dim;
    fn sub(self, other: Dim) -> Dim {
        self + -other
    }
}

impl Mul for Dim {
    type Output = Dim;
    fn mul(self, other: Dim) -> Dim {
        if let (Repr::Constant(a), Repr::Constant(b)) = (&self.0, &other.0) {
            return Dim::from(a.saturating_mul(*b));
        }
        let (left, right) = (self.terms(), other.terms());
        Dim::from_terms(left.iter().flat_map(|(m, c)| {
            right.iter().map(move |(n, d)| (multiply_monomials(m, n), c.saturating_mul(*d)))
        }))
    }
}

impl std::iter::Product for Dim {
    fn product<I: Iterator<Item = Dim>>(factors: I) -> Dim {
        factors.fold(Dim::ONE, Mul::mul)
    }
}

impl std::iter::Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(terms: I) -> Dim {
        terms.fold(Dim::ZERO, Add::add)
    }
}

impl PartialOrd for Dim {
    fn partial_cmp(&self, other: &Dim) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of canonical forms, for sorted containers; it says nothing about values.
impl Ord for Dim {
    fn cmp(&self, other: &Dim) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Constant(a), Repr::Constant(b)) => a.cmp(b),
            (Repr::Constant(_), Repr::Polynomial(_)) => Ordering::Less,
            (Repr::Polynomial(_), Repr::Constant(_)) => Ordering::Greater,
            (Repr::Polynomial(a), Repr::Polynomial(b)) => a.cmp(b),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text form: terms of higher degree first, the constant last: `2*B*S + P - 1`,
/// `floordiv(S, 4)`, `min(S, 1024)`.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms = self.terms();
        if terms.is_empty() {
            return f.write_str("0");
        }
        let degree = |m: &Monomial| m.iter().map(|(_, power)| *power).sum::<u32>();
        terms.sort_by(|(a, _), (b, _)| degree(b).cmp(&degree(a)).then_with(|| a.cmp(b)));
        for (i, (monomial, coefficient)) in terms.iter().enumerate() {
            match (i, *coefficient < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let magnitude = coefficient.unsigned_abs();
            let mut separate = false;
            if magnitude != 1 || monomial.is_empty() {
                write!(f, "{magnitude}")?;
                separate = true;
            }
            for (atom, power) in monomial {
                for _ in 0..*power {
                    if separate {
                        f.write_str("*")?;
                    }
                    write!(f, "{atom}")?;
                    separate = true;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(symbol) => write!(f, "{symbol}"),
            Atom::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})"),
            Atom::Mod(a, b) => write!(f, "mod({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
        }
    }
}

/// An identifier as it is, any other name in quotes.
impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reserved = matches!(self.name(), "floordiv" | "mod" | "min" | "max");
        if crate::text::is_identifier(self.name()) && !reserved {
            f.write_str(self.name())
        } else {
            crate::text::write_quoted(f, self.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(name: &str) -> Dim {
        Dim::symbol(name)
    }

    #[test]
    fn polynomials_are_canonical() {
        let a = (s("B") + Dim::from(2)) * (s("S") - Dim::from(1));
        let b = s("S") * s("B") - s("B") + Dim::from(2) * s("S") - Dim::from(2);
        assert_eq!(a, b);
        assert_eq!(a.to_string(), "B*S - B + 2*S - 2");
        assert_eq!((s("B") - s("B")), Dim::ZERO);
    }

    #[test]
    fn division_is_exact_where_it_can_be() {
        let total = s("B") * s("S") * Dim::from(768);
        assert_eq!(total.exact_div(&(s("S") * Dim::from(64))), Some(s("B") * Dim::from(12)));
        assert_eq!(total.exact_div(&s("P")), None);
        let product = (s("B") + Dim::from(2)) * (s("S") - s("P"));
        assert_eq!(product.exact_div(&(s("S") - s("P"))), Some(s("B") + Dim::from(2)));
        let quotient = (Dim::from(4) * s("S") + s("P")).floor_div(&Dim::from(4));
        assert_eq!(quotient.map(|q| q.to_string()).as_deref(), Some("S + floordiv(P, 4)"));
        assert_eq!(s("S").floor_div(&Dim::ZERO), None);
    }

    #[test]
    fn equal_quotients_are_written_alike() {
        let divide = |a: Dim, by: i64| a.floor_div(&Dim::from(by)).unwrap_or_default();
        let strided = divide(s("S") + Dim::ONE, 2);
        assert_eq!(divide(s("S") - Dim::ONE, 2) + Dim::ONE, strided);
        assert_eq!(s("S").ceil_div(&Dim::from(2)), Some(strided.clone()));
        let twice = divide(s("S") + Dim::from(3), 4);
        assert_eq!(divide(strided.clone() + Dim::ONE, 2), twice);
        assert_eq!(strided.ceil_div(&Dim::from(2)), Some(twice));
        assert_eq!(divide(divide(s("S"), 5), 4), divide(s("S"), 20));
        assert_eq!(divide(Dim::from(2) * s("S") + Dim::from(5), 4), divide(s("S"), 2) + Dim::ONE);
        let mixed = divide(s("S"), 3) + s("P");
        assert_eq!(divide(mixed, 2), divide(s("S") + Dim::from(3) * s("P"), 6));
    }

    #[test]
    fn canonical_quotients_have_the_value_of_the_plain_one() {
        for (a, c, k, m, d) in
            [(1, 3, 4, 2, 1), (-1, 2, 3, 5, -4), (6, -7, 4, 3, 2), (-4, 1, 6, 2, 5)]
        {
            let inner = Dim::from(a) * s("S") + Dim::from(c);
            let quotient = inner.floor_div(&Dim::from(k)).unwrap_or_default();
            let outer = (quotient + Dim::from(d)).floor_div(&Dim::from(m)).unwrap_or_default();
            for value in -30..30 {
                let bindings: Bindings = [(Symbol::new("S"), value)].into();
                let expected = (a * value + c).div_euclid(k) + d;
                assert_eq!(outer.evaluate(&bindings), Ok(expected.div_euclid(m)), "{outer}");
            }
        }
    }

    #[test]
    fn floor_division_rounds_down() {
        for (a, b, q) in [(7, 2, 3), (-7, 2, -4), (7, -2, -4), (-8, 2, -4)] {
            assert_eq!(Dim::from(a).floor_div(&Dim::from(b)), Some(Dim::from(q)));
        }
    }

    #[test]
    fn bounds_hold_over_the_range() {
        let ranges: Ranges = [
            (Symbol::new("B"), Range::new(1, 64)),
            (Symbol::new("S"), Range::new(3, 512)),
            (Symbol::new("U"), Range::UNBOUNDED),
        ]
        .into();
        let bounds = (s("B") * s("S") - Dim::from(2) * s("B")).bounds(&ranges);
        assert_eq!(bounds, Bounds { lo: Some(3 - 128), hi: Some(64 * 512 - 2) });
        assert_eq!((s("U") * s("B")).bounds(&ranges), Bounds { lo: Some(0), hi: None });
        assert_eq!(s("U").minimum(&s("S")).bounds(&ranges).hi, Some(512));
        let half = s("S").floor_div(&Dim::from(2)).map(|d| d.bounds(&ranges));
        assert_eq!(half, Some(Bounds { lo: Some(1), hi: Some(256) }));
    }

    #[test]
    fn a_symbol_is_solved_for() {
        let bindings: Bindings = [(Symbol::new("S"), 5)].into();
        let total = s("P") + s("S");
        assert_eq!(total.solve(&Symbol::new("P"), 12, &bindings), Some(7));
        assert_eq!((Dim::from(2) * s("P")).solve(&Symbol::new("P"), 7, &bindings), None);
        assert_eq!(total.evaluate(&bindings), Err(DimError::Unbound(Symbol::new("P"))));
    }
}
