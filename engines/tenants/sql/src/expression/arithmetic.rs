//! Sums, products and the like of numbers and times.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Interval, NonFinite, Value, datetime, numeric, text, zone::Zone},
};

use crate::expression::Operator;

fn out_of_range(of: Type) -> SqlError {
    let state = if of == Type::Interval { state::DATETIME_FIELD_OVERFLOW } else { state::NUMERIC_VALUE_OUT_OF_RANGE };
    SqlError::new(state, format!("{} out of range", of.name()))
}

pub(crate) fn negate(value: &Value, of: Type) -> Result<Value> {
    Ok(match value {
        Value::Null => Value::Null,
        Value::Int(value) => integer(value.checked_neg(), of)?,
        Value::Float(value) => Value::Float(-value),
        Value::Numeric(value) => Value::Numeric(-value),
        Value::NonFinite(NonFinite::Infinity) => Value::NonFinite(NonFinite::NegativeInfinity),
        Value::NonFinite(NonFinite::NegativeInfinity) => Value::NonFinite(NonFinite::Infinity),
        Value::NonFinite(NonFinite::NaN) => value.clone(),
        Value::Interval(interval) => Value::Interval(negated(*interval)?),
        other => return Err(SqlError::internal(format_args!("{other:?} was negated"))),
    })
}

fn negated(interval: Interval) -> Result<Interval> {
    let (months, days) = (interval.months.checked_neg(), interval.days.checked_neg());
    match (months, days, interval.micros.checked_neg()) {
        (Some(months), Some(days), Some(micros)) => Ok(Interval { months, days, micros }),
        _ => Err(out_of_range(Type::Interval)),
    }
}

fn integer(value: Option<i64>, of: Type) -> Result<Value> {
    value.filter(|value| text::in_range(*value, of)).map(Value::Int).ok_or_else(|| out_of_range(of))
}

/// The value of an operator on two values that are not NULL; `of` is the type of its result.
pub fn arithmetic(operator: Operator, of: Type, a: &Value, b: &Value, zone: Zone) -> Result<Value> {
    use Operator::{Add, Divide, Multiply, Remainder, Subtract};
    let zone = if of == Type::Timestamptz { zone } else { Zone::UTC };
    let by_zero = || SqlError::new(state::DIVISION_BY_ZERO, "division by zero");
    Ok(match (a, operator, b) {
        (Value::Int(a), Add, Value::Int(b)) => integer(a.checked_add(*b), of)?,
        (Value::Int(a), Subtract, Value::Int(b)) => integer(a.checked_sub(*b), of)?,
        (Value::Int(a), Multiply, Value::Int(b)) => integer(a.checked_mul(*b), of)?,
        (Value::Int(_), Divide | Remainder, Value::Int(0)) => return Err(by_zero()),
        (Value::Int(a), Divide, Value::Int(b)) => integer(a.checked_div(*b), of)?,
        (Value::Int(a), Remainder, Value::Int(b)) => Value::Int(a.checked_rem(*b).unwrap_or(0)),
        (Value::Float(a), _, Value::Float(b)) => float(operator, of, *a, *b)?,
        (Value::Numeric(a), Add, Value::Numeric(b)) => Value::Numeric(numeric::sum(a, b)?),
        (Value::Numeric(a), Subtract, Value::Numeric(b)) => Value::Numeric(numeric::difference(a, b)?),
        (Value::Numeric(a), Multiply, Value::Numeric(b)) => Value::Numeric(numeric::product(a, b)?),
        (Value::Numeric(a), Divide, Value::Numeric(b)) => Value::Numeric(numeric::divide(a, b)?),
        (Value::Numeric(a), Remainder, Value::Numeric(b)) => Value::Numeric(numeric::remainder(a, b)?),
        (Value::NonFinite(_), _, Value::Numeric(_) | Value::NonFinite(_))
        | (Value::Numeric(_), _, Value::NonFinite(_)) => non_finite(operator, a, b)?,
        (Value::Timestamp(at), Add, Value::Interval(by)) | (Value::Interval(by), Add, Value::Timestamp(at)) => {
            Value::Timestamp(datetime::add_in(zone, *at, *by)?)
        }
        (Value::Timestamp(at), Subtract, Value::Interval(by)) => {
            Value::Timestamp(datetime::add_in(zone, *at, negated(*by)?)?)
        }
        (Value::Timestamp(a), Subtract, Value::Timestamp(b)) => {
            if datetime::is_infinite(*a) || datetime::is_infinite(*b) {
                return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite timestamps"));
            }
            let micros = a.checked_sub(*b).ok_or_else(|| out_of_range(Type::Interval))?;
            let days = i32::try_from(micros / datetime::MICROS_PER_DAY).map_err(|_| out_of_range(Type::Interval))?;
            Value::Interval(Interval { months: 0, days, micros: micros % datetime::MICROS_PER_DAY })
        }
        (Value::Date(a), Subtract, Value::Date(b)) => {
            if datetime::is_infinite_date(*a) || datetime::is_infinite_date(*b) {
                return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"));
            }
            Value::Int(i64::from(*a) - i64::from(*b))
        }
        (Value::Date(day), Add | Subtract, Value::Int(_)) if datetime::is_infinite_date(*day) => Value::Date(*day),
        (Value::Date(day), Add | Subtract, Value::Int(by)) => {
            let by = if operator == Add { Some(*by) } else { by.checked_neg() };
            let day = by.and_then(|by| i64::from(*day).checked_add(by)).and_then(datetime::known_day);
            Value::Date(day.ok_or_else(|| SqlError::new(state::DATETIME_FIELD_OVERFLOW, "date out of range"))?)
        }
        (Value::Int(_), Add, Value::Date(_)) => return arithmetic(Add, of, b, a, zone),
        (Value::Time(at), Add | Subtract, Value::Interval(by)) => {
            let by = if operator == Add { by.micros } else { by.micros.wrapping_neg() };
            Value::Time(at.wrapping_add(by % datetime::MICROS_PER_DAY).rem_euclid(datetime::MICROS_PER_DAY))
        }
        (Value::Interval(a), Add | Subtract, Value::Interval(b)) => {
            let b = if operator == Add { *b } else { negated(*b)? };
            let sums = (a.months.checked_add(b.months), a.days.checked_add(b.days), a.micros.checked_add(b.micros));
            let (Some(months), Some(days), Some(micros)) = sums else { return Err(out_of_range(Type::Interval)) };
            Value::Interval(Interval { months, days, micros })
        }
        (Value::Interval(interval), Multiply, Value::Float(factor)) => {
            Value::Interval(scaled(*interval, |part| part * factor)?)
        }
        (Value::Float(factor), Multiply, Value::Interval(interval)) => {
            Value::Interval(scaled(*interval, |part| part * factor)?)
        }
        (Value::Interval(_), Divide, Value::Float(0.0)) => return Err(by_zero()),
        (Value::Interval(interval), Divide, Value::Float(by)) => Value::Interval(scaled(*interval, |part| part / by)?),
        (a, operator, b) => return Err(SqlError::internal(format_args!("{a:?} {operator:?} {b:?} was computed"))),
    })
}

