//! The list of rules about single files. Each carries an example that it refuses and one that it
//! takes; the tests below run them all.

use super::sources::{Source, Tree, is_at};

/// What breaks a rule, and where.
pub struct Finding {
    /// Counted from 1.
    pub line: usize,
    /// What was found, and what to do.
    pub message: String,
}

/// One rule.
pub struct Rule {
    /// How findings name it.
    pub name: &'static str,
    /// Which files it reads.
    pub applies: fn(&Source) -> bool,
    /// Finds every violation.
    pub check: fn(&Source, &Tree) -> Vec<Finding>,
    /// (path, text) that has at least one violation.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests of the rules"))]
    pub refused: (&'static str, &'static str),
    /// (path, text) that has none.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests of the rules"))]
    pub taken: (&'static str, &'static str),
}

/// Lines that a source file may have.
const MAX_LINES: usize = 1_000;

/// Where `unsafe` may stand, and why. A path that ends with `/` is a folder.
const UNSAFE_PLACES: &[(&str, &str)] = &[
    ("ir/src/mapping.rs", "memory maps"),
    ("runtime/src/cpu/arena.rs", "the arena of the CPU executor"),
    ("runtime/src/cuda/", "the driver layer"),
    ("codegen/src/nvrtc.rs", "the kernel compiler"),
];

/// Where the CUDA bindings may be named.
const CUDA_PLACES: &[&str] = &["runtime/src/cuda/", "codegen/src/nvrtc.rs"];

/// Places outside the repository that no file may refer to. Split, so that this file may say so.
const OUTSIDE_PLACES: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("sha", "red/cases"),
    concat!("../sha", "red"),
];

/// The rules, in the order of their findings.
pub const RULES: &[Rule] = &[
    Rule {
        name: "module-doc",
        applies: is_rust,
        check: module_doc,
        refused: ("ir/src/graph.rs", "use std::fmt;\n"),
        taken: ("ir/src/graph.rs", "//! The graph; must never know devices.\nuse std::fmt;\n"),
    },
    Rule {
        name: "file-length",
        applies: |source| source.has_ending(&["rs", "py", "cuh", "cu", "sh"]),
        check: file_length,
        // The test repeats these lines.
        refused: ("ir/src/long.rs", "a\nb\n"),
        taken: ("ir/src/short.rs", ""),
    },
    Rule {
        name: "unsafe-place",
        applies: is_rust,
        check: unsafe_place,
        refused: ("ir/src/graph.rs", "fn f() { unsafe { g() } }\n"),
        taken: ("ir/src/graph.rs", "#![forbid(unsafe_code)] // unsafe\nlet a = \"unsafe\";\n"),
    },
    Rule {
        name: "cuda-place",
        applies: is_rust,
        check: cuda_place,
        refused: ("runtime/src/lib.rs", "use cudarc::driver::sys;\n"),
        taken: ("runtime/src/cuda/graph.rs", "use cudarc::driver::sys;\n"),
    },
    Rule {
        name: "no-ignored-test",
        applies: is_rust,
        check: |source, _| {
            find_code(source, "#[ignore", "delete the test, or make it run; none is ignored")
        },
        refused: ("tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n"),
        taken: ("tests/a.rs", "// #[ignore] is refused\n#[test]\nfn f() {}\n"),
    },
    Rule {
        name: "no-stub",
        applies: is_rust,
        check: no_stub,
        refused: ("src/a.rs", "fn f() { todo!() }\nfn g() { unimplemented!(\"x\") }\n"),
        taken: ("src/a.rs", "// todo!()\nfn f() { debug!() }\n"),
    },
    Rule {
        name: "to-do-reason",
        applies: is_code,
        check: to_do_reason,
        refused: ("src/a.rs", concat!("// TO", "DO: faster\n")),
        taken: ("src/a.rs", concat!("// TO", "DO: tile this loop, since large heads spill.\n")),
    },
    Rule {
        name: "allow-reason",
        applies: is_rust,
        check: allow_reason,
        refused: ("src/a.rs", "#![allow(dead_code)]\n"),
        taken: ("src/a.rs", "#![allow(dead_code, reason = \"each test uses a part\")]\n"),
    },
    Rule {
        name: "white-space",
        applies: |source| !source.has_ending(&["snap"]),
        check: white_space,
        refused: ("a.toml", "a = 1 \nb = 2\r\n\tc = 3"),
        taken: ("a.toml", "a = 1\nb = 2\n"),
    },
    Rule {
        name: "outside-place",
        applies: |_| true,
        check: outside_place,
        refused: ("docs/a.md", concat!("see /ho", "me/me/notes\n")),
        taken: ("docs/a.md", "see the notes in docs/\n"),
    },
    Rule {
        name: "local-link",
        applies: |source| source.has_ending(&["md"]),
        check: local_link,
        refused: ("docs/a.md", "[one](missing.md), [two](../../outside.md)\n"),
        taken: (
            "docs/a.md",
            "[one](b.md#top), [two](../README.md), [web](https://a.b), `[c](d)`\n```\n[e](f)\n```\n",
        ),
    },
    Rule {
        name: "named-tests",
        applies: |source| source.path == "ARCHITECTURE.md",
        check: named_tests,
        refused: ("ARCHITECTURE.md", "## Invariants\n\n| all is well | `no_such_test` |\n"),
        taken: (
            "ARCHITECTURE.md",
            "## Invariants\n\n| a | b |\n|---|---|\n\n## Rest\n| a | `b` |\n",
        ),
    },
];

