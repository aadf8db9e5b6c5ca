//! Which kernel computes a matrix product: a cost model over the tiles that there are. Must never
//! write text.
//!
//! A tile's figures are nanoseconds measured on an H200 (2026-11-29, CUDA graphs of rotated operands
//! that together exceed the cache, median of 7; products of Llama 3 8B and of encoders with 1 to 2048
//! rows): `step` for one stage along k, `tile` for what comes once a tile. Against the same runs that
//! the table was fitted to, `launch + waves * (stages * step + tile)` is off by 7 % in the mean for
//! `mma.sync` (30 % at most) and by 14 % for `wgmma` (85 % at most). Of 112 products with more than one
//! row the kernel that it picks was timed for 104; there it takes 1.5 % longer than the best one in
//! the mean, 32 % at most. Not measured but estimated: `wgmma` with fewer than 64 rows, products of
//! bytes (the figures are those of 16-bit floats), sums of 8 bytes in tiles of 32 × 32, and what more
//! than one row costs the kernels for few rows. Other devices differ in their figures, less in how
//! these compare.

use membar_ir::dtype::DType;

/// How an operand lies: vectors of `vector` elements along k or along mn (rows of A, columns of B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub along_k: bool,
    /// Elements; 1 where nothing is aligned.
    pub vector: u32,
    pub dtype: DType,
}

impl Side {
    fn bytes(&self) -> u64 {
        u64::from(self.dtype.bits()).div_ceil(8)
    }
}

/// A product to find a kernel for, at the upper ends of its ranges.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub batches: u64,
    pub rows: u64,
    pub columns: u64,
    pub depth: u64,
    pub a: Side,
    pub b: Side,
    /// The type that sums have without matrix instructions: `f32`, `f64`, `u32` or `u64`.
    pub sum: DType,
    /// Whether both operands can be read through tensor maps.
    pub maps: bool,
    /// Streaming multiprocessors.
    pub units: u64,
    /// Compute capability times ten: 90.
    pub capability: u32,
}

/// A kernel for a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    Wgmma(WgmmaTile),
    Mma(MmaTile),
    Simt(SimtTile),
    Vector(VectorTile),
}

/// Tiles of `wgmma`; see `WgmmaTile` in `gemm_wgmma.cuh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WgmmaTile {
    pub columns: u32,
    pub stages: u32,
    step: f64,
    tile: f64,
}

impl WgmmaTile {
    /// Rows of a tile.
    pub const ROWS: u32 = 128;
    /// Elements along k of a stage.
    pub const DEPTH: u32 = 64;
    /// Threads of a block.
    pub const THREADS: u32 = 384;

    /// Dynamic shared memory in bytes, as `WgmmaTile` has it (each kernel asserts that).
    pub fn shared_bytes(&self) -> u32 {
        self.stages * ((Self::ROWS + self.columns) * Self::DEPTH * 2 + 16)
    }
}

const WGMMA_TILES: &[WgmmaTile] = &[
    WgmmaTile { columns: 256, stages: 4, step: 640.0, tile: 2500.0 },
    WgmmaTile { columns: 128, stages: 6, step: 345.0, tile: 1200.0 },
    WgmmaTile { columns: 64, stages: 8, step: 215.0, tile: 1000.0 },
];

/// Tiles of `mma.sync`; see `MmaTile` in `gemm_mma.cuh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MmaTile {
    pub rows: u32,
    pub columns: u32,
    /// Bytes along k of a stage.
    pub depth_bytes: u32,
    /// Warps by rows, by columns and along k.
    pub warps: [u32; 3],
    pub stages: u32,
    step: f64,
    tile: f64,
}

impl MmaTile {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        32 * self.warps.iter().product::<u32>()
    }

    /// Elements along k of a stage.
    pub fn depth(&self, dtype: DType) -> u32 {
        self.depth_bytes * 8 / dtype.bits().max(8)
    }

    /// Dynamic shared memory in bytes, as `MmaLayout` has it (each kernel asserts that).
    pub fn shared_bytes(&self, a: Side, b: Side) -> u32 {
        let panel = |side: Side, extent: u32| {
            let size = side.dtype.bits() / 8;
            let depth = self.depth(side.dtype);
            if side.along_k || size == 1 {
                (depth * size + 16) * extent
            } else {
                (extent * size + if size == 4 { 32 } else { 16 }) * depth
            }
        };
        let parts = self.warps[2];
        let sums = if parts == 1 { 0 } else { 4 * parts * self.rows * (self.columns + 4) };
        self.stages * (panel(a, self.rows) + panel(b, self.columns)) + sums
    }
}

