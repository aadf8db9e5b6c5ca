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
    // Causal behind a past, and a mask of keys that is gathered in order.
    Case {
        rules: &["attention", "mask-by-position", "gather-in-order"],
        left: &["reshape", "attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, P + S, 4], %v: T[B, 2, P + S, 3], %c: bool[B, P + S])
  where B in 1..=3, S in 1..=5, P in 0..=3 {
  %low = weight -3.4028235e38 : T[]
  %past = dims {values = [P]} : i64[1]
  %i = iota {shape = [S], axis = 0, dtype = i64} : i64[S]
  %at = add %i, %past : i64[S]
  %query = reshape %at {shape = [1, 1, S, 1]} : i64[1, 1, S, 1]
  %j = iota {shape = [P + S], axis = 0, dtype = i64} : i64[P + S]
  %key = reshape %j {shape = [1, 1, 1, P + S]} : i64[1, 1, 1, P + S]
  %causal = less_or_equal %key, %query : bool[1, 1, S, P + S]
  %n = iota {shape = [B, 1, 1, 1], axis = 0, dtype = i64} : i64[B, 1, 1, 1]
  %rows = broadcast %n {shape = [B, 1, 1, P + S]} : i64[B, 1, 1, P + S]
  %row = reshape %rows {shape = [B, 1, 1, P + S, 1]} : i64[B, 1, 1, P + S, 1]
  %columns = broadcast %key {shape = [B, 1, 1, P + S]} : i64[B, 1, 1, P + S]
  %column = reshape %columns {shape = [B, 1, 1, P + S, 1]} : i64[B, 1, 1, P + S, 1]
  %tuples = concat %row, %column {axis = 4} : i64[B, 1, 1, P + S, 2]
  %padding = gather_nd %c, %tuples {batch_dims = 0} : bool[B, 1, 1, P + S]
  %visible = and %causal, %padding : bool[B, 1, S, P + S]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, P + S]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, P + S]
  %b = select %visible, %s, %low : T[B, 2, S, P + S]
  %p = softmax %b {axis = 3} : T[B, 2, S, P + S]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // A sliding window, a condition that always holds, and a mask that is gathered from a flat one.
    Case {
        rules: &["attention", "mask-by-position", "gather-in-order"],
        left: &["reshape", "attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, P + S, 4], %v: T[B, 2, P + S, 3], %c: bool[B, P + S])
  where B in 1..=3, S in 1..=5, P in 0..=3 {
  %low = weight -3.4028235e38 : T[]
  %three = weight 3 : i64[]
  %zero = weight 0 : i64[]
  %past = dims {values = [P]} : i64[1]
  %i = iota {shape = [1, 1, S, 1], axis = 2, dtype = i64} : i64[1, 1, S, 1]
  %query = add %past, %i : i64[1, 1, S, 1]
  %key = iota {shape = [1, 1, 1, P + S], axis = 3, dtype = i64} : i64[1, 1, 1, P + S]
  %first = sub %query, %three : i64[1, 1, S, 1]
  %after = greater %key, %first : bool[1, 1, S, P + S]
  %causal = greater_or_equal %query, %key : bool[1, 1, S, P + S]
  %always = greater_or_equal %query, %zero : bool[1, 1, S, 1]
  %n = iota {shape = [B, 1, 1, 1], axis = 0, dtype = i64} : i64[B, 1, 1, 1]
  %width = dims {values = [P + S]} : i64[1]
  %begin = mul %n, %width : i64[B, 1, 1, 1]
  %place = add %key, %begin : i64[B, 1, 1, P + S]
  %flat = reshape %c {shape = [B*P + B*S, 1]} : bool[B*P + B*S, 1]
  %found = gather %flat, %place {axis = 0} : bool[B, 1, 1, P + S, 1]
  %padding = reshape %found {shape = [B, 1, 1, P + S]} : bool[B, 1, 1, P + S]
  %window = and %causal, %after : bool[1, 1, S, P + S]
  %some = and %window, %always : bool[1, 1, S, P + S]
  %visible = and %padding, %some : bool[B, 1, S, P + S]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, P + S]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, P + S]
  %b = select %visible, %s, %low : T[B, 2, S, P + S]
  %p = softmax %b {axis = 3} : T[B, 2, S, P + S]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    },
    // Heads of keys and values that are repeated.
    Case {
        rules: &["attention", "grouped-heads", "merge-reshapes"],
        left: &["attention"],
        types: EXACT,
        graph: "graph @g(%q: T[B, 6, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %k1 = reshape %k {shape = [B, 2, 1, K, 4]} : T[B, 2, 1, K, 4]
  %k2 = broadcast %k1 {shape = [B, 2, 3, K, 4]} : T[B, 2, 3, K, 4]
  %k3 = reshape %k2 {shape = [6*B, K, 4]} : T[6*B, K, 4]
  %k4 = transpose %k3 {perm = [0, 2, 1]} : T[6*B, 4, K]
  %t = reshape %k4 {shape = [B, 6, 4, K]} : T[B, 6, 4, K]
  %v1 = reshape %v {shape = [B, 2, 1, K, 3]} : T[B, 2, 1, K, 3]
  %v2 = broadcast %v1 {shape = [B, 2, 3, K, 3]} : T[B, 2, 3, K, 3]
  %w = reshape %v2 {shape = [B, 6, K, 3]} : T[B, 6, K, 3]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 6, S, K]
  %p = softmax %s {axis = 3} : T[B, 6, S, K]
  %y = matmul %p, %w {acc = ACC, result = T} : T[B, 6, S, 3]
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
    // Rows in another order than they have.
    NearMiss {
        absent: "reshape",
        graph: "graph @g(%c: T[5, 4]) {
  %one = weight 1 : i64[]
  %i = iota {shape = [4], axis = 0, dtype = i64} : i64[4]
  %at = add %i, %one : i64[4]
  %y = gather %c, %at {axis = 0} : T[4, 4]
  return %y
}",
    },
    // Not all of the rows.
    NearMiss {
        absent: "reshape",
        graph: "graph @g(%c: T[5, 4]) {
  %i = iota {shape = [4], axis = 0, dtype = i64} : i64[4]
  %y = gather %c, %i {axis = 0} : T[4, 4]
  return %y
}",
    },
];

