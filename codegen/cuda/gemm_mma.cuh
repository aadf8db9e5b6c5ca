// Matrix products by `mma.sync`, for every type that has it, any layout and any size. It stands
// behind the prelude, arch/sm80.cuh and gemm.cuh; it must never know what an epilogue does.

// Tiles of ROWS × COLUMNS, DEPTH along k a stage. Warps divide a tile by rows, by columns and along k;
// the parts along k are added in shared memory before the epilogue.
template <class Product_, int ROWS_, int COLUMNS_, int DEPTH_, int WARP_ROWS_, int WARP_COLUMNS_,
          int WARP_PARTS_, int STAGES_>
struct MmaTile {
    typedef Product_ Product;
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, DEPTH = DEPTH_, STAGES = STAGES_;
    static constexpr int WARP_ROWS = WARP_ROWS_, WARP_COLUMNS = WARP_COLUMNS_;
    static constexpr int WARP_PARTS = WARP_PARTS_;
    static constexpr int THREADS = 32 * WARP_ROWS * WARP_COLUMNS * WARP_PARTS;
    static_assert(ROWS % (16 * WARP_ROWS) == 0, "a warp has multiples of 16 rows");
    static_assert(COLUMNS % (16 * WARP_COLUMNS) == 0, "a warp has multiples of 16 columns");
    static_assert(DEPTH * int(sizeof(typename Product::A)) % (32 * WARP_PARTS) == 0,
                  "a warp has multiples of 32 bytes along k");
    static_assert(STAGES >= 2, "one stage is read while others are filled");
};

