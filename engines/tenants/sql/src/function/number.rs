//! Functions of numbers.

use bigdecimal::{BigDecimal, Signed};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{NonFinite, Value, decimal, numeric, zone::Zone},
};

use super::{
    Resolved,
    bucket::{bucket, bucket_of_float},
    float::{FloatFunction, power},
    wrong_arguments,
};
use crate::expression::{Operator, arithmetic::arithmetic};

/// A function of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFunction {
    Abs,
    /// `&`
    And,
    /// A function of floating-point numbers.
    Float(FloatFunction),
    Div,
    Gcd,
    Lcm,
    /// The logarithm to a base.
    LogTo,
    MinScale,
    /// `~`
    Not,
    /// `|`
    Or,
    Scale,
    /// `<<`, of an integer of so many bits
    ShiftLeft(u32),
    ShiftRight(u32),
    TrimScale,
    TruncTo,
    WidthBucket,
    /// `#`
    Xor,
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
    // An operand that is open is of the other's type.
    if let ("&" | "|" | "#", [of, Type::Unknown] | [Type::Unknown, of]) = (name, arguments)
        && of.is_integer()
    {
        return resolve(name, &[*of, *of]);
    }
    let any_number = Type::Numeric(None);
    // What is open is a floating-point number where numbers are wanted.
    let numbers: Vec<Type> = arguments.iter().map(|of| if *of == Type::Unknown { Float8 } else { *of }).collect();
    // Integers and numerics go on as numerics where the result may have a fraction, everything else as a float.
    let exact = |of: &Type| of.is_number() && !matches!(of, Type::Float4 | Float8);
    let decimal = |of: &Type| matches!(of, Type::Numeric(_));
    Some(match (name, numbers.as_slice()) {
        ("abs", [of]) if of.is_number() => (F::Abs, vec![*of], of.unbounded()),
        ("sign" | "ceil" | "ceiling" | "floor" | "round" | "trunc", [of]) if of.is_number() => {
            let function = match name {
                "sign" => F::Sign,
                "floor" => F::Floor,
                "round" => F::Round,
                "trunc" => F::Trunc,
                _ => F::Ceil,
            };
            // As of several functions PostgreSQL takes the one of floating-point numbers, integers become such.
            let of = if decimal(of) { any_number } else { Float8 };
            (function, vec![of], of)
        }
        ("round", [of, places]) if exact(of) && places.is_integer() => (F::RoundTo, vec![any_number, Int4], any_number),
        ("trunc", [of, places]) if exact(of) && places.is_integer() => (F::TruncTo, vec![any_number, Int4], any_number),
        ("&" | "|" | "#" | "gcd" | "lcm", [a, b]) if a.is_integer() && b.is_integer() => {
            let of = if a.number_rank() > b.number_rank() { *a } else { *b };
            // `gcd` and `lcm` are there for the longer ones.
            let of = if of == Type::Int2 && !name.starts_with(['&', '|', '#']) { Int4 } else { of };
            let function = match name {
                "&" => F::And,
                "|" => F::Or,
                "#" => F::Xor,
                "gcd" => F::Gcd,
                _ => F::Lcm,
            };
            (function, vec![of, of], of)
        }
        ("~", [of]) if of.is_integer() => (F::Not, vec![*of], *of),
        ("<<" | ">>", [of, by]) if of.is_integer() && by.is_integer() && by.number_rank() <= Int4.number_rank() => {
            let bits = match of {
                Type::Int2 | Int4 => 32,
                _ => 64,
            };
            (if name == "<<" { F::ShiftLeft(bits) } else { F::ShiftRight(bits) }, vec![*of, Int4], *of)
        }
        ("div", [a, b]) if exact(a) && exact(b) => (F::Div, vec![any_number; 2], any_number),
        ("scale" | "min_scale", [of]) if exact(of) => {
            (if name == "scale" { F::Scale } else { F::MinScale }, vec![any_number], Int4)
        }
        ("trim_scale", [of]) if exact(of) => (F::TrimScale, vec![any_number], any_number),
        ("width_bucket", [of, low, high, count]) if numbers[..3].iter().all(exact) && count.is_integer() => {
            let _ = (of, low, high);
            (F::WidthBucket, vec![any_number, any_number, any_number, Int4], Int4)
        }
        ("width_bucket", [of, low, high, count])
            if [of, low, high].iter().all(|of| of.is_number()) && count.is_integer() =>
        {
            (F::WidthBucket, vec![Float8, Float8, Float8, Int4], Int4)
        }
        ("pi", []) => (F::Float(FloatFunction::Pi), vec![], Float8),
        ("atan2", [a, b]) if a.is_number() && b.is_number() => {
            (F::Float(FloatFunction::Atan2), vec![Float8; 2], Float8)
        }
        (name, [of]) if of.is_number() && FloatFunction::of(name).is_some() => {
            (F::Float(FloatFunction::of(name)?), vec![Float8], Float8)
        }
        ("mod", [a, b]) if a.is_integer() && b.is_integer() => {
            let of = if a.number_rank() > b.number_rank() { *a } else { *b };
            (F::Mod, vec![of, of], of)
        }
        ("mod", [a, b]) if exact(a) && exact(b) => (F::Mod, vec![any_number, any_number], any_number),
        ("power" | "pow", [a, b]) if decimal(a) && exact(b) || exact(a) && decimal(b) => {
            (F::Power, vec![any_number, any_number], any_number)
        }
        ("power" | "pow", [a, b]) if a.is_number() && b.is_number() => (F::Power, vec![Float8, Float8], Float8),
        ("log", [a, b]) if exact(a) && exact(b) => (F::LogTo, vec![any_number, any_number], any_number),
        ("sqrt" | "exp" | "ln" | "log" | "log10", [of]) if of.is_number() => {
            let function = match name {
                "sqrt" => F::Sqrt,
                "exp" => F::Exp,
                "ln" => F::Ln,
                _ => F::Log,
            };
            let of = if decimal(of) { any_number } else { Float8 };
            (function, vec![of], of)
        }
        _ => return None,
    })
}

