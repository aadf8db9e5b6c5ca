//! Elementary functions on f32 without branches or tables, so that a loop over them vectorises;
//! accurate to about two units in the last place. Must never be used where results have to be the
//! same bits on every machine (constant folding uses the interpreter).

/// `eˣ`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Beyond these the result is infinity or 0; the clamp keeps the scale's exponents in range.
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -104.0 { -104.0 } else { clamped };
    let (n, r) = reduce(clamped);
    let y = scale(1.0 + r + r * r * tail(r), n);
    // A NaN passes both clamps.
    if x > 88.8 { f32::INFINITY } else { y }
}

/// `eˣ - 1`, accurate near 0.
#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -20.0 { -20.0 } else { clamped };
    let (n, r) = reduce(clamped);
    let fraction = r + r * r * tail(r);
    // 2ⁿ⁻¹ doubled, since 2¹²⁸ is no f32.
    let half = power_of_two(n.wrapping_sub(1));
    let y = 2.0 * (half * fraction + (half - 0.5));
    let y = if x > 88.8 { f32::INFINITY } else { y };
    // The sign of zero stays.
    if x == 0.0 { x } else { y }
}

/// Hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    // Beyond 9.02 the result rounds to 1.
    let clamped = if magnitude > 10.0 { 10.0 } else { magnitude };
    let e = expm1(2.0 * clamped);
    (e / (e + 2.0)).copysign(x)
}

/// Error function.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let t = x.abs();
    // erf(t) / t on 0..0.95 in t², a Chebyshev fit of degree 6 with an error of 6e-10.
    let q = t * t;
    let mut near = 8.209_797e-5f32;
    for coefficient in [
        -8.104_442e-4,
        5.197_642_4e-3,
        -2.685_803_2e-2,
        0.112_836_71,
        -0.376_126_32,
        std::f32::consts::FRAC_2_SQRT_PI,
    ] {
        near = near * q + coefficient;
    }
    // -log(erfc(t)) on 0.9..4 in t - 2.45, a Chebyshev fit of degree 8; erf errs by 1e-9.
    let u = (if t > 4.0 { 4.0 } else { t }) - 2.45;
    let mut far = -1.610_240_4e-6f32;
    for coefficient in [
        1.395_206_1e-5,
        -8.218_181e-5,
        4.440_836_8e-4,
        -2.273_137e-3,
        1.130_223_8e-2,
        0.942_231_83,
        5.258_373_7,
        7.541_539_7,
    ] {
        far = far * u + coefficient;
    }
    let y = if t < 0.92 { t * near } else { 1.0 - exp(-far) };
    let y = if x.is_nan() { x } else { y };
    y.copysign(x)
}

/// Natural logarithm.
#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    // Subnormal numbers are scaled up first.
    let small = x < f32::MIN_POSITIVE;
    let normal = if small { x * 8_388_608.0 } else { x };
    let bits = normal.to_bits() as i32;
    // The mantissa in √½..√2, so that the logarithm of a number near 1 does not cancel.
    let exponent = bits.wrapping_sub(0x3f35_04f3) >> 23;
    let mantissa = f32::from_bits(bits.wrapping_sub(exponent << 23) as u32);
    let f = mantissa - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    // log(1 + f) = 2 atanh(s), as f - s (f - R) to keep the leading term exact.
    let r = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0))));
    let half_square = 0.5 * f * f;
    let k = exponent as f32 - if small { 23.0 } else { 0.0 };
    let y = k * LN2_HI - ((half_square - (s * (half_square + r) + k * LN2_LO)) - f);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}

/// The upper bits of ln 2: their product with a small integer is exact.
const LN2_HI: f32 = 0.693_359_4;
/// ln 2 - [`LN2_HI`].
const LN2_LO: f32 = -2.121_944_4e-4;

/// `x = n ln 2 + r` with |r| ≤ ln 2 / 2.
#[inline(always)]
fn reduce(x: f32) -> (i32, f32) {
    // Adding 1.5 · 2²³ rounds to an integer, which then stands in the low bits of the sum. NaN
    // gives any n and stays NaN, so the arithmetic on n wraps.
    const ROUND: f32 = 12_582_912.0;
    let sum = x * std::f32::consts::LOG2_E + ROUND;
    let n = sum - ROUND;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    ((sum.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32), r)
}

/// `(eʳ - 1 - r) / r²`: the Taylor series, whose next term is below 2⁻²⁷ for |r| ≤ ln 2 / 2.
#[inline(always)]
fn tail(r: f32) -> f32 {
    let mut sum = 1.0f32 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        sum = sum * r + coefficient;
    }
    sum
}

/// `y 2ⁿ` for n in -151..=129, in two steps so that subnormal results round once.
#[inline(always)]
fn scale(y: f32, n: i32) -> f32 {
    let first = n >> 1;
    y * power_of_two(first) * power_of_two(n.wrapping_sub(first))
}

/// 2ⁿ for n in -126..=127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The greatest error over a range, in units in the last place of the reference.
    fn worst(lo: f64, hi: f64, f: fn(f32) -> f32, reference: fn(f64) -> f64) -> f64 {
        let count = 200_001;
        let mut worst = 0.0f64;
        for i in 0..count {
            let x = (lo + (hi - lo) * f64::from(i) / f64::from(count - 1)) as f32;
            let expected = reference(f64::from(x));
            let ulp = f64::from(f32::EPSILON) * expected.abs().max(f64::from(f32::MIN_POSITIVE));
            worst = worst.max((f64::from(f(x)) - expected).abs() / ulp);
        }
        worst
    }

    #[test]
    fn functions_are_accurate() {
        assert!(worst(-87.0, 88.0, exp, f64::exp) < 2.0);
        assert!(worst(-19.0, 88.0, expm1, f64::exp_m1) < 3.0);
        assert!(worst(-1e-3, 1e-3, expm1, f64::exp_m1) < 3.0);
        assert!(worst(-9.0, 9.0, tanh, f64::tanh) < 4.0);
        assert!(worst(1e-30, 1e-3, log, f64::ln) < 2.0);
        assert!(worst(0.5, 2.0, log, f64::ln) < 2.0);
        for (x, expected) in [(0.1, 0.1124629160182849), (0.5, 0.5204998778130465)] {
            assert!((f64::from(erf(x)) - expected).abs() < 1e-7);
        }
        for (x, expected) in [(1.0, 0.8427007929497149), (2.0, 0.9953222650189527)] {
            assert!((f64::from(erf(-x)) + expected).abs() < 2e-7);
        }
    }

    #[test]
    fn limits_are_exact() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && erf(f32::NAN).is_nan());
        assert_eq!((tanh(100.0), tanh(-100.0)), (1.0, -1.0));
        assert_eq!((erf(10.0), erf(-10.0)), (1.0, -1.0));
        assert_eq!((log(0.0), log(f32::INFINITY)), (f32::NEG_INFINITY, f32::INFINITY));
        assert!(log(-1.0).is_nan() && expm1(f32::NAN).is_nan());
        assert_eq!(log(1.0), 0.0);
        assert!((exp(-100.0) / f32::from_bits(27) - 1.0).abs() < 0.05);
        assert_eq!(expm1(-200.0), -1.0);
    }
}