const MMA_TILES: &[MmaTile] = &[
    mma(16, 32, 512, [1, 1, 8], 4, (614.0, 0.0)),
    mma(16, 64, 256, [1, 2, 4], 4, (494.0, 0.0)),
    mma(16, 128, 128, [1, 4, 2], 5, (387.0, 1100.0)),
    mma(32, 32, 256, [1, 1, 4], 4, (407.0, 0.0)),
    mma(32, 64, 256, [1, 2, 2], 4, (630.0, 0.0)),
    mma(64, 32, 128, [2, 1, 2], 4, (287.0, 309.0)),
    mma(64, 64, 128, [2, 2, 1], 4, (393.0, 244.0)),
    mma(64, 128, 128, [2, 4, 1], 3, (624.0, 0.0)),
    mma(128, 128, 128, [2, 4, 1], 3, (1026.0, 2987.0)),
];

const fn mma(
    rows: u32,
    columns: u32,
    depth_bytes: u32,
    warps: [u32; 3],
    stages: u32,
    (step, tile): (f64, f64),
) -> MmaTile {
    MmaTile { rows, columns, depth_bytes, warps, stages, step, tile }
}

/// Tiles without matrix instructions; see `SimtTile` in `gemm_simt.cuh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SimtTile {
    pub rows: u32,
    pub columns: u32,
    pub depth: u32,
    pub thread_rows: u32,
    pub thread_columns: u32,
    step: f64,
}

impl SimtTile {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.rows / self.thread_rows * (self.columns / self.thread_columns)
    }

    /// Dynamic shared memory in bytes, as `SimtTile` has it (each kernel asserts that).
    pub fn shared_bytes(&self, sum: DType) -> u32 {
        2 * self.depth * (self.rows + 4 + self.columns + 4) * (sum.bits() / 8)
    }
}

/// For sums of 4 bytes.
const SIMT_TILES: &[SimtTile] = &[
    simt(128, 128, 16, (8, 8), 1800.0),
    simt(64, 64, 16, (4, 4), 710.0),
    simt(32, 64, 32, (2, 4), 1040.0),
    simt(32, 32, 32, (2, 2), 620.0),
];

/// For sums of 8 bytes.
const WIDE_SIMT_TILES: &[SimtTile] =
    &[simt(64, 64, 16, (4, 4), 1660.0), simt(32, 32, 16, (2, 2), 700.0)];

const fn simt(
    rows: u32,
    columns: u32,
    depth: u32,
    (thread_rows, thread_columns): (u32, u32),
    step: f64,
) -> SimtTile {
    SimtTile { rows, columns, depth, thread_rows, thread_columns, step }
}

/// Kernels for few rows; see `VectorAcross` and `VectorAlong` in `gemm_vector.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VectorTile {
    /// The greatest number of rows.
    pub rows: u32,
    pub threads: u32,
    pub direction: Direction,
}

/// The direction in which B is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// So many neighbours read vectors along the columns.
    Across { lanes: u32 },
    /// A warp reads so many columns, and so many warps share k.
    Along { columns: u32, parts: u32 },
}

impl VectorTile {
    /// Columns of a block, with vectors of so many elements.
    pub fn columns(&self, vector: u32) -> u32 {
        match self.direction {
            Direction::Across { lanes } => lanes * vector,
            Direction::Along { columns, parts } => self.threads / 32 / parts * columns,
        }
    }

    /// Dynamic shared memory in bytes (each kernel asserts that).
    pub fn shared_bytes(&self, vector: u32, sum: DType) -> u32 {
        let columns = match self.direction {
            Direction::Across { lanes } => lanes * vector,
            Direction::Along { columns, .. } => columns,
        };
        self.threads / 32 * self.rows * columns * (sum.bits() / 8)
    }
}

/// A launch with nothing to do, in nanoseconds.
const LAUNCH: f64 = 2200.0;
/// Bytes a nanosecond that the best kernels read.
const BANDWIDTH: f64 = 4100.0;
/// How much of a wave that is not full counts as a full one: blocks alone on a multiprocessor run
/// faster.
const RAGGED: f64 = 0.6;

