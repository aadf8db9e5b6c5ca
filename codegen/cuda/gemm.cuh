// What the kernels of matrix products share: where operands lie, which tile comes next, where
// results go. It stands behind the prelude; it must never hold a kernel's loop.
//
// A product is C[batch, row, column] = sum over k of A[batch, row, k] * B[batch, k, column]. All
// kernels take
// - two sources, each a type with the members of `Matrix` below. "mn" is the dimension that is not
//   k: rows of A, columns of B. Another type may compute its addresses, for convolutions say;
// - an epilogue with `template <int W> void store(i64 batch, int row, int column,
//   const Accumulator (&values)[W])` for W columns that follow one another, all of them inside C;
//   W is 1, 2, 4 or 8, and `column` is a multiple of it;
// - a `Shape`, whose values may be known only at run time.
// Extents and tiles are ints: an extent is below 2^31 - 1024, tiles of all batches below 2^31.

struct Shape {
    i64 batches;
    int m, n, k;
};

// Offsets of batches: none, a regular distance, or several dimensions, of which some may broadcast
// (stride 0).
struct OneBatch {
    DEVICE i64 offset(i64) const { return 0; }
};

struct RegularBatches {
    i64 stride;
    DEVICE i64 offset(i64 batch) const { return batch * stride; }
};

// The extents of dimensions, the outermost first, and their strides in elements.
template <int RANK> struct Batches {
    i64 extent[RANK];
    i64 stride[RANK];
    DEVICE i64 offset(i64 batch) const {
        i64 sum = 0;
#pragma unroll
        for (int i = RANK - 1; i > 0; --i) {
            i64 rest = batch / extent[i];
            sum += (batch - rest * extent[i]) * stride[i];
            batch = rest;
        }
        return sum + batch * stride[0];
    }
};

// An operand in memory. Vectors of VECTOR elements lie along k (ALONG_K) or along mn. If VECTOR
// is not 1, then the stride of that dimension is 1, and the base, the other stride and those of
// batches are multiples of VECTOR; the extents need not be.
template <class T, int VECTOR_, bool ALONG_K_, class Batch> struct Matrix {
    typedef T Type;
    static constexpr int VECTOR = VECTOR_;
    static constexpr bool ALONG_K = ALONG_K_;
    // What stays the same along k.
    struct Line {
        const T* start;
        // Elements of a vector that exist, if k does.
        int valid;
    };

    const T* base;
    i64 stride_mn, stride_k;
    int extent_mn, extent_k;
    Batch batch;

    DEVICE const T* matrix(i64 index) const { return base + batch.offset(index); }

    // The line of `matrix` on which the vectors at `mn` begin.
    DEVICE Line line(const T* matrix, int mn) const {
        i64 step = VECTOR > 1 && !ALONG_K ? 1 : stride_mn;
        int left = extent_mn - mn;
        int most = ALONG_K ? 1 : VECTOR;
        return {matrix + mn * step, left < 0 ? 0 : left < most ? left : most};
    }

    // Where the vector at k begins.
    DEVICE const T* at(const Line& line, int k) const {
        return line.start + k * (VECTOR > 1 && ALONG_K ? i64(1) : stride_k);
    }

    // How many of its elements exist; only these may be read.
    DEVICE int valid(const Line& line, int k) const {
        int left = extent_k - k;
        if (ALONG_K) return line.valid == 0 || left <= 0 ? 0 : left < VECTOR ? left : VECTOR;
        return left <= 0 ? 0 : line.valid;
    }
};

