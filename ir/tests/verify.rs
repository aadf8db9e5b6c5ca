//! Runs the verifier over `verify/*.ir`: a fault is expected on each line with a comment
//! `// error: message`, and nowhere else; what `check_order` reports beside errors, on each line with
//! `// note: message`. Files must be canonical text apart from these comments.

use membar_ir::Graph;
use membar_ir::verify::{Depth, check_order, verify};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const MARK: &str = "// error: ";

/// Of a line with this alone, or before any [`MARK`].
const NOTE: &str = "// note: ";

#[test]
fn faults_are_found_where_the_texts_say() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify");
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.sort();
    assert!(!paths.is_empty());
    let mut failures = Vec::new();
    for path in paths {
        let name = path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
        if let Err(failure) = check(&fs::read_to_string(&path)?) {
            failures.push(format!("{name}: {failure}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

fn check(text: &str) -> Result<(), String> {
    let mut expected = BTreeSet::new();
    let mut noted = BTreeSet::new();
    let mut stripped = String::new();
    for (line, number) in text.lines().zip(1u32..) {
        let (line, note) = line.split_once(NOTE).map_or((line, None), |(a, b)| (a, Some(b)));
        noted.extend(note.map(|note| (number, note.trim_end().to_string())));
        let mut parts = line.split(MARK);
        stripped.push_str(parts.next().unwrap_or_default().trim_end());
        stripped.push('\n');
        expected.extend(parts.map(|message| (number, message.trim_end().to_string())));
    }
    let graph = Graph::parse(&stripped).map_err(|error| error.to_string())?;
    let printed = graph.to_string();
    if printed != stripped {
        return Err(format!("the text is not canonical; it prints as\n{printed}"));
    }
    let (found, shown) = match verify(&graph, Depth::Full) {
        Ok(()) => (BTreeSet::new(), "no fault".to_string()),
        Err(errors) => {
            let each = errors.errors.iter();
            let found = each.map(|e| (e.line, format!("{}: {}", e.context, e.message))).collect();
            (found, errors.to_string())
        }
    };
    let reported = check_order(&graph).faults.into_iter().filter(|f| !f.class.is_error());
    let reported: BTreeSet<_> =
        reported.map(|fault| (fault.line, format!("{}: {}", fault.class, fault.message))).collect();
    if noted != reported {
        return Err(format!("noted {reported:#?}"));
    }
    if found == expected {
        return Ok(());
    }
    let missing: Vec<_> = expected.difference(&found).collect();
    let extra: Vec<_> = found.difference(&expected).collect();
    Err(format!("missing {missing:#?}\nnot expected {extra:#?}\n{shown}"))
}
