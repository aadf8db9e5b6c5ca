// Attention of many queries by `wgmma`, fed by the tensor memory accelerator; sm_90a alone. It stands
// behind the prelude, arch/sm80.cuh, arch/sm90.cuh, gemm.cuh and attention.cuh; it must never read
// an operand but through a tensor map.
//
// A "batch" is a head of queries in an element of the batch. A warpgroup of which one thread loads
// feeds two that have 64 queries each: while one product of a warpgroup runs, it makes weights of the
// scores of the one before, and the two take turns at the tensor cores. After Shah et al.,
// "FlashAttention-3" (2024).

// WIDTH is the head size of queries and keys, VALUE_WIDTH that of values: 64 or 128.
template <class T_, int WIDTH_, int VALUE_WIDTH_> struct AttentionWgmmaTile {
    typedef T_ T;
    static constexpr int WIDTH = WIDTH_, VALUE_WIDTH = VALUE_WIDTH_;
    static constexpr int ROWS = 128, KEYS = 128, STAGES = 2, THREADS = 384, CONSUMER_WARPS = 8;
    static constexpr int QUERY_BYTES = ROWS * WIDTH * 2, KEY_BYTES = KEYS * WIDTH * 2;
    static constexpr int VALUE_BYTES = KEYS * VALUE_WIDTH * 2;
    static constexpr int STAGE_BYTES = KEY_BYTES + VALUE_BYTES;
    // Dynamic shared memory of the kernel, which begins at a multiple of 1024.
    static constexpr int SHARED_BYTES = QUERY_BYTES + STAGES * STAGE_BYTES + 16 + STAGES * 32;
    static_assert(WIDTH % 64 == 0 && VALUE_WIDTH % 64 == 0, "boxes are 64 elements wide");
    // Boxes of the tensor maps, (along the head, row, head, element of the batch): (64, 128, 1, 1).
};