// Reads COUNT elements that follow one another along k, as V; zeros where there is none.
template <int COUNT, class V, class S>
DEVICE void read_along_k(const S& source, const typename S::Line& line, int k, V (&to)[COUNT]) {
    typedef typename S::Type T;
    if constexpr (S::ALONG_K && S::VECTOR % COUNT == 0) {
        if (source.valid(line, k) >= COUNT) {
            Pack<T, COUNT> pack = *reinterpret_cast<const Pack<T, COUNT>*>(source.at(line, k));
#pragma unroll
            for (int i = 0; i < COUNT; ++i) to[i] = V(value_of(pack.at[i]));
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        bool exists = source.valid(line, k + i) > 0;
        to[i] = exists ? V(value_of(*source.at(line, k + i))) : V(0);
    }
}

// Tiles in an order in which neighbours share rows of A and columns of B in the cache: bands of a
// few tile rows, each walked column by column.
struct TileOrder {
    u32 rows, columns, count, band;

    DEVICE TileOrder(const Shape& shape, int tile_rows, int tile_columns, u32 band = 8)
        : band(band) {
        rows = u32(shape.m + tile_rows - 1) / u32(tile_rows);
        columns = u32(shape.n + tile_columns - 1) / u32(tile_columns);
        count = rows * columns * u32(shape.batches);
    }

    struct Place {
        i64 batch;
        u32 row, column;
    };

    DEVICE Place place(u32 tile) const {
        u32 matrix = rows * columns, batch = tile / matrix, rest = tile - batch * matrix;
        u32 first = rest / (band * columns) * band;
        u32 height = min(rows - first, band);
        rest -= first * columns;
        u32 column = rest / height;
        return {i64(batch), first + rest - column * height, column};
    }
};

// Stores the columns that exist, all W at once if they do.
template <int W, class Accumulator, class Epilogue>
DEVICE void store_columns(const Epilogue& epilogue, const Shape& shape, i64 batch, int row,
                          int column, const Accumulator (&values)[W]) {
    if (row >= shape.m) return;
    if (column + W <= shape.n) {
        epilogue.template store<W>(batch, row, column, values);
        return;
    }
#pragma unroll
    for (int i = 0; i < W; ++i) {
        const Accumulator one[1] = {values[i]};
        if (column + i < shape.n) epilogue.template store<1>(batch, row, column + i, one);
    }
}

// Of 8-column blocks whose pairs of columns the 4 lanes of a quad hold (lane t: 2t, 2t + 1), gives
// every lane what lies together. Four blocks: lane t gets the 8 columns of block t. Two blocks:
// lane t gets 4 columns of block t % 2, from column 4 * (t / 2).
template <class T> DEVICE void gather_four(const T (&pairs)[4][2], T (&columns)[8]) {
    int t = threadIdx.x & 3;
    T half[2][4];
#pragma unroll
    for (int p = 0; p < 2; ++p) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            T keep = t & 1 ? pairs[2 * p + 1][i] : pairs[2 * p][i];
            T give = t & 1 ? pairs[2 * p][i] : pairs[2 * p + 1][i];
            T got = __shfl_xor_sync(0xffffffffu, give, 1);
            half[p][i] = t & 1 ? got : keep;
            half[p][2 + i] = t & 1 ? keep : got;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        T keep = t & 2 ? half[1][i] : half[0][i];
        T got = __shfl_xor_sync(0xffffffffu, t & 2 ? half[0][i] : half[1][i], 2);
        columns[i] = t & 2 ? got : keep;
        columns[4 + i] = t & 2 ? keep : got;
    }
}

template <class T> DEVICE void gather_two(const T (&pairs)[2][2], T (&columns)[4]) {
    int t = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        T keep = t & 1 ? pairs[1][i] : pairs[0][i];
        T got = __shfl_xor_sync(0xffffffffu, t & 1 ? pairs[0][i] : pairs[1][i], 1);
        columns[i] = t & 1 ? got : keep;
        columns[2 + i] = t & 1 ? keep : got;
    }
}

