//! The graphs in `docs/ir.md` are canonical text and verified; never a graph that the page does not
//! show.

use membar_ir::Graph;
use membar_ir::text::check_laws;
use membar_ir::verify::{Depth, verify};
use std::fs;
use std::path::Path;

#[test]
fn the_graphs_of_the_page_are_canonical() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ir.md");
    let page = fs::read_to_string(path)?;
    // Every other part between fences is a block.
    let blocks = page.split("```").skip(1).step_by(2).map(|block| block.trim_start_matches('\n'));
    let graphs: Vec<&str> = blocks.filter(|block| block.starts_with("ir 1")).collect();
    for stage in ["stage tensor", "stage placed", "stage scheduled"] {
        assert!(graphs.iter().any(|text| text.contains(stage)), "the page shows no {stage}");
    }
    for text in graphs {
        let graph = Graph::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(graph.to_string(), text);
        check_laws(&graph).unwrap_or_else(|error| panic!("{error}\n{text}"));
        verify(&graph, Depth::Full).unwrap_or_else(|errors| panic!("{errors}"));
    }
    Ok(())
}
