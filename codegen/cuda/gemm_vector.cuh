// Matrix products with few rows, which read each element of B once at the speed of memory. It
// stands behind the prelude and gemm.cuh; it must never know what an epilogue does.

// Products with at most ROWS rows and B along mn: LANES neighbours read vectors of columns, and the
// block's other threads divide k among them.
template <class Accumulator_, int ROWS_, int LANES_, int THREADS_> struct VectorAcross {
    typedef Accumulator_ Accumulator;
    static constexpr int ROWS = ROWS_, LANES = LANES_, THREADS = THREADS_;
    static constexpr int WARPS = THREADS / 32;
    static_assert(LANES <= 32 && 32 % LANES == 0 && THREADS % 32 == 0, "lanes divide a warp");
    template <class B> static constexpr int columns() { return LANES * B::VECTOR; }
    template <class B> static constexpr int shared_bytes() {
        return WARPS * ROWS * columns<B>() * int(sizeof(Accumulator));
    }
};

// Products with at most ROWS rows and B along k: a warp has COLUMNS columns, its lanes read vectors
// along k, and PARTS warps divide k among them.
template <class Accumulator_, int ROWS_, int COLUMNS_, int PARTS_, int THREADS_>
struct VectorAlong {
    typedef Accumulator_ Accumulator;
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, PARTS = PARTS_, THREADS = THREADS_;
    static constexpr int WARPS = THREADS / 32;
    static_assert(THREADS % 32 == 0 && WARPS % PARTS == 0, "parts divide the warps");
    static constexpr int SHARED_BYTES = WARPS * ROWS * COLUMNS * int(sizeof(Accumulator));
};

// Reads COUNT elements that follow one another along the source's own direction; zeros where
// there is none.
template <class V, class S>
DEVICE void read_vector(const S& source, const typename S::Line& line, int k, V (&to)[S::VECTOR]) {
    typedef typename S::Type T;
    constexpr int VECTOR = S::VECTOR;
    int valid = source.valid(line, k);
    const T* from = source.at(line, k);
    Pack<T, VECTOR> pack;
    if (valid == VECTOR) {
        pack = *reinterpret_cast<const Pack<T, VECTOR>*>(from);
    } else {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) pack.at[i] = i < valid ? from[i] : T{};
    }
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) to[i] = V(value_of(pack.at[i]));
}

// Runs a product with B along mn. All threads of all blocks of the grid call it.
template <class Policy, class A, class B, class Epilogue>
DEVICE void multiply_vector_across(const A& a, const B& b, const Epilogue& epilogue,
                                   const Shape& shape, unsigned char* shared) {
    typedef typename Policy::Accumulator V;
    typedef typename B::Type T;
    constexpr int ROWS = Policy::ROWS, LANES = Policy::LANES, VECTOR = B::VECTOR;
    constexpr int COLUMNS = LANES * VECTOR, GROUPS = Policy::THREADS / LANES;
    // Along k a thread takes this many at a time: that many reads are under way together.
    constexpr int DEPTH = 8;
    static_assert(!B::ALONG_K || VECTOR == 1, "vectors of B lie along mn");
    V* partial = reinterpret_cast<V*>(shared);

    const int lane = int(threadIdx.x) % LANES, group = int(threadIdx.x) / LANES;
    const int warp = int(threadIdx.x) >> 5;
    const u32 blocks = u32(shape.n + COLUMNS - 1) / u32(COLUMNS);
    const u32 count = blocks * u32(shape.batches);
    for (u32 tile = blockIdx.x; tile < count; tile += gridDim.x) {
        i64 batch = tile / blocks;
        int first_column = int(tile - u32(batch) * blocks) * COLUMNS;
        auto line_b = b.line(b.matrix(batch), first_column + lane * VECTOR);
        typename A::Line lines_a[ROWS];
        auto matrix_a = a.matrix(batch);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) lines_a[row] = a.line(matrix_a, row);

        V sums[ROWS][VECTOR];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) sums[row][i] = V(0);
        }
        for (int k = group * DEPTH; k < shape.k; k += GROUPS * DEPTH) {
            Pack<T, VECTOR> packs[DEPTH];
            bool whole = b.valid(line_b, k + DEPTH - 1) == VECTOR;
            if (whole) {
#pragma unroll
                for (int i = 0; i < DEPTH; ++i) {
                    packs[i] = *reinterpret_cast<const Pack<T, VECTOR>*>(b.at(line_b, k + i));
                }
            } else {
#pragma unroll
                for (int i = 0; i < DEPTH; ++i) {
                    int valid = b.valid(line_b, k + i);
                    const T* from = b.at(line_b, k + i);
#pragma unroll
                    for (int c = 0; c < VECTOR; ++c) packs[i].at[c] = c < valid ? from[c] : T{};
                }
            }
            V x[ROWS][DEPTH];
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                constexpr int PIECE = A::ALONG_K && A::VECTOR < DEPTH ? A::VECTOR : DEPTH;
#pragma unroll
                for (int i = 0; i < DEPTH; i += PIECE) {
                    V piece[PIECE];
                    read_along_k(a, lines_a[row], k + i, piece);
#pragma unroll
                    for (int p = 0; p < PIECE; ++p) x[row][i + p] = piece[p];
                }
            }
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
#pragma unroll
                for (int c = 0; c < VECTOR; ++c) {
                    V y = V(value_of(packs[i].at[c]));
#pragma unroll
                    for (int row = 0; row < ROWS; ++row) sums[row][c] += V(x[row][i] * y);
                }
            }
        }
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
#pragma unroll
            for (int c = 0; c < VECTOR; ++c) {
                V sum = sums[row][c];
#pragma unroll
                for (int distance = 16; distance >= LANES; distance >>= 1) {
                    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
                }
                if ((int(threadIdx.x) & 31) < LANES) {
                    partial[(warp * ROWS + row) * COLUMNS + lane * VECTOR + c] = sum;
                }
            }
        }
        __syncthreads();
        for (int i = int(threadIdx.x); i < ROWS * COLUMNS; i += Policy::THREADS) {
            V sum[1] = {V(0)};
#pragma unroll
            for (int w = 0; w < Policy::WARPS; ++w) sum[0] += partial[w * ROWS * COLUMNS + i];
            store_columns<1>(epilogue, shape, batch, i / COLUMNS, first_column + i % COLUMNS, sum);
        }
        __syncthreads();
    }
}

