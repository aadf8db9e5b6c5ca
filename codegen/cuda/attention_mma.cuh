// Attention by `mma.sync`, for any shape and layout. It stands behind the prelude, arch/sm80.cuh,
// gemm.cuh, gemm_mma.cuh and attention.cuh; it must never know where masks come from or what an
// epilogue does.
//
// A "batch" is a head of keys in an element of the batch. Its rows are the queries of all heads that
// read it, head by head: row r is query r % queries of head r / queries.

// Q of several heads that share keys: a `Matrix` along k whose rows lie head by head.
template <class T, int VECTOR_, class Batch> struct GroupedMatrix {
    typedef T Type;
    static constexpr int VECTOR = VECTOR_;
    static constexpr bool ALONG_K = true;
    typedef typename Matrix<T, VECTOR_, true, Batch>::Line Line;

    const T* base;
    i64 stride_mn, stride_k, stride_group;
    int group_rows, extent_mn, extent_k;
    Batch batch;

    DEVICE const T* matrix(i64 index) const { return base + batch.offset(index); }

    DEVICE Line line(const T* matrix, int mn) const {
        int group = mn / group_rows;
        return {matrix + group * stride_group + (mn - group * group_rows) * stride_mn,
                mn < extent_mn ? 1 : 0};
    }

    DEVICE const T* at(const Line& line, int k) const {
        return line.start + k * (VECTOR > 1 ? i64(1) : stride_k);
    }

    DEVICE int valid(const Line& line, int k) const {
        int left = extent_k - k;
        return line.valid == 0 || left <= 0 ? 0 : left < VECTOR ? left : VECTOR;
    }
};

// WARPS warps with ROW_TILES * 16 rows each; PARTS of these share rows and divide keys: each takes
// KEYS of a stage. WIDTH is the head size of queries and keys, VALUE_WIDTH that of values, both
// rounded up to multiples of 16.
template <class Product_, int WIDTH_, int VALUE_WIDTH_, int ROW_TILES_, int WARPS_, int PARTS_,
          int KEYS_>
struct AttentionTile {
    typedef Product_ Product;
    static constexpr int WIDTH = WIDTH_, VALUE_WIDTH = VALUE_WIDTH_, ROW_TILES = ROW_TILES_;
    static constexpr int WARPS = WARPS_, PARTS = PARTS_, KEYS = KEYS_;
    static constexpr int ROWS = 16 * ROW_TILES * WARPS, THREADS = 32 * WARPS * PARTS;
    static constexpr int STAGE_KEYS = KEYS * PARTS;
    // Fragments of Q stay in registers where they are few.
    static constexpr bool KEEPS_QUERIES = ROW_TILES * WIDTH <= 128;
    static_assert(WIDTH % 16 == 0 && VALUE_WIDTH % 16 == 0 && KEYS % 16 == 0, "products of 16");
};

// A source whose batch is chosen.
template <class T, int VECTOR, bool ALONG_K, class Batch>
DEVICE Matrix<T, VECTOR, ALONG_K, OneBatch> matrix_of(const Matrix<T, VECTOR, ALONG_K, Batch>& all,
                                                      i64 batch) {
    return {all.matrix(batch), all.stride_mn, all.stride_k, all.extent_mn, all.extent_k, {}};
}

template <class T, int VECTOR, class Batch>
DEVICE GroupedMatrix<T, VECTOR, OneBatch> matrix_of(const GroupedMatrix<T, VECTOR, Batch>& all,
                                                    i64 batch) {
    return {all.matrix(batch), all.stride_mn, all.stride_k, all.stride_group,
            all.group_rows,    all.extent_mn, all.extent_k, {}};
}

