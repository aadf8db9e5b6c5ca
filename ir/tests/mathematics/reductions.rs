//! Reductions, indices of extremes, running sums and orders.

use crate::{check_symbolic, refuse};
use membar_ir::ops::{ArgKind, ArgReduce, Cumulative, CumulativeKind, Reduce, ReduceKind, TopK};
use membar_ir::testing::{Random, assert_close, evaluate, evaluate_one, floats, tensor, tensor_of};
use membar_ir::{Axis, DType, Dim, Tensor};

type Formula = fn(&[f64]) -> f64;

const KINDS: [(ReduceKind, Formula); 5] = [
    (ReduceKind::Sum, |x| x.iter().sum()),
    (ReduceKind::Mean, |x| x.iter().sum::<f64>() / x.len() as f64),
    (ReduceKind::Prod, |x| x.iter().product()),
    (ReduceKind::Max, |x| x.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    (ReduceKind::Min, |x| x.iter().copied().fold(f64::INFINITY, f64::min)),
];

fn reduce(kind: ReduceKind, axes: &[u32], keep: bool) -> Reduce {
    Reduce { kind, axes: axes.iter().map(|axis| Axis(*axis)).collect(), keep }
}

#[test]
fn reductions_match_their_formulas_over_any_axes() {
    let shape = [3usize, 5, 7];
    for dtype in [DType::F32, DType::F64, DType::F16] {
        let x = Random::new(1).floats(dtype, &shape, -1.5, 1.5);
        let data = floats(&x);
        for axes in [&[][..], &[0], &[1], &[2], &[0, 2], &[1, 2], &[0, 1, 2]] {
            for (kind, formula) in KINDS {
                let mut groups: std::collections::BTreeMap<[usize; 3], Vec<f64>> =
                    Default::default();
                for (position, value) in data.iter().enumerate() {
                    let mut index = [position / 35, position / 7 % 5, position % 7];
                    axes.iter().for_each(|axis| index[*axis as usize] = 0);
                    groups.entry(index).or_default().push(*value);
                }
                let expected: Vec<f64> = groups.values().map(|group| formula(group)).collect();
                let mut kept = shape;
                axes.iter().for_each(|axis| kept[*axis as usize] = 1);
                let found = check_symbolic(
                    reduce(kind, axes, true),
                    &[&["A", "B", "C"]],
                    &[("A", 3), ("B", 5), ("C", 7)],
                    std::slice::from_ref(&x),
                );
                assert_close(&found[0], &tensor_of(dtype, &kept, &expected), data.len());
                let dropped = evaluate_one(reduce(kind, axes, false), std::slice::from_ref(&x));
                assert_eq!(dropped.shape().len(), 3 - axes.len());
                assert_eq!(dropped.bytes(), found[0].bytes());
            }
        }
    }
}

#[test]
fn nan_wins_and_infinities_count() {
    let x = tensor(&[2, 2], &[1.0, f32::NAN, f32::NEG_INFINITY, 2.0]);
    for kind in [ReduceKind::Max, ReduceKind::Min] {
        let found = floats(&evaluate_one(reduce(kind, &[1], false), std::slice::from_ref(&x)));
        assert!(found[0].is_nan());
        assert!(!found[1].is_nan());
    }
}

#[test]
fn empty_reductions_give_the_neutral_value() {
    let x = tensor::<f32>(&[2, 0], &[]);
    let run = |kind, x: &Tensor| {
        floats(&evaluate_one(reduce(kind, &[1], false), std::slice::from_ref(x)))
    };
    assert_eq!(run(ReduceKind::Sum, &x), [0.0; 2]);
    assert_eq!(run(ReduceKind::Prod, &x), [1.0; 2]);
    assert_eq!(run(ReduceKind::Max, &x), [f64::NEG_INFINITY; 2]);
    assert_eq!(run(ReduceKind::Min, &x), [f64::INFINITY; 2]);
    assert!(run(ReduceKind::Mean, &x)[0].is_nan());
    let x = tensor::<i8>(&[1, 0], &[]);
    assert_eq!(run(ReduceKind::Max, &x), [-128.0]);
    assert_eq!(run(ReduceKind::Min, &x), [127.0]);
    assert_eq!(run(ReduceKind::Mean, &x), [0.0]);
    let x = tensor_of(DType::Bool, &[1, 0], &[]);
    assert_eq!(run(ReduceKind::Max, &x), [0.0]);
    assert_eq!(run(ReduceKind::Min, &x), [1.0]);
}

#[test]
fn integers_reduce_exactly() {
    let run = |kind, x: &Tensor| evaluate_one(reduce(kind, &[0], false), std::slice::from_ref(x));
    let x = tensor(&[3], &[100i8, 100, 100]);
    assert_eq!(run(ReduceKind::Sum, &x), tensor(&[], &[44i8]));
    assert_eq!(run(ReduceKind::Mean, &x), tensor(&[], &[100i8]));
    assert_eq!(run(ReduceKind::Mean, &tensor(&[2], &[-3i64, 0])), tensor(&[], &[-1i64]));
    let x = tensor(&[2], &[u64::MAX, 1]);
    assert_eq!(run(ReduceKind::Max, &x), tensor(&[], &[u64::MAX]));
    assert_eq!(run(ReduceKind::Min, &x), tensor(&[], &[1u64]));
    assert_eq!(run(ReduceKind::Prod, &x), tensor(&[], &[u64::MAX]));
}

#[test]
fn bad_reductions_are_refused() {
    let x: (DType, &[&str]) = (DType::F32, &["A", "B"]);
    refuse(reduce(ReduceKind::Sum, &[2], true), &[x]);
    refuse(reduce(ReduceKind::Sum, &[1, 0], true), &[x]);
    refuse(reduce(ReduceKind::Sum, &[1, 1], true), &[x]);
    refuse(reduce(ReduceKind::Sum, &[0], true), &[(DType::Bool, &["A"])]);
    let arg = ArgReduce { kind: ArgKind::Max, axis: Axis(0), keep: true, last: false };
    refuse(arg.clone(), &[(DType::F32, &["0"])]);
    refuse(arg, &[(DType::F32, &[])]);
    let top = |k| TopK { axis: Axis(1), k: Dim::from(k), largest: true };
    refuse(top(4), &[(DType::F32, &["A", "3"])]);
    refuse(top(-1), &[(DType::F32, &["A", "3"])]);
    let sum = CumulativeKind::Sum;
    let cumulative = Cumulative { kind: sum, axis: Axis(1), exclusive: false, reverse: false };
    refuse(cumulative, &[(DType::F32, &["A"])]);
}

#[test]
fn indices_of_extremes_choose_among_equals() {
    let x = tensor(&[2, 4], &[3i32, 1, 3, 1, -5, -5, -7, -7]);
    let run = |kind, last| {
        let op = ArgReduce { kind, axis: Axis(1), keep: false, last };
        let bindings = [("A", 2), ("B", 4)];
        floats(&check_symbolic(op, &[&["A", "B"]], &bindings, std::slice::from_ref(&x))[0])
    };
    assert_eq!(run(ArgKind::Max, false), [0.0, 0.0]);
    assert_eq!(run(ArgKind::Max, true), [2.0, 1.0]);
    assert_eq!(run(ArgKind::Min, false), [1.0, 2.0]);
    assert_eq!(run(ArgKind::Min, true), [3.0, 3.0]);
    let x = tensor(&[3, 2], &[0.5f32, -0.0, f32::NAN, 0.0, 9.0, -1.0]);
    let op = |kind| ArgReduce { kind, axis: Axis(0), keep: true, last: false };
    assert_eq!(
        evaluate_one(op(ArgKind::Max), std::slice::from_ref(&x)),
        tensor(&[1, 2], &[1i64, 0])
    );
    assert_eq!(evaluate_one(op(ArgKind::Min), &[x]), tensor(&[1, 2], &[1i64, 2]));
}

#[test]
fn running_sums_and_products() {
    let x = tensor(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let run = |kind, axis, exclusive, reverse| {
        let op = Cumulative { kind, axis: Axis(axis), exclusive, reverse };
        floats(&evaluate_one(op, std::slice::from_ref(&x)))
    };
    let (sum, product) = (CumulativeKind::Sum, CumulativeKind::Prod);
    assert_eq!(run(sum, 1, false, false), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    assert_eq!(run(sum, 1, true, false), [0.0, 1.0, 3.0, 0.0, 4.0, 9.0]);
    assert_eq!(run(sum, 1, false, true), [6.0, 5.0, 3.0, 15.0, 11.0, 6.0]);
    assert_eq!(run(sum, 1, true, true), [5.0, 3.0, 0.0, 11.0, 6.0, 0.0]);
    assert_eq!(run(sum, 0, false, false), [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    assert_eq!(run(product, 1, false, false), [1.0, 2.0, 6.0, 4.0, 20.0, 120.0]);
    assert_eq!(run(product, 0, true, true), [4.0, 5.0, 6.0, 1.0, 1.0, 1.0]);
    let wrapping = Cumulative { kind: sum, axis: Axis(0), exclusive: false, reverse: false };
    let x = tensor(&[2], &[200u8, 100]);
    assert_eq!(evaluate_one(wrapping.clone(), &[x]), tensor(&[2], &[200u8, 44]));
    let x = Random::new(4).tensor(DType::F16, &[67]);
    let mut running = 0.0;
    let expected: Vec<f64> = floats(&x)
        .iter()
        .map(|x| {
            running += x;
            running
        })
        .collect();
    assert_close(&evaluate_one(wrapping, &[x]), &tensor_of(DType::F16, &[67], &expected), 67);
}

#[test]
fn the_greatest_and_least_come_in_order() {
    let x = tensor(&[5, 1], &[2.0f32, f32::NAN, 7.0, 2.0, -1.0]);
    let run = |k: i64, largest| {
        let op = TopK { axis: Axis(0), k: Dim::symbol("K"), largest };
        check_symbolic(op, &[&["N", "1"]], &[("N", 5), ("K", k)], std::slice::from_ref(&x))
    };
    let top = run(4, true);
    assert_eq!(top[1], tensor(&[4, 1], &[1i64, 2, 0, 3]));
    assert_eq!(floats(&top[0])[1..], [7.0, 2.0, 2.0]);
    let least = run(3, false);
    assert_eq!(least[0], tensor(&[3, 1], &[-1f32, 2.0, 2.0]));
    assert_eq!(least[1], tensor(&[3, 1], &[4i64, 0, 3]));
    // Along the last axis of a larger tensor: sorted values, and indices that lead to them.
    let x = Random::new(9).tensor(DType::F32, &[3, 11]);
    let found =
        evaluate(TopK { axis: Axis(1), k: Dim::from(11), largest: true }, std::slice::from_ref(&x));
    let (data, values, indices) = (floats(&x), floats(&found[0]), floats(&found[1]));
    for row in 0..3 {
        let mut sorted = data[row * 11..][..11].to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(values[row * 11..][..11], sorted);
        for (value, index) in values[row * 11..][..11].iter().zip(&indices[row * 11..]) {
            assert_eq!(*value, data[row * 11 + *index as usize]);
        }
    }
}