/// The fastest kernel for a product by the model.
pub(crate) fn choose(problem: &Problem) -> Choice {
    let mut best: Option<(f64, Choice)> = None;
    let mut offer = |cost: f64, choice: Choice| {
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, choice));
        }
    };
    if let Some(tile) = vector_tile(problem) {
        offer(vector_cost(problem, &tile), Choice::Vector(tile));
    }
    if problem.maps && takes_wgmma(problem) {
        for tile in WGMMA_TILES {
            let size = (WgmmaTile::ROWS, tile.columns, WgmmaTile::DEPTH);
            let mut step = tile.step;
            if problem.rows < 128 {
                // Rows beyond the tensor's end cost more than rows that are there.
                step *= 1.6;
            }
            offer(tile_cost(problem, size, step, tile.tile), Choice::Wgmma(*tile));
        }
    }
    if matrix_product(problem).is_some() {
        for tile in MMA_TILES {
            if tile.shared_bytes(problem.a, problem.b) > shared_limit(problem.capability) {
                continue;
            }
            let size = (tile.rows, tile.columns, tile.depth(problem.a.dtype));
            offer(tile_cost(problem, size, tile.step, tile.tile), Choice::Mma(*tile));
        }
    } else {
        let tiles = if problem.sum.bits() == 64 { WIDE_SIMT_TILES } else { SIMT_TILES };
        for tile in tiles {
            let size = (tile.rows, tile.columns, tile.depth);
            offer(tile_cost(problem, size, tile.step, 0.0), Choice::Simt(*tile));
        }
    }
    best.map_or(Choice::Simt(SIMT_TILES[SIMT_TILES.len() - 1]), |(_, choice)| choice)
}

/// The type of the matrix instruction for a product, as `arch/sm80.cuh` names it.
pub(crate) fn matrix_product(problem: &Problem) -> Option<&'static str> {
    match (problem.a.dtype, problem.b.dtype, problem.sum) {
        (DType::F16, DType::F16, DType::F32) => Some("MmaF16"),
        (DType::Bf16, DType::Bf16, DType::F32) => Some("MmaBf16"),
        (DType::I8, DType::I8, DType::U32) => Some("MmaI8I8"),
        (DType::I8, DType::U8, DType::U32) => Some("MmaI8U8"),
        (DType::U8, DType::I8, DType::U32) => Some("MmaU8I8"),
        (DType::U8, DType::U8, DType::U32) => Some("MmaU8U8"),
        _ => None,
    }
}

fn takes_wgmma(problem: &Problem) -> bool {
    problem.capability == 90
        && problem.a.dtype == problem.b.dtype
        && matches!(problem.a.dtype, DType::F16 | DType::Bf16)
        && problem.sum == DType::F32
}

/// Shared memory of a block at most, in bytes (CUDA C++ Programming Guide, table of technical
/// specifications per compute capability).
pub(crate) fn shared_limit(capability: u32) -> u32 {
    match capability {
        80 | 87 => 163 << 10,
        86 | 89 | 120 | 121 => 99 << 10,
        _ => 227 << 10,
    }
}

fn bytes(problem: &Problem) -> f64 {
    let result = problem.rows * problem.columns * u64::from(problem.sum.bits() / 8).min(4);
    let a = problem.rows * problem.depth * problem.a.bytes();
    let b = problem.depth * problem.columns * problem.b.bytes();
    (problem.batches * (a + b + result)) as f64
}

fn tile_cost(
    problem: &Problem,
    (rows, columns, depth): (u32, u32, u32),
    step: f64,
    tile: f64,
) -> f64 {
    let tiles = problem.rows.div_ceil(rows.into()) * problem.columns.div_ceil(columns.into());
    let share = (tiles * problem.batches) as f64 / problem.units as f64;
    let waves = (RAGGED * share.ceil() + (1.0 - RAGGED) * share).max(1.0);
    let steps = problem.depth.div_ceil(depth.into()).max(1) as f64;
    LAUNCH + (waves * (steps * step + tile)).max(bytes(problem) / BANDWIDTH)
}

/// The kernel for few rows that suits best, if the rows are few and B is read in long runs.
fn vector_tile(problem: &Problem) -> Option<VectorTile> {
    let rows = [1, 2, 4, 8].into_iter().find(|rows| problem.rows <= u64::from(*rows))?;
    let vector = problem.b.vector;
    if problem.b.along_k {
        let direction = Direction::Along { columns: 2, parts: 4 };
        return Some(VectorTile { rows, threads: 256, direction });
    }
    let tiles = |lanes: u32| problem.batches * problem.columns.div_ceil((lanes * vector).into());
    let run = |lanes: u32| u64::from(lanes * vector) * problem.b.bytes();
    let fits = |lanes: &u32| run(*lanes) >= 64 && tiles(*lanes) >= 3 * problem.units;
    let lanes = [32, 16, 8].into_iter().filter(|lanes| run(*lanes) <= 128).find(fits);
    let lanes = lanes.or_else(|| [4, 8, 16].into_iter().find(|lanes| run(*lanes) >= 64));
    let lanes = lanes.unwrap_or(32);
    let long = rows == 1 && problem.depth >= 8192 && tiles(lanes) <= problem.units;
    let threads = if long { 512 } else { 256 };
    Some(VectorTile { rows, threads, direction: Direction::Across { lanes } })
}

