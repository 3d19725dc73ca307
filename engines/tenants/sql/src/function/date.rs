//! Functions of dates and times.

use bigdecimal::ToPrimitive;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Interval, Value,
        datetime::{self, MICROS_PER_DAY, MICROS_PER_HOUR, MICROS_PER_MINUTE, MICROS_PER_SECOND},
        numeric,
        style::Order,
        zone::Zone,
    },
};

use super::{
    Resolved,
    date_part::{date_part, field_of, unknown_field},
    is_texty, wrong_arguments,
};
use crate::expression::Facts;

/// A function of dates and times. What is `zoned` is of a time of UTC, as the session's clocks show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateFunction {
    /// `OVERLAPS`: whether two times between two others each have one in common.
    Overlaps,
    /// Years, months and days between two times; between one and the midnight that the day began with.
    Age {
        zoned: bool,
    },
    /// `AT TIME ZONE`, of a time of UTC if it is `zoned`
    AtZone {
        zoned: bool,
    },
    /// `date_bin`: the begin of the bin that a time is in.
    Bin,
    CurrentDate,
    /// As a floating-point number, if it is not `exact`
    DatePart {
        zoned: bool,
        exact: bool,
    },
    DateTrunc {
        zoned: bool,
    },
    IsFinite,
    JustifyDays,
    JustifyHours,
    JustifyInterval,
    MakeDate,
    MakeInterval,
    MakeTime,
    MakeTimestamp {
        zoned: bool,
    },
    Now,
    StatementTimestamp,
    /// A time of UTC, in seconds since 1970
    ToTimestamp,
}

