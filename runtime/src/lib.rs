//! Execution of scheduled programs; never changes a graph.