/// Each test that a line of the table of invariants names in its last column exists.
fn named_tests(source: &Source, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = numbered(&source.text).skip_while(|(_, line)| *line != "## Invariants").skip(1);
    for (line, content) in lines.take_while(|(_, line)| !line.starts_with("## ")) {
        let cells: Vec<&str> = content.split('|').collect();
        let [.., last, _] = cells.as_slice() else {
            continue;
        };
        for name in last.split('`').skip(1).step_by(2) {
            let definition = format!("fn {name}(");
            if !tree.sources.iter().any(|other| other.code.contains(&definition)) {
                let message = format!("no test is called `{name}`");
                findings.push(Finding { line, message });
            }
        }
    }
    findings
}

fn is_rust(source: &Source) -> bool {
    source.has_ending(&["rs"])
}

fn is_code(source: &Source) -> bool {
    source.has_ending(&["rs", "py", "cuh", "cu", "sh", "toml"])
}

fn module_doc(source: &Source, _: &Tree) -> Vec<Finding> {
    if source.text.starts_with("//! ") {
        return Vec::new();
    }
    let message = "open with `//!`: what the file owns, and one thing that it must never do";
    vec![Finding { line: 1, message: message.to_owned() }]
}

fn file_length(source: &Source, _: &Tree) -> Vec<Finding> {
    let lines = source.text.lines().count();
    if lines <= MAX_LINES {
        return Vec::new();
    }
    vec![Finding {
        line: MAX_LINES + 1,
        message: format!("{lines} lines; at most {MAX_LINES}, better 500: split it by concern"),
    }]
}

fn unsafe_place(source: &Source, _: &Tree) -> Vec<Finding> {
    if UNSAFE_PLACES.iter().any(|(place, _)| is_at(&source.path, place)) {
        return Vec::new();
    }
    let places: Vec<_> =
        UNSAFE_PLACES.iter().map(|(place, why)| format!("{place} ({why})")).collect();
    find_code(source, "unsafe", &format!("`unsafe` may stand in {} alone", places.join(", ")))
}

fn cuda_place(source: &Source, _: &Tree) -> Vec<Finding> {
    if CUDA_PLACES.iter().any(|place| is_at(&source.path, place)) {
        return Vec::new();
    }
    let message = format!("`cudarc` may be named in {} alone", CUDA_PLACES.join(", "));
    find_code(source, "cudarc", &message)
}

fn no_stub(source: &Source, _: &Tree) -> Vec<Finding> {
    let message = "a stub: give a typed error, or leave the function out until it works";
    let mut findings = find_code(source, "todo!", message);
    findings.extend(find_code(source, "unimplemented!", message));
    findings
}

/// A note of work to do says what and why: at least five words after the colon.
fn to_do_reason(source: &Source, _: &Tree) -> Vec<Finding> {
    const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let text = if is_rust(source) { &source.comments } else { &source.text };
    let mut findings = Vec::new();
    for (line, content) in numbered(text) {
        for mark in MARKS {
            let Some(position) = find_word(content, mark) else {
                continue;
            };
            let note = content[position + mark.len()..].strip_prefix(':').unwrap_or_default();
            if note.split_whitespace().count() < 5 {
                let message = format!("`{mark}` needs a colon, what is to be done, and why");
                findings.push(Finding { line, message });
            }
        }
    }
    findings
}

/// An inner attribute silences a whole module or crate.
fn allow_reason(source: &Source, _: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (position, start) in source.code.match_indices("#![allow(") {
        let attribute = &source.code[position + start.len()..];
        let end = attribute.find(")]").unwrap_or(attribute.len());
        if !attribute[..end].contains("reason =") {
            let line = source.code[..position].matches('\n').count() + 1;
            let message = "an `allow` for a whole module needs `reason = \"…\"`".to_owned();
            findings.push(Finding { line, message });
        }
    }
    findings
}

