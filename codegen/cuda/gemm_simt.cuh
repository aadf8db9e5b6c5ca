// Matrix products without matrix instructions: plain f32, f64, integers of any width (which wrap),
// and any mix of types that `value_of` reads. It stands behind the prelude and gemm.cuh; it must
// never know what an epilogue does.

// Tiles of ROWS × COLUMNS, DEPTH along k. A thread adds in Accumulator, THREAD_ROWS × THREAD_COLUMNS
// of them, in groups of four (or all, if fewer) that lie a part of the tile away from one another.
template <class Accumulator_, int ROWS_, int COLUMNS_, int DEPTH_, int THREAD_ROWS_,
          int THREAD_COLUMNS_>
struct SimtTile {
    typedef Accumulator_ Accumulator;
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, DEPTH = DEPTH_;
    static constexpr int THREAD_ROWS = THREAD_ROWS_, THREAD_COLUMNS = THREAD_COLUMNS_;
    static constexpr int DOWN = ROWS / THREAD_ROWS, ACROSS = COLUMNS / THREAD_COLUMNS;
    static constexpr int THREADS = DOWN * ACROSS;
    static constexpr int ROW_GROUP = THREAD_ROWS < 4 ? THREAD_ROWS : 4;
    static constexpr int COLUMN_GROUP = THREAD_COLUMNS < 4 ? THREAD_COLUMNS : 4;
    // Lines of one k, padded so that what is stored along k meets few bank conflicts.
    static constexpr int PITCH_A = ROWS + 4, PITCH_B = COLUMNS + 4;
    static constexpr int STAGE = DEPTH * (PITCH_A + PITCH_B);
    // Dynamic shared memory of the kernel, which begins at a multiple of 16.
    static constexpr int SHARED_BYTES = 2 * STAGE * int(sizeof(Accumulator));
    static_assert(THREADS % 32 == 0, "whole warps");
    static_assert(THREAD_ROWS % ROW_GROUP == 0 && THREAD_COLUMNS % COLUMN_GROUP == 0, "groups");
};

// A part of an operand on its way from memory to a stage, which has EXTENT of mn × DEPTH of k.
template <class S, class V, int EXTENT, int DEPTH, int PITCH, int THREADS> struct SimtPanel {
    typedef typename S::Type T;
    static constexpr int VECTOR = S::VECTOR;
    static constexpr int RUN = (S::ALONG_K ? DEPTH : EXTENT) / VECTOR;
    static constexpr int VECTORS = RUN * (S::ALONG_K ? EXTENT : DEPTH);
    static constexpr int SLOTS = (VECTORS + THREADS - 1) / THREADS;
    static_assert((S::ALONG_K ? DEPTH : EXTENT) % VECTOR == 0, "whole vectors");

    Pack<T, VECTOR> held[SLOTS];

    static DEVICE bool place(int slot, int& mn, int& k) {
        int vector = slot * THREADS + int(threadIdx.x);
        int run = vector / RUN, along = (vector - run * RUN) * VECTOR;
        mn = S::ALONG_K ? run : along;
        k = S::ALONG_K ? along : run;
        return vector < VECTORS;
    }

    DEVICE void read(const S& source, i64 batch, int first, int depth) {
        auto matrix = source.matrix(batch);
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) {
            int mn, k;
            bool has = place(slot, mn, k);
            auto line = source.line(matrix, first + mn);
            int valid = has ? source.valid(line, depth + k) : 0;
            const T* from = source.at(line, depth + k);
            if (valid == VECTOR) {
                held[slot] = *reinterpret_cast<const Pack<T, VECTOR>*>(from);
            } else {
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) held[slot].at[i] = i < valid ? from[i] : T{};
            }
        }
    }

    DEVICE void write(V* stage) const {
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) {
            int mn, k;
            if (!place(slot, mn, k)) continue;
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                V value = V(value_of(held[slot].at[i]));
                stage[S::ALONG_K ? (k + i) * PITCH + mn : k * PITCH + mn + i] = value;
            }
        }
    }
};

