//! How rules look at the e-graph: terms of a class by their operator, types and constants, and which
//! terms a match went through; never a rule.

use crate::rewrite::language::ENode;
use crate::rewrite::saturate::RegionGraph;
use egg::Id;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::{Op, Scalar};
use membar_ir::types::TensorType;
use std::cell::RefCell;

/// The e-graph as a rule sees it.
pub(in crate::rewrite) struct View<'a> {
    graph: &'a RegionGraph,
    /// The terms that the match has gone through so far.
    trail: RefCell<Vec<&'a ENode>>,
}

impl<'a> View<'a> {
    pub fn new(graph: &'a RegionGraph) -> View<'a> {
        View { graph, trail: RefCell::new(Vec::new()) }
    }

    /// The terms that the last match went through; empties the list.
    pub fn take_trail(&self) -> Vec<&'a ENode> {
        self.trail.take()
    }

    /// Whether two values are one.
    pub fn same(&self, a: Id, b: Id) -> bool {
        self.graph.find(a) == self.graph.find(b)
    }

    /// The type of a value.
    pub fn ty(&self, id: Id) -> Option<&'a TensorType> {
        self.graph[id].data.types.first()
    }

    /// The shape of a value.
    pub fn shape(&self, id: Id) -> &'a [Dim] {
        self.ty(id).map_or(&[], |ty| &ty.shape)
    }

    /// The element type of a value.
    pub fn dtype(&self, id: Id) -> Option<DType> {
        self.ty(id).map(|ty| ty.dtype)
    }

    /// Whether a dimension is never negative.
    pub fn is_not_negative(&self, dim: &Dim) -> bool {
        dim.bounds(&self.graph.analysis.symbols).lo.is_some_and(|lo| lo >= 0)
    }

    /// The number that every element of a value is.
    pub fn uniform(&self, id: Id) -> Option<f64> {
        self.graph[id].data.uniform.map(|x| x.0)
    }

    /// Whether a number is that of a formula, as exporters round it to the type of a value.
    pub fn about(&self, value: Id, found: f64, number: f64) -> bool {
        // A few units in the last place: constants are rounded, and their inverses too.
        let unit = match self.dtype(value) {
            // A constant that was rounded to f32 first is another function in f64.
            Some(DType::F64) => 1e-14,
            Some(DType::F32) => 1e-6,
            Some(DType::F16) => 2e-3,
            Some(DType::Bf16) => 1.6e-2,
            _ => return false,
        };
        (found - number).abs() <= unit * number.abs()
    }

    /// The first result of `matches` over the operators of a class.
    pub fn any<T>(&self, id: Id, matches: impl Fn(&'a Op, &'a [Id]) -> Option<T>) -> Option<T> {
        self.graph[id].nodes.iter().find_map(|node| {
            let ENode::Op(op, operands) = node else { return None };
            let length = self.trail.borrow().len();
            self.trail.borrow_mut().push(node);
            let found = matches(op, operands);
            if found.is_none() {
                self.trail.borrow_mut().truncate(length);
            }
            found
        })
    }

    /// As [`View::any`], for one elementwise function of one operand.
    pub fn unary(&self, id: Id, function: &Scalar) -> Option<Id> {
        self.any(id, |op, operands| match (op, operands) {
            (Op::Scalar(found), [x]) if found == function => Some(*x),
            _ => None,
        })
    }

    /// As [`View::any`], for one elementwise function of two operands.
    pub fn binary<T>(
        &self,
        id: Id,
        function: &Scalar,
        matches: impl Fn(Id, Id) -> Option<T>,
    ) -> Option<T> {
        self.any(id, |op, operands| match (op, operands) {
            (Op::Scalar(found), [x, y]) if found == function => matches(*x, *y),
            _ => None,
        })
    }

    /// As [`View::binary`], with the operands in either order.
    pub fn either<T>(
        &self,
        id: Id,
        function: &Scalar,
        matches: impl Fn(Id, Id) -> Option<T>,
    ) -> Option<T> {
        self.any(id, |op, operands| match (op, operands) {
            (Op::Scalar(found), [x, y]) if found == function => {
                matches(*x, *y).or_else(|| matches(*y, *x))
            }
            _ => None,
        })
    }

    /// `x` and `k` where a class is `x k` or `x / (1 / k)`, `k` a number and `x` of the same type.
    pub fn scaled(&self, id: Id) -> Option<(Id, f64)> {
        let alike = |x: Id| self.ty(x) == self.ty(id);
        let by = |x: Id, k: Id| self.uniform(k).filter(|_| alike(x)).map(|k| (x, k));
        self.either(id, &Scalar::Mul, by)
            .or_else(|| self.binary(id, &Scalar::Div, |x, k| by(x, k).map(|(x, k)| (x, 1.0 / k))))
    }

    /// The factors of a class, each once for each time that it is multiplied; `atoms` are not taken
    /// apart.
    pub fn product(&self, id: Id, atoms: &[Id]) -> Product {
        let mut product = Product { factors: Vec::new(), coefficient: 1.0 };
        self.multiply(id, atoms, 4, &mut product);
        product
    }

    fn multiply(&self, id: Id, atoms: &[Id], depth: u32, product: &mut Product) {
        if let Some(number) = self.uniform(id) {
            product.coefficient *= number;
            return;
        }
        let parts = self.any(id, |op, operands| match (op, operands) {
            _ if depth == 0 || atoms.iter().any(|atom| self.same(*atom, id)) => None,
            (Op::Scalar(Scalar::Mul), [x, y]) => Some((1.0, vec![*x, *y])),
            (Op::Scalar(Scalar::Div), [x, k]) => Some((1.0 / self.uniform(*k)?, vec![*x])),
            (Op::Scalar(Scalar::Pow), [x, k]) => match self.uniform(*k)? {
                2.0 => Some((1.0, vec![*x; 2])),
                3.0 => Some((1.0, vec![*x; 3])),
                _ => None,
            },
            _ => None,
        });
        match parts {
            None => product.factors.push(id),
            Some((coefficient, parts)) => {
                product.coefficient *= coefficient;
                parts.into_iter().for_each(|part| self.multiply(part, atoms, depth - 1, product));
            }
        }
    }

    /// Whether a class is the square of `x`.
    pub fn is_square(&self, id: Id, x: Id) -> bool {
        let product = self.product(id, &[x]);
        product.coefficient == 1.0 && product.is(self, &[x, x], 1.0)
    }

    /// What a class is a float conversion of, and of what that is, …; the class itself last. Outermost
    /// conversions come first.
    pub fn through_casts<T>(&self, id: Id, matches: &dyn Fn(Id) -> Option<T>) -> Option<T> {
        self.casts(id, matches, 3)
    }

    fn casts<T>(&self, id: Id, matches: &dyn Fn(Id) -> Option<T>, depth: u32) -> Option<T> {
        if let Some(found) = matches(id) {
            return Some(found);
        }
        if depth == 0 {
            return None;
        }
        self.any(id, |op, operands| match (op, operands) {
            (Op::Scalar(Scalar::Cast { to, .. }), [x])
                if to.is_float() && self.dtype(*x).is_some_and(DType::is_float) =>
            {
                self.casts(*x, matches, depth - 1)
            }
            _ => None,
        })
    }
}

/// A product of classes and a number.
pub(in crate::rewrite) struct Product {
    pub factors: Vec<Id>,
    pub coefficient: f64,
}

impl Product {
    /// Whether it is that of these factors, in any order, and about that number.
    pub fn is(&self, view: &View<'_>, factors: &[Id], coefficient: f64) -> bool {
        let mut left: Vec<Id> = self.factors.clone();
        let all = factors.iter().all(|factor| {
            let at = left.iter().position(|found| view.same(*found, *factor));
            at.map(|at| left.swap_remove(at)).is_some()
        });
        let value = factors.first().copied();
        all && left.is_empty()
            && value.is_some_and(|value| view.about(value, self.coefficient, coefficient))
    }
}
