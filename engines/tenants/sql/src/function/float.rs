//! Functions of floating-point numbers.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};

use super::wrong_arguments;

/// A function of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatFunction {
    Acos,
    Asin,
    Atan,
    Atan2,
    Cbrt,
    Cos,
    Cosh,
    Cot,
    Degrees,
    Pi,
    Radians,
    Sin,
    Sinh,
    Tan,
    Tanh,
}

impl FloatFunction {
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "acos" => Self::Acos,
            "asin" => Self::Asin,
            "atan" => Self::Atan,
            "cbrt" => Self::Cbrt,
            "cos" => Self::Cos,
            "cosh" => Self::Cosh,
            "cot" => Self::Cot,
            "degrees" => Self::Degrees,
            "radians" => Self::Radians,
            "sin" => Self::Sin,
            "sinh" => Self::Sinh,
            "tan" => Self::Tan,
            "tanh" => Self::Tanh,
            _ => return None,
        })
    }

    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        let out_of_range = || SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range");
        let result = match (self, arguments) {
            (Self::Pi, []) => std::f64::consts::PI,
            (Self::Atan2, [Value::Float(a), Value::Float(b)]) => a.atan2(*b),
            (_, [Value::Float(of)]) => match self {
                Self::Acos | Self::Asin if of.abs() > 1.0 => return Err(out_of_range()),
                Self::Cos | Self::Cot | Self::Sin | Self::Tan if of.is_infinite() => return Err(out_of_range()),
                Self::Acos => of.acos(),
                Self::Asin => of.asin(),
                Self::Atan => of.atan(),
                Self::Cbrt => of.cbrt(),
                Self::Cos => of.cos(),
                Self::Cosh => of.cosh(),
                Self::Cot => 1.0 / of.tan(),
                Self::Degrees => of.to_degrees(),
                Self::Radians => of.to_radians(),
                Self::Sin => of.sin(),
                Self::Sinh => of.sinh(),
                Self::Tan => of.tan(),
                _ => of.tanh(),
            },
            _ => return Err(wrong_arguments(self)),
        };
        Ok(Value::Float(result))
    }
}

pub(super) fn power(a: f64, b: f64) -> Result<Value> {
    if a == 0.0 && b < 0.0 {
        return Err(SqlError::new("2201F", "zero raised to a negative power is undefined"));
    }
    if a < 0.0 && b.is_finite() && b.fract() != 0.0 {
        return Err(SqlError::new("2201F", "a negative number raised to a non-integer power yields a complex result"));
    }
    let result = a.powf(b);
    match result.is_infinite() && a.is_finite() && b.is_finite() {
        true => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")),
        false => Ok(Value::Float(result)),
    }
}
