//! `width_bucket`.

use std::cmp::Ordering;

use bigdecimal::{BigDecimal, ToPrimitive};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::{NonFinite, Value, numeric},
};

use super::{NumberFunction, wrong_arguments};

fn wrong_bucket(message: &str) -> SqlError {
    SqlError::new("2201G", message)
}

/// The number of a bucket, which is an `integer`.
fn within(bucket: i64) -> Result<Value> {
    match i32::try_from(bucket) {
        Ok(_) => Ok(Value::Int(bucket)),
        Err(_) => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range")),
    }
}

/// Which of `count` equally wide buckets between two bounds a number is in, from 1; 0 and one more are those around.
pub(super) fn bucket(of: &Value, (low, high): (&Value, &Value), count: i64) -> Result<Value> {
    if count <= 0 {
        return Err(wrong_bucket("count must be greater than zero"));
    }
    let (Value::Numeric(low), Value::Numeric(high)) = (low, high) else {
        return Err(wrong_bucket("operand, lower bound, and upper bound cannot be NaN, and bounds must be finite"));
    };
    let up = match low.cmp(high) {
        Ordering::Equal => return Err(wrong_bucket("lower bound cannot equal upper bound")),
        order => order.is_lt(),
    };
    let of = match of {
        Value::Numeric(of) => of,
        Value::NonFinite(NonFinite::NaN) => {
            return Err(wrong_bucket("operand, lower bound, and upper bound cannot be NaN"));
        }
        Value::NonFinite(infinite) => {
            let behind = (*infinite == NonFinite::Infinity) == up;
            return within(if behind { count + 1 } else { 0 });
        }
        _ => return Err(wrong_arguments(NumberFunction::WidthBucket)),
    };
    let (before, behind) = if up { (of < low, of >= high) } else { (of > low, of <= high) };
    if before || behind {
        return within(if before { 0 } else { count + 1 });
    }
    let place = numeric::divide(&((of - low) * BigDecimal::from(count)), &(high - low))?;
    let place = place.with_scale_round(0, bigdecimal::RoundingMode::Floor).to_i64().unwrap_or(count);
    Ok(Value::Int(place.min(count - 1) + 1))
}

pub(super) fn bucket_of_float(of: f64, (low, high): (f64, f64), count: i64) -> Result<Value> {
    if count <= 0 {
        return Err(wrong_bucket("count must be greater than zero"));
    }
    if of.is_nan() || low.is_nan() || high.is_nan() {
        return Err(wrong_bucket("operand, lower bound, and upper bound cannot be NaN"));
    }
    if !low.is_finite() || !high.is_finite() {
        return Err(wrong_bucket("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(wrong_bucket("lower bound cannot equal upper bound"));
    }
    let up = low < high;
    let (before, behind) = if up { (of < low, of >= high) } else { (of > low, of <= high) };
    within(match (before, behind) {
        (true, _) => 0,
        (_, true) => count + 1,
        _ => ((count as f64 * ((of - low) / (high - low))) as i64).min(count - 1) + 1,
    })
}
