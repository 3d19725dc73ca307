//! Fields of dates and times: `extract`, `date_part`.

use bigdecimal::BigDecimal;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::{
        Interval, NonFinite, Value,
        datetime::{self, MICROS_PER_DAY, MICROS_PER_HOUR, MICROS_PER_MINUTE},
        zone::Zone,
    },
};

/// A field of a date, a time or an interval.
pub(super) fn date_part(field: &str, of: &Value, zone: Zone, zoned: bool) -> Result<Value> {
    let field = field_of(field);
    let number = match of {
        Value::Interval(interval) => interval_part(&field, *interval)?,
        Value::Time(micros) => match field.as_str() {
            "epoch" => BigDecimal::new((*micros).into(), 6),
            field => time_part(field, *micros).ok_or_else(|| unknown_field(field))?,
        },
        Value::Date(days) => match (field.as_str(), datetime::timestamp_of(*days)) {
            ("epoch", _) if !datetime::is_infinite_date(*days) => {
                BigDecimal::from((i64::from(*days) + datetime::EPOCH_DAYS) * 86_400)
            }
            (field, Some(_)) if time_part(field, 0).is_some() || field.starts_with("timezone") => {
                let message = format!("unit \"{field}\" not supported for type date");
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
            }
            (field, Some(micros)) => return date_part(field, &Value::Timestamp(micros), Zone::UTC, false),
            (_, None) => return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp")),
        },
        // What only grows is infinite, too.
        Value::Timestamp(micros) if datetime::is_infinite(*micros) => {
            return Ok(match field.as_str() {
                "epoch" | "year" | "isoyear" | "decade" | "century" | "millennium" | "julian" => {
                    Value::NonFinite(if *micros > 0 { NonFinite::Infinity } else { NonFinite::NegativeInfinity })
                }
                _ => Value::Null,
            });
        }
        Value::Timestamp(utc) => {
            let micros = zone.local(*utc);
            let ahead = i64::from(zone.ahead(*utc));
            let (days, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
            let (year, month, day) = datetime::date_of(days);
            // 2000-01-01 was a Saturday.
            let weekday = (days + 6).rem_euclid(7);
            let shown = |year: i64| BigDecimal::from(if year > 0 { year } else { year - 1 });
            match field.as_str() {
                "epoch" => BigDecimal::new((i128::from(*utc) + i128::from(datetime::EPOCH_MICROS)).into(), 6),
                "millennium" if year > 0 => BigDecimal::from((year + 999) / 1000),
                "millennium" => BigDecimal::from(-((999 - (year - 1)) / 1000)),
                "century" if year > 0 => BigDecimal::from((year + 99) / 100),
                "century" => BigDecimal::from(-((99 - (year - 1)) / 100)),
                "decade" => BigDecimal::from(year.div_euclid(10)),
                "year" => shown(year),
                "isoyear" => shown(iso_week(days, year).0),
                "quarter" => BigDecimal::from((month - 1) / 3 + 1),
                "month" => BigDecimal::from(month),
                "week" => BigDecimal::from(iso_week(days, year).1),
                "day" => BigDecimal::from(day),
                "dow" => BigDecimal::from(weekday),
                "isodow" => BigDecimal::from(if weekday == 0 { 7 } else { weekday }),
                "doy" => BigDecimal::from(days - datetime::days_of(year, 1, 1) + 1),
                "timezone" if zoned => BigDecimal::from(ahead),
                "timezone_hour" if zoned => BigDecimal::from(ahead / 3600),
                "timezone_minute" if zoned => BigDecimal::from(ahead / 60 % 60),
                field => time_part(field, time).ok_or_else(|| unknown_field(field))?,
            }
        }
        other => return Err(SqlError::internal(format_args!("a field of {other:?}"))),
    };
    Ok(Value::Numeric(number))
}

fn interval_part(field: &str, interval: Interval) -> Result<BigDecimal> {
    let Interval { months, days, micros } = interval;
    Ok(match field {
        "epoch" => {
            let day = i128::from(MICROS_PER_DAY);
            // A year has 365.25 days, and a month 30.
            let years = i128::from(months / 12) * 31_557_600_000_000;
            let rest = i128::from(months % 12) * 30 * day + i128::from(days) * day + i128::from(micros);
            BigDecimal::new((years + rest).into(), 6)
        }
        "millennium" => BigDecimal::from(months / 12_000),
        "century" => BigDecimal::from(months / 1_200),
        "decade" => BigDecimal::from(months / 120),
        "year" => BigDecimal::from(months / 12),
        "quarter" => BigDecimal::from(months % 12 / 3 + 1),
        "month" => BigDecimal::from(months % 12),
        "day" => BigDecimal::from(days),
        field => time_part(field, micros).ok_or_else(|| unknown_field(field))?,
    })
}

/// Hours, minutes, seconds and parts of them, of microseconds.
fn time_part(field: &str, micros: i64) -> Option<BigDecimal> {
    Some(match field {
        "hour" => BigDecimal::from(micros / MICROS_PER_HOUR),
        "minute" => BigDecimal::from(micros / MICROS_PER_MINUTE % 60),
        "second" => BigDecimal::new((micros % MICROS_PER_MINUTE).into(), 6),
        "milliseconds" => BigDecimal::new((micros % MICROS_PER_MINUTE).into(), 3),
        "microseconds" => BigDecimal::from(micros % MICROS_PER_MINUTE),
        _ => return None,
    })
}

/// A field's name as it is looked for: singular, and without PostgreSQL's short forms.
pub(super) fn field_of(field: &str) -> String {
    let field = field.trim().to_ascii_lowercase();
    let full = match field.as_str() {
        "us" | "usec" | "usecs" | "microsecond" | "microsecon" => "microseconds",
        "ms" | "msec" | "msecs" | "millisecond" | "millisecon" => "milliseconds",
        "s" | "sec" | "secs" | "seconds" => "second",
        "m" | "min" | "mins" | "minutes" => "minute",
        "h" | "hr" | "hrs" | "hours" => "hour",
        "d" | "days" => "day",
        "w" | "weeks" => "week",
        "mon" | "mons" | "months" => "month",
        "qtr" | "quarters" => "quarter",
        "y" | "yr" | "yrs" | "years" => "year",
        "dec" | "decs" | "decades" => "decade",
        "c" | "cent" | "centuries" => "century",
        "mil" | "mils" | "millennia" => "millennium",
        other => other,
    };
    full.to_owned()
}

pub(super) fn unknown_field(field: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("unit \"{field}\" not recognized"))
}

/// The year that weeks are counted in, and the week.
pub(super) fn iso_week(days: i64, year: i64) -> (i64, i64) {
    let iso_year = iso_year(days, year);
    (iso_year, (days - first_monday(iso_year)) / 7 + 1)
}

/// The year that the weeks are counted in.
pub(super) fn iso_year(days: i64, year: i64) -> i64 {
    if days < first_monday(year) {
        year - 1
    } else if days >= first_monday(year + 1) {
        year + 1
    } else {
        year
    }
}

/// The Monday of the first week of a year, in days; that week has the year's first Thursday.
pub(super) fn first_monday(year: i64) -> i64 {
    let fourth = datetime::days_of(year, 1, 4);
    fourth - (fourth + 5).rem_euclid(7)
}
