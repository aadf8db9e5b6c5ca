// What kernels of attention share: which keys a query sees, and the softmax of a block of scores.
// It stands behind the prelude; it must never load an operand.
//
// Scores, softmax and the average of the values go block of keys by block of keys, so that no score
// is ever in memory. The softmax is the online one: Milakov and Gimelshein, "Online normalizer
// calculation for softmax" (2018); the walk over blocks is that of Dao, "FlashAttention-2" (2023).

struct AttentionShape {
    i64 batches;
    // Rows, columns of the result, queries of a head, keys.
    int m, n, queries, keys;
};

// How many keys of a batch exist, and where its first query stands among them.
struct Positions {
    int keys;
    i64 first;
};

// Which keys a query sees by its position.
template <bool HAS_BEFORE, bool HAS_AFTER> struct Window {
    i64 before, after;

    static DEVICE int limit(i64 key, int keys) { return key <= 0 ? 0 : key >= keys ? keys : int(key); }

    DEVICE int begin(const Positions& positions, int query) const {
        return HAS_BEFORE ? limit(positions.first + query - before, positions.keys) : 0;
    }
    DEVICE int end(const Positions& positions, int query) const {
        return HAS_AFTER ? limit(positions.first + query + after + 1, positions.keys)
                         : positions.keys;
    }
};

// What masks a key beside its position.
enum MaskForm {
    MASK_NONE,
    // `mask(batch, 0, key)` is added to the scores of all rows.
    MASK_BY_KEY,
    // `mask(batch, row, key)` is added.
    MASK_BY_ELEMENT
};

// Scores become weights: `scale`, then `cap * tanh(score / cap)` if CAPPED, then the mask. Without
// either and with a scale above zero, scores are scaled as part of the exponent (LATE).
// `positions(batch)` gives a batch's `Positions`. Unless EMPTY_IS_ZERO, a row without a visible key
// averages all values.
template <MaskForm FORM_, bool CAPPED_, bool LATE_, bool EMPTY_IS_ZERO_, class Window_, class Mask,
          class PositionsOf>
struct AttentionRule {
    static constexpr MaskForm FORM = FORM_;
    static constexpr bool CAPPED = CAPPED_, LATE = LATE_, EMPTY_IS_ZERO = EMPTY_IS_ZERO_;
    static_assert(!LATE || (!CAPPED && FORM == MASK_NONE), "nothing comes behind the scale");
    f32 scale, cap;
    Window_ window;
    Mask mask;
    PositionsOf positions;
};

DEVICE f32 minus_infinity() { return __int_as_float(0xff800000); }

// 2^x; far below zero it is 0.
DEVICE f32 power_of_two(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// tanh from the exponential function, exact to some units in the last place.
DEVICE f32 bounded(f32 x) {
    f32 e = power_of_two(-2.8853900817779268f * fabsf(x));
    return copysignf((1.0f - e) / (1.0f + e), x);
}

DEVICE u32 pack_pair(f16, f32 low, f32 high) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

DEVICE u32 pack_pair(bf16, f32 low, f32 high) {
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

// Four neighbours of a list, from the 4 * `index`-th on.
template <int COUNT> DEVICE f32 (&four_of(f32 (&list)[COUNT], int index))[4] {
    return *reinterpret_cast<f32(*)[4]>(&list[4 * index]);
}

// Two rows of a warp's product as a lane holds them, lane / 4 (half 0) and lane / 4 + 8 (half 1):
// the keys that they see, the highest score so far, and the lane's part of the sum of weights.
struct SoftRows {
    f32 highest[2], weight[2];
    int begin[2], end[2];

    DEVICE void clear() {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            highest[half] = minus_infinity();
            weight[half] = 0.0f;
        }
    }

    // Adds the weights of a row's lanes; `scale` makes of the highest score what it is to others.
    DEVICE void finish(f32 scale) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            highest[half] *= scale;
            weight[half] += __shfl_xor_sync(0xffffffffu, weight[half], 1);
            weight[half] += __shfl_xor_sync(0xffffffffu, weight[half], 2);
        }
    }
};

// Makes weights of a block of scores, `scores[4 c + 2 half + i]` that of key `first + 8 c + 2 (lane %
// 4) + i`, and adds them up. `old` says what becomes of earlier results. `mask(half, key)` is what a
// mask adds; unless the rows see the `whole` block, keys that they do not see get no weight.
template <class Rule, int COUNT, class Mask>
DEVICE void soften(SoftRows& rows, const Rule& rule, const Mask& mask, int first, bool whole,
                   f32 (&scores)[COUNT], f32 (&old)[2]) {
    constexpr bool LATE = Rule::LATE;
    const int column = first + (int(threadIdx.x) & 3) * 2;
    if constexpr (!LATE) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            f32 score = scores[i] * rule.scale;
            if constexpr (Rule::CAPPED) score = rule.cap * bounded(score / rule.cap);
            if constexpr (Rule::FORM != MASK_NONE) {
                score += mask(i / 2 % 2, column + i / 4 * 8 + i % 2);
            }
            scores[i] = score;
        }
    }
    if (!whole) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            int key = column + i / 4 * 8 + i % 2, half = i / 2 % 2;
            bool visible = key >= rows.begin[half] && key < rows.end[half];
            scores[i] = visible ? scores[i] : minus_infinity();
        }
    }
    const f32 unit = LATE ? rule.scale * 1.4426950408889634f : 1.4426950408889634f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        f32 highest = rows.highest[half];
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            highest = fmaxf(highest, fmaxf(scores[i + half * 2], scores[i + half * 2 + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
        // A row that sees nothing yet has no highest score, but its weights must not be NaN.
        f32 from = highest == minus_infinity() ? 0.0f : highest;
        old[half] = power_of_two((rows.highest[half] - from) * unit);
        rows.highest[half] = highest;
        f32 sum = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            if (i / 2 % 2 != half) continue;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                f32& score = scores[i + r];
                // A difference first where masks may be as low as the lowest float.
                score = LATE ? power_of_two(score * unit - from * unit)
                             : power_of_two((score - from) * unit);
                sum += score;
            }
        }
        rows.weight[half] = rows.weight[half] * old[half] + sum;
    }
}
