//! Attention, against a direct loop over heads, queries and keys.

use crate::{check_symbolic, refuse};
use membar_ir::attribute::Float;
use membar_ir::ops::{Attention, MaskKind, Op, Position, Scores};
use membar_ir::testing::{Random, assert_close, evaluate, floats, symbolic, tensor, tensor_of};
use membar_ir::{DType, Dim, Tensor};

fn plain() -> Attention {
    Attention {
        scale: Float(0.5),
        position: Position::Offset(Dim::ZERO),
        before: None,
        after: None,
        mask: MaskKind::None,
        lengths: false,
        softcap: None,
        empty_rows_zero: false,
        scores: Scores::None,
    }
}

const B: usize = 2;
const HQ: usize = 4;
const HKV: usize = 2;
const S: usize = 3;
const T: usize = 5;
const D: usize = 6;
const DV: usize = 7;
const BINDINGS: [(&str, i64); 3] = [("B", 2), ("S", 3), ("T", 5)];

fn qkv(dtype: DType) -> Vec<Tensor> {
    let mut random = Random::new(41);
    let q = random.floats(dtype, &[B, HQ, S, D], -2.0, 2.0);
    let k = random.floats(dtype, &[B, HKV, T, D], -2.0, 2.0);
    let v = random.floats(dtype, &[B, HKV, T, DV], -2.0, 2.0);
    vec![q, k, v]
}

const QKV: [&[&str]; 3] = [&["B", "4", "S", "6"], &["B", "2", "T", "6"], &["B", "2", "T", "7"]];

/// What a direct loop gives: the result, and scores scaled, capped, masked, and weights.
struct Direct {
    result: Vec<f64>,
    scores: [Vec<f64>; 4],
}

/// `mask` gives what is added to a score, or `None` where a key is masked.
fn direct(
    op: &Attention,
    qkv: &[Tensor],
    mask: impl Fn(usize, usize, usize, usize) -> Option<f64>,
) -> Direct {
    let [q, k, v] = [0, 1, 2].map(|i| floats(&qkv[i]));
    let mut direct = Direct { result: vec![], scores: [vec![], vec![], vec![], vec![]] };
    for (b, h, s) in (0..B * HQ * S).map(|i| (i / (HQ * S), i / S % HQ, i % S)) {
        let kv = b * HKV + h / (HQ / HKV);
        let mut masked = Vec::new();
        for t in 0..T {
            let row = &q[((b * HQ + h) * S + s) * D..][..D];
            let column = &k[(kv * T + t) * D..][..D];
            let scaled = op.scale.0 * row.iter().zip(column).map(|(x, y)| x * y).sum::<f64>();
            let capped = op.softcap.map_or(scaled, |cap| cap.0 * (scaled / cap.0).tanh());
            direct.scores[0].push(scaled);
            direct.scores[1].push(capped);
            masked.push(mask(b, h, s, t).map_or(f64::NEG_INFINITY, |bias| capped + bias));
        }
        let greatest = masked.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = masked.iter().map(|x| (x - greatest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let empty = if op.empty_rows_zero { 0.0 } else { 1.0 / T as f64 };
        let none = greatest == f64::NEG_INFINITY;
        let weights: Vec<f64> = powers.iter().map(|p| if none { empty } else { p / sum }).collect();
        for i in 0..DV {
            direct.result.push((0..T).map(|t| weights[t] * v[(kv * T + t) * DV + i]).sum());
        }
        direct.scores[2].extend(masked);
        direct.scores[3].extend(weights);
    }
    direct
}

/// Checks the result, and each kind of scores, of an operator over `qkv` and more operands.
#[track_caller]
fn check(
    op: Attention,
    dtype: DType,
    more: &[(&[&str], Tensor)],
    mask: impl Fn(usize, usize, usize, usize) -> Option<f64>,
) {
    let mut operands = qkv(dtype);
    let expected = direct(&op, &operands, mask);
    let mut types = QKV.to_vec();
    for (ty, tensor) in more {
        types.push(ty);
        operands.push(tensor.clone());
    }
    let all = [Scores::Scaled, Scores::Capped, Scores::Masked, Scores::Weights];
    for (i, scores) in all.into_iter().enumerate() {
        let op = Attention { scores, ..op.clone() };
        let found = check_symbolic(op, &types, &BINDINGS, &operands);
        assert_close(&found[0], &tensor_of(dtype, &[B, HQ, S, DV], &expected.result), D);
        assert_close(&found[1], &tensor_of(dtype, &[B, HQ, S, T], &expected.scores[i]), D);
    }
    assert_eq!(check_symbolic(op, &types, &BINDINGS, &operands).len(), 1);
}

#[test]
fn plain_attention_shares_key_heads() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        check(plain(), dtype, &[], |_, _, _, _| Some(0.0));
    }
}

