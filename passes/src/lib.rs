//! Graph-to-graph passes, one file a pass; a pass never looks at a kernel except through
//! [`KernelLibrary`](membar_ir::kernel::KernelLibrary).

mod common_subexpressions;
mod convert_precision;
mod dead_code;
mod decompose;
mod elide_barriers;
mod fold_constants;
mod fuse;
mod insert_barriers;
mod insert_copies;
mod lower_states;
mod place;
mod plan_memory;
mod rewrite;
mod schedule;
mod simplify;
mod size;
mod specialise;

pub use common_subexpressions::common_subexpressions;
pub use convert_precision::convert_precision;
pub use dead_code::dead_code;
pub use decompose::decompose;
pub use elide_barriers::elide_barriers;
pub use fold_constants::fold_constants;
pub use fuse::fuse;
pub use insert_barriers::insert_barriers;
pub use insert_copies::insert_copies;
pub use lower_states::lower_states;
pub use place::place;
pub use plan_memory::plan_memory;
pub use rewrite::rewrite;
pub use schedule::schedule;
pub use simplify::simplify;
pub use specialise::specialise;

use membar_ir::graph::Stage;
use membar_ir::pass::Pass;

/// The passes of this crate, in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "specialise",
        summary: "Binds symbolic dimensions to the numbers and ranges that were asked for",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: specialise,
    },
    Pass {
        name: "fold-constants",
        summary: "Computes operators over weights alone, at once or as recipes",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: fold_constants,
    },
    Pass {
        name: "simplify",
        summary: "Removes operators that change nothing",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: simplify,
    },
    Pass {
        name: "common-subexpressions",
        summary: "Computes what is equal once",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: common_subexpressions,
    },
    Pass {
        name: "lower-states",
        summary: "Turns the concatenations that grow states into appends in place",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: lower_states,
    },
    Pass {
        name: "convert-precision",
        summary: "Changes the types in which floats are stored and multiplied",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: convert_precision,
    },
    Pass {
        name: "rewrite",
        summary: "Finds fused operators in their parts",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: rewrite,
    },
    Pass {
        name: "decompose",
        summary: "Replaces operators without a kernel by what they are made of",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: decompose,
    },
    Pass {
        name: "dead-code",
        summary: "Removes what no output needs",
        before: Stage::Tensor,
        after: Stage::Tensor,
        run: dead_code,
    },
    Pass {
        name: "place",
        summary: "Gives every node a device",
        before: Stage::Tensor,
        after: Stage::Placed,
        run: place,
    },
    Pass {
        name: "fuse",
        summary: "Joins operators that one kernel can compute",
        before: Stage::Placed,
        after: Stage::Placed,
        run: fuse,
    },
    Pass {
        name: "insert-copies",
        summary: "Copies values that a kernel cannot read where they lie",
        before: Stage::Placed,
        after: Stage::Placed,
        run: insert_copies,
    },
    Pass {
        name: "schedule",
        summary: "Chooses an execution order that keeps the memory low",
        before: Stage::Placed,
        after: Stage::Placed,
        run: schedule,
    },
    Pass {
        name: "plan-memory",
        summary: "Gives every value its bytes",
        before: Stage::Placed,
        after: Stage::Scheduled,
        run: plan_memory,
    },
    Pass {
        name: "insert-barriers",
        summary: "Orders every two steps that conflict",
        before: Stage::Scheduled,
        after: Stage::Scheduled,
        run: insert_barriers,
    },
    Pass {
        name: "elide-barriers",
        summary: "Keeps the orders that no others imply, by the cheapest mechanisms",
        before: Stage::Scheduled,
        after: Stage::Scheduled,
        run: elide_barriers,
    },
];
