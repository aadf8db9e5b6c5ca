// Large matrix products of 16-bit floats by `wgmma`, fed by the tensor memory accelerator; sm_90a
// alone. It stands behind the prelude, arch/sm80.cuh, arch/sm90.cuh and gemm.cuh; it must never
// read an operand but through a tensor map.

// Tiles of 128 × COLUMNS, 64 along k a stage: a warpgroup of which one thread loads, and two that
// multiply 64 rows each. An operand is TURNED if its rows in memory lie along mn. CLUSTER blocks
// have tiles below one another and load each a part of the columns for all.
template <class T_, int COLUMNS_, int STAGES_, bool TURNED_A_, bool TURNED_B_, int CLUSTER_>
struct WgmmaTile {
    typedef T_ T;
    static constexpr int ROWS = 128, COLUMNS = COLUMNS_, DEPTH = 64, STAGES = STAGES_;
    static constexpr bool TURNED_A = TURNED_A_, TURNED_B = TURNED_B_;
    static constexpr int CLUSTER = CLUSTER_, PART = COLUMNS / CLUSTER;
    static constexpr int THREADS = 384, CONSUMER_WARPS = 8;
    static constexpr int BYTES_A = ROWS * DEPTH * 2, BYTES_B = COLUMNS * DEPTH * 2;
    static constexpr int STAGE_BYTES = BYTES_A + BYTES_B;
    // Dynamic shared memory of the kernel, which begins at a multiple of 1024.
    static constexpr int SHARED_BYTES = STAGES * (STAGE_BYTES + 16);
    static_assert(PART % 64 == 0, "parts are whole blocks");
    // Boxes of the tensor maps, (x, y, z). Rows along k: (64, ROWS, 1) and (64, PART, 1); rows
    // along mn: (64, 64, 1).
};

