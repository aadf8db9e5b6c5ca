// Elements by rank: the first is the one with the greatest key, of equal keys that with the least
// place. Must never look at an element's type but through `order_key`.

struct Ranked { u64 key; u64 place; };

// Integers in the order of the numbers; 0 and -0 are equal, NaN has the key that is given.
DEVICE u64 order_key(f64 x, u64 nan) {
    if (x != x) return nan;
    u64 bits = u64(__double_as_longlong(x == 0.0 ? 0.0 : x));
    return bits >> 63 ? ~bits : bits | 0x8000000000000000ULL;
}

DEVICE bool comes_before(const Ranked& a, const Ranked& b) {
    return a.key > b.key || (a.key == b.key && a.place < b.place);
}

DEVICE Ranked first_of(const Ranked& a, const Ranked& b) { return comes_before(b, a) ? b : a; }

DEVICE Ranked warp_first(Ranked x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) {
        Ranked other = {__shfl_xor_sync(0xffffffffu, x.key, distance),
                        __shfl_xor_sync(0xffffffffu, x.place, distance)};
        x = first_of(x, other);
    }
    return x;
}

// The first of a block, for all threads; `scratch` has 32 elements of shared memory.
DEVICE Ranked block_first(Ranked x, Ranked* scratch) {
    x = warp_first(x);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = scratch[0];
    for (int i = 1; i < warps; ++i) x = first_of(x, scratch[i]);
    __syncthreads();
    return x;
}
