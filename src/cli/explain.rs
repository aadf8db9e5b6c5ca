//! `--explain`: what `rewrite` did to a model, for people; never what it should have done.

use membar::ir::pass::{Rewriting, Rewritten};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Every place that was rewritten, equal ones together, and what each rule did.
pub fn text(rewriting: &Rewriting) -> String {
    let mut text = format!(
        "{} operators found in their parts, in {} regions, {} of them different\n",
        rewriting.places.len(),
        rewriting.regions,
        rewriting.distinct,
    );
    let mut totals: BTreeMap<&str, (usize, f64, f64)> = BTreeMap::new();
    for place in &rewriting.places {
        let (count, before, after) = totals.entry(place.op).or_default();
        *count += 1;
        *before += place.before_us;
        *after += place.after_us;
    }
    text += "\nby operator, estimated microseconds in parts and as a whole:\n";
    for (op, (count, before, after)) in totals {
        let _ = writeln!(text, "  {op:<20} {count:>6} {before:>12.2} -> {after:.2}");
    }
    text += "\nby rule, as often as its left side was found and as it was new, over different regions:\n";
    for rule in rewriting.rules.iter().filter(|rule| rule.matches > 0) {
        let _ = writeln!(
            text,
            "  {:<20} {:>6} {:>6} {:>8.2} ms  {} ({})",
            rule.name, rule.matches, rule.unions, rule.ms, rule.summary, rule.rounding,
        );
    }
    for place in &rewriting.places {
        describe(&mut text, place);
    }
    text
}

fn describe(text: &mut String, place: &Rewritten) {
    let _ = writeln!(text, "\n{} in the place of `{}`", place.op, place.node);
    let _ = writeln!(text, "  by {}", place.rules.join(", "));
    let _ = writeln!(text, "  {:.2} µs -> {:.2} µs", place.before_us, place.after_us);
    let sources: Vec<String> = place.sources.iter().map(|node| format!("`{node}`")).collect();
    let _ = writeln!(text, "  from {}", sources.join(", "));
}