impl NumberFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        match arguments {
            _ if let Self::Float(function) = self => function.call(arguments),
            [Value::Float(value)] => self.of_float(*value),
            [Value::Float(a), Value::Float(b)] => power(*a, *b),
            [Value::Float(of), Value::Float(low), Value::Float(high), Value::Int(count)] => {
                bucket_of_float(*of, (*low, *high), *count)
            }
            [of, low, high, Value::Int(count)] => bucket(of, (low, high), *count),
            [Value::Int(value)] if self == Self::Not => Ok(Value::Int(!value)),
            [Value::Int(value)] => match value.checked_abs() {
                Some(value) => Ok(Value::Int(value)),
                None => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range")),
            },
            [Value::Int(a), Value::Int(b)] if self != Self::Mod => self.of_integers(*a, *b),
            [Value::Int(_), Value::Int(0)] => Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero")),
            [Value::Int(a), Value::Int(b)] => Ok(Value::Int(a.checked_rem(*b).unwrap_or(0))),
            [Value::NonFinite(value)] => self.of_non_finite(*value),
            [value @ Value::NonFinite(_), Value::Int(_)] => Ok((*value).clone()),
            [a, b] if matches!(a, Value::NonFinite(_)) || matches!(b, Value::NonFinite(_)) => self.of_non_finites(a, b),
            [Value::Numeric(value)] => self.of_numeric(value),
            [Value::Numeric(value), Value::Int(places)] if self == Self::TruncTo => {
                let places = (*places).clamp(-2_000, 2_000);
                let cut = value.with_scale_round(places, bigdecimal::RoundingMode::Down);
                Ok(Value::Numeric(if places < 0 { cut.with_scale(0) } else { cut }))
            }
            [Value::Numeric(value), Value::Int(places)] => {
                let places = (*places).clamp(-2_000, 2_000);
                Ok(Value::Numeric(numeric::round(value, places)))
            }
            [Value::Numeric(a), Value::Numeric(b)] => Ok(Value::Numeric(match self {
                Self::Power => decimal::power(a, b)?,
                Self::LogTo => decimal::log(a, b)?,
                Self::Div => {
                    let rest = numeric::remainder(a, b)?;
                    ((a - rest) / b).with_scale_round(0, bigdecimal::RoundingMode::HalfUp)
                }
                _ => numeric::remainder(a, b)?,
            })),
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
            Self::Exp if value.is_finite() && (value.exp().is_infinite() || value.exp() == 0.0) => {
                let what = if value > 0.0 { "overflow" } else { "underflow" };
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {what}")));
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
            Self::Sqrt if value.is_negative() => {
                return Err(SqlError::new("2201F", "cannot take square root of a negative number"));
            }
            Self::Sqrt => decimal::square_root(value),
            Self::Exp => decimal::exp(value)?,
            Self::Ln => decimal::ln(value)?,
            Self::Log => decimal::log(&BigDecimal::from(10), value)?,
            Self::Scale => return Ok(Value::Int(numeric::scale(value))),
            Self::MinScale => return Ok(Value::Int(numeric::scale(&value.normalized()).max(0))),
            Self::TrimScale => value.with_scale(numeric::scale(&value.normalized()).max(0)),
            _ => return Err(wrong_arguments(self)),
        }))
    }
}