#[test]
fn scores_are_capped_before_they_are_masked() {
    let op = Attention { softcap: Some(Float(1.5)), mask: MaskKind::Additive, ..plain() };
    let mask = Random::new(42).floats(DType::F32, &[S, T], -9.0, 9.0);
    let bias = floats(&mask);
    check(op, DType::F32, &[(&["S", "T"], mask)], |_, _, s, t| Some(bias[s * T + t]));
}

#[test]
fn causal_limits_follow_the_offset() {
    let causal =
        |offset| Attention { after: Some(0), position: Position::Offset(offset), ..plain() };
    check(causal(Dim::from(2)), DType::F32, &[], |_, _, s, t| (t <= s + 2).then_some(0.0));
    check(causal(Dim::ZERO), DType::F32, &[], |_, _, s, t| (t <= s).then_some(0.0));
    // An offset of symbols: T - S.
    let offset = Dim::symbol("T") - Dim::symbol("S");
    check(causal(offset), DType::F32, &[], |_, _, s, t| (t <= s + T - S).then_some(0.0));
}

#[test]
fn windows_limit_both_sides() {
    let window = |before, after| Attention {
        before,
        after,
        position: Position::Offset(Dim::ONE),
        ..plain()
    };
    check(window(Some(1), Some(0)), DType::F32, &[], |_, _, s, t| {
        (t <= s + 1 && s <= t).then_some(0.0)
    });
    check(window(Some(0), None), DType::F32, &[], |_, _, s, t| (t > s).then_some(0.0));
    check(window(Some(1), Some(2)), DType::F32, &[], |_, _, s, t| {
        (t <= s + 3 && s <= t).then_some(0.0)
    });
}

#[test]
fn lengths_end_the_keys_and_place_the_queries() {
    let lengths = || (&["B"][..], tensor(&[B], &[3i64, 5]));
    let op = Attention { lengths: true, ..plain() };
    check(op.clone(), DType::F32, &[lengths()], |b, _, _, t| (t < [3, 5][b]).then_some(0.0));
    let op = Attention { position: Position::Lengths, after: Some(0), ..op };
    check(op, DType::F32, &[lengths()], |b, _, s, t| (t + S <= s + [3, 5][b]).then_some(0.0));
}

#[test]
fn masks_of_every_rank_broadcast() {
    let bits = |shape: &[usize], seed| {
        let mut mask = Random::new(seed).tensor(DType::Bool, shape);
        // No row without a key here.
        for row in 0..mask.elements() / shape.last().copied().unwrap_or(1) {
            mask.set(row * shape.last().copied().unwrap_or(1), membar_ir::Number::Bool(true));
        }
        mask
    };
    let op = || Attention { mask: MaskKind::Boolean, ..plain() };
    let allowed = |ok: bool| ok.then_some(0.0);
    let mask = bits(&[T], 1);
    let m = floats(&mask);
    check(op(), DType::F32, &[(&["T"], mask)], |_, _, _, t| allowed(m[t] == 1.0));
    let mask = bits(&[S, T], 2);
    let m = floats(&mask);
    check(op(), DType::F32, &[(&["S", "T"], mask)], |_, _, s, t| allowed(m[s * T + t] == 1.0));
    let mask = bits(&[HQ, 1, T], 3);
    let m = floats(&mask);
    check(op(), DType::F32, &[(&["4", "1", "T"], mask)], |_, h, _, t| allowed(m[h * T + t] == 1.0));
    let mask = bits(&[B, 1, S, T], 4);
    let m = floats(&mask);
    check(op(), DType::F16, &[(&["B", "1", "S", "T"], mask)], |b, _, s, t| {
        allowed(m[(b * S + s) * T + t] == 1.0)
    });
    let mask = tensor_of(DType::Bool, &[], &[1.0]);
    check(op(), DType::F32, &[(&[], mask)], |_, _, _, _| Some(0.0));
}

