//! One line about a tensor, for people; never the whole tensor.

use membar::ir::element::Number;
use membar::ir::interp::{InterpError, Interpreter};
use membar::{DType, Tensor};
use serde_json::{Value, json};

/// What a summary says.
pub struct Summary {
    elements: usize,
    /// Least, greatest and mean of the finite elements; `None` if there are none.
    range: Option<(f64, f64, f64)>,
    not_finite: usize,
    first: Vec<f64>,
}

/// How many leading elements a summary shows.
const SHOWN: usize = 6;

impl Summary {
    /// Looks at every element once.
    pub fn of(tensor: &Tensor) -> Summary {
        let mut summary =
            Summary { elements: tensor.elements(), range: None, not_finite: 0, first: Vec::new() };
        let (mut sum, mut finite) = (0.0, 0usize);
        for value in tensor.numbers().map(Number::to_float) {
            if summary.first.len() < SHOWN {
                summary.first.push(value);
            }
            if !value.is_finite() {
                summary.not_finite += 1;
                continue;
            }
            sum += value;
            finite += 1;
            let (lo, hi, _) = summary.range.unwrap_or((value, value, 0.0));
            summary.range = Some((lo.min(value), hi.max(value), 0.0));
        }
        if let Some(range) = &mut summary.range {
            range.2 = sum / finite as f64;
        }
        summary
    }

    /// The line.
    pub fn line(&self, name: &str, tensor: &Tensor) -> String {
        let shape: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
        let mut line = format!("{name}: {}[{}]", tensor.dtype(), shape.join(", "));
        if let Some((lo, hi, mean)) = self.range {
            line += &format!("  min {}  max {}  mean {}", short(lo), short(hi), short(mean));
        }
        if self.not_finite > 0 {
            line += &format!("  {} not finite", self.not_finite);
        }
        let first: Vec<String> = self.first.iter().map(|x| short(*x)).collect();
        let more = if self.elements > SHOWN { ", …" } else { "" };
        line + &format!("  [{}{more}]", first.join(", "))
    }

    /// The same as JSON.
    pub fn json(&self, tensor: &Tensor) -> Value {
        let (lo, hi, mean) = match self.range {
            Some((lo, hi, mean)) => (Some(lo), Some(hi), Some(mean)),
            None => (None, None, None),
        };
        json!({
            "dtype": tensor.dtype().name(),
            "shape": tensor.shape(),
            "min": lo,
            "max": hi,
            "mean": mean,
            "not_finite": self.not_finite,
        })
    }
}

/// Five significant digits, whole numbers as they are.
fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e9 {
        return format!("{value}");
    }
    let magnitude = value.abs();
    if !value.is_finite() || (1e-3..1e6).contains(&magnitude) {
        let digits = 4 - magnitude.log10().floor().clamp(-3.0, 4.0) as i32;
        return format!("{value:.*}", digits.clamp(0, 7) as usize);
    }
    format!("{value:.4e}")
}

/// A tensor of random values for an input: normal floats, and 0 or 1 for integers and truth values,
/// which are indices that every table has.
///
/// # Errors
/// There is no memory for it.
pub fn random_input(
    ty: membar::ir::ConcreteType,
    seed: u64,
    stream: u64,
) -> Result<Tensor, InterpError> {
    use membar::ir::recipe::{Distribution, Recipe, Source};
    let shape: Vec<i64> = ty.shape.iter().map(|extent| *extent as i64).collect();
    let normal = Distribution::Normal(membar::ir::attribute::Float(1.0));
    let source = Source::Random { seed, stream, distribution: normal };
    let float = Recipe::source(membar::ir::TensorType::fixed(DType::F32, &shape), source);
    let mut result = Tensor::try_zeros(ty)?;
    let values = Interpreter::default().materialise(&float)?;
    for (index, value) in values.numbers().map(Number::to_float).enumerate() {
        let number = match result.dtype() {
            dtype if dtype.is_float() => Number::Float(value),
            _ => Number::Bool(value > 0.0),
        };
        result.set(index, number);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_show_range_and_first_elements() {
        let Ok(tensor) = Tensor::from_elements(&[2, 2], &[1.5f32, -2.0, f32::NAN, 3.25]) else {
            unreachable!()
        };
        let line = Summary::of(&tensor).line("y", &tensor);
        assert_eq!(
            line,
            "y: f32[2, 2]  min -2  max 3.2500  mean 0.91667  1 not finite  [1.5000, -2, NaN, 3.2500]"
        );
    }
}