/// Attention that must be found, and what must be left of what is nearly a rule about it: the text of
/// its operator must not hold the first, and must hold the second.
pub(super) const NEARLY: &[(&str, &str, &str)] = &[
    // Heads that are repeated one after the other, not each by itself.
    (
        "nothing",
        "broadcast",
        "graph @g(%q: T[B, 6, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %k1 = reshape %k {shape = [B, 1, 2, K, 4]} : T[B, 1, 2, K, 4]
  %k2 = broadcast %k1 {shape = [B, 3, 2, K, 4]} : T[B, 3, 2, K, 4]
  %k3 = reshape %k2 {shape = [B, 6, K, 4]} : T[B, 6, K, 4]
  %t = transpose %k3 {perm = [0, 1, 3, 2]} : T[B, 6, 4, K]
  %v1 = reshape %v {shape = [B, 1, 2, K, 3]} : T[B, 1, 2, K, 3]
  %v2 = broadcast %v1 {shape = [B, 3, 2, K, 3]} : T[B, 3, 2, K, 3]
  %w = reshape %v2 {shape = [B, 6, K, 3]} : T[B, 6, K, 3]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 6, S, K]
  %p = softmax %s {axis = 3} : T[B, 6, S, K]
  %y = matmul %p, %w {acc = ACC, result = T} : T[B, 6, S, 3]
  return %y
}",
    ),
    // One row of positions of keys, for queries that all have the first one's.
    (
        "after = ",
        "mask = boolean",
        "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %n: i64[1, 1, S, 1])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %low = weight -3.4028235e38 : T[]
  %key = iota {shape = [1, 1, 1, K], axis = 3, dtype = i64} : i64[1, 1, 1, K]
  %c = less_or_equal %key, %n : bool[1, 1, S, K]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %b = select %c, %s, %low : T[B, 2, S, K]
  %p = softmax %b {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    ),
    // Every second key.
    (
        "after = ",
        "mask = boolean",
        "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %low = weight -3.4028235e38 : T[]
  %two = weight 2 : i64[]
  %j = iota {shape = [1, 1, 1, K], axis = 3, dtype = i64} : i64[1, 1, 1, K]
  %key = mul %j, %two : i64[1, 1, 1, K]
  %query = iota {shape = [1, 1, S, 1], axis = 2, dtype = i64} : i64[1, 1, S, 1]
  %c = less_or_equal %key, %query : bool[1, 1, S, K]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %b = select %c, %s, %low : T[B, 2, S, K]
  %p = softmax %b {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    ),
    // A bias that is no mask.
    (
        "mask = boolean",
        "mask = additive",
        "graph @g(%q: T[B, 2, S, 4], %k: T[B, 2, K, 4], %v: T[B, 2, K, 3], %c: bool[S, K])
  where B in 1..=3, S in 1..=5, K in 1..=6 {
  %low = weight -2.0 : T[]
  %zero = weight 0.0 : T[]
  %t = transpose %k {perm = [0, 1, 3, 2]} : T[B, 2, 4, K]
  %s = matmul %q, %t {acc = ACC, result = T} : T[B, 2, S, K]
  %m = select %c, %zero, %low : T[S, K]
  %b = add %s, %m : T[B, 2, S, K]
  %p = softmax %b {axis = 3} : T[B, 2, S, K]
  %y = matmul %p, %v {acc = ACC, result = T} : T[B, 2, S, 3]
  return %y
}",
    ),
];
