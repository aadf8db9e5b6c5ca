//! The list of rules: the only one, and what a rule is. Each theme has a file; never a search.

mod activation;
mod attention;
mod count;
mod heads;
mod layout;
mod mask;
mod norm;
pub(super) mod term;
pub(super) mod view;

use egg::Id;
use membar_ir::ops::Op;
pub(super) use term::Term;
pub(super) use view::View;

/// An equality that is used from left to right. Legality stands inside it: where `apply` gives a term,
/// that term equals the class for all values of all symbols, up to what `rounding` says.
pub(super) struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What it says, for people.
    pub summary: &'static str,
    /// Up to what the two sides are equal.
    pub rounding: Rounding,
    /// Whether terms of this operator may be the outermost of its left side.
    pub root: fn(&Op) -> bool,
    /// An operator of its left side that is rare in graphs: where a region has none, nothing is tried.
    pub witness: fn(&Op) -> bool,
    /// The right side, if the term of that operator and operands is the left side.
    pub apply: fn(&View<'_>, Root<'_>) -> Option<Term>,
}

/// A term that may be the outermost of a left side.
#[derive(Clone, Copy)]
pub(super) struct Root<'a> {
    pub class: Id,
    pub op: &'a Op,
    pub operands: &'a [Id],
}

/// Up to what two sides of a rule are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Bit for bit.
    Exact,
    /// The same sums and products in another order, or without being rounded in between.
    Reassociated,
}

impl Rounding {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Rounding::Exact => "exact",
            Rounding::Reassociated => "reassociated",
        }
    }
}

/// All rules, in the order in which they are tried.
pub(super) const RULES: &[&[Rule]] =
    &[layout::RULES, activation::RULES, norm::RULES, attention::RULES, heads::RULES, mask::RULES];

/// All rules with their numbers.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().flat_map(|theme| theme.iter())
}