template <class Tile, class Q, class K, class V> struct AttentionLayout {
    typedef decltype(matrix_of(*static_cast<const Q*>(nullptr), 0)) Queries;
    typedef decltype(matrix_of(*static_cast<const K*>(nullptr), 0)) Keys;
    typedef decltype(matrix_of(*static_cast<const V*>(nullptr), 0)) Values;
    typedef MmaPanel<Queries, Tile::ROWS, Tile::WIDTH, Tile::THREADS> QueryPanel;
    typedef MmaPanel<Keys, Tile::STAGE_KEYS, Tile::WIDTH, Tile::THREADS> KeyPanel;
    typedef MmaPanel<Values, Tile::VALUE_WIDTH, Tile::STAGE_KEYS, Tile::THREADS> ValuePanel;
    static constexpr int STAGE_BYTES = KeyPanel::BYTES + ValuePanel::BYTES;
    static constexpr int STAGES = 2;
    static constexpr int MASK = QueryPanel::BYTES + STAGES * STAGE_BYTES;
    static constexpr int TILE_BYTES = MASK + STAGES * Tile::STAGE_KEYS * 4;
    // Sums that parts exchange in place of the stages: a lane's, its maxima and its weights.
    static constexpr int LANE_SUMS = Tile::ROW_TILES * (Tile::VALUE_WIDTH / 2 + 4);
    static constexpr int SUM_BYTES = (Tile::PARTS - 1) * Tile::WARPS * LANE_SUMS * 32 * 4;
    // Dynamic shared memory of the kernel, which begins at a multiple of 16.
    static constexpr int SHARED_BYTES = TILE_BYTES > SUM_BYTES ? TILE_BYTES : SUM_BYTES;
};

// Fills a panel with what begins at `first` of mn and `depth` of k.
template <class Panel, class S>
DEVICE void fill_panel(const S& source, int first, int depth, unsigned char* stage) {
#pragma unroll
    for (int slot = 0; slot < Panel::SLOTS; ++slot) {
        int mn, k;
        Panel::place(slot, mn, k);
        if (Panel::has(slot)) {
            Panel::move(source, source.line(source.base, first + mn), slot, depth, stage);
        }
    }
}

// What a warp knows of its rows, results not divided by the weights yet.
template <class Tile> struct AttentionState {
    f32 sums[Tile::ROW_TILES][Tile::VALUE_WIDTH / 8][4];
    SoftRows rows[Tile::ROW_TILES];

    DEVICE void clear() {
#pragma unroll
        for (int i = 0; i < Tile::ROW_TILES; ++i) {
#pragma unroll
            for (int j = 0; j < Tile::VALUE_WIDTH / 8; ++j) {
#pragma unroll
                for (int r = 0; r < 4; ++r) sums[i][j][r] = 0.0f;
            }
            rows[i].clear();
        }
    }

    // Takes in what another part has of the same rows; `more` are its values in the order in which
    // `give` wrote them.
    DEVICE void take(const f32* more) {
        int at = 0;
#pragma unroll
        for (int i = 0; i < Tile::ROW_TILES; ++i) {
            f32 mine[2], theirs[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                f32 other = more[32 * at++], weights = more[32 * at++];
                f32 both = fmaxf(rows[i].highest[half], other);
                f32 from = both == minus_infinity() ? 0.0f : both;
                mine[half] = power_of_two((rows[i].highest[half] - from) * 1.4426950408889634f);
                theirs[half] = power_of_two((other - from) * 1.4426950408889634f);
                rows[i].weight[half] = rows[i].weight[half] * mine[half] + weights * theirs[half];
                rows[i].highest[half] = both;
            }
#pragma unroll
            for (int j = 0; j < Tile::VALUE_WIDTH / 8; ++j) {
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    f32 other = more[32 * at++];
                    sums[i][j][r] = sums[i][j][r] * mine[r / 2] + other * theirs[r / 2];
                }
            }
        }
    }

    DEVICE void give(f32* to) const {
        int at = 0;
#pragma unroll
        for (int i = 0; i < Tile::ROW_TILES; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                to[32 * at++] = rows[i].highest[half];
                to[32 * at++] = rows[i].weight[half];
            }
#pragma unroll
            for (int j = 0; j < Tile::VALUE_WIDTH / 8; ++j) {
#pragma unroll
                for (int r = 0; r < 4; ++r) to[32 * at++] = sums[i][j][r];
            }
        }
    }
};