// How an operand lies in a stage: lines along k of one mn (ALONG_K), or lines along mn of one k.
// Lines are padded so that 8 neighbours touch all banks. Bytes are always along k, since
// `ldmatrix` transposes 16-bit elements alone and products of bytes need four along k together.
template <class S, int EXTENT, int DEPTH, int THREADS> struct MmaPanel {
    typedef typename S::Type T;
    typedef typename S::Line Line;
    static constexpr int SIZE = int(sizeof(T)), VECTOR = S::VECTOR;
    static constexpr bool ALONG_K = S::ALONG_K || SIZE == 1;
    static constexpr bool TURNS = !S::ALONG_K && SIZE == 1;
    static constexpr bool COPIES = VECTOR * SIZE >= 4 && !TURNS;
    static constexpr int PITCH = ALONG_K ? DEPTH * SIZE + 16 : EXTENT * SIZE + (SIZE == 4 ? 32 : 16);
    static constexpr int BYTES = PITCH * (ALONG_K ? EXTENT : DEPTH);
    static constexpr int RUN = (S::ALONG_K ? DEPTH : EXTENT) / VECTOR;
    static constexpr int VECTORS = RUN * (S::ALONG_K ? EXTENT : DEPTH);
    static constexpr int SLOTS = (VECTORS + THREADS - 1) / THREADS;
    // Lines of a tile stay in registers where they are few.
    static constexpr bool KEEPS = SLOTS <= 8 && !TURNS;
    static_assert(VECTOR == 1 || (VECTOR * SIZE >= 4 && VECTOR * SIZE <= 16), "4 to 16 bytes");

    Line kept[KEEPS ? SLOTS : 1];

    static DEVICE void place(int slot, int& mn, int& k) {
        int vector = slot * THREADS + int(threadIdx.x);
        int run = vector / RUN, along = (vector - run * RUN) * VECTOR;
        mn = S::ALONG_K ? run : along;
        k = S::ALONG_K ? along : run;
    }

    static DEVICE bool has(int slot) {
        return VECTORS % THREADS == 0 || slot * THREADS + int(threadIdx.x) < VECTORS;
    }

    static DEVICE u32 offset(int mn, int k) {
        return u32(ALONG_K ? mn * PITCH + k * SIZE : k * PITCH + mn * SIZE);
    }

    // Begins a tile.
    DEVICE void begin(const S& source, i64 batch, int first) {
        if constexpr (KEEPS) {
            auto matrix = source.matrix(batch);
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                int mn, k;
                place(slot, mn, k);
                if (has(slot)) kept[slot] = source.line(matrix, first + mn);
            }
        }
    }

    // Fills a stage with what lies at `depth` and after. Copies are not committed here.
    DEVICE void fill(const S& source, i64 batch, int first, int depth, unsigned char* stage) {
        if constexpr (TURNS && VECTOR >= 4) {
            turn(source, batch, first, depth, stage);
        } else if constexpr (KEEPS) {
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                if (has(slot)) move(source, kept[slot], slot, depth, stage);
            }
        } else {
            auto matrix = source.matrix(batch);
#pragma unroll 8
            for (int slot = 0; slot < SLOTS; ++slot) {
                int mn, k;
                place(slot, mn, k);
                if (has(slot)) move(source, source.line(matrix, first + mn), slot, depth, stage);
            }
        }
    }

    static DEVICE void move(const S& source, const Line& line, int slot, int depth,
                            unsigned char* stage) {
        int mn, k;
        place(slot, mn, k);
        int valid = source.valid(line, depth + k);
        if constexpr (COPIES) {
            // Nothing is read where nothing is valid, but the address should be a good one.
            const T* from = valid > 0 ? source.at(line, depth + k) : source.base;
            copy_async<VECTOR * SIZE>(shared_address(stage) + offset(mn, k), from, valid * SIZE);
        } else {
            T* to = reinterpret_cast<T*>(stage + offset(mn, k));
            const T* from = source.at(line, depth + k);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                to[i] = i < valid ? from[i] : T{};
            }
        }
    }

    // Bytes whose vectors lie along mn: blocks of 4 × 4, turned in registers.
    static DEVICE void turn(const S& source, i64 batch, int first, int depth,
                            unsigned char* stage) {
        auto matrix = source.matrix(batch);
        constexpr int ACROSS = EXTENT / 4, BLOCKS = ACROSS * (DEPTH / 4);
        for (int block = int(threadIdx.x); block < BLOCKS; block += THREADS) {
            int mn = block % ACROSS * 4, k = block / ACROSS * 4;
            Line line = source.line(matrix, first + mn);
            u32 in[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int valid = min(source.valid(line, depth + k + i), 4);
                in[i] = 0;
                if (valid == 4) {
                    in[i] = *reinterpret_cast<const u32*>(source.at(line, depth + k + i));
                } else {
                    for (int j = 0; j < valid; ++j) {
                        in[i] |= u32(u8(source.at(line, depth + k + i)[j])) << (8 * j);
                    }
                }
            }
            u32 low01 = __byte_perm(in[0], in[1], 0x5140), low23 = __byte_perm(in[2], in[3], 0x5140);
            u32 high01 = __byte_perm(in[0], in[1], 0x7362), high23 = __byte_perm(in[2], in[3], 0x7362);
            unsigned char* to = stage + offset(mn, k);
            *reinterpret_cast<u32*>(to) = __byte_perm(low01, low23, 0x5410);
            *reinterpret_cast<u32*>(to + PITCH) = __byte_perm(low01, low23, 0x7632);
            *reinterpret_cast<u32*>(to + 2 * PITCH) = __byte_perm(high01, high23, 0x5410);
            *reinterpret_cast<u32*>(to + 3 * PITCH) = __byte_perm(high01, high23, 0x7632);
        }
    }

    // 16 of mn × 32 bytes along k, as `mma.sync` wants them of A: (mn 0, k 0), (mn 8, k 0),
    // (mn 0, k 16 bytes), (mn 8, k 16 bytes). Of B the two in the middle change places.
    template <bool IS_A>
    static DEVICE void fragment(u32 stage, int mn, int k, u32 (&d)[4]) {
        int lane = int(threadIdx.x) & 31;
        int matrix = lane >> 3, inner = lane & 7;
        int upper_mn = (IS_A ? matrix & 1 : matrix >> 1) * 8;
        int upper_k = (IS_A ? matrix >> 1 : matrix & 1) * (16 / SIZE);
        if constexpr (ALONG_K) {
            load_matrices(d, stage + offset(mn + upper_mn + inner, k + upper_k));
        } else if constexpr (SIZE == 2) {
            load_matrices_transposed(d, stage + offset(mn + upper_mn, k + upper_k + inner));
        } else {
            int g = lane >> 2, t = lane & 3;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int more_mn = (IS_A ? i & 1 : i >> 1) * 8, more_k = (IS_A ? i >> 1 : i & 1) * 4;
                d[i] = load_shared_word(stage + offset(mn + more_mn + g, k + more_k + t));
            }
        }
    }
};

