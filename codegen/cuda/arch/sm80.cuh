// Instructions of sm_80 and later as functions: asynchronous copies, matrix loads and the matrix
// products of warps. It stands behind the prelude; it must never decide a layout or a schedule.

DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// Copies BYTES (4, 8 or 16) to shared memory; what lies behind the first `valid` bytes is zero and
// not read.
template <int BYTES> DEVICE void copy_async(u32 target, const void* source, int valid) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "sizes of cp.async");
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target),
                     "l"(source), "r"(valid)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(source),
                     "n"(BYTES), "r"(valid)
                     : "memory");
    }
}

DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's latest groups are under way.
template <int PENDING> DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four matrices of 8 rows of 16 bytes; lane `i` gives the address of row `i % 8` of matrix `i / 8`.
DEVICE void load_matrices(u32 (&d)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(row)
                 : "memory");
}

// The same, each matrix transposed as 8 × 8 elements of 16 bits.
DEVICE void load_matrices_transposed(u32 (&d)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(row)
                 : "memory");
}

DEVICE u32 load_shared_word(u32 address) {
    u32 d;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(d) : "r"(address) : "memory");
    return d;
}

// To the nearest number of 10 fraction bits, ties away from zero.
DEVICE u32 round_to_tf32(u32 x) {
    u32 d;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(d) : "f"(__uint_as_float(x)));
    return d;
}

// Products of a warp, c += a * b. A is 16 × K, B is K × 8; a row of either is 32 bytes along K.
// Lane `4 g + t` holds of C: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).

#define MMA_16_BITS(NAME, TYPE, PTX)                                                              \
    struct NAME {                                                                                 \
        typedef TYPE A;                                                                           \
        typedef TYPE B;                                                                           \
        typedef f32 Accumulator;                                                                  \
        static DEVICE u32 operand(u32 x) { return x; }                                            \
        static DEVICE void multiply(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {             \
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." PTX "." PTX                     \
                         ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"   \
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                         \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));         \
        }                                                                                         \
    };
MMA_16_BITS(MmaF16, f16, "f16")
MMA_16_BITS(MmaBf16, bf16, "bf16")
#undef MMA_16_BITS

// Operands of 32 bits rounded to 11 significant bits.
struct MmaTf32 {
    typedef f32 A;
    typedef f32 B;
    typedef f32 Accumulator;
    static DEVICE u32 operand(u32 x) { return round_to_tf32(x); }
    static DEVICE void multiply(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

#define MMA_8_BITS(NAME, TYPE_A, TYPE_B, PTX_A, PTX_B)                                            \
    struct NAME {                                                                                 \
        typedef TYPE_A A;                                                                         \
        typedef TYPE_B B;                                                                         \
        typedef i32 Accumulator;                                                                  \
        static DEVICE u32 operand(u32 x) { return x; }                                            \
        static DEVICE void multiply(i32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {             \
            asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." PTX_A "." PTX_B                 \
                         ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"   \
                         : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                         \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));         \
        }                                                                                         \
    };
MMA_8_BITS(MmaI8I8, i8, i8, "s8", "s8")
MMA_8_BITS(MmaU8I8, u8, i8, "u8", "s8")
MMA_8_BITS(MmaI8U8, i8, u8, "s8", "u8")
MMA_8_BITS(MmaU8U8, u8, u8, "u8", "u8")
#undef MMA_8_BITS