// Attention of one tile of rows with KEYS keys of a stage that begin at key `first`.
template <class Tile, class Layout, class Rule, class Mask>
DEVICE void attend_stage(AttentionState<Tile>& state, const Rule& rule, const Mask& mask, u32 queries,
                         const u32 (&kept)[Tile::ROW_TILES][Tile::WIDTH / 16][4], u32 keys,
                         u32 values, int in_stage, int first, bool whole) {
    typedef typename Tile::Product Product;
    typedef typename Layout::QueryPanel QueryPanel;
    typedef typename Layout::KeyPanel KeyPanel;
    typedef typename Layout::ValuePanel ValuePanel;
    constexpr int ACROSS = Tile::KEYS / 8, TILES = Tile::ROW_TILES;
    const int warp_row = (int(threadIdx.x) >> 5) % Tile::WARPS * 16 * TILES;

    f32 scores[TILES][ACROSS * 4];
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
        for (int j = 0; j < ACROSS * 4; ++j) scores[i][j] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < Tile::WIDTH; k += 16) {
        u32 of_q[TILES][4];
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            if constexpr (Tile::KEEPS_QUERIES) {
#pragma unroll
                for (int r = 0; r < 4; ++r) of_q[i][r] = kept[i][k / 16][r];
            } else {
                QueryPanel::template fragment<true>(queries, warp_row + i * 16, k, of_q[i]);
            }
        }
#pragma unroll
        for (int j = 0; j < ACROSS / 2; ++j) {
            u32 of_k[4];
            KeyPanel::template fragment<false>(keys, in_stage + j * 16, k, of_k);
#pragma unroll
            for (int i = 0; i < TILES; ++i) {
                Product::multiply(four_of(scores[i], 2 * j), of_q[i], of_k[0], of_k[1]);
                Product::multiply(four_of(scores[i], 2 * j + 1), of_q[i], of_k[2], of_k[3]);
            }
        }
    }

#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        f32 old[2];
        auto own = [&](int half, int key) { return mask(i, half, key); };
        soften<Rule>(state.rows[i], rule, own, first, whole, scores[i], old);
#pragma unroll
        for (int j = 0; j < Tile::VALUE_WIDTH / 8; ++j) {
#pragma unroll
            for (int r = 0; r < 4; ++r) state.sums[i][j][r] *= old[r / 2];
        }
    }

#pragma unroll
    for (int k = 0; k < Tile::KEYS; k += 16) {
        u32 of_p[TILES][4];
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                int at = k / 2 + r * 2;
                of_p[i][r] = pack_pair(typename Product::A{}, scores[i][at], scores[i][at + 1]);
            }
        }
#pragma unroll
        for (int j = 0; j < Tile::VALUE_WIDTH / 16; ++j) {
            u32 of_v[4];
            ValuePanel::template fragment<false>(values, j * 16, in_stage + k, of_v);
#pragma unroll
            for (int i = 0; i < TILES; ++i) {
                Product::multiply(state.sums[i][2 * j], of_p[i], of_v[0], of_v[1]);
                Product::multiply(state.sums[i][2 * j + 1], of_p[i], of_v[2], of_v[3]);
            }
        }
    }
}