fn vector_cost(problem: &Problem, tile: &VectorTile) -> f64 {
    let rows = f64::from(tile.rows);
    // Each row multiplies with all of B; with plain instructions that soon takes longer than the
    // reading. B along k is read in short runs a column.
    let slower = match tile.direction {
        Direction::Across { .. } => 1.0 + 0.12 * (rows - 1.0),
        Direction::Along { .. } if matrix_product(problem).is_some() => 1.35 + 0.3 * (rows - 1.0),
        Direction::Along { .. } => 1.0 + 0.3 * (rows - 1.0),
    };
    let columns = u64::from(tile.columns(problem.b.vector));
    let tiles = problem.batches * problem.columns.div_ceil(columns);
    // A block alone does not draw the whole bandwidth of its multiprocessor's share.
    let filled = (tiles as f64 / problem.units as f64).clamp(0.05, 1.0);
    LAUNCH + slower * bytes(problem) / BANDWIDTH / filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(rows: u64, columns: u64, depth: u64, along_k: bool) -> Problem {
        let side = |along_k| Side { along_k, vector: 8, dtype: DType::Bf16 };
        Problem {
            batches: 1,
            rows,
            columns,
            depth,
            a: side(true),
            b: side(along_k),
            sum: DType::F32,
            maps: true,
            units: 132,
            capability: 90,
        }
    }

    /// Rows, columns, k; whether B lies along k; rows and columns of the best tile on an H200.
    type Measured = ([u64; 3], bool, [u32; 2]);

    const MEASURED: &[Measured] = &[
        ([8192, 8192, 8192], false, [128, 256]),
        ([4096, 4096, 4096], true, [128, 256]),
        ([2048, 2048, 2048], false, [128, 256]),
        ([2048, 6144, 4096], false, [128, 256]),
        ([512, 4096, 14336], true, [128, 128]),
        ([128, 6144, 4096], false, [128, 64]),
        ([128, 3072, 768], false, [128, 64]),
        ([512, 768, 768], false, [128, 64]),
        ([512, 3072, 768], false, [128, 128]),
        ([32, 768, 768], false, [16, 32]),
        ([16, 6144, 4096], false, [16, 64]),
        ([16, 4096, 14336], true, [16, 32]),
        ([32, 6144, 4096], true, [32, 64]),
    ];

    #[test]
    fn the_model_finds_the_tile_that_was_fastest() {
        for ([rows, columns, depth], along_k, best) in MEASURED {
            let choice = choose(&problem(*rows, *columns, *depth, *along_k));
            let found = match choice {
                Choice::Wgmma(tile) => [WgmmaTile::ROWS, tile.columns],
                Choice::Mma(tile) => [tile.rows, tile.columns],
                Choice::Simt(tile) => [tile.rows, tile.columns],
                Choice::Vector(tile) => [tile.rows, tile.columns(8)],
            };
            assert_eq!(found, *best, "{rows} x {columns} x {depth}: {choice:?}");
        }
    }

    #[test]
    fn one_row_is_read_at_the_speed_of_memory() {
        for (columns, depth, lanes, threads) in
            [(6144, 4096, 4, 256), (28672, 4096, 8, 256), (4096, 14336, 4, 512)]
        {
            let expected = VectorTile { rows: 1, threads, direction: Direction::Across { lanes } };
            assert_eq!(choose(&problem(1, columns, depth, false)), Choice::Vector(expected));
        }
    }

    #[test]
    fn older_devices_and_other_types_never_get_tensor_maps() {
        let mut old = problem(4096, 4096, 4096, false);
        old.capability = 80;
        assert!(matches!(choose(&old), Choice::Mma(_)));
        let mut plain = problem(4096, 4096, 4096, false);
        (plain.a.dtype, plain.b.dtype) = (DType::F32, DType::F32);
        (plain.a.vector, plain.b.vector) = (4, 4);
        assert!(matches!(choose(&plain), Choice::Simt(_)));
    }
}