/// An operation on two `numeric`, of which one is not finite.
fn non_finite(operator: Operator, a: &Value, b: &Value) -> Result<Value> {
    let (Some(x), Some(y)) = (numeric::rough(a), numeric::rough(b)) else {
        return Err(SqlError::internal("an operation on other values than numbers"));
    };
    let result = match operator {
        _ if x.is_nan() || y.is_nan() => f64::NAN,
        Operator::Add => x + y,
        Operator::Subtract => x - y,
        Operator::Multiply => x * y,
        Operator::Divide | Operator::Remainder if y == 0.0 => {
            return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
        }
        Operator::Divide => x / y,
        Operator::Remainder if x.is_finite() => return Ok(a.clone()),
        Operator::Remainder => f64::NAN,
    };
    // What is finite is a number divided by an infinite one.
    Ok(numeric::non_finite(result).map_or_else(|| Value::Numeric(0.into()), Value::NonFinite))
}

fn float(operator: Operator, of: Type, a: f64, b: f64) -> Result<Value> {
    let overflow = |what| SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {what}"));
    let result = match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide | Operator::Remainder if b == 0.0 && !a.is_nan() => {
            return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
        }
        Operator::Divide => a / b,
        Operator::Remainder => return Err(SqlError::internal("a remainder of floating-point numbers")),
    };
    let result = if of == Type::Float4 { f64::from(result as f32) } else { result };
    if result.is_infinite() && a.is_finite() && b.is_finite() {
        return Err(overflow("overflow"));
    }
    let factors = matches!(operator, Operator::Multiply) && a != 0.0 && b != 0.0;
    let quotient = matches!(operator, Operator::Divide) && a != 0.0 && b.is_finite();
    if result == 0.0 && (factors || quotient) {
        return Err(overflow("underflow"));
    }
    Ok(Value::Float(result))
}

/// An interval times or by a number: what is less than a month becomes days, what is less than a day becomes time. Rounded where PostgreSQL
/// rounds.
fn scaled(interval: Interval, scale: impl Fn(f64) -> f64) -> Result<Interval> {
    let whole = |number: f64| {
        let fits = number.abs() <= f64::from(i32::MAX);
        if fits { Ok(number.trunc()) } else { Err(out_of_range(Type::Interval)) }
    };
    let to_micros = |number: f64| (number * 1e6).round_ties_even() / 1e6;
    const SECONDS_PER_DAY: f64 = 86_400.0;
    let (months, days) = (scale(interval.months.into()), scale(interval.days.into()));
    let (whole_months, mut whole_days) = (whole(months)?, whole(days)?);
    let rest_days = to_micros((months - whole_months) * 30.0);
    let mut seconds = to_micros((days - whole_days + rest_days - rest_days.trunc()) * SECONDS_PER_DAY);
    if seconds.abs() >= SECONDS_PER_DAY {
        whole_days += (seconds / SECONDS_PER_DAY).trunc();
        seconds -= (seconds / SECONDS_PER_DAY).trunc() * SECONDS_PER_DAY;
    }
    whole_days = whole(whole_days + rest_days.trunc())?;
    let micros = (scale(interval.micros as f64) + seconds * 1e6).round_ties_even();
    if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&micros) {
        return Err(out_of_range(Type::Interval));
    }
    Ok(Interval { months: whole_months as i32, days: whole_days as i32, micros: micros as i64 })
}
