//! Which tile computes an attention. Must never write text.

use crate::emit::factor::copied;
use crate::select::{Side, shared_limit};
use membar_ir::dtype::DType;

/// Head sizes that kernels take at most, in elements: results of a row stay in registers.
pub(super) const GREATEST_WIDTH: u64 = 256;

/// An attention to find a tile for, at the upper ends of its ranges.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Problem {
    /// Heads of keys, over the whole batch.
    pub batches: u64,
    /// Queries of all heads that read a head of keys.
    pub rows: u64,
    pub keys: u64,
    /// Queries of a head, if all operands can be read through tensor maps and every query sees a
    /// key.
    pub mapped_queries: Option<u64>,
    /// Head size of queries and keys, and that of values.
    pub widths: [u64; 2],
    pub queries: Side,
    pub key_side: Side,
    pub value_side: Side,
    /// Streaming multiprocessors.
    pub units: u64,
    /// Compute capability times ten: 90.
    pub capability: u32,
}

/// A kernel for an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Wgmma(WgmmaTile),
    Mma(Tile),
}

/// The tile of `wgmma`; see `AttentionWgmmaTile` in `attention_wgmma.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WgmmaTile {
    /// Head size of queries and keys, and that of values.
    pub widths: [u32; 2],
}

impl WgmmaTile {
    /// Queries of a tile, keys of a stage, and rows of the boxes of all tensor maps.
    pub const ROWS: u32 = 128;
    /// Threads of a block.
    pub const THREADS: u32 = 384;

    /// Whether there is a tile for head sizes.
    pub fn takes(widths: [u64; 2]) -> bool {
        widths.iter().all(|width| matches!(width, 64 | 128))
    }

    /// Dynamic shared memory in bytes, as `AttentionWgmmaTile` has it (each kernel asserts that).
    pub fn shared_bytes(&self) -> u32 {
        let [width, value_width] = self.widths;
        Self::ROWS * 2 * (width + 2 * (width + value_width)) + 16 + 2 * 32
    }
}

/// A tile; see `AttentionTile` in `attention_mma.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Groups of 16 rows that a warp has.
    pub row_tiles: u32,
    /// Warps by rows.
    pub warps: u32,
    /// Warps that share rows and divide the keys of a stage.
    pub parts: u32,
    /// Keys of a stage that a warp takes.
    pub keys: u32,
}

impl Tile {
    /// Rows of a tile.
    pub fn rows(&self) -> u32 {
        16 * self.row_tiles * self.warps
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        32 * self.warps * self.parts
    }

    /// Dynamic shared memory in bytes, as `AttentionLayout` has it (each kernel asserts that).
    pub fn shared_bytes(&self, problem: &Problem) -> u32 {
        let [width, value_width] = problem.padded();
        let stage_keys = self.keys * self.parts;
        let queries = panel(problem.queries, self.rows(), width);
        let stage = panel(problem.key_side, stage_keys, width)
            + panel(problem.value_side, value_width, stage_keys);
        let lane = self.row_tiles * (value_width / 2 + 4);
        let sums = (self.parts - 1) * self.warps * lane * 32 * 4;
        (queries + 2 * (stage + stage_keys * 4)).max(sums)
    }
}

/// Bytes of 16-bit elements in shared memory, as `MmaPanel` has it.
fn panel(side: Side, mn: u32, k: u32) -> u32 {
    let (line, lines) = if side.along_k { (k, mn) } else { (mn, k) };
    (line * 2 + 16) * lines
}

impl Problem {
    /// Head sizes as multiples of 16.
    pub fn padded(&self) -> [u32; 2] {
        self.widths.map(|width| width.next_multiple_of(16) as u32)
    }

    /// The side of an operand whose vectors are as long as kernels copy.
    pub fn side(factor: Side) -> Side {
        Side { vector: factor.vector.min(copied(factor)), ..factor }
    }
}