// Named barriers of the block; 0 is that of `__syncthreads`.
DEVICE void named_barrier_wait(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
DEVICE void named_barrier_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Runs all tiles of an attention, the wait for the steps before included. All threads of all blocks
// of the grid call it, and nothing before it. `shape.m` are the queries of one head, of which `heads`
// are an element of the batch; `group` of them share keys.
template <class Tile, class Rule, class Epilogue>
DEVICE void attend_wgmma(const TensorMap& map_q, const TensorMap& map_k, const TensorMap& map_v,
                         const Rule& rule, const Epilogue& epilogue, const AttentionShape& shape,
                         int heads, int group, unsigned char* shared) {
    typedef typename Tile::T T;
    constexpr int STAGES = Tile::STAGES, KEYS = Tile::KEYS, SCORES = KEYS / 2;
    constexpr int SUMS = Tile::VALUE_WIDTH / 2;
    const u32 base = shared_address(shared), stages = base + Tile::QUERY_BYTES;
    const u32 query_full = stages + STAGES * Tile::STAGE_BYTES, query_empty = query_full + 8;
    const u32 key_full = query_empty + 8, key_empty = key_full + 8 * STAGES;
    const u32 value_full = key_empty + 8 * STAGES, value_empty = value_full + 8 * STAGES;

    if (threadIdx.x == 0) {
        prefetch_tensor_map(map_q);
        prefetch_tensor_map(map_k);
        prefetch_tensor_map(map_v);
        barrier_init(query_full, 1);
        barrier_init(query_empty, Tile::CONSUMER_WARPS);
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(key_full + 8 * stage, 1);
            barrier_init(value_full + 8 * stage, 1);
            barrier_init(key_empty + 8 * stage, Tile::CONSUMER_WARPS);
            barrier_init(value_empty + 8 * stage, Tile::CONSUMER_WARPS);
        }
        barrier_init_fence();
    }
    __syncthreads();
    wait_for_steps_before();

    const u32 row_tiles = u32(shape.m + Tile::ROWS - 1) / u32(Tile::ROWS);
    const u32 count = row_tiles * u32(shape.batches);
    struct Place {
        i64 batch;
        int row, begin, blocks;
        Positions positions;
    };
    auto place_of = [&](u32 tile) -> Place {
        Place place;
        const u32 down = tile / u32(shape.batches);
        place.batch = tile - down * u32(shape.batches);
        // The last rows come first: with causal masks they take the longest.
        place.row = int(row_tiles - 1 - down) * Tile::ROWS;
        place.positions = rule.positions(place.batch);
        place.begin = rule.window.begin(place.positions, place.row) / KEYS * KEYS;
        int last = min(place.row + Tile::ROWS, shape.m) - 1;
        int end = rule.window.end(place.positions, last);
        place.blocks = end > place.begin ? (end - place.begin + KEYS - 1) / KEYS : 0;
        return place;
    };

    if (threadIdx.x < 128) {
        lower_registers<40>();
        if (threadIdx.x == 0) {
            proxy_fence_everywhere();
            u32 stage = 0, parity = 1, query_parity = 1;
            for (u32 tile = blockIdx.x; tile < count; tile += gridDim.x) {
                const Place place = place_of(tile);
                if (place.blocks == 0) continue;
                const int element = int(place.batch) / heads, head = int(place.batch) % heads;
                const int key_head = head / group;
                barrier_wait(query_empty, query_parity);
                query_parity ^= 1;
                barrier_expect(query_full, Tile::QUERY_BYTES);
#pragma unroll
                for (int d = 0; d < Tile::WIDTH; d += 64) {
                    load_box(base + d * Tile::ROWS * 2, map_q, query_full, d, place.row, head,
                             element);
                }
                // From the last block, which is the one that causal masks cut.
                for (int i = place.blocks - 1; i >= 0; --i) {
                    const int key = place.begin + i * KEYS;
                    const u32 to = stages + stage * Tile::STAGE_BYTES;
                    barrier_wait(key_empty + 8 * stage, parity);
                    barrier_expect(key_full + 8 * stage, Tile::KEY_BYTES);
#pragma unroll
                    for (int d = 0; d < Tile::WIDTH; d += 64) {
                        load_box(to + d * KEYS * 2, map_k, key_full + 8 * stage, d, key, key_head,
                                 element);
                    }
                    barrier_wait(value_empty + 8 * stage, parity);
                    barrier_expect(value_full + 8 * stage, Tile::VALUE_BYTES);
#pragma unroll
                    for (int d = 0; d < Tile::VALUE_WIDTH; d += 64) {
                        load_box(to + Tile::KEY_BYTES + d * KEYS * 2, map_v, value_full + 8 * stage,
                                 d, key, key_head, element);
                    }
                    stage = stage + 1 == STAGES ? 0 : stage + 1;
                    parity ^= stage == 0 ? 1 : 0;
                }
            }
        }
        __syncwarp();
        return;
    }

    raise_registers<232>();
    const int thread = int(threadIdx.x) - 128, own = thread / 128, lane = thread & 31;
    const int warp_row = own * 64 + thread % 128 / 32 * 16;
    u32 key_stage = 0, key_parity = 0, value_stage = 0, value_parity = 0, query_parity = 0;
    f32 scores[SCORES] = {}, sums[SUMS] = {};
    SoftRows rows;
    auto no_mask = [](int, int) { return 0.0f; };

    // Begins the scores of the next block.
    auto multiply_keys = [&]() {
        barrier_wait(key_full + 8 * key_stage, key_parity);
        hold(scores);
        warpgroup_fence();
        const u32 of_q = base + own * 8192, of_k = stages + key_stage * Tile::STAGE_BYTES;
#pragma unroll
        for (int k = 0; k < Tile::WIDTH / 16; ++k) {
            u64 a = operand_descriptor(of_q + k / 4 * (Tile::ROWS * 128) + k % 4 * 32, 8192, 1024);
            u64 b = operand_descriptor(of_k + k / 4 * (KEYS * 128) + k % 4 * 32, 8192, 1024);
            Wgmma<T, KEYS>::template multiply<false, false>(scores, a, b, u32(k));
        }
        warpgroup_commit();
    };
    auto release_keys = [&]() {
        if (lane == 0) barrier_arrive(key_empty + 8 * key_stage);
        key_stage = key_stage + 1 == STAGES ? 0 : key_stage + 1;
        key_parity ^= key_stage == 0 ? 1 : 0;
    };
    // Begins to add what the weights make of a block of values.
    auto multiply_values = [&](const u32(&weights)[KEYS / 16][4]) {
        barrier_wait(value_full + 8 * value_stage, value_parity);
        hold(sums);
        warpgroup_fence();
        const u32 of_v = stages + value_stage * Tile::STAGE_BYTES + Tile::KEY_BYTES;
#pragma unroll
        for (int k = 0; k < KEYS / 16; ++k) {
            u64 b = operand_descriptor(of_v + k * 2048, KEYS * 128, 1024);
            Wgmma<T, Tile::VALUE_WIDTH>::template multiply_kept<true>(sums, weights[k], b, 1);
        }
        warpgroup_commit();
    };
    auto release_values = [&]() {
        if (lane == 0) barrier_arrive(value_empty + 8 * value_stage);
        value_stage = value_stage + 1 == STAGES ? 0 : value_stage + 1;
        value_parity ^= value_stage == 0 ? 1 : 0;
    };
    auto pack = [&](u32 (&weights)[KEYS / 16][4]) {
#pragma unroll
        for (int k = 0; k < KEYS / 16; ++k) {
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                weights[k][r] = pack_pair(T{}, scores[8 * k + 2 * r], scores[8 * k + 2 * r + 1]);
            }
        }
    };

    // The other warpgroup waits for this one's products, and goes first at the beginning.
    if (own == 1) named_barrier_arrive(1, 256);
    for (u32 tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const Place place = place_of(tile);
        rows.clear();
        int all_from = 0, all_to = place.positions.keys;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int row = min(place.row + warp_row + half * 8 + (lane >> 2), shape.m - 1);
            rows.begin[half] = rule.window.begin(place.positions, row);
            rows.end[half] = rule.window.end(place.positions, row);
            all_from = max(all_from, rows.begin[half]);
            all_to = min(all_to, rows.end[half]);
        }
        all_from = warp_reduce(all_from, [](int a, int b) { return max(a, b); });
        all_to = warp_reduce(all_to, [](int a, int b) { return min(a, b); });