// Runs all tiles of an attention. All threads of all blocks of the grid call it.
template <class Tile, class Q, class K, class V, class Rule, class Epilogue>
DEVICE void attend_mma(const Q& all_queries, const K& all_keys, const V& all_values,
                       const Rule& rule, const Epilogue& epilogue, const AttentionShape& shape,
                       unsigned char* shared) {
    typedef AttentionLayout<Tile, Q, K, V> Layout;
    typedef typename Layout::QueryPanel QueryPanel;
    typedef typename Layout::KeyPanel KeyPanel;
    typedef typename Layout::ValuePanel ValuePanel;
    constexpr int TILES = Tile::ROW_TILES, BLOCKS = Tile::VALUE_WIDTH / 8;
    const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31;
    const int part = warp / Tile::WARPS, warp_row = warp % Tile::WARPS * 16 * TILES;
    unsigned char* stages = shared + QueryPanel::BYTES;
    f32* masks = reinterpret_cast<f32*>(shared + Layout::MASK);

    const u32 row_tiles = u32(shape.m + Tile::ROWS - 1) / u32(Tile::ROWS);
    const u32 count = row_tiles * u32(shape.batches);
    for (u32 tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const u32 down = tile / u32(shape.batches);
        const i64 batch = tile - down * u32(shape.batches);
        // The last rows come first: with causal masks they take the longest.
        const int first_row = int(row_tiles - 1 - down) * Tile::ROWS;
        const Positions positions = rule.positions(batch);

        typename Layout::Queries queries = matrix_of(all_queries, batch);
        typename Layout::Keys keys = matrix_of(all_keys, batch);
        typename Layout::Values values = matrix_of(all_values, batch);
        // Nothing behind the last key is read, whatever lies there.
        keys.extent_mn = positions.keys;
        values.extent_k = positions.keys;

        // The keys that any row of the tile sees, then those of this thread's rows.
        const int last_row = min(first_row + Tile::ROWS, shape.m) - 1;
        int low = first_row % shape.queries, high = last_row % shape.queries;
        if (first_row / shape.queries != last_row / shape.queries) {
            low = 0;
            high = shape.queries - 1;
        }
        const int begin = rule.window.begin(positions, low) & ~15;
        const int end = rule.window.end(positions, high);
        AttentionState<Tile> state;
        state.clear();
        int all_from = 0, all_to = positions.keys, any_to = 0;
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = first_row + warp_row + i * 16 + half * 8 + (lane >> 2);
                int query = row % shape.queries;
                state.rows[i].begin[half] = row < shape.m ? rule.window.begin(positions, query) : 0;
                state.rows[i].end[half] = row < shape.m ? rule.window.end(positions, query) : 0;
                if (row >= shape.m) continue;
                all_from = max(all_from, state.rows[i].begin[half]);
                all_to = min(all_to, state.rows[i].end[half]);
                any_to = max(any_to, state.rows[i].end[half]);
            }
        }
        // Rows beyond the last compute what nothing reads.
        all_from = warp_reduce(all_from, [](int a, int b) { return max(a, b); });
        all_to = warp_reduce(all_to, [](int a, int b) { return min(a, b); });
        any_to = warp_reduce(any_to, [](int a, int b) { return max(a, b); });

        auto fill = [&](int stage, int key) {
            unsigned char* to = stages + stage * Layout::STAGE_BYTES;
            fill_panel<KeyPanel>(keys, key, 0, to);
            fill_panel<ValuePanel>(values, 0, key, to + KeyPanel::BYTES);
            if constexpr (Rule::FORM == MASK_BY_KEY) {
                for (int i = int(threadIdx.x); i < Tile::STAGE_KEYS; i += Tile::THREADS) {
                    bool exists = key + i < positions.keys;
                    masks[stage * Tile::STAGE_KEYS + i] = exists ? rule.mask(batch, 0, key + i) : 0.0f;
                }
            }
        };

        // The stages may still be read for the tile before.
        __syncthreads();
        fill_panel<QueryPanel>(queries, first_row, 0, shared);
        if (begin < end) fill(0, begin);
        copy_async_commit();
        u32 kept[TILES][Tile::WIDTH / 16][4];
        int stage = 0;
        for (int key = begin; key < end; key += Tile::STAGE_KEYS) {
            copy_async_wait<0>();
            __syncthreads();
            if constexpr (Tile::KEEPS_QUERIES) {
                if (key == begin) {
#pragma unroll
                    for (int i = 0; i < TILES; ++i) {
#pragma unroll
                        for (int k = 0; k < Tile::WIDTH; k += 16) {
                            QueryPanel::template fragment<true>(
                                shared_address(shared), warp_row + i * 16, k, kept[i][k / 16]);
                        }
                    }
                }
            }
            // That stage was read last before this barrier.
            if (key + Tile::STAGE_KEYS < end) fill(stage ^ 1, key + Tile::STAGE_KEYS);
            copy_async_commit();
            const int own = key + part * Tile::KEYS;
            if (own < any_to) {
                u32 at = shared_address(stages + stage * Layout::STAGE_BYTES);
                auto mask = [&](int i, int half, int at_key) -> f32 {
                    if constexpr (Rule::FORM == MASK_BY_KEY) {
                        return masks[stage * Tile::STAGE_KEYS + at_key - key];
                    } else {
                        int row = first_row + warp_row + i * 16 + half * 8 + (lane >> 2);
                        bool exists = row < shape.m && at_key < positions.keys;
                        return exists ? rule.mask(batch, row, at_key) : 0.0f;
                    }
                };
                bool whole = own >= all_from && own + Tile::KEYS <= all_to;
                attend_stage<Tile, Layout>(state, rule, mask, shared_address(shared), kept, at,
                                           at + KeyPanel::BYTES, part * Tile::KEYS, own, whole);
            }
            stage ^= 1;
        }
        // A tile without keys has still asked for its queries, where others write from here on.
        copy_async_wait<0>();