template <class Tile, class A, class B> struct MmaLayout {
    typedef MmaPanel<A, Tile::ROWS, Tile::DEPTH, Tile::THREADS> PanelA;
    typedef MmaPanel<B, Tile::COLUMNS, Tile::DEPTH, Tile::THREADS> PanelB;
    static constexpr int STAGE_BYTES = PanelA::BYTES + PanelB::BYTES;
    static constexpr int SUM_PITCH = Tile::COLUMNS + 4;
    static constexpr int SUM_BYTES =
        Tile::WARP_PARTS == 1 ? 0 : 4 * Tile::WARP_PARTS * Tile::ROWS * SUM_PITCH;
    // Dynamic shared memory of the kernel, which begins at a multiple of 16.
    static constexpr int SHARED_BYTES = Tile::STAGES * STAGE_BYTES + SUM_BYTES;
};

// Runs all tiles of a product. All threads of all blocks of the grid call it.
template <class Tile, class A, class B, class Epilogue>
DEVICE void multiply_mma(const A& a, const B& b, const Epilogue& epilogue, const Shape& shape,
                         unsigned char* shared) {
    typedef typename Tile::Product Product;
    typedef typename Product::Accumulator Accumulator;
    typedef MmaLayout<Tile, A, B> Layout;
    typedef typename Layout::PanelA PanelA;
    typedef typename Layout::PanelB PanelB;
    constexpr int STAGES = Tile::STAGES;
    constexpr int STEP = 32 / int(sizeof(typename Product::A));
    constexpr int STEPS = Tile::DEPTH / STEP / Tile::WARP_PARTS;
    constexpr int ROWS = Tile::ROWS / Tile::WARP_ROWS, COLUMNS = Tile::COLUMNS / Tile::WARP_COLUMNS;
    constexpr int DOWN = ROWS / 16, ACROSS = COLUMNS / 8;

    const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31;
    const int part = warp / (Tile::WARP_ROWS * Tile::WARP_COLUMNS);
    const int warp_row = warp % Tile::WARP_ROWS * ROWS;
    const int warp_column = warp / Tile::WARP_ROWS % Tile::WARP_COLUMNS * COLUMNS;

    const TileOrder order(shape, Tile::ROWS, Tile::COLUMNS);
    // A product over nothing is 0, and one empty stage gives that.
    const int depths = shape.k > 0 ? (shape.k + Tile::DEPTH - 1) / Tile::DEPTH : 1;

    PanelA panel_a;
    PanelB panel_b;
    // What is filled next: it runs STAGES - 1 depths ahead, over the ends of tiles.
    u32 fill_tile = blockIdx.x;
    int fill_depth = 0, fill_stage = 0;
    TileOrder::Place fill = {0, 0, 0};
    auto fill_next = [&]() {
        if (fill_tile < order.count) {
            if (fill_depth == 0) {
                fill = order.place(fill_tile);
                panel_a.begin(a, fill.batch, int(fill.row) * Tile::ROWS);
                panel_b.begin(b, fill.batch, int(fill.column) * Tile::COLUMNS);
            }
            unsigned char* stage = shared + fill_stage * Layout::STAGE_BYTES;
            int depth = fill_depth * Tile::DEPTH;
            panel_a.fill(a, fill.batch, int(fill.row) * Tile::ROWS, depth, stage);
            panel_b.fill(b, fill.batch, int(fill.column) * Tile::COLUMNS, depth,
                         stage + PanelA::BYTES);
            if (++fill_depth == depths) {
                fill_depth = 0;
                fill_tile += gridDim.x;
            }
        }
        // An empty group keeps the count of groups right.
        copy_async_commit();
        fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
    };

    for (int i = 0; i < STAGES - 1; ++i) fill_next();

    int stage = 0;
    for (u32 tile = blockIdx.x; tile < order.count; tile += gridDim.x) {
        Accumulator sums[DOWN][ACROSS][4];
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) {
#pragma unroll
                for (int r = 0; r < 4; ++r) sums[i][j][r] = Accumulator(0);
            }
        }
        for (int depth = 0; depth < depths; ++depth) {
            copy_async_wait<STAGES - 2>();
            __syncthreads();
            // The stage that is filled now was read last before this barrier.
            fill_next();
            u32 at_a = shared_address(shared + stage * Layout::STAGE_BYTES);
            u32 at_b = at_a + PanelA::BYTES;
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                int k = (part * STEPS + step) * STEP;
                u32 of_a[DOWN][4], of_b[ACROSS / 2][4];
#pragma unroll
                for (int i = 0; i < DOWN; ++i) {
                    PanelA::template fragment<true>(at_a, warp_row + i * 16, k, of_a[i]);
#pragma unroll
                    for (int r = 0; r < 4; ++r) of_a[i][r] = Product::operand(of_a[i][r]);
                }
#pragma unroll
                for (int j = 0; j < ACROSS / 2; ++j) {
                    PanelB::template fragment<false>(at_b, warp_column + j * 16, k, of_b[j]);
#pragma unroll
                    for (int r = 0; r < 4; ++r) of_b[j][r] = Product::operand(of_b[j][r]);
                }
#pragma unroll
                for (int i = 0; i < DOWN; ++i) {
#pragma unroll
                    for (int j = 0; j < ACROSS; ++j) {
                        const u32(&pair)[4] = of_b[j / 2];
                        Product::multiply(sums[i][j], of_a[i], pair[j % 2 * 2], pair[j % 2 * 2 + 1]);
                    }
                }
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }

        TileOrder::Place place = order.place(tile);
        int first_row = int(place.row) * Tile::ROWS, first_column = int(place.column) * Tile::COLUMNS;
        if constexpr (Tile::WARP_PARTS == 1) {
            first_row += warp_row + (lane >> 2);
            first_column += warp_column;
#pragma unroll
            for (int i = 0; i < DOWN; ++i) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    Accumulator pairs[ACROSS][2];
#pragma unroll
                    for (int j = 0; j < ACROSS; ++j) {
                        pairs[j][0] = sums[i][j][half * 2];
                        pairs[j][1] = sums[i][j][half * 2 + 1];
                    }
                    store_row_of_pairs(epilogue, shape, place.batch, first_row + i * 16 + half * 8,
                                       first_column, pairs);
                }
            }
        } else {
            constexpr int PITCH = Layout::SUM_PITCH, PART = Tile::ROWS * PITCH;
            Accumulator* parts =
                reinterpret_cast<Accumulator*>(shared + STAGES * Layout::STAGE_BYTES);
            Accumulator* mine = parts + part * PART + (warp_row + (lane >> 2)) * PITCH +
                                warp_column + (lane & 3) * 2;
#pragma unroll
            for (int i = 0; i < DOWN; ++i) {
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) {
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        mine[(i * 16 + r / 2 * 8) * PITCH + j * 8 + r % 2] = sums[i][j][r];
                    }
                }
            }
            __syncthreads();
            constexpr int VECTORS = Tile::ROWS * Tile::COLUMNS / 4;
            for (int vector = int(threadIdx.x); vector < VECTORS; vector += Tile::THREADS) {
                int row = vector / (Tile::COLUMNS / 4), column = vector % (Tile::COLUMNS / 4) * 4;
                Accumulator columns[4] = {};
#pragma unroll
                for (int p = 0; p < Tile::WARP_PARTS; ++p) {
                    Pack<Accumulator, 4> pack = *reinterpret_cast<Pack<Accumulator, 4>*>(
                        parts + p * PART + row * PITCH + column);
#pragma unroll
                    for (int i = 0; i < 4; ++i) columns[i] += pack.at[i];
                }
                store_columns<4>(epilogue, shape, place.batch, first_row + row,
                                 first_column + column, columns);
            }
            // The next tile writes `parts` after at least one more barrier.
        }
    }
    copy_async_wait<0>();
}
