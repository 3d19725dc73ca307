//! What aggregates with `WITHIN GROUP` make of values in order.

use std::sync::Arc;

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::{Interval, Value, array::Array},
};

/// The value at a fraction of the way through values that are in order, or those at several fractions; between two values
/// if it is `continuous`.
///
/// # Errors
/// 22003 for a fraction that is none.
pub(crate) fn percentiles(values: &[&Value], fraction: &Value, continuous: bool) -> Result<Value> {
    match fraction {
        Value::Float(fraction) => percentile(values, *fraction, continuous),
        Value::Array(fractions) => {
            let one = |fraction: &Value| percentiles(values, fraction, continuous);
            let elements = fractions.elements.iter().map(one).collect::<Result<Vec<_>>>()?;
            Ok(Value::Array(Arc::new(Array { elements, ..Array::clone(fractions) })))
        }
        _ => Ok(Value::Null),
    }
}

fn percentile(values: &[&Value], fraction: f64, continuous: bool) -> Result<Value> {
    if !(0.0..=1.0).contains(&fraction) {
        let message = format!("percentile value {fraction} is not between 0 and 1");
        return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    let value = |at: f64| values.get(at as usize).map_or(Value::Null, |value| (*value).clone());
    if !continuous {
        return Ok(value(((fraction * values.len() as f64).ceil() - 1.0).max(0.0)));
    }
    let place = fraction * (values.len() as f64 - 1.0);
    let (low, high, part) = (value(place.floor()), value(place.ceil()), place - place.floor());
    Ok(match (low, high) {
        (Value::Float(low), Value::Float(high)) => Value::Float(low + part * (high - low)),
        (Value::Interval(low), Value::Interval(high)) => Value::Interval(between(low, high, part)),
        (low, _) => low,
    })
}

/// What is less than a month becomes days, what is less than a day becomes time.
fn between(low: Interval, high: Interval, part: f64) -> Interval {
    const DAY: f64 = 86_400_000_000.0;
    let months = f64::from(high.months - low.months) * part;
    let days = f64::from(high.days - low.days) * part + months.fract() * 30.0;
    let micros = (high.micros - low.micros) as f64 * part + days.fract() * DAY;
    Interval {
        months: low.months + months as i32,
        days: low.days + days as i32,
        micros: low.micros.saturating_add(micros.round() as i64),
    }
}

/// The value that comes most often among values in order; the first of several.
pub(crate) fn mode(values: &[&Value]) -> Value {
    let mut best: (usize, &Value) = (0, &Value::Null);
    for group in values.chunk_by(|a, b| a.compare(b).is_eq()) {
        if group.len() > best.0 {
            best = (group.len(), group[0]);
        }
    }
    best.1.clone()
}
