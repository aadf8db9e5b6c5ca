//! Dimensions of values as exporters write them. Names are hints: nothing here unifies or binds
//! them.

use std::fmt;

/// One dimension of a value in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimDef {
    /// A fixed extent, at least 0.
    Known(i64),
    /// The exporter's text: a name, digits, or an expression such as `past + seq`.
    Param(String),
    /// Nothing is said, or something negative.
    Unknown,
}

impl DimDef {
    /// The dimension as an expression; `None` where nothing is known of it.
    pub fn expression(&self) -> Option<DimExpr> {
        match self {
            Self::Known(extent) => Some(DimExpr::Integer(*extent)),
            Self::Param(text) => Some(DimExpr::parse(text)),
            Self::Unknown => None,
        }
    }
}

/// An integer expression over named dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimExpr {
    /// A constant.
    Integer(i64),
    /// A name; or a whole text that is no expression, as one opaque name.
    Symbol(String),
    /// A sum.
    Add(Box<DimExpr>, Box<DimExpr>),
    /// A difference.
    Sub(Box<DimExpr>, Box<DimExpr>),
    /// A product.
    Mul(Box<DimExpr>, Box<DimExpr>),
    /// A quotient, rounded down.
    FloorDiv(Box<DimExpr>, Box<DimExpr>),
    /// The remainder that belongs to [`DimExpr::FloorDiv`].
    Mod(Box<DimExpr>, Box<DimExpr>),
    /// The smaller.
    Min(Box<DimExpr>, Box<DimExpr>),
    /// The larger.
    Max(Box<DimExpr>, Box<DimExpr>),
}

impl DimExpr {
    /// Parses the text of a `dim_param`.
    ///
    /// The grammar is what SymPy prints and people write: integers, names (letters, digits, `_`,
    /// `.`, `:`, and a hyphen between letters, as in `batch-size`), `+ - * / // %`, parentheses,
    /// `floor(…)`, `Max(…)`, `Min(…)`, `Mod(…)`. A quotient by `/` is kept exact until a `floor`
    /// or the end. Text outside the grammar becomes one opaque symbol, so that nothing is
    /// misread.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let parsed = if text.len() <= MAX_LENGTH { Parser::parse(text) } else { None };
        parsed.unwrap_or_else(|| Self::Symbol(text.to_owned()))
    }
}

impl fmt::Display for DimExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Symbol(name) => f.write_str(name),
            Self::Add(a, b) => write!(f, "({a} + {b})"),
            Self::Sub(a, b) => write!(f, "({a} - {b})"),
            Self::Mul(a, b) => write!(f, "({a} * {b})"),
            Self::FloorDiv(a, b) => write!(f, "({a} // {b})"),
            Self::Mod(a, b) => write!(f, "({a} % {b})"),
            Self::Min(a, b) => write!(f, "min({a}, {b})"),
            Self::Max(a, b) => write!(f, "max({a}, {b})"),
        }
    }
}

/// Longer texts are names of some kind, not expressions; the bound also limits the recursion.
const MAX_LENGTH: usize = 512;
const MAX_DEPTH: usize = 32;

/// A quotient that has not been rounded yet.
struct Fraction {
    numerator: DimExpr,
    denominator: DimExpr,
}

impl Fraction {
    fn whole(numerator: DimExpr) -> Self {
        Self { numerator, denominator: DimExpr::Integer(1) }
    }

    fn floor(self) -> DimExpr {
        if self.denominator == DimExpr::Integer(1) {
            self.numerator
        } else {
            DimExpr::FloorDiv(Box::new(self.numerator), Box::new(self.denominator))
        }
    }

    fn combine(self, other: Self, join: fn(Box<DimExpr>, Box<DimExpr>) -> DimExpr) -> Self {
        if self.denominator == other.denominator {
            let numerator = join(Box::new(self.numerator), Box::new(other.numerator));
            return Self { numerator, denominator: self.denominator };
        }
        let left = multiply(self.numerator, other.denominator.clone());
        let right = multiply(other.numerator, self.denominator.clone());
        Self {
            numerator: join(Box::new(left), Box::new(right)),
            denominator: multiply(self.denominator, other.denominator),
        }
    }
}