/// The function of dates and times of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<DateFunction>> {
    use DateFunction as F;
    use Type::{Bool, Date, Float8, Int4, Text, Time, Timestamp, Timestamptz, Unknown};
    let any_number = Type::Numeric(None);
    let texty = is_texty;
    let number = |of: &Type| of.is_number() || *of == Unknown;
    let integers = |of: &[Type]| of.iter().all(|of| of.is_integer() || *of == Unknown);
    Some(match (name, arguments) {
        ("make_date", [_, _, _]) if integers(arguments) => (F::MakeDate, vec![Int4; 3], Date),
        ("make_time", [a, b, seconds]) if integers(&[*a, *b]) && number(seconds) => {
            (F::MakeTime, vec![Int4, Int4, Float8], Time)
        }
        ("make_timestamp", [rest @ .., seconds]) if rest.len() == 5 && integers(rest) && number(seconds) => {
            (F::MakeTimestamp { zoned: false }, vec![Int4, Int4, Int4, Int4, Int4, Float8], Timestamp)
        }
        ("make_timestamptz", [rest @ .., seconds]) if rest.len() == 5 && integers(rest) && number(seconds) => {
            (F::MakeTimestamp { zoned: true }, vec![Int4, Int4, Int4, Int4, Int4, Float8], Timestamptz)
        }
        ("make_timestamptz", [rest @ .., seconds, zone])
            if rest.len() == 5 && integers(rest) && number(seconds) && texty(zone) =>
        {
            (F::MakeTimestamp { zoned: true }, vec![Int4, Int4, Int4, Int4, Int4, Float8, Text], Timestamptz)
        }
        ("make_interval", parts) if parts.len() <= 7 && parts.iter().take(6).all(|of| integers(&[*of])) => {
            let wanted = [Int4, Int4, Int4, Int4, Int4, Int4, Float8][..parts.len()].to_vec();
            (F::MakeInterval, wanted, Type::Interval)
        }
        ("now" | "transaction_timestamp", []) => (F::Now, vec![], Timestamptz),
        ("statement_timestamp" | "clock_timestamp", []) => (F::StatementTimestamp, vec![], Timestamptz),
        ("current_date", []) => (F::CurrentDate, vec![], Date),
        ("to_timestamp", [of]) if number(of) => (F::ToTimestamp, vec![Float8], Timestamptz),
        ("date_trunc", [field, Timestamp]) if texty(field) => {
            (F::DateTrunc { zoned: false }, vec![Text, Timestamp], Timestamp)
        }
        ("date_trunc", [field, Date | Timestamptz | Unknown]) if texty(field) => {
            (F::DateTrunc { zoned: true }, vec![Text, Timestamptz], Timestamptz)
        }
        ("date_trunc", [field, Date | Timestamp | Timestamptz | Unknown, zone]) if texty(field) && texty(zone) => {
            (F::DateTrunc { zoned: true }, vec![Text, Timestamptz, Text], Timestamptz)
        }
        ("date_bin", [Type::Interval | Unknown, of @ (Timestamp | Timestamptz | Unknown), origin])
            if origin == of
                || [*of, *origin].contains(&Unknown) && matches!(origin, Timestamp | Timestamptz | Unknown) =>
        {
            let of = if [*of, *origin].contains(&Timestamp) { Timestamp } else { Timestamptz };
            (F::Bin, vec![Type::Interval, of, of], of)
        }
        ("date_part" | "extract", [field, of]) if texty(field) => {
            let (of, zoned) = match of {
                Date if name == "extract" => (Date, false),
                Date | Timestamp => (Timestamp, false),
                Timestamptz => (Timestamptz, true),
                Type::Interval | Time => (*of, false),
                _ => return None,
            };
            let exact = name == "extract";
            (F::DatePart { zoned, exact }, vec![Text, of], if exact { any_number } else { Float8 })
        }
        ("age", [Timestamp]) => (F::Age { zoned: false }, vec![Timestamp], Type::Interval),
        ("age", [Date | Timestamptz]) => (F::Age { zoned: true }, vec![Timestamptz], Type::Interval),
        ("age", [Timestamp, Timestamp | Unknown] | [Unknown, Timestamp]) => {
            (F::Age { zoned: false }, vec![Timestamp; 2], Type::Interval)
        }
        ("age", [Date | Timestamp | Timestamptz | Unknown, Date | Timestamp | Timestamptz | Unknown]) => {
            (F::Age { zoned: true }, vec![Timestamptz; 2], Type::Interval)
        }
        ("timezone", [zone, Timestamp]) if texty(zone) || *zone == Type::Interval => {
            (F::AtZone { zoned: false }, vec![if texty(zone) { Text } else { *zone }, Timestamp], Timestamptz)
        }
        ("timezone", [zone, Date | Timestamptz | Unknown]) if texty(zone) || *zone == Type::Interval => {
            (F::AtZone { zoned: true }, vec![if texty(zone) { Text } else { *zone }, Timestamptz], Timestamp)
        }
        ("isfinite", [of @ (Date | Timestamp | Timestamptz | Type::Interval)]) => (F::IsFinite, vec![*of], Bool),
        ("justify_days", [Type::Interval | Unknown]) => (F::JustifyDays, vec![Type::Interval], Type::Interval),
        ("justify_hours", [Type::Interval | Unknown]) => (F::JustifyHours, vec![Type::Interval], Type::Interval),
        ("justify_interval", [Type::Interval | Unknown]) => (F::JustifyInterval, vec![Type::Interval], Type::Interval),
        _ => return None,
    })
}

fn out_of_range(what: &str) -> SqlError {
    SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("{what} field value out of range"))
}