// Stores one row of 8-column blocks whose pairs of columns the 4 lanes of a quad hold, from `column`
// on. All lanes of a warp call it.
template <int BLOCKS, class Accumulator, class Epilogue>
DEVICE void store_row_of_pairs(const Epilogue& epilogue, const Shape& shape, i64 batch, int row,
                               int column, const Accumulator (&pairs)[BLOCKS][2]) {
    static_assert(BLOCKS % 2 == 0, "blocks are gathered by four and by two");
    const int t = int(threadIdx.x) & 3;
#pragma unroll
    for (int j = 0; j + 4 <= BLOCKS; j += 4) {
        Accumulator four[4][2], columns[8];
#pragma unroll
        for (int p = 0; p < 8; ++p) four[p / 2][p % 2] = pairs[j + p / 2][p % 2];
        gather_four(four, columns);
        store_columns<8>(epilogue, shape, batch, row, column + (j + t) * 8, columns);
    }
    if constexpr (BLOCKS % 4 == 2) {
        constexpr int j = BLOCKS - 2;
        Accumulator two[2][2], columns[4];
#pragma unroll
        for (int p = 0; p < 4; ++p) two[p / 2][p % 2] = pairs[j + p / 2][p % 2];
        gather_two(two, columns);
        store_columns<4>(epilogue, shape, batch, row, column + (j + (t & 1)) * 8 + (t & 2) * 2,
                         columns);
    }
}

// The plain epilogue: rounds, and stores rows that lie `stride` apart. If ALIGNED elements is not
// 1, then base and strides are multiples of it.
template <class T, int ALIGNED, class Batch> struct StoreRows {
    T* base;
    i64 stride;
    Batch batch;

    template <int W, class V>
    DEVICE void store(i64 index, int row, int column, const V (&values)[W]) const {
        constexpr int MOST = 16 / int(sizeof(T));
        constexpr int LIMIT = ALIGNED < MOST ? ALIGNED : MOST;
        constexpr int WIDTH = W < LIMIT ? W : LIMIT;
        T* to = base + batch.offset(index) + row * stride + column;
#pragma unroll
        for (int i = 0; i < W; i += WIDTH) {
            Pack<T, WIDTH> pack;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) pack.at[j] = Element<T>::of(values[i + j]);
            *reinterpret_cast<Pack<T, WIDTH>*>(to + i) = pack;
        }
    }
};

// The epilogue that stores what a function makes of each sum: `element(batch, row, column, sum)`
// gives an element before its rounding. Stores as `StoreRows`.
template <class T, int ALIGNED, class Batch, class Function> struct StoreElements {
    T* base;
    i64 stride;
    Batch batch;
    Function element;

    template <int W, class V>
    DEVICE void store(i64 index, int row, int column, const V (&values)[W]) const {
        constexpr int MOST = 16 / int(sizeof(T));
        constexpr int LIMIT = ALIGNED < MOST ? ALIGNED : MOST;
        constexpr int WIDTH = W < LIMIT ? W : LIMIT;
        T* to = base + batch.offset(index) + row * stride + column;
#pragma unroll
        for (int i = 0; i < W; i += WIDTH) {
            Pack<T, WIDTH> pack;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                pack.at[j] = Element<T>::of(element(index, row, column + i + j, values[i + j]));
            }
            *reinterpret_cast<Pack<T, WIDTH>*>(to + i) = pack;
        }
    }
};

// The same for results that lie elsewhere: `place(batch, row, column, sum)` gives the offset of an
// element. If ALIGNED is not 1, then ALIGNED columns lie together, at a multiple of it.
template <class T, int ALIGNED, class Place, class Function> struct StorePlaced {
    T* base;
    Place place;
    Function element;

    template <int W, class V>
    DEVICE void store(i64 index, int row, int column, const V (&values)[W]) const {
        constexpr int MOST = 16 / int(sizeof(T));
        constexpr int LIMIT = ALIGNED < MOST ? ALIGNED : MOST;
        constexpr int WIDTH = W < LIMIT ? W : LIMIT;
#pragma unroll
        for (int i = 0; i < W; i += WIDTH) {
            Pack<T, WIDTH> pack;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                pack.at[j] = Element<T>::of(element(index, row, column + i + j, values[i + j]));
            }
            T* to = base + place(index, row, column + i, values[i]);
            *reinterpret_cast<Pack<T, WIDTH>*>(to) = pack;
        }
    }
};
