// Element types, their arithmetic and the waits of every kernel. It stands before every kernel's own
// text; it must never include a header and never hold a kernel.

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

// Elements in memory. Arithmetic happens on what `load` gives.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f8e4m3fn { u8 bits; };
struct f8e5m2 { u8 bits; };
struct truth { u8 bits; };
// Two to a byte, the low nibble first; addressed by element.
struct i4 { u8 bits; };
struct u4 { u8 bits; };

#define DEVICE __device__ __forceinline__

// The fault record of a session: see `FaultRecord`.
struct Faults {
    u32 kind;
    u32 step;
    i64 index;
    i64 extent;
    i64 reserved;
};

// Reports an index out of range; the first report of a run counts.
__device__ __noinline__ void report_index(Faults* faults, u32 step, i64 index, i64 extent) {
    if (atomicCAS(&faults->kind, 0u, 1u) == 0u) {
        volatile Faults* record = faults;
        record->step = step;
        record->index = index;
        record->extent = extent;
        __threadfence_system();
    }
}

// Waits until the kernels before this one have finished and their writes are visible.
DEVICE void wait_for_steps_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start its prologue; gives no visibility of anything.
DEVICE void let_next_step_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Floats of 16 bits.

DEVICE f32 widen(f16 x) {
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

DEVICE f16 to_f16(f32 x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

DEVICE f16 to_f16(f64 x) {
    f16 y;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
    return y;
}

DEVICE f32 widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

DEVICE bf16 to_bf16(f32 x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// Rounds to odd first, so that two roundings equal one.
DEVICE bf16 to_bf16(f64 x) {
    f32 y = __double2float_rz(x);
    if (f64(y) != x && x == x) y = __uint_as_float(__float_as_uint(y) | 1u);
    return to_bf16(y);
}

// Floats of 8 bits. The greatest finite code, the code of infinity (0: none) and that of NaN tell
// the formats apart.

template <int MANTISSA, int BIAS, int GREATEST, int INFINITE>
DEVICE f32 decode_f8(u8 code) {
    f32 sign = code & 0x80 ? -1.0f : 1.0f;
    int magnitude = code & 0x7f;
    if (INFINITE != 0 && magnitude == INFINITE) return sign * __int_as_float(0x7f800000);
    if (magnitude > GREATEST) return __int_as_float(0x7fc00000);
    int mantissa = magnitude & ((1 << MANTISSA) - 1);
    int exponent = magnitude >> MANTISSA;
    int hidden = exponent == 0 ? 0 : 1 << MANTISSA;
    int scale = max(exponent, 1) - BIAS - MANTISSA;
    return sign * f32(mantissa + hidden) * __int_as_float((scale + 127) << 23);
}

template <int MANTISSA, int BIAS, int GREATEST, int INFINITE, int NOT_A_NUMBER>
DEVICE u8 encode_f8(f64 x, bool saturate) {
    u8 sign = __double2hiint(x) < 0 ? 0x80 : 0;
    if (x != x) return sign | NOT_A_NUMBER;
    f64 magnitude = fabs(x);
    u8 overflow = saturate ? GREATEST : (INFINITE != 0 ? INFINITE : NOT_A_NUMBER);
    if (magnitude > 1e30) return sign | overflow;
    int exponent = ((__double2hiint(magnitude) >> 20) & 0x7ff) - 1023;
    exponent = max(exponent, 1 - BIAS);
    f64 ulp = __hiloint2double((exponent - MANTISSA + 1023) << 20, 0);
    int units = int(rint(magnitude / ulp));
    int code = ((exponent + BIAS - 1) << MANTISSA) + units;
    return sign | (code > GREATEST ? overflow : u8(code));
}

DEVICE f32 widen(f8e4m3fn x) { return decode_f8<3, 7, 0x7e, 0>(x.bits); }
DEVICE f32 widen(f8e5m2 x) { return decode_f8<2, 15, 0x7b, 0x7c>(x.bits); }
DEVICE f8e4m3fn to_f8e4m3fn(f64 x, bool saturate) {
    return {encode_f8<3, 7, 0x7e, 0, 0x7f>(x, saturate)};
}
DEVICE f8e5m2 to_f8e5m2(f64 x, bool saturate) {
    return {encode_f8<2, 15, 0x7b, 0x7c, 0x7e>(x, saturate)};
}

DEVICE bool is_nan(f32 x) { return x != x; }
DEVICE bool is_nan(f64 x) { return x != x; }
DEVICE bool is_finite(f64 x) { return fabs(x) <= 1.7976931348623157e308; }

// Numbers to integers: truncated, limits of 64 bits kept, NaN is 0; then wrapped by the caller.
DEVICE i64 to_signed(f64 x) { return x != x ? 0 : __double2ll_rz(x); }
DEVICE i64 to_signed(f32 x) { return to_signed(f64(x)); }
DEVICE u64 to_unsigned(f64 x) {
    if (x != x) return 0;
    return x >= 0.0 ? __double2ull_rz(x) : u64(__double2ll_rz(x));
}
DEVICE u64 to_unsigned(f32 x) { return to_unsigned(f64(x)); }
template <class T> DEVICE i64 to_signed(T x) { return i64(x); }
template <class T> DEVICE u64 to_unsigned(T x) { return u64(x); }

// Nibbles as 8-bit numbers of the same value.
DEVICE i8 wrap_i4(i64 x) { return i8(i8(u8(x) << 4) >> 4); }
DEVICE u8 wrap_u4(u64 x) { return u8(x & 15); }

// Reading elements.
DEVICE f64 load(const f64* p, i64 i) { return p[i]; }
DEVICE f32 load(const f32* p, i64 i) { return p[i]; }
DEVICE f32 load(const f16* p, i64 i) { return widen(p[i]); }
DEVICE f32 load(const bf16* p, i64 i) { return widen(p[i]); }
DEVICE f32 load(const f8e4m3fn* p, i64 i) { return widen(p[i]); }
DEVICE f32 load(const f8e5m2* p, i64 i) { return widen(p[i]); }
DEVICE i64 load(const i64* p, i64 i) { return p[i]; }
DEVICE i32 load(const i32* p, i64 i) { return p[i]; }
DEVICE i16 load(const i16* p, i64 i) { return p[i]; }
DEVICE i8 load(const i8* p, i64 i) { return p[i]; }
DEVICE u64 load(const u64* p, i64 i) { return p[i]; }
DEVICE u32 load(const u32* p, i64 i) { return p[i]; }
DEVICE u16 load(const u16* p, i64 i) { return p[i]; }
DEVICE u8 load(const u8* p, i64 i) { return p[i]; }
DEVICE bool load(const truth* p, i64 i) { return p[i].bits != 0; }
DEVICE i8 load(const i4* p, i64 i) { return wrap_i4(p[i >> 1].bits >> (i & 1 ? 4 : 0)); }
DEVICE u8 load(const u4* p, i64 i) { return wrap_u4(p[i >> 1].bits >> (i & 1 ? 4 : 0)); }

// An element in a register, as `load` would give it.
DEVICE f64 value_of(f64 x) { return x; }
DEVICE f32 value_of(f32 x) { return x; }
DEVICE f32 value_of(f16 x) { return widen(x); }
DEVICE f32 value_of(bf16 x) { return widen(x); }
DEVICE f32 value_of(f8e4m3fn x) { return widen(x); }
DEVICE f32 value_of(f8e5m2 x) { return widen(x); }
DEVICE bool value_of(truth x) { return x.bits != 0; }
template <class T> DEVICE T value_of(T x) { return x; }

// A computed value as an element: rounded; finite values beyond the greatest 8-bit float become it.
template <class T> struct Element {
    template <class V> static DEVICE T of(V x) { return T(x); }
};
template <> struct Element<f16> {
    static DEVICE f16 of(f32 x) { return to_f16(x); }
    static DEVICE f16 of(f64 x) { return to_f16(x); }
};
template <> struct Element<bf16> {
    static DEVICE bf16 of(f32 x) { return to_bf16(x); }
    static DEVICE bf16 of(f64 x) { return to_bf16(x); }
};
template <> struct Element<f8e4m3fn> {
    static DEVICE f8e4m3fn of(f64 x) { return to_f8e4m3fn(x, is_finite(x)); }
};
template <> struct Element<f8e5m2> {
    static DEVICE f8e5m2 of(f64 x) { return to_f8e5m2(x, is_finite(x)); }
};
template <> struct Element<truth> {
    static DEVICE truth of(bool x) { return {u8(x ? 1 : 0)}; }
};

// Several elements that move together: one access of up to 16 bytes.
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };

// Integer arithmetic as the IR defines it: it wraps, and division by zero gives 0.

template <class T> DEVICE T int_div(T x, T y) {
    if (y == T(0)) return T(0);
    if (T(-1) < T(0) && y == T(-1)) return T(0 - u64(x));
    return T(x / y);
}

template <class T> DEVICE T int_trunc_mod(T x, T y) {
    if (y == T(0) || (T(-1) < T(0) && y == T(-1))) return T(0);
    return T(x % y);
}

template <class T> DEVICE T int_floor_mod(T x, T y) {
    T r = int_trunc_mod(x, y);
    return r != T(0) && ((r < T(0)) != (y < T(0))) ? T(r + y) : r;
}

template <class T> DEVICE T int_pow(T x, T y) {
    if (y < T(0)) return x == T(1) ? T(1) : x == T(-1) ? (y & T(1) ? T(-1) : T(1)) : T(0);
    u64 base = u64(x), power = 1, exponent = u64(y);
    while (exponent != 0) {
        if (exponent & 1) power *= base;
        base *= base;
        exponent >>= 1;
    }
    return T(power);
}

template <class T> DEVICE T int_shift_left(T x, T y, int width) {
    return y < T(0) || i64(y) >= width ? T(0) : T(u64(x) << u64(y));
}

template <class T> DEVICE T int_shift_right(T x, T y, int width) {
    if (y < T(0) || i64(y) >= width) return x < T(0) ? T(-1) : T(0);
    return T(x >> y);
}

// Floats.

DEVICE f32 float_sign(f32 x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
DEVICE f64 float_sign(f64 x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x; }
template <class T> DEVICE T int_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0); }
template <class T> DEVICE T int_abs(T x) { return x < T(0) ? T(0 - u64(x)) : x; }

// NaN if either is NaN, unlike fminf and fmaxf.
DEVICE f32 float_min(f32 x, f32 y) { return x != x ? x : y != y ? y : fminf(x, y); }
DEVICE f32 float_max(f32 x, f32 y) { return x != x ? x : y != y ? y : fmaxf(x, y); }
DEVICE f64 float_min(f64 x, f64 y) { return x != x ? x : y != y ? y : fmin(x, y); }
DEVICE f64 float_max(f64 x, f64 y) { return x != x ? x : y != y ? y : fmax(x, y); }

DEVICE f32 float_floor_mod(f32 x, f32 y) {
    f32 r = fmodf(x, y);
    return r != 0.0f && ((r < 0.0f) != (y < 0.0f)) ? r + y : r;
}
DEVICE f64 float_floor_mod(f64 x, f64 y) {
    f64 r = fmod(x, y);
    return r != 0.0 && ((r < 0.0) != (y < 0.0)) ? r + y : r;
}

// Dimension arithmetic, which rounds towards minus infinity.
template <class T> DEVICE T dim_div(T a, T b) {
    T q = a / b;
    return (a % b != 0) && ((a < 0) != (b < 0)) ? q - 1 : q;
}
template <class T> DEVICE T dim_mod(T a, T b) { return a - b * dim_div(a, b); }

// Warps and blocks.

template <class T, class F> DEVICE T warp_reduce(T x, F combine) {
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) {
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
    }
    return x;
}

// Combines one value of every thread; all threads get the result. `scratch` has 32 elements of
// shared memory, which may be used again at once. The block is a multiple of 32 threads.
template <class T, class F> DEVICE T block_reduce(T x, F combine, T* scratch) {
    x = warp_reduce(x, combine);
    if (blockDim.x == 32) return x;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = scratch[0];
    for (int i = 1; i < warps; ++i) x = combine(x, scratch[i]);
    __syncthreads();
    return x;
}