impl DateFunction {
    /// Whether its value depends on its arguments alone.
    pub(super) fn is_immutable(self) -> bool {
        !matches!(
            self,
            Self::Now
                | Self::StatementTimestamp
                | Self::CurrentDate
                | Self::Age { zoned: true }
                | Self::DatePart { zoned: true, .. }
                | Self::DateTrunc { zoned: true }
                | Self::MakeTimestamp { zoned: true }
        )
    }

    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        let zone = |zoned: bool| if zoned { facts.zone() } else { Zone::UTC };
        Ok(match (self, arguments) {
            (Self::Overlaps, [from, to, other_from, other_to]) => overlap((from, to), (other_from, other_to)),
            (Self::Now, []) => Value::Timestamp(facts.transaction_began),
            (Self::StatementTimestamp, []) => Value::Timestamp(facts.statement_began),
            (Self::CurrentDate, []) => {
                Value::Date(datetime::date_of_timestamp(zone(true).local(facts.transaction_began)))
            }
            (Self::MakeDate, [Value::Int(year), Value::Int(month), Value::Int(day)]) => make_date(*year, *month, *day)?,
            (Self::MakeTime, [Value::Int(hour), Value::Int(minute), Value::Float(second)]) => {
                Value::Time(make_time(*hour, *minute, *second)?)
            }
            (
                Self::MakeTimestamp { zoned },
                [
                    Value::Int(year),
                    Value::Int(month),
                    Value::Int(day),
                    Value::Int(hour),
                    Value::Int(minute),
                    Value::Float(second),
                    named @ ..,
                ],
            ) => {
                let Value::Date(days) = make_date(*year, *month, *day)? else { return Err(wrong_arguments(self)) };
                let local = datetime::on_day(days.into(), make_time(*hour, *minute, *second)?)?;
                let zone = if let [Value::Text(name)] = named { Zone::east_or_named(name)? } else { zone(zoned) };
                Value::Timestamp(datetime::known(zone.utc(local))?)
            }
            (Self::MakeInterval, parts) => make_interval(parts)?,
            (Self::ToTimestamp, [Value::Float(seconds)]) => Value::Timestamp(of_seconds(*seconds)?),
            (Self::DatePart { zoned, exact }, [Value::Text(field), of]) => {
                match date_part(field, of, zone(zoned), zoned)? {
                    part @ Value::NonFinite(_) if !exact => numeric::rough(&part).map_or(part, Value::Float),
                    Value::Numeric(part) if !exact => Value::Float(part.to_f64().unwrap_or(f64::NAN)),
                    part => part,
                }
            }
            (Self::DateTrunc { zoned }, [Value::Text(field), Value::Timestamp(micros), named @ ..]) => {
                let zone = if let [Value::Text(name)] = named { Zone::named(name)? } else { zone(zoned) };
                Value::Timestamp(datetime::known(zone.utc(date_trunc(field, zone.local(*micros))?))?)
            }
            (Self::Bin, [Value::Interval(stride), Value::Timestamp(at), Value::Timestamp(origin)]) => {
                Value::Timestamp(bin(*stride, *at, *origin)?)
            }
            (Self::Age { zoned }, [Value::Timestamp(than)]) => {
                let today = zone(zoned).local(facts.transaction_began).div_euclid(MICROS_PER_DAY) * MICROS_PER_DAY;
                age(today, zone(zoned).local(*than))?
            }
            (Self::Age { zoned }, [Value::Timestamp(of), Value::Timestamp(than)]) => {
                age(zone(zoned).local(*of), zone(zoned).local(*than))?
            }
            (Self::AtZone { zoned }, [named, Value::Timestamp(micros)]) => {
                let zone = match named {
                    Value::Text(name) => Zone::named(name)?,
                    Value::Interval(Interval { months: 0, days: 0, micros }) => Zone::east(*micros)?,
                    _ => {
                        let message = "interval time zone must not include months or days";
                        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                    }
                };
                Value::Timestamp(datetime::known(if zoned { zone.local(*micros) } else { zone.utc(*micros) })?)
            }
            (Self::IsFinite, [Value::Timestamp(micros)]) => Value::Bool(!datetime::is_infinite(*micros)),
            (Self::IsFinite, [Value::Date(days)]) => Value::Bool(!datetime::is_infinite_date(*days)),
            (Self::IsFinite, [Value::Interval(_)]) => Value::Bool(true),
            (Self::JustifyHours, [Value::Interval(of)]) => Value::Interval(justify_hours(*of)?),
            (Self::JustifyDays, [Value::Interval(of)]) => Value::Interval(justify_days(*of)?),
            (Self::JustifyInterval, [Value::Interval(of)]) => Value::Interval(justify(*of)?),
            _ => return Err(wrong_arguments(self)),
        })
    }
}

fn make_date(year: i64, month: i64, day: i64) -> Result<Value> {
    let (shown, era) = if year < 0 { (-year, " BC") } else { (year, "") };
    let text = format!("{shown:04}-{month:02}-{day:02}{era}");
    let wrong = || SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("date field value out of range: {text}"));
    datetime::parse_date(&text, Order::MonthFirst).map(Value::Date).map_err(|_| wrong())
}