/// Tiles from the one that reads keys and values least often to the one with the most blocks.
const TILES: [Tile; 5] = [
    Tile { row_tiles: 2, warps: 4, parts: 1, keys: 64 },
    Tile { row_tiles: 1, warps: 4, parts: 1, keys: 64 },
    Tile { row_tiles: 1, warps: 2, parts: 2, keys: 64 },
    Tile { row_tiles: 1, warps: 1, parts: 4, keys: 32 },
    Tile { row_tiles: 1, warps: 1, parts: 2, keys: 32 },
];

/// The kernel for a problem.
pub(super) fn choose(problem: &Problem) -> Choice {
    match problem.mapped_queries {
        // Fewer queries would leave rows of the tiles empty.
        Some(queries)
            if queries >= u64::from(WgmmaTile::ROWS)
                && problem.capability == 90
                && WgmmaTile::takes(problem.widths) =>
        {
            Choice::Wgmma(WgmmaTile { widths: problem.padded() })
        }
        _ => Choice::Mma(choose_mma(problem)),
    }
}

/// The tile for a problem: the first with a block for every multiprocessor, else the one with the
/// most blocks; fewer keys a stage where shared memory is short.
fn choose_mma(problem: &Problem) -> Tile {
    let [width, value_width] = problem.padded();
    let takes = |tile: &&Tile| {
        // Results of two groups of rows fill the registers.
        (tile.row_tiles == 1 || value_width.max(width) <= 128)
            && (tile.parts == 1 || u64::from(tile.keys) < problem.keys)
            && u64::from(tile.rows()) < problem.rows.max(16) + 16
    };
    let blocks = |tile: &Tile| problem.rows.div_ceil(tile.rows().into()) * problem.batches;
    let candidates: Vec<&Tile> = TILES.iter().filter(takes).collect();
    let fills = candidates.iter().find(|tile| blocks(tile) >= problem.units);
    let fallback = &TILES[TILES.len() - 1];
    let mut tile = **fills.or(candidates.last()).unwrap_or(&fallback);
    // Two blocks to a multiprocessor hide each other's waits.
    let most = shared_limit(problem.capability) / if width + value_width > 256 { 1 } else { 2 };
    while tile.keys > 16 && tile.shared_bytes(problem) > most {
        tile.keys /= 2;
    }
    tile
}

/// Whether kernels have elements of this type.
pub(super) fn takes_dtype(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(batches: u64, rows: u64, keys: u64, width: u64) -> Problem {
        let side = Side { along_k: true, vector: 8, dtype: DType::F16 };
        Problem {
            batches,
            rows,
            keys,
            mapped_queries: None,
            widths: [width, width],
            queries: side,
            key_side: side,
            value_side: Side { along_k: false, ..side },
            units: 132,
            capability: 90,
        }
    }

    #[test]
    fn long_prompts_have_high_tiles_and_single_queries_have_parts() {
        assert_eq!(choose_mma(&problem(8, 4 * 4096, 4096, 128)).rows(), 128);
        assert_eq!(choose_mma(&problem(8, 4, 4096, 128)).rows(), 16);
        assert_eq!(choose_mma(&problem(12, 128, 128, 32)).rows(), 16);
        assert!(choose_mma(&problem(8, 4, 4096, 128)).parts > 1);
    }

    #[test]
    fn every_tile_fits_the_shared_memory() {
        for capability in [80, 86, 90] {
            for width in [1, 32, 64, 96, 128, 192, 256] {
                for (batches, rows) in [(1, 1), (8, 4), (12, 128), (96, 512), (8, 16384)] {
                    let mut problem = problem(batches, rows, 8192, width);
                    problem.capability = capability;
                    let tile = choose_mma(&problem);
                    let bytes = tile.shared_bytes(&problem);
                    assert!(bytes <= shared_limit(capability), "{tile:?} {problem:?}: {bytes}");
                }
            }
        }
    }
}