#pragma unroll
        for (int i = 0; i < SUMS; ++i) sums[i] = 0.0f;
        u32 weights[KEYS / 16][4];
        f32 old[2];
        if (place.blocks > 0) {
            barrier_wait(query_full, query_parity);
            query_parity ^= 1;
            named_barrier_wait(1 + own, 256);
            multiply_keys();
            named_barrier_arrive(2 - own, 256);
            warpgroup_wait<0>();
            hold(scores);
            release_keys();
            int key = place.begin + (place.blocks - 1) * KEYS;
            auto soften_block = [&]() {
                bool whole = key >= all_from && key + KEYS <= all_to;
                soften<Rule>(rows, rule, no_mask, key, whole, scores, old);
            };
            soften_block();
            pack(weights);
            for (int i = 1; i < place.blocks; ++i) {
                key -= KEYS;
                named_barrier_wait(1 + own, 256);
                multiply_keys();
                multiply_values(weights);
                named_barrier_arrive(2 - own, 256);
                warpgroup_wait<1>();
                hold(scores);
                release_keys();
                soften_block();
                warpgroup_wait<0>();
                hold(sums);
                release_values();
#pragma unroll
                for (int j = 0; j < SUMS; ++j) sums[j] *= old[j / 2 % 2];
                pack(weights);
            }
            if (lane == 0) barrier_arrive(query_empty);
            multiply_values(weights);
            warpgroup_wait<0>();
            hold(sums);
            release_values();
        }
        rows.finish(1.0f);
        const Shape result = {shape.batches, shape.m, shape.n, 0};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            f32 share = rows.weight[half] == 0.0f ? 0.0f : 1.0f / rows.weight[half];
            f32 pairs[Tile::VALUE_WIDTH / 8][2];
#pragma unroll
            for (int j = 0; j < Tile::VALUE_WIDTH / 8; ++j) {
                pairs[j][0] = sums[4 * j + half * 2] * share;
                pairs[j][1] = sums[4 * j + half * 2 + 1] * share;
            }
            int row = place.row + warp_row + half * 8 + (lane >> 2);
            store_row_of_pairs(epilogue, result, place.batch, row, 0, pairs);
        }
    }
    // The last turn is nobody's.
    if (own == 0) named_barrier_wait(1, 256);
}