fn make_time(hour: i64, minute: i64, second: f64) -> Result<i64> {
    let fits = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    let micros = hour.saturating_mul(MICROS_PER_HOUR) + minute.saturating_mul(MICROS_PER_MINUTE);
    let micros = micros.saturating_add((second * MICROS_PER_SECOND as f64).round() as i64);
    if fits && micros <= MICROS_PER_DAY {
        return Ok(micros);
    }
    let message = format!("time field value out of range: {hour}:{minute:02}:{second:02}");
    Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, message))
}

/// Years, months, weeks, days, hours, minutes, seconds.
fn make_interval(parts: &[&Value]) -> Result<Value> {
    let part = |at: usize| if let Some(Value::Int(number)) = parts.get(at) { *number } else { 0 };
    let seconds = if let Some(Value::Float(seconds)) = parts.get(6) { *seconds } else { 0.0 };
    let months = i32::try_from(part(0) * 12 + part(1));
    let days = i32::try_from(part(2) * 7 + part(3));
    let micros = part(4) as i128 * i128::from(MICROS_PER_HOUR) + part(5) as i128 * i128::from(MICROS_PER_MINUTE);
    let micros = i64::try_from(micros + (seconds * MICROS_PER_SECOND as f64).round() as i128);
    match (months, days, micros) {
        (Ok(months), Ok(days), Ok(micros)) if seconds.is_finite() => {
            Ok(Value::Interval(Interval { months, days, micros }))
        }
        _ => Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, "interval out of range")),
    }
}

/// A time from seconds since 1970.
fn of_seconds(seconds: f64) -> Result<i64> {
    let wrong = || SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{seconds}\""));
    if seconds.is_nan() {
        return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(if seconds > 0.0 { datetime::INFINITY } else { i64::MIN });
    }
    let micros = (seconds * MICROS_PER_SECOND as f64).round() - datetime::EPOCH_MICROS as f64;
    // The times that there are, in whole numbers that floats have exactly enough.
    if !(-2.12e17..9.3e18).contains(&micros) {
        return Err(wrong());
    }
    datetime::known((micros as i64).min(datetime::INFINITY - 1)).map_err(|_| wrong())
}

fn bin(stride: Interval, at: i64, origin: i64) -> Result<i64> {
    let wrong = |message: &str| SqlError::new(state::DATETIME_FIELD_OVERFLOW, message);
    if datetime::is_infinite(at) {
        return Ok(at);
    }
    if datetime::is_infinite(origin) {
        return Err(wrong("origin out of range"));
    }
    if stride.months != 0 {
        return Err(SqlError::unsupported("a bin of months or years, whose lengths differ,"));
    }
    let stride = i64::from(stride.days).checked_mul(MICROS_PER_DAY).and_then(|days| days.checked_add(stride.micros));
    let stride = stride.ok_or_else(|| wrong("interval out of range"))?;
    if stride <= 0 {
        return Err(wrong("stride must be greater than zero"));
    }
    let since = at.checked_sub(origin).ok_or_else(|| wrong("interval out of range"))?;
    let begin = since.div_euclid(stride).checked_mul(stride).and_then(|begin| origin.checked_add(begin));
    datetime::known(begin.ok_or_else(|| wrong("timestamp out of range"))?)
}

fn date_trunc(field: &str, micros: i64) -> Result<i64> {
    if datetime::is_infinite(micros) {
        return Ok(micros);
    }
    let field = field_of(field);
    let (year, month, _) = datetime::date_of(micros.div_euclid(MICROS_PER_DAY));
    let day = |year, month| datetime::days_of(year, month, 1) * MICROS_PER_DAY;
    // The first year of so many that are counted from 1.
    let first = |of: i64| (year - 1).div_euclid(of) * of + 1;
    let unit = match field.as_str() {
        "microseconds" => 1,
        "milliseconds" => 1_000,
        "second" => MICROS_PER_SECOND,
        "minute" => MICROS_PER_MINUTE,
        "hour" => MICROS_PER_HOUR,
        "day" => MICROS_PER_DAY,
        "week" => {
            // Weeks begin on Mondays.
            let days = micros.div_euclid(MICROS_PER_DAY);
            return Ok((days - (days + 5).rem_euclid(7)) * MICROS_PER_DAY);
        }
        "month" => return Ok(day(year, month)),
        "quarter" => return Ok(day(year, (month - 1) / 3 * 3 + 1)),
        "year" => return Ok(day(year, 1)),
        "decade" => return Ok(day(year.div_euclid(10) * 10, 1)),
        "century" => return Ok(day(first(100), 1)),
        "millennium" => return Ok(day(first(1000), 1)),
        _ => return Err(unknown_field(&field)),
    };
    Ok(micros.div_euclid(unit) * unit)
}