// Runs all tiles of a product. All threads of all blocks of the grid call it.
template <class Tile, class A, class B, class Epilogue>
DEVICE void multiply_simt(const A& a, const B& b, const Epilogue& epilogue, const Shape& shape,
                          unsigned char* shared) {
    typedef typename Tile::Accumulator V;
    constexpr int DEPTH = Tile::DEPTH, ROW_GROUP = Tile::ROW_GROUP;
    constexpr int COLUMN_GROUP = Tile::COLUMN_GROUP;
    V* stages = reinterpret_cast<V*>(shared);
    const int thread_row = int(threadIdx.x) / Tile::ACROSS * ROW_GROUP;
    const int thread_column = int(threadIdx.x) % Tile::ACROSS * COLUMN_GROUP;

    const TileOrder order(shape, Tile::ROWS, Tile::COLUMNS);
    const int depths = (shape.k + DEPTH - 1) / DEPTH;
    SimtPanel<A, V, Tile::ROWS, DEPTH, Tile::PITCH_A, Tile::THREADS> panel_a;
    SimtPanel<B, V, Tile::COLUMNS, DEPTH, Tile::PITCH_B, Tile::THREADS> panel_b;

    for (u32 tile = blockIdx.x; tile < order.count; tile += gridDim.x) {
        TileOrder::Place place = order.place(tile);
        int first_row = int(place.row) * Tile::ROWS, first_column = int(place.column) * Tile::COLUMNS;
        V sums[Tile::THREAD_ROWS][Tile::THREAD_COLUMNS];
#pragma unroll
        for (int i = 0; i < Tile::THREAD_ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < Tile::THREAD_COLUMNS; ++j) sums[i][j] = V(0);
        }
        panel_a.read(a, place.batch, first_row, 0);
        panel_b.read(b, place.batch, first_column, 0);
        for (int depth = 0; depth < depths; ++depth) {
            V* stage = stages + (depth & 1) * Tile::STAGE;
            panel_a.write(stage);
            panel_b.write(stage + DEPTH * Tile::PITCH_A);
            // Two stages and one barrier: who writes a stage again has passed the barrier behind
            // the reads of it.
            __syncthreads();
            if (depth + 1 < depths) {
                panel_a.read(a, place.batch, first_row, (depth + 1) * DEPTH);
                panel_b.read(b, place.batch, first_column, (depth + 1) * DEPTH);
            }
            const V* of_a = stage + thread_row;
            const V* of_b = stage + DEPTH * Tile::PITCH_A + thread_column;
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) {
                V x[Tile::THREAD_ROWS], y[Tile::THREAD_COLUMNS];
#pragma unroll
                for (int i = 0; i < Tile::THREAD_ROWS; ++i) {
                    x[i] = of_a[k * Tile::PITCH_A + i / ROW_GROUP * (Tile::DOWN * ROW_GROUP) +
                                i % ROW_GROUP];
                }
#pragma unroll
                for (int j = 0; j < Tile::THREAD_COLUMNS; ++j) {
                    y[j] = of_b[k * Tile::PITCH_B + j / COLUMN_GROUP * (Tile::ACROSS * COLUMN_GROUP) +
                                j % COLUMN_GROUP];
                }
#pragma unroll
                for (int i = 0; i < Tile::THREAD_ROWS; ++i) {
#pragma unroll
                    for (int j = 0; j < Tile::THREAD_COLUMNS; ++j) sums[i][j] += V(x[i] * y[j]);
                }
            }
        }
        // An even and an odd number of depths may leave either stage for the next tile to write.
        __syncthreads();
#pragma unroll
        for (int i = 0; i < Tile::THREAD_ROWS; ++i) {
            int row = first_row + thread_row + i / ROW_GROUP * (Tile::DOWN * ROW_GROUP) +
                      i % ROW_GROUP;
#pragma unroll
            for (int j = 0; j < Tile::THREAD_COLUMNS; j += COLUMN_GROUP) {
                V columns[COLUMN_GROUP];
#pragma unroll
                for (int c = 0; c < COLUMN_GROUP; ++c) columns[c] = sums[i][j + c];
                int column = first_column + thread_column +
                             j / COLUMN_GROUP * (Tile::ACROSS * COLUMN_GROUP);
                store_columns<COLUMN_GROUP>(epilogue, shape, place.batch, row, column, columns);
            }
        }
    }
}