// Runs a product with B along k. All threads of all blocks of the grid call it.
template <class Policy, class A, class B, class Epilogue>
DEVICE void multiply_vector_along(const A& a, const B& b, const Epilogue& epilogue,
                                  const Shape& shape, unsigned char* shared) {
    typedef typename Policy::Accumulator V;
    constexpr int ROWS = Policy::ROWS, COLUMNS = Policy::COLUMNS, PARTS = Policy::PARTS;
    constexpr int VECTOR = B::VECTOR, SETS = Policy::WARPS / PARTS;
    static_assert(B::ALONG_K || VECTOR == 1, "vectors of B lie along k");
    V* partial = reinterpret_cast<V*>(shared);

    const int lane = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5;
    const int part = warp % PARTS, set = warp / PARTS;
    constexpr int BLOCK_COLUMNS = SETS * COLUMNS;
    const u32 blocks = u32(shape.n + BLOCK_COLUMNS - 1) / u32(BLOCK_COLUMNS);
    const u32 count = blocks * u32(shape.batches);
    for (u32 tile = blockIdx.x; tile < count; tile += gridDim.x) {
        i64 batch = tile / blocks;
        int block_column = int(tile - u32(batch) * blocks) * BLOCK_COLUMNS;
        int first_column = block_column + set * COLUMNS;
        typename A::Line lines_a[ROWS];
        typename B::Line lines_b[COLUMNS];
        auto matrix_a = a.matrix(batch);
        auto matrix_b = b.matrix(batch);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) lines_a[row] = a.line(matrix_a, row);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) lines_b[c] = b.line(matrix_b, first_column + c);

        V sums[ROWS][COLUMNS];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) sums[row][c] = V(0);
        }
#pragma unroll 2
        for (int k = (part * 32 + lane) * VECTOR; k < shape.k; k += PARTS * 32 * VECTOR) {
            V y[COLUMNS][VECTOR];
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) read_vector(b, lines_b[c], k, y[c]);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                constexpr int PIECE = A::ALONG_K && A::VECTOR < VECTOR ? A::VECTOR : VECTOR;
#pragma unroll
                for (int i = 0; i < VECTOR; i += PIECE) {
                    V x[PIECE];
                    read_along_k(a, lines_a[row], k + i, x);
#pragma unroll
                    for (int c = 0; c < COLUMNS; ++c) {
#pragma unroll
                        for (int p = 0; p < PIECE; ++p) sums[row][c] += V(x[p] * y[c][i + p]);
                    }
                }
            }
        }
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                V sum = sums[row][c];
#pragma unroll
                for (int distance = 16; distance > 0; distance >>= 1) {
                    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
                }
                if (lane == 0) partial[(warp * ROWS + row) * COLUMNS + c] = sum;
            }
        }
        __syncthreads();
        for (int i = int(threadIdx.x); i < SETS * ROWS * COLUMNS; i += Policy::THREADS) {
            int c = i % COLUMNS, from = i / COLUMNS % SETS, row = i / (COLUMNS * SETS);
            V sum[1] = {V(0)};
#pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                sum[0] += partial[((from * PARTS + p) * ROWS + row) * COLUMNS + c];
            }
            store_columns<1>(epilogue, shape, batch, row, block_column + from * COLUMNS + c, sum);
        }
        __syncthreads();
    }
}
