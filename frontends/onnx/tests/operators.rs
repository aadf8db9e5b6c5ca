//! Compares `docs/operators.md` with the importer's table, or with `MEMBAR_BLESS=1` writes it;
//! never lists an operator itself.

use membar_onnx::{SupportedOperator, refused_operators, supported_operators};
use std::fmt::Write as _;
use std::path::Path;

const OPENING: &str = "\
# Operators

What the importer takes from an ONNX file. This page is written from its table
(`frontends/onnx/src/import/table.rs`), and a test compares the two; after a change of the table,
`MEMBAR_BLESS=1 cargo test -p membar-onnx --test operators` writes it again.

An operator is taken in every form that its definition has in these operator sets, unless a
restriction is named. *Computed from shapes and constants* means that the importer must be able to
follow the values: shapes of inputs, constants, arithmetic on them, and inputs that are fixed with
`--bind`. An operator whose domain or name is not here is reported with its node, and so is every
other one of the model, at once.
";

#[test]
fn the_list_of_operators_is_up_to_date() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators.md");
    let expected = page();
    if std::env::var_os("MEMBAR_BLESS").is_some() {
        return std::fs::write(&path, expected);
    }
    let found = std::fs::read_to_string(&path)?;
    let line = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "docs/operators.md differs from the table, first after line {}; write it again with \
         `MEMBAR_BLESS=1 cargo test -p membar-onnx --test operators`",
        line.unwrap_or_else(|| found.lines().count().min(expected.lines().count())),
    );
    Ok(())
}

fn page() -> String {
    let operators = supported_operators();
    let (standard, others): (Vec<_>, Vec<_>) =
        operators.into_iter().partition(|operator| operator.domain.is_empty());
    let mut page = OPENING.to_string();
    section(&mut page, "ONNX", &standard);
    for group in others.chunk_by(|a, b| a.domain == b.domain) {
        section(&mut page, &format!("`{}`", group[0].domain), group);
    }
    page.push_str("\n## Refused, with the reason\n\n| operator | reason |\n|---|---|\n");
    for (op_type, reason) in refused_operators() {
        let _ = writeln!(page, "| {op_type} | {reason} |");
    }
    page
}

fn section(page: &mut String, title: &str, operators: &[SupportedOperator]) {
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "\n## {title}: {} operators\n\n| operator | operator sets | only |\n|---|---|---|\n",
        operators.len()
    );
    for SupportedOperator { op_type, opsets: (first, last), form, .. } in operators {
        let sets = if first == last { first.to_string() } else { format!("{first}–{last}") };
        let form = if form.is_empty() { String::new() } else { format!("{form} ") };
        let _ = writeln!(page, "| {op_type} | {sets} | {form}|");
    }
}
