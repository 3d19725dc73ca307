//! Functions of dates and times.

use bigdecimal::BigDecimal;

use super::{Resolved, is_texty, wrong_arguments};
use crate::{
    error::{Result, SqlError, state},
    sql::expression::Facts,
    types::Type,
    value::{Value, datetime},
};

/// A function of dates and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DateFunction {
    CurrentDate,
    DatePart,
    DateTrunc,
    MakeDate,
    Now,
    StatementTimestamp,
}

/// The function of dates and times of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<DateFunction>> {
    use DateFunction as F;
    use Type::{Date, Float8, Int4, Interval, Text, Timestamp, Timestamptz};
    let any_number = Type::Numeric(None);
    let texty = is_texty;
    Some(match (name, arguments) {
        ("make_date", [a, b, c]) if [a, b, c].iter().all(|of| of.is_integer()) => (F::MakeDate, vec![Int4; 3], Date),
        ("now" | "transaction_timestamp" | "current_timestamp", []) => (F::Now, vec![], Timestamptz),
        ("statement_timestamp" | "clock_timestamp", []) => (F::StatementTimestamp, vec![], Timestamptz),
        ("current_date", []) => (F::CurrentDate, vec![], Date),
        ("date_trunc", [field, of @ (Timestamp | Timestamptz)]) if texty(field) => (F::DateTrunc, vec![Text, *of], *of),
        ("date_trunc", [field, Date]) if texty(field) => (F::DateTrunc, vec![Text, Timestamptz], Timestamptz),
        ("date_part" | "extract", [field, of]) if texty(field) => {
            let of = match of {
                Date | Timestamp => Timestamp,
                Timestamptz => Timestamptz,
                Interval => Interval,
                _ => return None,
            };
            (F::DatePart, vec![Text, of], if name == "extract" { any_number } else { Float8 })
        }
        _ => return None,
    })
}

impl DateFunction {
    /// Whether its value depends on its arguments alone.
    pub(super) fn is_immutable(self) -> bool {
        !matches!(self, Self::Now | Self::StatementTimestamp | Self::CurrentDate)
    }

    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        Ok(match (self, arguments) {
            (Self::Now, []) => Value::Timestamp(facts.transaction_began),
            (Self::StatementTimestamp, []) => Value::Timestamp(facts.statement_began),
            (Self::CurrentDate, []) => Value::Date(facts.transaction_began.div_euclid(datetime::MICROS_PER_DAY) as i32),
            (Self::MakeDate, [Value::Int(year), Value::Int(month), Value::Int(day)]) => make_date(*year, *month, *day)?,
            (Self::DatePart, [Value::Text(field), of]) => date_part(field, of)?,
            (Self::DateTrunc, [Value::Text(field), Value::Timestamp(micros)]) => {
                Value::Timestamp(date_trunc(field, *micros)?)
            }
            _ => return Err(wrong_arguments(self)),
        })
    }
}

fn make_date(year: i64, month: i64, day: i64) -> Result<Value> {
    let shown = format!("{year}-{month:02}-{day:02}");
    match datetime::parse_date(&shown) {
        Ok(days) if year > 0 => Ok(Value::Date(days)),
        _ => Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("date field value out of range: {shown}"))),
    }
}

fn unknown_field(field: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("unit \"{field}\" not recognized"))
}

fn date_part(field: &str, of: &Value) -> Result<Value> {
    let field = field.to_ascii_lowercase();
    let seconds = |micros: i64| BigDecimal::new(micros.into(), 6);
    let number = match of {
        Value::Interval(interval) => match field.as_str() {
            "epoch" => BigDecimal::new(
                (i128::from(interval.months / 12) * 31_557_600_000_000
                    + i128::from(interval.months % 12) * 30 * i128::from(datetime::MICROS_PER_DAY)
                    + i128::from(interval.days) * i128::from(datetime::MICROS_PER_DAY)
                    + i128::from(interval.micros))
                .into(),
                6,
            ),
            "year" => BigDecimal::from(interval.months / 12),
            "month" => BigDecimal::from(interval.months % 12),
            "day" => BigDecimal::from(interval.days),
            "hour" => BigDecimal::from(interval.micros / datetime::MICROS_PER_HOUR),
            "minute" => BigDecimal::from(interval.micros / datetime::MICROS_PER_MINUTE % 60),
            "second" => seconds(interval.micros % datetime::MICROS_PER_MINUTE),
            _ => return Err(unknown_field(&field)),
        },
        Value::Timestamp(micros) => {
            let (days, time) =
                (micros.div_euclid(datetime::MICROS_PER_DAY), micros.rem_euclid(datetime::MICROS_PER_DAY));
            let (year, month, day) = datetime::date_of(days);
            // 2000-01-01 was a Saturday.
            let weekday = (days + 6).rem_euclid(7);
            match field.as_str() {
                "epoch" => BigDecimal::new((i128::from(*micros) + i128::from(datetime::EPOCH_MICROS)).into(), 6),
                "year" => BigDecimal::from(if year > 0 { year } else { year - 1 }),
                "quarter" => BigDecimal::from((month - 1) / 3 + 1),
                "month" => BigDecimal::from(month),
                "day" => BigDecimal::from(day),
                "dow" => BigDecimal::from(weekday),
                "isodow" => BigDecimal::from(if weekday == 0 { 7 } else { weekday }),
                "doy" => BigDecimal::from(days - datetime::days_of(year, 1, 1) + 1),
                "hour" => BigDecimal::from(time / datetime::MICROS_PER_HOUR),
                "minute" => BigDecimal::from(time / datetime::MICROS_PER_MINUTE % 60),
                "second" => seconds(time % datetime::MICROS_PER_MINUTE),
                "milliseconds" => BigDecimal::new((time % datetime::MICROS_PER_MINUTE).into(), 3),
                "microseconds" => BigDecimal::from(time % datetime::MICROS_PER_MINUTE),
                _ => return Err(unknown_field(&field)),
            }
        }
        other => return Err(SqlError::internal(format_args!("a field of {other:?}"))),
    };
    Ok(Value::Numeric(number))
}

fn date_trunc(field: &str, micros: i64) -> Result<i64> {
    let field = field.to_ascii_lowercase();
    let (year, month, _) = datetime::date_of(micros.div_euclid(datetime::MICROS_PER_DAY));
    let day = |year, month| datetime::days_of(year, month, 1) * datetime::MICROS_PER_DAY;
    let unit = match field.as_str() {
        "microseconds" => 1,
        "milliseconds" => 1_000,
        "second" => datetime::MICROS_PER_SECOND,
        "minute" => datetime::MICROS_PER_MINUTE,
        "hour" => datetime::MICROS_PER_HOUR,
        "day" => datetime::MICROS_PER_DAY,
        "week" => {
            // Weeks begin on Mondays.
            let days = micros.div_euclid(datetime::MICROS_PER_DAY);
            return Ok((days - (days + 5).rem_euclid(7)) * datetime::MICROS_PER_DAY);
        }
        "month" => return Ok(day(year, month)),
        "quarter" => return Ok(day(year, (month - 1) / 3 * 3 + 1)),
        "year" => return Ok(day(year, 1)),
        _ => return Err(unknown_field(&field)),
    };
    Ok(micros.div_euclid(unit) * unit)
}