#pragma unroll
        for (int i = 0; i < TILES; ++i) state.rows[i].finish(Rule::LATE ? rule.scale : 1.0f);
        if constexpr (Tile::PARTS > 1) {
            f32* parts = reinterpret_cast<f32*>(shared);
            __syncthreads();
            if (part > 0) state.give(parts + (warp - Tile::WARPS) * Layout::LANE_SUMS * 32 + lane);
            __syncthreads();
            if (part == 0) {
                for (int i = 0; i < Tile::PARTS - 1; ++i) {
                    state.take(parts + (i * Tile::WARPS + warp) * Layout::LANE_SUMS * 32 + lane);
                }
            }
        }

        if constexpr (!Rule::EMPTY_IS_ZERO) {
            bool empty = false;
#pragma unroll
            for (int i = 0; i < TILES; ++i) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    int row = first_row + warp_row + i * 16 + half * 8 + (lane >> 2);
                    empty |= part == 0 && row < shape.m && state.rows[i].weight[half] == 0.0f;
                }
            }
            if (__syncthreads_or(empty)) {
                // Rare: the mean of all values, those behind the last key too.
                f32* means = reinterpret_cast<f32*>(shared);
                const auto every = matrix_of(all_values, batch);
                for (int column = int(threadIdx.x); column < shape.n; column += Tile::THREADS) {
                    f32 sum = 0.0f;
                    for (int key = 0; key < shape.keys; ++key) {
                        sum += value_of(every.base[column * every.stride_mn + key * every.stride_k]);
                    }
                    means[column] = sum / f32(max(shape.keys, 1));
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < TILES; ++i) {
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        if (state.rows[i].weight[half] != 0.0f) continue;
                        state.rows[i].weight[half] = 1.0f;
#pragma unroll
                        for (int j = 0; j < BLOCKS; ++j) {
#pragma unroll
                            for (int r = 0; r < 2; ++r) {
                                int column = j * 8 + (lane & 3) * 2 + r;
                                state.sums[i][j][half * 2 + r] =
                                    column < shape.n ? means[column] : 0.0f;
                            }
                        }
                    }
                }
            }
        }
        if (part > 0) continue;
        const Shape result = {shape.batches, shape.m, shape.n, 0};
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                f32 weight = state.rows[i].weight[half];
                f32 share = weight == 0.0f ? 0.0f : 1.0f / weight;
                f32 pairs[BLOCKS][2];
#pragma unroll
                for (int j = 0; j < BLOCKS; ++j) {
                    pairs[j][0] = state.sums[i][j][half * 2] * share;
                    pairs[j][1] = state.sums[i][j][half * 2 + 1] * share;
                }
                int row = first_row + warp_row + i * 16 + half * 8 + (lane >> 2);
                store_row_of_pairs(epilogue, result, batch, row, 0, pairs);
            }
        }
    }
}