fn multiply(a: DimExpr, b: DimExpr) -> DimExpr {
    match (&a, &b) {
        (DimExpr::Integer(1), _) => b,
        (_, DimExpr::Integer(1)) => a,
        (DimExpr::Integer(x), DimExpr::Integer(y)) if x.checked_mul(*y).is_some() => {
            DimExpr::Integer(x.saturating_mul(*y))
        }
        _ => DimExpr::Mul(Box::new(a), Box::new(b)),
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn parse(text: &'a str) -> Option<DimExpr> {
        let mut parser = Self { rest: text, depth: 0 };
        let value = parser.sum()?;
        parser.skip_space();
        parser.rest.is_empty().then(|| value.floor())
    }

    fn sum(&mut self) -> Option<Fraction> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut value = if self.take("-") {
            Fraction::whole(DimExpr::Integer(0)).combine(self.product()?, DimExpr::Sub)
        } else {
            self.product()?
        };
        loop {
            if self.take("+") {
                value = value.combine(self.product()?, DimExpr::Add);
            } else if self.take("-") {
                value = value.combine(self.product()?, DimExpr::Sub);
            } else {
                self.depth -= 1;
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<Fraction> {
        let mut value = self.factor()?;
        loop {
            if self.take("//") {
                value = Fraction::whole(quotient(value, self.factor()?).floor());
            } else if self.take("/") {
                value = quotient(value, self.factor()?);
            } else if self.take("%") {
                let (a, b) = (value.floor(), self.factor()?.floor());
                value = Fraction::whole(DimExpr::Mod(Box::new(a), Box::new(b)));
            } else if self.rest.trim_start().starts_with("**") {
                return None;
            } else if self.take("*") {
                let other = self.factor()?;
                value = Fraction {
                    numerator: multiply(value.numerator, other.numerator),
                    denominator: multiply(value.denominator, other.denominator),
                };
            } else {
                return Some(value);
            }
        }
    }

    fn factor(&mut self) -> Option<Fraction> {
        if self.take("(") {
            let value = self.sum()?;
            return self.take(")").then_some(value);
        }
        let word = self.word()?;
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Fraction::whole(DimExpr::Integer(word.parse().ok()?)));
        }
        if self.rest.starts_with('(') {
            return self.call(word).map(Fraction::whole);
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        Some(Fraction::whole(DimExpr::Symbol(word.to_owned())))
    }

    fn call(&mut self, function: &str) -> Option<DimExpr> {
        self.take("(");
        let mut arguments = vec![self.sum()?.floor()];
        while self.take(",") {
            arguments.push(self.sum()?.floor());
        }
        if !self.take(")") {
            return None;
        }
        let join = match function.to_ascii_lowercase().as_str() {
            "floor" if arguments.len() == 1 => return arguments.pop(),
            "max" => DimExpr::Max,
            "min" => DimExpr::Min,
            "mod" if arguments.len() == 2 => DimExpr::Mod,
            _ => return None,
        };
        arguments.into_iter().reduce(|a, b| join(Box::new(a), Box::new(b)))
    }

    /// The longest name or number at the front.
    fn word(&mut self) -> Option<&'a str> {
        self.skip_space();
        let mut end = 0;
        let mut previous = ' ';
        for (position, c) in self.rest.char_indices() {
            let next = self.rest[position + c.len_utf8()..].chars().next();
            let hyphen =
                c == '-' && previous.is_alphabetic() && next.is_some_and(char::is_alphabetic);
            if !(c.is_alphanumeric() || matches!(c, '_' | '.' | ':') || hyphen) {
                break;
            }
            previous = c;
            end = position + c.len_utf8();
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

fn quotient(a: Fraction, b: Fraction) -> Fraction {
    Fraction {
        numerator: multiply(a.numerator, b.denominator),
        denominator: multiply(a.denominator, b.numerator),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_exporters() {
        for (text, expected) in [
            ("batch", "batch"),
            ("16", "16"),
            (" 16 ", "16"),
            ("past + seq", "(past + seq)"),
            ("past_sequence_length+1", "(past_sequence_length + 1)"),
            ("s0 - 2*s1", "(s0 - (2 * s1))"),
            ("a - b - c", "((a - b) - c)"),
            ("2*(a + 1)", "(2 * (a + 1))"),
            ("-a + 3", "((0 - a) + 3)"),
            ("s0//2 + 1", "((s0 // 2) + 1)"),
            ("floor(s0/2) + 1", "((s0 // 2) + 1)"),
            ("floor(s0/2 - 1/2) + 1", "(((s0 - 1) // 2) + 1)"),
            ("floor(s0/2 + 1/3)", "(((s0 * 3) + 2) // 6)"),
            ("s0*s1/4", "((s0 * s1) // 4)"),
            ("a // b // c", "((a // b) // c)"),
            ("Max(1, s0)", "max(1, s0)"),
            ("Mod(s0, 8)", "(s0 % 8)"),
            ("s0 % 8", "(s0 % 8)"),
            ("batch-size", "batch-size"),
            ("unk__0", "unk__0"),
            ("DynamicDimension.0", "DynamicDimension.0"),
            ("größe + 1", "(größe + 1)"),
        ] {
            assert_eq!(DimExpr::parse(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn other_text_is_one_symbol() {
        for text in ["?", "a b", "2x", "a**2", "f(x)", "a +", "(a", "a)", "", "1.5", "a, b"] {
            assert_eq!(DimExpr::parse(text), DimExpr::Symbol(text.to_owned()));
        }
        let deep = format!("{}a{}", "(".repeat(200), ")".repeat(200));
        assert_eq!(DimExpr::parse(&deep), DimExpr::Symbol(deep));
        let long = "a+".repeat(400) + "a";
        assert_eq!(DimExpr::parse(&long), DimExpr::Symbol(long));
        let digits = "9".repeat(30);
        assert_eq!(DimExpr::parse(&digits), DimExpr::Symbol(digits));
    }

    #[test]
    fn unknown_dimensions_have_no_expression() {
        assert_eq!(DimDef::Unknown.expression(), None);
        assert_eq!(DimDef::Known(3).expression(), Some(DimExpr::Integer(3)));
    }
}
