// Coordinates and filters of resampling. Must never read an element.

// How an output index becomes an input coordinate: `CoordinateMode` in its order.
enum Coordinates {
    HALF_PIXEL, HALF_PIXEL_SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, TF_HALF_PIXEL_FOR_NN,
    ASYMMETRIC, TF_CROP_AND_RESIZE
};

// One dimension that is resampled; `scale` 0: the exact ratio of the sizes.
struct Line {
    Coordinates mode;
    i64 source;
    i64 size;
    f64 scale;
    f64 start;
    f64 end;
};

DEVICE f64 line_shrink(const Line& line) {
    f64 scale = line.scale != 0.0 ? line.scale : f64(line.size) / f64(line.source);
    return fmin(scale, 1.0);
}

// The coordinate that an element samples; `outside` where that has a value of its own.
DEVICE f64 line_coordinate(const Line& line, i64 index, bool& outside) {
    f64 i = f64(index), n = f64(line.source), m = f64(line.size);
    f64 width = line.scale != 0.0 ? __dmul_rn(line.scale, n) : m;
    auto unscaled = [&](f64 x) { return line.scale != 0.0 ? x / line.scale : __dmul_rn(x, n) / m; };
    auto along = [&](f64 length) {
        return index == 0 ? 0.0 : __dmul_rn(i, length) / (width - 1.0);
    };
    f64 at = 0.0;
    switch (line.mode) {
        case HALF_PIXEL: at = unscaled(i + 0.5) - 0.5; break;
        case HALF_PIXEL_SYMMETRIC:
            at = __dmul_rn(n / 2.0, 1.0 - m / width) + (unscaled(i + 0.5) - 0.5);
            break;
        case PYTORCH_HALF_PIXEL: at = line.size == 1 ? 0.0 : unscaled(i + 0.5) - 0.5; break;
        case ALIGN_CORNERS: at = along(n - 1.0); break;
        case TF_HALF_PIXEL_FOR_NN: at = unscaled(i + 0.5); break;
        case ASYMMETRIC: at = unscaled(i); break;
        case TF_CROP_AND_RESIZE:
            if (line.size == 1) {
                at = 0.5 * (line.start + line.end) * (n - 1.0);
            } else {
                at = __dmul_rn(line.start, n - 1.0) + along((line.end - line.start) * (n - 1.0));
            }
            if (!(at >= 0.0 && at <= n - 1.0)) outside = true;
            break;
    }
    const f64 far = 4503599627370496.0;
    return fmax(-far, fmin(far, at));
}

// How `nearest` rounds: `NearestMode` in its order.
enum Nearest { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL };

DEVICE i64 nearest_element(Nearest mode, f64 x, i64 extent) {
    f64 at = mode == ROUND_PREFER_FLOOR ? ceil(x - 0.5)
           : mode == ROUND_PREFER_CEIL  ? floor(x + 0.5)
           : mode == FLOOR              ? floor(x)
                                        : ceil(x);
    return i64(fmax(0.0, fmin(f64(max(extent - 1, 0LL)), at)));
}

// The weight of an element at a distance in cubic convolution (Keys 1981).
DEVICE f64 cubic_filter(f64 t, f64 a) {
    if (t <= 1.0) return ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0;
    if (t < 2.0) return ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a;
    return 0.0;
}

// The elements that a coordinate is interpolated from: `first..=last`, their filter, and what their
// weights are divided by.
struct Taps {
    f64 at;
    i64 first;
    i64 last;
    i64 end;
    f64 shrink;
    f64 total;
    f64 cubic;
    bool is_cubic;
    bool exclude;

    DEVICE f64 raw(i64 k) const {
        f64 distance = fabs(f64(k) - at) * shrink;
        return is_cubic ? cubic_filter(distance, cubic) : fmax(1.0 - distance, 0.0);
    }
    DEVICE bool counts(i64 k) const { return !exclude || (k >= 0 && k <= end); }
    DEVICE f64 weight(i64 k) const { return counts(k) ? raw(k) / total : 0.0; }
    DEVICE i64 element(i64 k) const { return max(0LL, min(k, end)); }
};

DEVICE Taps resize_taps(const Line& line, f64 at, bool is_cubic, f64 cubic, bool exclude, bool antialias) {
    Taps taps;
    taps.at = at;
    taps.is_cubic = is_cubic;
    taps.cubic = cubic;
    taps.exclude = exclude;
    taps.end = line.source - 1;
    taps.shrink = antialias ? line_shrink(line) : 1.0;
    f64 reach = (is_cubic ? 2.0 : 1.0) / taps.shrink;
    taps.first = i64(floor(at - reach)) + 1;
    taps.last = i64(ceil(at + reach)) - 1;
    taps.total = 1.0;
    if (exclude || antialias) {
        f64 total = 0.0;
        for (i64 k = taps.first; k <= taps.last; ++k) total += taps.counts(k) ? taps.raw(k) : 0.0;
        if (total != 0.0) taps.total = total;
    }
    return taps;
}

// Grids. What lies outside: `GridPadding` in its order.
enum Outside { ZEROS, BORDER, REFLECTION };

DEVICE f64 grid_reflect(f64 position, i64 extent, f64 least) {
    f64 length = f64(extent) - 1.0 - 2.0 * least;
    if (length <= 0.0) return least;
    f64 distance = fmod(fabs(position - least), 2.0 * length);
    return least + (distance > length ? 2.0 * length - distance : distance);
}

// Where a coordinate in -1..1 lies among the elements, rounded as f32 arithmetic rounds it.
DEVICE f64 grid_position(f32 g, i64 extent, bool align_corners) {
    f32 n = f32(extent);
    if (align_corners) return f64(__fmul_rn(__fadd_rn(g, 1.0f) / 2.0f, n - 1.0f));
    return f64(__fsub_rn(__fmul_rn(__fadd_rn(g, 1.0f), n), 1.0f) / 2.0f);
}
DEVICE f64 grid_position(f64 g, i64 extent, bool align_corners) {
    f64 n = f64(extent);
    if (align_corners) return __dmul_rn(__dadd_rn(g, 1.0) / 2.0, n - 1.0);
    return __dsub_rn(__dmul_rn(__dadd_rn(g, 1.0), n), 1.0) / 2.0;
}

// The position that is interpolated around, for a mode of nearest, linear or cubic.
DEVICE f64 grid_settle(f64 position, i64 extent, Outside outside, bool nearest, f64 least) {
    const f64 far = 281474976710656.0;
    position = position != position ? -far : fmax(-far, fmin(far, position));
    if (nearest) position = rint(position);
    f64 last = f64(extent) - 1.0;
    if (outside == BORDER && !(position >= least && position <= last - least)) {
        position = fmax(0.0, fmin(last, position));
    }
    if (outside == REFLECTION) position = grid_reflect(position, extent, least);
    return position;
}

// The element at a whole position; -1 where 0 stands for it.
DEVICE i64 grid_element(f64 at, i64 extent, Outside outside, f64 least) {
    f64 last = f64(extent) - 1.0;
    if (outside == ZEROS) return at >= 0.0 && at <= last ? i64(at) : -1;
    if (outside == REFLECTION) at = grid_reflect(at, extent, least);
    return i64(fmax(0.0, fmin(last, at)));
}