impl NumberFunction {
    fn of_integers(self, a: i64, b: i64) -> Result<Value> {
        let out_of_range = || SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range");
        // What is shifted by more than its bits is shifted by the rest.
        Ok(Value::Int(match self {
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::ShiftLeft(32) => i64::from((a as i32).wrapping_shl(b as u32)),
            Self::ShiftLeft(_) => a.wrapping_shl(b as u32),
            Self::ShiftRight(32) => i64::from((a as i32).wrapping_shr(b as u32)),
            Self::ShiftRight(_) => a.wrapping_shr(b as u32),
            Self::Gcd => i64::try_from(gcd(a, b)).map_err(|_| out_of_range())?,
            Self::Lcm if a == 0 || b == 0 => 0,
            Self::Lcm => {
                let product = u128::from(a.unsigned_abs()) / u128::from(gcd(a, b)) * u128::from(b.unsigned_abs());
                i64::try_from(product).map_err(|_| out_of_range())?
            }
            _ => return Err(wrong_arguments(self)),
        }))
    }

    fn of_non_finite(self, value: NonFinite) -> Result<Value> {
        use NonFinite::{Infinity, NaN, NegativeInfinity};
        let negative = |message| Err(SqlError::new(if self == Self::Sqrt { "2201F" } else { "2201E" }, message));
        Ok(match (self, value) {
            (Self::Scale | Self::MinScale, _) => Value::Null,
            (_, NaN) => Value::NonFinite(NaN),
            (Self::Abs, _) => Value::NonFinite(Infinity),
            (Self::Sign, Infinity) => Value::Numeric(1.into()),
            (Self::Sign, NegativeInfinity) => Value::Numeric((-1).into()),
            (Self::Exp, NegativeInfinity) => Value::Numeric(0.into()),
            (Self::Sqrt, NegativeInfinity) => return negative("cannot take square root of a negative number"),
            (Self::Ln | Self::Log, NegativeInfinity) => return negative("cannot take logarithm of a negative number"),
            (_, value) => Value::NonFinite(value),
        })
    }

    fn of_non_finites(self, a: &Value, b: &Value) -> Result<Value> {
        match self {
            Self::Mod => arithmetic(Operator::Remainder, Type::Numeric(None), a, b, Zone::UTC),
            Self::Power if *b == Value::Numeric(0.into()) || *a == Value::Numeric(1.into()) => {
                Ok(Value::Numeric(1.into()))
            }
            _ => match (numeric::rough(a), numeric::rough(b)) {
                (Some(a), Some(b)) if a.is_nan() || b.is_nan() => Ok(Value::NonFinite(NonFinite::NaN)),
                _ => Err(SqlError::unsupported("this function of an infinite numeric")),
            },
        }
    }
}

/// The greatest number by which both can be divided.
fn gcd(a: i64, b: i64) -> u64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