/// Years, months, days and the rest between two times.
fn age(of: i64, than: i64) -> Result<Value> {
    if datetime::is_infinite(of) || datetime::is_infinite(than) {
        return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, "timestamp out of range"));
    }
    let (late, early, sign) = if of >= than { (of, than, 1) } else { (than, of, -1) };
    let parts = |micros: i64| {
        let (year, month, day) = datetime::date_of(micros.div_euclid(MICROS_PER_DAY));
        (year * 12 + month, day, micros.rem_euclid(MICROS_PER_DAY))
    };
    let ((late_months, late_day, late_time), (early_months, early_day, early_time)) = (parts(late), parts(early));
    let (mut months, mut days, mut micros) = (late_months - early_months, late_day - early_day, late_time - early_time);
    if micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        // As many as the month of the earlier one has.
        let first = |month: i64| datetime::days_of(month.div_euclid(12), month.rem_euclid(12) + 1, 1);
        days += first(early_months) - first(early_months - 1);
        months -= 1;
    }
    let wrong = |_| SqlError::new(state::DATETIME_FIELD_OVERFLOW, "interval out of range");
    Ok(Value::Interval(Interval {
        months: i32::try_from(sign * months).map_err(wrong)?,
        days: i32::try_from(sign * days).map_err(wrong)?,
        micros: sign * micros,
    }))
}

fn justify_hours(of: Interval) -> Result<Interval> {
    let whole = i32::try_from(of.micros / MICROS_PER_DAY).ok().and_then(|days| of.days.checked_add(days));
    let (mut days, mut micros) = (whole.ok_or_else(|| out_of_range("interval"))?, of.micros % MICROS_PER_DAY);
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + MICROS_PER_DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - MICROS_PER_DAY);
    }
    Ok(Interval { days, micros, ..of })
}

fn justify_days(of: Interval) -> Result<Interval> {
    let months = of.months.checked_add(of.days / 30).ok_or_else(|| out_of_range("interval"))?;
    let (mut months, mut days) = (months, of.days % 30);
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - 30);
    }
    Ok(Interval { months, days, ..of })
}

/// Both, with one sign for all parts.
fn justify(of: Interval) -> Result<Interval> {
    let Interval { mut months, mut days, mut micros } = justify_days(justify_hours(of)?)?;
    if months > 0 && (days < 0 || (days == 0 && micros < 0)) {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && (days > 0 || (days == 0 && micros > 0)) {
        (months, days) = (months + 1, days - 30);
    }
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + MICROS_PER_DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - MICROS_PER_DAY);
    }
    Ok(Interval { months, days, micros })
}

/// Whether two times between two others each have one in common; each may lack one of its times, and NULL is where that decides.
fn overlap(a: (&Value, &Value), b: (&Value, &Value)) -> Value {
    let ordered = |(from, to): (&Value, &Value)| match (from.is_null(), to.is_null()) {
        (true, true) => None,
        (true, false) => Some((to.clone(), None)),
        (false, true) => Some((from.clone(), None)),
        _ if from.compare(to).is_gt() => Some((to.clone(), Some(from.clone()))),
        _ => Some((from.clone(), Some(to.clone()))),
    };
    let (Some((a, a_end)), Some((b, b_end))) = (ordered(a), ordered(b)) else { return Value::Null };
    // The one that begins later has to begin before the other one ends.
    let (later, later_end, end) = match a.compare(&b) {
        std::cmp::Ordering::Equal if a_end.is_none() || b_end.is_none() => return Value::Null,
        std::cmp::Ordering::Equal => return Value::Bool(true),
        std::cmp::Ordering::Greater => (a, a_end, b_end),
        std::cmp::Ordering::Less => (b, b_end, a_end),
    };
    match end {
        None => Value::Null,
        Some(end) if later.compare(&end).is_lt() => Value::Bool(true),
        Some(_) if later_end.is_none() => Value::Null,
        Some(_) => Value::Bool(false),
    }
}
