//! Names that must be unique. A name that already is keeps its text; none is ever hashed.

use crate::model::GraphDef;
use std::collections::{BTreeMap, HashSet};

/// A set of names that gives out unused ones.
#[derive(Default)]
pub(crate) struct Names {
    used: HashSet<String>,
    next: BTreeMap<String, u64>,
}

impl Names {
    /// Marks a name as used; false where it already was.
    pub(crate) fn insert(&mut self, name: &str) -> bool {
        self.used.insert(name.to_owned())
    }

    /// `wanted`, or where that is used, the first unused of `wanted_2`, `wanted_3`, …
    pub(crate) fn fresh(&mut self, wanted: &str) -> String {
        if self.insert(wanted) {
            return wanted.to_owned();
        }
        let mut number = self.next.get(wanted).copied().unwrap_or(2);
        loop {
            let candidate = format!("{wanted}_{number}");
            number += 1;
            if self.used.insert(candidate.clone()) {
                self.next.insert(wanted.to_owned(), number);
                return candidate;
            }
        }
    }
}

/// Makes the names of nodes unique in the graph and everything in it; the first keeps its name.
pub(crate) fn unique_node_names(graph: &mut GraphDef) {
    rename(graph, &mut Names::default());
}

fn rename(graph: &mut GraphDef, names: &mut Names) {
    for node in &mut graph.nodes {
        node.name = names.fresh(&node.name);
    }
    for node in &mut graph.nodes {
        for subgraph in node.attributes.values_mut().flat_map(|value| value.graphs_mut()) {
            rename(subgraph, names);
        }
    }
}
