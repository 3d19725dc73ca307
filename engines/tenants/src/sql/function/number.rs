//! Functions of numbers.

use bigdecimal::{BigDecimal, Signed};

use super::{Resolved, wrong_arguments};
use crate::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Value, numeric},
};

/// A function of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberFunction {
    Abs,
    Ceil,
    Exp,
    Floor,
    Ln,
    Log,
    Mod,
    Power,
    Round,
    RoundTo,
    Sign,
    Sqrt,
    Trunc,
}

/// The function of numbers of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<NumberFunction>> {
    use NumberFunction as F;
    use Type::{Float8, Int4};
    let any_number = Type::Numeric(None);
    // What is open is a floating-point number where numbers are wanted.
    let numbers: Vec<Type> = arguments.iter().map(|of| if *of == Type::Unknown { Float8 } else { *of }).collect();
    // Integers and numerics go on as numerics where the result may have a fraction, everything else as a float.
    let exact = |of: &Type| of.is_number() && !matches!(of, Type::Float4 | Float8);
    Some(match (name, numbers.as_slice()) {
        ("abs", [of]) if of.is_number() => (F::Abs, vec![*of], of.unbounded()),
        ("sign", [of]) if exact(of) => (F::Sign, vec![any_number], any_number),
        ("sign", [of]) if of.is_number() => (F::Sign, vec![Float8], Float8),
        ("ceil" | "ceiling", [of]) if exact(of) => (F::Ceil, vec![any_number], any_number),
        ("ceil" | "ceiling", [of]) if of.is_number() => (F::Ceil, vec![Float8], Float8),
        ("floor", [of]) if exact(of) => (F::Floor, vec![any_number], any_number),
        ("floor", [of]) if of.is_number() => (F::Floor, vec![Float8], Float8),
        ("round", [of]) if exact(of) => (F::Round, vec![any_number], any_number),
        ("round", [of]) if of.is_number() => (F::Round, vec![Float8], Float8),
        ("round", [of, places]) if exact(of) && places.is_integer() => (F::RoundTo, vec![any_number, Int4], any_number),
        ("trunc", [of]) if exact(of) => (F::Trunc, vec![any_number], any_number),
        ("trunc", [of]) if of.is_number() => (F::Trunc, vec![Float8], Float8),
        ("mod", [a, b]) if a.is_integer() && b.is_integer() => {
            let of = if a.number_rank() > b.number_rank() { *a } else { *b };
            (F::Mod, vec![of, of], of)
        }
        ("mod", [a, b]) if exact(a) && exact(b) => (F::Mod, vec![any_number, any_number], any_number),
        ("power" | "pow", [a, b]) if a.is_number() && b.is_number() => (F::Power, vec![Float8, Float8], Float8),
        ("sqrt", [of]) if of.is_number() => (F::Sqrt, vec![Float8], Float8),
        ("exp", [of]) if of.is_number() && !exact(of) => (F::Exp, vec![Float8], Float8),
        ("ln", [of]) if of.is_number() && !exact(of) => (F::Ln, vec![Float8], Float8),
        ("log" | "log10", [of]) if of.is_number() && !exact(of) => (F::Log, vec![Float8], Float8),
        _ => return None,
    })
}

impl NumberFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        match arguments {
            [Value::Float(value)] => self.of_float(*value),
            [Value::Float(a), Value::Float(b)] => power(*a, *b),
            [Value::Int(value)] => match value.checked_abs() {
                Some(value) => Ok(Value::Int(value)),
                None => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range")),
            },
            [Value::Int(_), Value::Int(0)] => Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero")),
            [Value::Int(a), Value::Int(b)] => Ok(Value::Int(a.checked_rem(*b).unwrap_or(0))),
            [Value::Numeric(value)] => self.of_numeric(value),
            [Value::Numeric(value), Value::Int(places)] => {
                let places = (*places).clamp(-2_000, 2_000);
                Ok(Value::Numeric(numeric::round(value, places)))
            }
            [Value::Numeric(a), Value::Numeric(b)] => Ok(Value::Numeric(numeric::remainder(a, b)?)),
            _ => Err(wrong_arguments(self)),
        }
    }

    fn of_float(self, value: f64) -> Result<Value> {
        Ok(Value::Float(match self {
            Self::Abs => value.abs(),
            Self::Ceil => value.ceil(),
            Self::Floor => value.floor(),
            Self::Round => value.round_ties_even(),
            Self::Trunc => value.trunc(),
            Self::Sign => f64::from(i8::from(value > 0.0) - i8::from(value < 0.0)),
            Self::Sqrt if value < 0.0 => {
                return Err(SqlError::new("2201F", "cannot take square root of a negative number"));
            }
            Self::Sqrt => value.sqrt(),
            Self::Exp if value.exp().is_infinite() && value.is_finite() => {
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
            }
            Self::Exp => value.exp(),
            Self::Ln | Self::Log if value == 0.0 => {
                return Err(SqlError::new("2201E", "cannot take logarithm of zero"));
            }
            Self::Ln | Self::Log if value < 0.0 => {
                return Err(SqlError::new("2201E", "cannot take logarithm of a negative number"));
            }
            Self::Ln => value.ln(),
            Self::Log => value.log10(),
            _ => return Err(wrong_arguments(self)),
        }))
    }

    fn of_numeric(self, value: &BigDecimal) -> Result<Value> {
        use bigdecimal::RoundingMode::{Ceiling, Down, Floor};
        Ok(Value::Numeric(match self {
            Self::Abs => value.abs(),
            Self::Ceil => value.with_scale_round(0, Ceiling),
            Self::Floor => value.with_scale_round(0, Floor),
            Self::Round => numeric::round(value, 0),
            Self::Trunc => value.with_scale_round(0, Down),
            Self::Sign => value.signum().with_scale(0),
            _ => return Err(wrong_arguments(self)),
        }))
    }
}

fn power(a: f64, b: f64) -> Result<Value> {
    if a == 0.0 && b < 0.0 {
        return Err(SqlError::new("2201F", "zero raised to a negative power is undefined"));
    }
    if a < 0.0 && b.fract() != 0.0 {
        return Err(SqlError::new("2201F", "a negative number raised to a non-integer power yields a complex result"));
    }
    let result = a.powf(b);
    match result.is_infinite() && a.is_finite() && b.is_finite() {
        true => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")),
        false => Ok(Value::Float(result)),
    }
}
