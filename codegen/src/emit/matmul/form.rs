//! A matrix product as the kernels see it: batches, rows, columns and k, each with an extent and a
//! stride in every tensor. Must never choose a kernel, nor write one.

use super::Factor;
use membar_ir::dim::Dim;

/// A dimension of the result with its strides, in elements; 0 where a tensor has it not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub extent: Dim,
    pub a: Dim,
    pub b: Dim,
    pub c: Dim,
    /// The result's dimensions that it is made of, outermost first.
    pub of: Vec<usize>,
}

/// A product with as few dimensions as it can be described by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Form {
    /// Outermost first.
    pub batches: Vec<Axis>,
    /// Its stride in B is 0.
    pub rows: Axis,
    /// Its stride in A is 0.
    pub columns: Axis,
    pub depth: Dim,
    /// Strides of k.
    pub a_depth: Dim,
    pub b_depth: Dim,
}

impl Form {
    /// The form of `a` times `b` with a result of that shape and those strides.
    pub fn of(a: &Factor, b: &Factor, shape: &[Dim], strides: &[Dim]) -> Form {
        let rank = shape.len();
        let stride = |factor: &Factor, axis: usize| {
            // Outer dimensions are aligned at the end, and those of extent 1 are repeated.
            match (axis + factor.shape.len()).checked_sub(rank) {
                Some(own) if !factor.shape[own].is(1) => factor.strides[own].clone(),
                _ => Dim::ZERO,
            }
        };
        let inner = |factor: &Factor, from_end: usize| {
            let axis = factor.shape.len() - from_end;
            if factor.shape[axis].is(1) { Dim::ZERO } else { factor.strides[axis].clone() }
        };
        let axis = |axis: usize, a: Dim, b: Dim| Axis {
            extent: shape[axis].clone(),
            a,
            b,
            c: strides[axis].clone(),
            of: vec![axis],
        };
        let mut axes: Vec<Axis> =
            (0..rank - 2).map(|i| axis(i, stride(a, i), stride(b, i))).collect();
        axes.push(axis(rank - 2, inner(a, 2), Dim::ZERO));
        axes.retain(|axis| !axis.extent.is(1));
        let mut rows = match axes.pop_if(|axis| axis.b.is(0)) {
            Some(axis) => axis,
            None => {
                let zero = || Dim::ZERO;
                Axis { extent: Dim::ONE, a: zero(), b: zero(), c: zero(), of: Vec::new() }
            }
        };
        if !rows.of.is_empty() {
            while let Some(outer) = axes.pop_if(|outer| nests(outer, &rows)) {
                rows = merge(outer, rows);
            }
        }
        let mut batches: Vec<Axis> = Vec::new();
        for axis in axes {
            match batches.pop_if(|outer| nests(outer, &axis)) {
                Some(outer) => batches.push(merge(outer, axis)),
                None => batches.push(axis),
            }
        }
        Form {
            batches,
            rows,
            columns: axis(rank - 1, Dim::ZERO, inner(b, 1)),
            depth: a.shape[a.shape.len() - 1].clone(),
            a_depth: inner(a, 1),
            b_depth: inner(b, 2),
        }
    }
}

/// Whether two dimensions are one: the outer's steps are as long as all of the inner's.
fn nests(outer: &Axis, inner: &Axis) -> bool {
    let whole = |outer: &Dim, step: &Dim| *outer == step.clone() * inner.extent.clone();
    whole(&outer.a, &inner.a) && whole(&outer.b, &inner.b) && whole(&outer.c, &inner.c)
}

fn merge(outer: Axis, inner: Axis) -> Axis {
    let of = [outer.of, inner.of].concat();
    Axis { extent: outer.extent * inner.extent, of, ..inner }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membar_ir::dtype::DType;

    fn row_major(shape: &[Dim]) -> Vec<Dim> {
        let mut strides = vec![Dim::ONE; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis].clone() * shape[axis].clone();
        }
        strides
    }

    fn factor(shape: &[Dim]) -> Factor {
        Factor {
            operand: 0,
            dtype: DType::F32,
            shape: shape.to_vec(),
            strides: row_major(shape),
            alignment: 256,
        }
    }

    fn form(a: &[Dim], b: &[Dim], result: &[Dim]) -> Form {
        Form::of(&factor(a), &factor(b), result, &row_major(result))
    }

    fn dims(values: &[i64]) -> Vec<Dim> {
        values.iter().map(|value| Dim::from(*value)).collect()
    }

    #[test]
    fn batches_become_rows_where_all_share_the_weight() {
        let n = Dim::symbol("N");
        let a = [n.clone(), Dim::from(12), Dim::from(64)];
        let form = form(&a, &dims(&[64, 48]), &[n.clone(), Dim::from(12), Dim::from(48)]);
        assert!(form.batches.is_empty());
        assert_eq!(form.rows.extent, n * Dim::from(12));
        assert_eq!((form.rows.a.clone(), form.rows.c.clone()), (Dim::from(64), Dim::from(48)));
        assert_eq!(form.rows.of, [0, 1]);
    }

    #[test]
    fn heads_that_share_keys_become_rows() {
        // Two groups of three heads each, of five positions: B repeats over the second dimension.
        let form = form(&dims(&[2, 3, 5, 8]), &dims(&[2, 1, 8, 7]), &dims(&[2, 3, 5, 7]));
        assert_eq!(form.rows.extent, Dim::from(15));
        assert_eq!(form.batches.len(), 1);
        assert_eq!(form.batches[0].b, Dim::from(56));
        assert_eq!(form.batches[0].a, Dim::from(120));
    }

    #[test]
    fn batches_that_lie_apart_stay_apart() {
        let form = form(&dims(&[4, 1, 5, 8]), &dims(&[1, 3, 8, 7]), &dims(&[4, 3, 5, 7]));
        assert_eq!(form.batches.len(), 2);
        assert_eq!(form.batches[0].b, Dim::ZERO);
        assert_eq!(form.batches[1].a, Dim::ZERO);
    }

    #[test]
    fn single_rows_of_many_batches_are_rows() {
        let form = form(&dims(&[9, 1, 8]), &dims(&[8, 7]), &dims(&[9, 1, 7]));
        assert!(form.batches.is_empty());
        assert_eq!((form.rows.extent.clone(), form.rows.of.clone()), (Dim::from(9), vec![0]));
    }
}