fn white_space(source: &Source, _: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add =
        |line, message: &str| findings.push(Finding { line, message: message.to_owned() });
    for (index, content) in source.text.split('\n').enumerate() {
        if content.ends_with('\r') {
            add(index + 1, "a carriage return: lines end with a line feed alone");
        } else if content.ends_with([' ', '\t']) {
            add(index + 1, "white space at the end of the line");
        }
        if content.contains('\t') {
            add(index + 1, "a tab: indent with spaces, write `\\t` in strings");
        }
    }
    let lines = source.text.matches('\n').count();
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        add(lines + 1, "the last line does not end with a line feed");
    }
    if source.text.ends_with("\n\n") {
        add(lines, "an empty line at the end of the file");
    }
    findings
}

fn outside_place(source: &Source, _: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in numbered(&source.text) {
        for place in OUTSIDE_PLACES {
            if content.contains(place) {
                let message = format!("`{place}` names a place outside the repository");
                findings.push(Finding { line, message });
            }
        }
    }
    findings
}

fn local_link(source: &Source, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (line, content) in numbered(&source.text) {
        if content.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every other part between back quotes is code.
        for text in content.split('`').step_by(2) {
            for target in link_targets(text) {
                let exists = resolve(&source.path, target).is_some_and(|path| tree.contains(&path));
                if !exists {
                    let message = format!("the link `{target}` leads to no file of the repository");
                    findings.push(Finding { line, message });
                }
            }
        }
    }
    findings
}

/// The local targets of `[text](target)`, without their anchors.
fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?.trim();
        let is_local = !target.is_empty() && !target.contains("://") && !target.contains("mailto:");
        is_local.then_some(target)
    })
}

/// The path that a link in `file` leads to; none when it leaves the repository.
fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Every line of code that has `word` on its own, with one message for all.
fn find_code(source: &Source, word: &str, message: &str) -> Vec<Finding> {
    numbered(&source.code)
        .filter(|(_, content)| find_word(content, word).is_some())
        .map(|(line, _)| Finding { line, message: message.to_owned() })
        .collect()
}

/// Where `word` stands, not as a part of a longer word.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let continues = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).map(|(position, _)| position).find(|&position| {
        let before = text[..position].chars().next_back();
        let after = text[position + word.len()..].chars().next();
        let follows = word.ends_with(continues) && after.is_some_and(continues);
        !(before.is_some_and(continues) || follows)
    })
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, content)| (index + 1, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(rule: &Rule, (path, text): (&str, &str)) -> Vec<Finding> {
        let tree = Tree::of_paths(&["README.md", "docs", "docs/a.md", "docs/b.md"]);
        let source = Source::new(path, text);
        assert!((rule.applies)(&source), "`{}` does not read its example", rule.name);
        (rule.check)(&source, &tree)
    }

    #[test]
    fn every_rule_refuses_its_example_and_takes_the_other() {
        for rule in RULES {
            let repeated = rule.refused.1.repeat(if rule.name == "file-length" { 501 } else { 1 });
            let refused = findings(rule, (rule.refused.0, &repeated));
            assert!(!refused.is_empty(), "`{}` refuses nothing", rule.name);
            let taken = findings(rule, rule.taken);
            let messages: Vec<_> = taken.iter().map(|finding| &finding.message).collect();
            assert!(taken.is_empty(), "`{}` found {messages:?}", rule.name);
        }
    }

    #[test]
    fn rule_names_are_unique() {
        let names: std::collections::BTreeSet<_> = RULES.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), RULES.len());
    }

    #[test]
    fn unsafe_is_taken_in_each_of_its_places() {
        let rule = RULES.iter().find(|rule| rule.name == "unsafe-place").expect("listed");
        for (place, _) in UNSAFE_PLACES {
            let path =
                if place.ends_with('/') { format!("{place}a.rs") } else { place.to_string() };
            assert!(findings(rule, (&path, rule.refused.1)).is_empty(), "{path}");
        }
    }

    #[test]
    fn white_space_finds_each_kind() {
        let rule = RULES.iter().find(|rule| rule.name == "white-space").expect("listed");
        let lines: Vec<_> =
            findings(rule, rule.refused).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3, 3]);
        assert_eq!(findings(rule, ("a.toml", "a = 1\n\n")).len(), 1);
    }

    #[test]
    fn both_bad_links_are_found() {
        let rule = RULES.iter().find(|rule| rule.name == "local-link").expect("listed");
        assert_eq!(findings(rule, rule.refused).len(), 2);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find_word("a todo!()", "todo!"), Some(2));
        assert_eq!(find_word("my_todo!()", "todo!"), None);
        assert_eq!(find_word("unsafe_code unsafe", "unsafe"), Some(12));
    }
}