// Runs all tiles of a product, the wait for the steps before included. All threads of all blocks of
// the grid call it, and nothing before it. The maps have the batches in z; `batches_a` and
// `batches_b` give the place there.
template <class Tile, class BatchA, class BatchB, class Epilogue>
DEVICE void multiply_wgmma(const TensorMap& map_a, const TensorMap& map_b, const BatchA& batches_a,
                           const BatchB& batches_b, const Epilogue& epilogue, const Shape& shape,
                           unsigned char* shared) {
    constexpr int STAGES = Tile::STAGES, COLUMNS = Tile::COLUMNS, CLUSTER = Tile::CLUSTER;
    constexpr int DEPTH = Tile::DEPTH, PART = Tile::PART;
    const u32 base = shared_address(shared);
    const u32 full = base + STAGES * Tile::STAGE_BYTES, empty = full + 8 * STAGES;
    const u32 block = CLUSTER > 1 ? cluster_block() : 0;

    if (threadIdx.x == 0) {
        prefetch_tensor_map(map_a);
        prefetch_tensor_map(map_b);
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, CLUSTER * Tile::CONSUMER_WARPS);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if constexpr (CLUSTER > 1) {
        cluster_arrive();
        cluster_wait();
    }
    wait_for_steps_before();

    // A cluster takes CLUSTER tiles at a time; its blocks walk them in step.
    const TileOrder order(shape, Tile::ROWS * CLUSTER, COLUMNS, 16 / CLUSTER);
    const int depths = shape.k > 0 ? (shape.k + DEPTH - 1) / DEPTH : 1;
    const u32 first = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;

    if (threadIdx.x < 128) {
        lower_registers<40>();
        if (threadIdx.x == 0) {
            proxy_fence_everywhere();
            u32 stage = 0, parity = 1;
            for (u32 tile = first; tile < order.count; tile += step) {
                TileOrder::Place place = order.place(tile);
                int row = (int(place.row) * CLUSTER + int(block)) * Tile::ROWS;
                int column = int(place.column) * COLUMNS + int(block) * PART;
                int z_a = int(batches_a.offset(place.batch));
                int z_b = int(batches_b.offset(place.batch));
                for (int depth = 0; depth < depths; ++depth) {
                    u32 barrier = full + 8 * stage;
                    u32 to_a = base + stage * Tile::STAGE_BYTES;
                    u32 to_b = to_a + Tile::BYTES_A + block * (PART * DEPTH * 2);
                    int k = depth * DEPTH;
                    barrier_wait_cluster(empty + 8 * stage, parity);
                    barrier_expect(barrier, Tile::STAGE_BYTES);
                    if constexpr (Tile::TURNED_A) {
#pragma unroll
                        for (int i = 0; i < Tile::ROWS / 64; ++i) {
                            load_box(to_a + i * 8192, map_a, barrier, row + i * 64, k, z_a);
                        }
                    } else {
                        load_box(to_a, map_a, barrier, k, row, z_a);
                    }
                    auto load_b = [&](u32 to, int x, int y) {
                        if constexpr (CLUSTER > 1) {
                            load_box_to(to, map_b, barrier, x, y, z_b, u16((1 << CLUSTER) - 1));
                        } else {
                            load_box(to, map_b, barrier, x, y, z_b);
                        }
                    };
                    if constexpr (Tile::TURNED_B) {
#pragma unroll
                        for (int i = 0; i < PART / 64; ++i) {
                            load_b(to_b + i * 8192, column + i * 64, k);
                        }
                    } else {
                        load_b(to_b, k, column);
                    }
                    stage = stage + 1 == STAGES ? 0 : stage + 1;
                    parity ^= stage == 0 ? 1 : 0;
                }
            }
        }
        __syncwarp();
    } else {
        raise_registers<232>();
        const int thread = int(threadIdx.x) - 128, group = thread / 128, lane = thread & 31;
        u32 stage = 0, parity = 0;
        f32 sum[COLUMNS / 2] = {};
        auto release = [&](u32 stage) {
            if constexpr (CLUSTER > 1) {
                if (lane < CLUSTER) barrier_arrive_at(empty + 8 * stage, u32(lane));
            } else {
                if (lane == 0) barrier_arrive(empty + 8 * stage);
            }
        };
        for (u32 tile = first; tile < order.count; tile += step) {
            u32 before = 0;
            for (int depth = 0; depth < depths; ++depth) {
                u32 of_a = base + stage * Tile::STAGE_BYTES + group * 8192;
                u32 of_b = base + stage * Tile::STAGE_BYTES + Tile::BYTES_A;
                if constexpr (CLUSTER > 1) {
                    barrier_wait_cluster(full + 8 * stage, parity);
                } else {
                    barrier_wait(full + 8 * stage, parity);
                }
                hold(sum);
                warpgroup_fence();
#pragma unroll
                for (int k = 0; k < DEPTH / 16; ++k) {
                    // Along k, 16 elements are 32 bytes of each row, or 16 rows.
                    u64 a = operand_descriptor(of_a + k * (Tile::TURNED_A ? 2048 : 32), 8192, 1024);
                    u64 b = operand_descriptor(of_b + k * (Tile::TURNED_B ? 2048 : 32), 8192, 1024);
                    Wgmma<typename Tile::T, COLUMNS>::template multiply<Tile::TURNED_A,
                                                                       Tile::TURNED_B>(
                        sum, a, b, u32(depth | k));
                }
                warpgroup_commit();
                // The products of the stage before are done, and it may be filled again.
                warpgroup_wait<1>();
                if (depth > 0) release(before);
                before = stage;
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                parity ^= stage == 0 ? 1 : 0;
            }
            warpgroup_wait<0>();
            hold(sum);
            release(before);

            TileOrder::Place place = order.place(tile);
            int warp_row = (int(place.row) * CLUSTER + int(block)) * Tile::ROWS + thread / 32 * 16;
            int first_column = int(place.column) * COLUMNS;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = warp_row + half * 8 + (lane >> 2);
#pragma unroll
                for (int c = 0; c < COLUMNS / 8; c += 4) {
                    f32 pairs[4][2], columns[8];
#pragma unroll
                    for (int p = 0; p < 8; ++p) {
                        pairs[p / 2][p % 2] = sum[(c + p / 2) * 4 + half * 2 + p % 2];
                    }
                    gather_four(pairs, columns);
                    int column = first_column + (c + (lane & 3)) * 8;
                    store_columns<8>(epilogue, shape, place.batch, row, column, columns);
                }
            }
        }
    }
    if constexpr (CLUSTER > 1) {
        // Others load into this block's memory and arrive at its barriers until they are done.
        cluster_arrive();
        cluster_wait();
    }
}