#[test]
fn fully_masked_rows_average_or_vanish_and_are_never_nan() {
    // Query 1 sees nothing; query 2 sees keys 0 and 3.
    let allowed = |s: usize, t: usize| s == 0 || (s == 2 && (t == 0 || t == 3));
    let rows: Vec<bool> = (0..S * T).map(|i| allowed(i / T, i % T)).collect();
    for empty_rows_zero in [false, true] {
        let op = Attention { mask: MaskKind::Boolean, empty_rows_zero, ..plain() };
        let numbers: Vec<f64> = rows.iter().map(|ok| f64::from(u8::from(*ok))).collect();
        let mask = tensor_of(DType::Bool, &[S, T], &numbers);
        let more: [(&[&str], Tensor); 1] = [(&["S", "T"], mask)];
        check(op.clone(), DType::F32, &more, |_, _, s, t| allowed(s, t).then_some(0.0));
        let numbers: Vec<f64> =
            rows.iter().map(|ok| if *ok { 0.25 } else { f64::NEG_INFINITY }).collect();
        for dtype in [DType::F32, DType::F16] {
            let op = Attention { mask: MaskKind::Additive, ..op.clone() };
            let mask = tensor_of(dtype, &[S, T], &numbers);
            let more: [(&[&str], Tensor); 1] = [(&["S", "T"], mask)];
            check(op, dtype, &more, |_, _, s, t| allowed(s, t).then_some(0.25));
        }
    }
    // The lowest finite value is just added: alone in a row it averages, as in the source.
    for empty_rows_zero in [false, true] {
        let op = Attention { mask: MaskKind::Additive, empty_rows_zero, ..plain() };
        let mut operands = qkv(DType::F32);
        operands.push(tensor(&[1, T], &[f32::MIN; T]));
        let found = floats(&evaluate(op, &operands)[0]);
        let v = floats(&operands[2]);
        let mean = (0..T).map(|t| v[t * DV]).sum::<f64>() / T as f64;
        assert!((found[0] - mean).abs() < 1e-6);
    }
}

#[test]
fn all_conditions_hold_together() {
    let op = Attention {
        position: Position::Lengths,
        before: Some(2),
        after: Some(0),
        mask: MaskKind::Additive,
        lengths: true,
        softcap: Some(Float(3.0)),
        empty_rows_zero: true,
        ..plain()
    };
    let mask = Random::new(43).floats(DType::F32, &[B, HQ, S, T], -1.0, 1.0);
    let bias = floats(&mask);
    let lengths = [2i64, 5];
    let more: [(&[&str], Tensor); 2] =
        [(&["B", "4", "S", "T"], mask), (&["B"], tensor(&[B], &lengths))];
    check(op, DType::F32, &more, |b, h, s, t| {
        let position = lengths[b] - S as i64 + s as i64;
        let t = t as i64;
        let visible = t < lengths[b] && t <= position && t >= position - 2;
        visible.then(|| bias[((b * HQ + h) * S + s) * T + t as usize])
    });
}

#[test]
fn ill_typed_attention_is_refused() {
    let f = |dims: &'static [&'static str]| (DType::F32, dims);
    let good = QKV.map(f);
    refuse(plain(), &good[..2]);
    refuse(plain(), &[f(&["B", "3", "S", "6"]), good[1], good[2]]);
    refuse(plain(), &[f(&["B", "4", "S", "5"]), good[1], good[2]]);
    refuse(plain(), &[good[0], good[1], f(&["B", "2", "U", "7"])]);
    refuse(plain(), &[(DType::F16, QKV[0]), good[1], good[2]]);
    refuse(plain(), &[f(&["B", "S", "6"]), good[1], good[2]]);
    let masked = |mask| Attention { mask, ..plain() };
    let with = |mask: (DType, &'static [&'static str])| [&good[..], &[mask]].concat();
    refuse(masked(MaskKind::Boolean), &with(f(&["S", "T"])));
    refuse(masked(MaskKind::Additive), &with((DType::Bool, &["S", "T"])));
    refuse(masked(MaskKind::Additive), &with(f(&["S", "S"])));
    refuse(masked(MaskKind::Additive), &with(f(&["1", "B", "4", "S", "T"])));
    let lengths = Attention { lengths: true, ..plain() };
    refuse(lengths.clone(), &with((DType::I32, &["B"])));
    refuse(lengths, &with((DType::I64, &["T"])));
    refuse(Attention { position: Position::Lengths, ..plain() }, &good);
    refuse(Attention { before: Some(-1), ..plain() }, &good);
}

#[test]
fn attention_counts_its_products() {
    let op = Op::from(plain());
    let types = QKV.map(|dims| symbolic(DType::F32, dims));
    let outputs = op.infer(&types).unwrap_or_default();
    let [b, s, t] = ["B", "S", "T"].map(Dim::symbol);
    let scores = Dim::from(4) * b * s * t;
    assert_eq!(op.operations(&types, &outputs), Dim::from(2 * 13 + 7) * scores);
}
