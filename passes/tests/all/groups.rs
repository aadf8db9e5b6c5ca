//! What `fuse` joins; never how a kernel computes it.

use crate::support::{TestLibrary, context, graph, pass};
use membar_ir::pass::PassOptions;

#[test]
fn a_reader_takes_what_makes_each_of_its_operands() {
    let mut graph = graph(
        "ir 1 stage placed topology \"cpu\"
graph @g(%x: f32[4, 8] @cpu0.dram, %y: f32[6, 8] @cpu0.dram) {
  %a = transpose %x {perm = [1, 0]} : f32[8, 4] @cpu0.dram
  %b = transpose %y {perm = [1, 0]} : f32[8, 6] @cpu0.dram
  %s = concat %a, %b {axis = 1} : f32[8, 10] @cpu0.dram
  %r = relu %s : f32[8, 10] @cpu0.dram
  return %r
}
",
    );
    let mut cx = context(PassOptions::default(), TestLibrary::default());
    (pass("fuse").run)(&mut graph, &mut cx).expect("no error");
    let operators = graph.nodes().filter(|id| graph.node(*id).op().is_some()).count();
    assert_eq!(operators, 1, "{graph}");
}
