//! Left sides of rules, and what nearly is one; never how they are checked.

use super::{Case, NearMiss};

const FLOATS: &[&str] = &["f32", "f64", "f16", "bf16"];
const SINGLE: &[&str] = &["f32", "f16", "bf16"];
const EXACT: &[&str] = &["f32", "f64"];
const NARROW: &[&str] = &["f16", "bf16"];

pub(super) const CASES: &[Case] = &[
    Case {
        rules: &["gelu-erf"],
        left: &["gelu"],
        types: SINGLE,
        graph: "graph @g(%x: T[B, 5]) where B in 1..=8 {
  %one = weight 1.0 : T[]
  %root = weight 1.4142135 : T[]
  %half = weight 0.5 : T[]
  %a = div %x, %root : T[B, 5]
  %b = erf %a : T[B, 5]
  %c = add %b, %one : T[B, 5]
  %d = mul %x, %c : T[B, 5]
  %y = mul %d, %half : T[B, 5]
  return %y
}",
    },
    Case {
        rules: &["gelu-erf"],
        left: &["neg", "gelu"],
        types: &["f32"],
        graph: "graph @g(%z: T[B, 5]) where B in 1..=8 {
  %x = neg %z : T[B, 5]
  %one = weight 1.0 : T[]
  %root = weight [0.70710677] : T[1]
  %half = weight [0.5] : T[1, 1]
  %a = mul %root, %x : T[B, 5]
  %b = erf %a : T[B, 5]
  %c = add %one, %b : T[B, 5]
  %d = mul %half, %x : T[B, 5]
  %y = mul %c, %d : T[B, 5]
  return %y
}",
    },
    Case {
        rules: &["gelu-tanh"],
        left: &["gelu"],
        types: &["f32"],
        graph: "graph @g(%x: T[B, 5]) where B in 1..=8 {
  %one = weight 1.0 : T[]
  %three = weight 3.0 : T[]
  %k = weight 0.044715 : T[]
  %outer = weight 0.7978846 : T[]
  %half = weight 0.5 : T[]
  %a = pow %x, %three : T[B, 5]
  %b = mul %a, %k : T[B, 5]
  %c = add %x, %b : T[B, 5]
  %d = mul %c, %outer : T[B, 5]
  %e = tanh %d : T[B, 5]
  %f = add %e, %one : T[B, 5]
  %h = mul %x, %half : T[B, 5]
  %y = mul %h, %f : T[B, 5]
  return %y
}",
    },
    Case {
        rules: &["gelu-tanh"],
        left: &["gelu"],
        types: &["f32"],
        graph: "graph @g(%x: T[B, 5]) where B in 1..=8 {
  %one = weight 1.0 : T[]
  %k = weight 0.044715 : T[]
  %outer = weight 0.7978846 : T[]
  %half = weight 0.5 : T[]
  %a = mul %x, %x : T[B, 5]
  %b = mul %a, %k : T[B, 5]
  %c = add %b, %one : T[B, 5]
  %o = mul %x, %outer : T[B, 5]
  %d = mul %o, %c : T[B, 5]
  %e = tanh %d : T[B, 5]
  %f = add %one, %e : T[B, 5]
  %h = mul %half, %f : T[B, 5]
  %y = mul %x, %h : T[B, 5]
  return %y
}",
    },
    Case {
        rules: &["sigmoid"],
        left: &["sigmoid"],
        types: FLOATS,
        graph: "graph @g(%x: T[B, 5]) where B in 1..=8 {
  %one = weight 1.0 : T[]
  %a = neg %x : T[B, 5]
  %b = exp %a : T[B, 5]
  %c = add %b, %one : T[B, 5]
  %y = div %one, %c : T[B, 5]
  return %y
}",
    },
    Case {
        rules: &["swish"],
        left: &["swish"],
        types: FLOATS,
        graph: "graph @g(%x: T[B, 5]) where B in 1..=8 {
  %a = sigmoid %x : T[B, 5]
  %y = mul %a, %x : T[B, 5]
  return %y
}",
    },
    Case {
        rules: &["swish"],
        left: &["gelu"],
        types: &["f32"],
        graph: "graph @g(%x: T[B, 5]) where B in 1..=8 {
  %k = weight 1.702 : T[]
  %a = mul %x, %k : T[B, 5]
  %b = sigmoid %a : T[B, 5]
  %y = mul %x, %b : T[B, 5]
  return %y
}",
    },
    Case {
        rules: &["rms-norm", "norm-scale"],
        left: &["rms_norm"],
        types: EXACT,
        graph: "graph @g(%x: T[B, S, 6], %w: T[6]) where B in 1..=3, S in 1..=5 {
  %e = weight 0.01 : T[]
  %two = weight 2.0 : T[]
  %a = pow %x, %two : T[B, S, 6]
  %b = reduce %a {kind = mean, axes = [2], keep = true} : T[B, S, 1]
  %c = add %b, %e : T[B, S, 1]
  %d = sqrt %c : T[B, S, 1]
  %f = div %x, %d : T[B, S, 6]
  %y = mul %f, %w : T[B, S, 6]
  return %y
}",
    },
    Case {
        rules: &["rms-norm", "norm-scale", "norm-cast"],
        left: &["rms_norm"],
        types: NARROW,
        graph: "graph @g(%x: T[B, S, 6], %w: T[6]) where B in 1..=3, S in 1..=5 {
  %e = weight [0.01] : f32[1]
  %one = weight 1.0 : f32[]
  %u = cast %x {to = f32, saturate = true} : f32[B, S, 6]
  %a = mul %u, %u : f32[B, S, 6]
  %b = reduce %a {kind = mean, axes = [2], keep = true} : f32[B, S, 1]
  %c = add %b, %e : f32[B, S, 1]
  %d = sqrt %c : f32[B, S, 1]
  %r = div %one, %d : f32[B, S, 1]
  %f = mul %u, %r : f32[B, S, 6]
  %n = cast %f {to = T, saturate = true} : T[B, S, 6]
  %y = mul %w, %n : T[B, S, 6]
  return %y
}",
    },
    Case {
        rules: &["rms-norm", "norm-scale"],
        left: &["add", "rms_norm"],
        types: EXACT,
        graph: "graph @g(%x: T[B, S, 6], %w: T[6]) where B in 1..=3, S in 1..=5 {
  %e = weight 0.01 : T[]
  %one = weight 1.0 : T[]
  %p = add %w, %one : T[6]
  %a = mul %x, %x : T[B, S, 6]
  %b = reduce %a {kind = sum, axes = [2], keep = true} : T[B, S, 1]
  %count = weight 6.0 : T[]
  %m = div %b, %count : T[B, S, 1]
  %c = add %m, %e : T[B, S, 1]
  %d = rsqrt %c : T[B, S, 1]
  %f = mul %x, %d : T[B, S, 6]
  %y = mul %p, %f : T[B, S, 6]
  return %y
}",
    },
    Case {
        rules: &["layer-norm", "norm-scale", "norm-bias"],
        left: &["layer_norm"],
        types: EXACT,
        graph: "graph @g(%x: T[B, S, 6], %w: T[6], %v: T[1, 6]) where B in 1..=3, S in 1..=5 {
  %e = weight 0.01 : T[]
  %two = weight 2.0 : T[]
  %m = reduce %x {kind = mean, axes = [2], keep = true} : T[B, S, 1]
  %u = sub %x, %m : T[B, S, 6]
  %a = pow %u, %two : T[B, S, 6]
  %b = reduce %a {kind = mean, axes = [2], keep = true} : T[B, S, 1]
  %c = add %e, %b : T[B, S, 1]
  %d = sqrt %c : T[B, S, 1]
  %f = div %u, %d : T[B, S, 6]
  %h = mul %w, %f : T[B, S, 6]
  %y = add %h, %v : T[B, S, 6]
  return %y
}",
    },
    Case {
        rules: &["layer-norm"],
        left: &["layer_norm"],
        types: EXACT,
        graph: "graph @g(%x: T[B, S, 6]) where B in 1..=3, S in 2..=5 {
  %e = weight 0.01 : T[]
  %m = reduce %x {kind = mean, axes = [1, 2], keep = true} : T[B, 1, 1]
  %u = sub %x, %m : T[B, S, 6]
  %a = mul %u, %u : T[B, S, 6]
  %b = reduce %a {kind = mean, axes = [1, 2], keep = true} : T[B, 1, 1]
  %c = add %b, %e : T[B, 1, 1]
  %d = rsqrt %c : T[B, 1, 1]
  %y = mul %u, %d : T[B, S, 6]
  return %y
}",
    },
    Case {
        rules: &["merge-transposes"],
        left: &["transpose"],
        types: &["f32"],
        graph: "graph @g(%x: T[B, 2, 3]) where B in 1..=3 {
  %a = transpose %x {perm = [2, 0, 1]} : T[3, B, 2]
  %y = transpose %a {perm = [0, 2, 1]} : T[3, 2, B]
  return %y
}",
    },
    Case {
        rules: &["transpose-matrices"],
        left: &["transpose"],
        types: &["f32"],
        graph: "graph @g(%x: T[B, 2, S, 3]) where B in 1..=3, S in 1..=5 {
  %a = reshape %x {shape = [2*B, S, 3]} : T[2*B, S, 3]
  %b = transpose %a {perm = [0, 2, 1]} : T[2*B, 3, S]
  %y = reshape %b {shape = [B, 2, 3, S]} : T[B, 2, 3, S]
  return %y
}",
    },
    // The scale on the scores, K transposed.
    Case {
        rules: &["attention"],
        left: &["attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %scale = weight 0.3 : T[]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %a = mul %s, %scale : T[B, 2, S, K]
  %p = softmax %a {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // The scale on Q and on K, a mask that is added, and a second one.
    Case {
        rules: &["attention"],
        left: &["add", "attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %m: T[B, 1, S, K], %n: T[2, 1, K])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %root = weight 0.7 : T[]
  %u = mul %q, %root : T[B, 2, S, 4]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %w = div %t, %root : T[B, 2, 4, K]
  %s = matmul %u, %w {acc = ACC, result = T} : T[B, 2, S, K]
  %a = add %s, %m : T[B, 2, S, K]
  %b = add %n, %a : T[B, 2, S, K]
  %p = softmax %b {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // K transposed from where it was made, a divisor, a soft cap.
    Case {
        rules: &["attention"],
        left: &["transpose", "transpose", "transpose", "attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, S, 2, 4], %k: T[B, K, 2, 4], %v: T[B, K, 2, 3])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %root = weight 2.0 : T[]
  %cap = weight 1.5 : T[]
  %u = transpose %q {perm = [0, 2, 1, 3]} : T[B, 2, S, 4]
  %t = transpose %k {perm = [0, 2, 3, 1]} : T[B, 2, 4, K]
  %w = transpose %v {perm = [0, 2, 1, 3]} : T[B, 2, K, 3]
  %s = matmul %u, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %a = div %s, %root : T[B, 2, S, K]
  %c = div %a, %cap : T[B, 2, S, K]
  %d = tanh %c : T[B, 2, S, K]
  %e = mul %d, %cap : T[B, 2, S, K]
  %p = softmax %e {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %w {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // Matrices of a batch, with a mask.
    Case {
        rules: &["attention"],
        left: &["reshape", "reshape", "reshape", "reshape", "attention", "reshape"],
        types: EXACT,
        graph: "graph @g(%q: T[B, S, 4], %k: T[B, K, 4], %v: T[B, K, 3], %m: T[S, K])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %scale = weight 0.5 : T[]
  %u = mul %q, %scale : T[B, S, 4]
  %t = transpose %k {perm = [0, 2, 1]} : T[B, 4, K]
  %s = matmul %u, %t {acc = ACC, result = T} : T[B, S, K]
  %a = add %s, %m : T[B, S, K]
  %p = softmax %a {axis = 2} : T[B, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, S, 3]
  return %y
}",
    },
    // A condition that becomes a mask, in f32 between products of a narrow type.
    Case {
        rules: &["attention", "boolean-mask"],
        left: &["attention"],
        types: NARROW,
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %c: bool[B, 1, S, K])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %scale = weight 0.5 : f32[]
  %zero = weight 0.0 : f32[]
  %low = weight -3.4028235e38 : f32[]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = f32, result = T} : T[B, 2, S, K]
  %w = cast %s {to = f32, saturate = true} : f32[B, 2, S, K]
  %a = mul %w, %scale : f32[B, 2, S, K]
  %m = select %c, %zero, %low : f32[B, 1, S, K]
  %b = add %a, %m : f32[B, 2, S, K]
  %p = softmax %b {axis = 3} : f32[B, 2, S, K]
  %r = cast %p {to = T, saturate = true} : T[B, 2, S, K]
  %y = matmul %r, %v {acc = f32, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // The other way around, and behind a guard that never finds anything.
    Case {
        rules: &["attention", "boolean-mask"],
        left: &["not", "attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %c: bool[B, 1, S, K])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %zero = weight 0.0 : T[]
  %low = weight -3.4028235e38 : T[]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %m = select %c, %low, %zero : T[B, 1, S, K]
  %b = add %m, %s : T[B, 2, S, K]
  %p = softmax %b {axis = 3} : T[B, 2, S, K]
  %n = is_nan %p : bool[B, 2, S, K]
  %g = select %n, %zero, %p : T[B, 2, S, K]
  %y = matmul %g, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // Infinities behind a guard: rows that are masked as a whole are 0.
    Case {
        rules: &["attention", "boolean-mask"],
        left: &["attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %c: bool[B, 1, S, K])
  where B in 1..=3, S in 1..=5, K in 1..=3 {
  %zero = weight 0.0 : T[]
  %low = weight -inf : T[]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %m = select %c, %zero, %low : T[B, 1, S, K]
  %b = add %m, %s : T[B, 2, S, K]
  %p = softmax %b {axis = 3} : T[B, 2, S, K]
  %n = is_nan %p : bool[B, 2, S, K]
  %g = select %n, %zero, %p : T[B, 2, S, K]
  %y = matmul %g, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // Scores that are replaced where a condition does not hold.
    Case {
        rules: &["attention"],
        left: &["attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %c: bool[B, 1, 1, K])
  where B in 1..=3, S in 1..=5, K in 1..=3 {
  %low = weight -3.4028235e38 : T[]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %b = select %c, %s, %low : T[B, 2, S, K]
  %p = softmax %b {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
];

pub(super) const NEAR_MISSES: &[NearMiss] = &[
    // Another factor inside.
    NearMiss {
        absent: "gelu",
        graph: "graph @g(%x: T[B, 5]) where B in 1..=8 {
  %one = weight 1.0 : T[]
  %root = weight 1.5 : T[]
  %half = weight 0.5 : T[]
  %a = div %x, %root : T[B, 5]
  %b = erf %a : T[B, 5]
  %c = add %b, %one : T[B, 5]
  %d = mul %x, %c : T[B, 5]
  %y = mul %d, %half : T[B, 5]
  return %y
}",
    },
    // Gate and value are not the same.
    NearMiss {
        absent: "gelu",
        graph: "graph @g(%x: T[B, 5], %z: T[B, 5]) where B in 1..=8 {
  %one = weight 1.0 : T[]
  %root = weight 1.4142135 : T[]
  %half = weight 0.5 : T[]
  %a = div %x, %root : T[B, 5]
  %b = erf %a : T[B, 5]
  %c = add %b, %one : T[B, 5]
  %d = mul %z, %c : T[B, 5]
  %y = mul %d, %half : T[B, 5]
  return %y
}",
    },
    NearMiss {
        absent: "swish",
        graph: "graph @g(%x: T[B, 5], %z: T[B, 5]) where B in 1..=8 {
  %a = sigmoid %x : T[B, 5]
  %y = mul %a, %z : T[B, 5]
  return %y
}",
    },
    // Epsilon outside of the root.
    NearMiss {
        absent: "rms_norm",
        graph: "graph @g(%x: T[B, S, 6]) where B in 1..=3, S in 1..=5 {
  %e = weight 0.01 : T[]
  %a = mul %x, %x : T[B, S, 6]
  %b = reduce %a {kind = mean, axes = [2], keep = true} : T[B, S, 1]
  %d = sqrt %b : T[B, S, 1]
  %c = add %d, %e : T[B, S, 1]
  %y = div %x, %c : T[B, S, 6]
  return %y
}",
    },
    // Over another axis than the innermost.
    NearMiss {
        absent: "rms_norm",
        graph: "graph @g(%x: T[B, S, 6]) where B in 1..=3, S in 1..=5 {
  %e = weight 0.01 : T[]
  %a = mul %x, %x : T[B, S, 6]
  %b = reduce %a {kind = mean, axes = [1], keep = true} : T[B, 1, 6]
  %c = add %b, %e : T[B, 1, 6]
  %d = sqrt %c : T[B, 1, 6]
  %y = div %x, %d : T[B, S, 6]
  return %y
}",
    },
    // A sum over another number than there are.
    NearMiss {
        absent: "rms_norm",
        graph: "graph @g(%x: T[B, S, 6]) where B in 1..=3, S in 1..=5 {
  %e = weight 0.01 : T[]
  %count = weight 5.0 : T[]
  %a = mul %x, %x : T[B, S, 6]
  %b = reduce %a {kind = sum, axes = [2], keep = true} : T[B, S, 1]
  %m = div %b, %count : T[B, S, 1]
  %c = add %m, %e : T[B, S, 1]
  %d = sqrt %c : T[B, S, 1]
  %y = div %x, %d : T[B, S, 6]
  return %y
}",
    },
    // Mean and variance over different axes.
    NearMiss {
        absent: "layer_norm",
        graph: "graph @g(%x: T[B, S, 6]) where B in 1..=3, S in 2..=5 {
  %e = weight 0.01 : T[]
  %m = reduce %x {kind = mean, axes = [1, 2], keep = true} : T[B, 1, 1]
  %u = sub %x, %m : T[B, S, 6]
  %a = mul %u, %u : T[B, S, 6]
  %b = reduce %a {kind = mean, axes = [2], keep = true} : T[B, S, 1]
  %c = add %b, %e : T[B, S, 1]
  %d = rsqrt %c : T[B, S, 1]
  %y = mul %u, %d : T[B, S, 6]
  return %y
}",
    },
    // The mean is subtracted the wrong way around.
    NearMiss {
        absent: "layer_norm",
        graph: "graph @g(%x: T[B, S, 6]) where B in 1..=3, S in 2..=5 {
  %e = weight 0.01 : T[]
  %m = reduce %x {kind = mean, axes = [2], keep = true} : T[B, S, 1]
  %u = sub %m, %x : T[B, S, 6]
  %a = mul %u, %u : T[B, S, 6]
  %b = reduce %a {kind = mean, axes = [2], keep = true} : T[B, S, 1]
  %c = add %b, %e : T[B, S, 1]
  %d = rsqrt %c : T[B, S, 1]
  %y = mul %u, %d : T[B, S, 6]
  return %y
}",
    },
    // Softmax over queries.
    NearMiss {
        absent: "attention",
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %p = softmax %s {axis = 2} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // A mask of queries, not of scores: it is multiplied.
    NearMiss {
        absent: "attention",
        graph:
            "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %m: T[B, 1, S, K])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %a = mul %s, %m : T[B, 2, S, K]
  %p = softmax %a {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // The number that stands where the condition does not hold masks nothing away.
    NearMiss {
        absent: "attention",
        graph:
            "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %c: bool[B, 1, S, K])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %low = weight -1.0 : T[]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %b = select %c, %s, %low : T[B, 2, S, K]
  %p = softmax %b {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // Scores are read by another operator too, so finding attention would save nothing.
    NearMiss {
        absent: "attention",
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %p = softmax %s {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %p, %y
}",
    },
    // Three dimensions move.
    NearMiss {
        absent: "reshape",
        graph: "graph @g(%x: T[B, 2, S, 3]) where B in 1..=3, S in 1..=5 {
  %a = transpose %x {perm = [0, 2, 1, 3]} : T[B, S, 2, 3]
  %y = transpose %a {perm = [1, 0, 2, 3]} : T[S, B, 2, 3]
  return %y
}",
    },
];
