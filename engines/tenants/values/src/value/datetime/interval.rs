//! Intervals from what people write, and from ISO 8601.

use super::{
    MICROS_PER_DAY, MICROS_PER_HOUR, MICROS_PER_MINUTE, MICROS_PER_SECOND,
    field::{Field, fields, span},
};
use crate::{
    error::{Result, SqlError, state},
    value::{Interval, style::Intervals},
};

/// A unit of intervals.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
    Decade,
    Century,
    Millennium,
}

impl Unit {
    /// The unit of a name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" | "microsecon" => {
                Self::Microsecond
            }
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" | "millisecon" => {
                Self::Millisecond
            }
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Self::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Self::Hour,
            "d" | "day" | "days" => Self::Day,
            "w" | "week" | "weeks" => Self::Week,
            "mon" | "mons" | "month" | "months" => Self::Month,
            "y" | "yr" | "yrs" | "year" | "years" => Self::Year,
            "dec" | "decs" | "decade" | "decades" => Self::Decade,
            "c" | "cent" | "century" | "centuries" => Self::Century,
            "mil" | "mils" | "millennia" | "millennium" | "millenniums" => Self::Millennium,
            _ => return None,
        })
    }

    /// A bit for each, so that none comes twice.
    fn bit(self) -> u16 {
        1 << self as u16
    }
}

const SECONDS: u16 = 1 << Unit::Second as u16 | 1 << Unit::Millisecond as u16 | 1 << Unit::Microsecond as u16;

enum Wrong {
    Form,
    Range,
}

type Read<T> = std::result::Result<T, Wrong>;

/// The sums of what was read.
#[derive(Default)]
struct Sums {
    /// Months of years.
    years: i64,
    months: i64,
    days: i64,
    micros: i64,
    /// Units that were there.
    met: u16,
}

impl Sums {
    /// Adds a number of units; `fraction` is what is behind its point, with its sign.
    fn add(&mut self, unit: Unit, number: i64, fraction: f64) -> Read<()> {
        let times = |per: i64| number.checked_mul(per).ok_or(Wrong::Range);
        let whole = |sum: &mut i64, more: i64| {
            *sum = sum.checked_add(more).ok_or(Wrong::Range)?;
            Ok(())
        };
        match unit {
            Unit::Microsecond => whole(&mut self.micros, number.checked_add(round(fraction)?).ok_or(Wrong::Range)?),
            Unit::Millisecond => self.add_time(times(1_000)?, fraction, 1_000),
            Unit::Second => self.add_time(times(MICROS_PER_SECOND)?, fraction, MICROS_PER_SECOND),
            Unit::Minute => self.add_time(times(MICROS_PER_MINUTE)?, fraction, MICROS_PER_MINUTE),
            Unit::Hour => self.add_time(times(MICROS_PER_HOUR)?, fraction, MICROS_PER_HOUR),
            Unit::Day => {
                whole(&mut self.days, number)?;
                self.add_time(0, fraction, MICROS_PER_DAY)
            }
            Unit::Week => {
                whole(&mut self.days, times(7)?)?;
                self.add_days(fraction * 7.0)
            }
            Unit::Month => {
                whole(&mut self.months, number)?;
                self.add_days(fraction * 30.0)
            }
            Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium => {
                let years = match unit {
                    Unit::Year => 1,
                    Unit::Decade => 10,
                    Unit::Century => 100,
                    _ => 1_000,
                };
                whole(&mut self.years, times(12 * years)?)?;
                whole(&mut self.months, round(fraction * 12.0 * years as f64)?)
            }
        }
    }

    fn add_time(&mut self, micros: i64, fraction: f64, per: i64) -> Read<()> {
        let sum = self.micros.checked_add(micros).and_then(|sum| sum.checked_add(round(fraction * per as f64).ok()?));
        self.micros = sum.ok_or(Wrong::Range)?;
        Ok(())
    }

    /// Adds days and, of what is less than one, time.
    fn add_days(&mut self, days: f64) -> Read<()> {
        self.days = self.days.checked_add(days.trunc() as i64).ok_or(Wrong::Range)?;
        self.add_time(0, days.fract(), MICROS_PER_DAY)
    }

    fn meets(&mut self, units: u16) -> Read<()> {
        if self.met & units != 0 {
            return Err(Wrong::Form);
        }
        self.met |= units;
        Ok(())
    }

    fn interval(self) -> Read<Interval> {
        let fit = |sum: i64| i32::try_from(sum).map_err(|_| Wrong::Range);
        let months = self.years.checked_add(self.months).ok_or(Wrong::Range)?;
        Ok(Interval { months: fit(months)?, days: fit(self.days)?, micros: self.micros })
    }
}

fn round(value: f64) -> Read<i64> {
    let rounded = value.round_ties_even();
    if rounded.abs() < 9.3e18 { Ok(rounded as i64) } else { Err(Wrong::Range) }
}

/// Reads an interval. A number without a unit at its end is one of the last of the `units` that a literal names, seconds if it names none.
/// In the style of the standard a sign in front is that of all that follows, unless there are others.
///
/// # Errors
/// 22007 for what is none, 22015 for what is too long.
pub fn parse_interval(text: &str, units: Option<(Unit, Unit)>, style: Intervals) -> Result<Interval> {
    let trimmed = text.trim();
    let read = match trimmed.strip_prefix(['P', 'p']) {
        Some(rest) => read_iso(rest),
        None => read(trimmed, units, style),
    };
    read.and_then(Sums::interval).map_err(|wrong| match wrong {
        Wrong::Form => {
            let message = format!("invalid input syntax for type interval: \"{text}\"");
            SqlError::new(state::INVALID_DATETIME_FORMAT, message)
        }
        Wrong::Range => SqlError::new("22015", format!("interval field value out of range: \"{text}\"")),
    })
}

/// An interval without what is less than a unit, if there is a last unit.
pub fn cut(interval: Interval, last: Option<Unit>) -> Interval {
    let Interval { months, days, micros } = interval;
    match last {
        Some(Unit::Year) => Interval { months: months / 12 * 12, days: 0, micros: 0 },
        Some(Unit::Month) => Interval { months, days: 0, micros: 0 },
        Some(Unit::Day) => Interval { micros: 0, ..interval },
        Some(Unit::Hour) => Interval { micros: micros / MICROS_PER_HOUR * MICROS_PER_HOUR, ..interval },
        Some(Unit::Minute) => Interval { micros: micros / MICROS_PER_MINUTE * MICROS_PER_MINUTE, ..interval },
        _ => Interval { months, days, micros },
    }
}

/// From the end to the beginning, because a unit stands behind its number.
fn read(text: &str, units: Option<(Unit, Unit)>, style: Intervals) -> Read<Sums> {
    let mut sums = Sums::default();
    let mut fields = fields(text).ok_or(Wrong::Form)?;
    let ago = matches!(fields.last(), Some(Field::Word(word)) if word.eq_ignore_ascii_case("ago"));
    if ago {
        fields.pop();
    }
    let signs = fields.iter().filter(|field| matches!(field, Field::Signed(..))).count();
    let minus_all = style == Intervals::Sql && signs == 1 && matches!(fields.first(), Some(Field::Signed('-', _)));
    let mut unit = units.map_or(Unit::Second, |(_, last)| last);
    let mut named = false;
    for field in fields.into_iter().rev() {
        let (sign, content) = match field {
            Field::Word(word) => {
                // A unit has one number.
                if named {
                    return Err(Wrong::Form);
                }
                unit = Unit::named(word).ok_or(Wrong::Form)?;
                named = true;
                continue;
            }
            Field::Time(content) | Field::Number(content) | Field::Date(content) => (1, content),
            Field::Signed(sign, content) => (if sign == '-' { -1 } else { 1 }, content),
        };
        named = false;
        if content.contains(':') {
            sums.meets(Unit::Hour.bit() | Unit::Minute.bit() | SECONDS)?;
            let micros = clock(content, units == Some((Unit::Minute, Unit::Second)))?;
            sums.micros = sums.micros.checked_add(sign * micros).ok_or(Wrong::Range)?;
            // A number before it is days.
            unit = Unit::Day;
        } else if let Some((years, months)) = content.split_once('-') {
            sums.meets(Unit::Year.bit() | Unit::Month.bit())?;
            let (years, months) = (digits(years)?, digits(months)?);
            if months > 11 {
                return Err(Wrong::Range);
            }
            sums.add(Unit::Year, sign * years, 0.0)?;
            sums.add(Unit::Month, sign * months, 0.0)?;
            unit = Unit::Month;
        } else {
            let (whole, fraction) = number(content)?;
            let seconds = unit == Unit::Second && fraction != 0.0;
            sums.meets(if seconds { SECONDS } else { unit.bit() })?;
            sums.add(unit, sign * whole, sign as f64 * fraction)?;
            // As behind a clock.
            unit = if unit == Unit::Hour { Unit::Day } else { unit };
        }
    }
    if sums.met == 0 || named {
        return Err(Wrong::Form);
    }
    let parts = [&mut sums.years, &mut sums.months, &mut sums.days, &mut sums.micros];
    for sum in parts {
        if minus_all && *sum > 0 {
            *sum = -*sum;
        }
        if ago {
            *sum = sum.checked_neg().ok_or(Wrong::Range)?;
        }
    }
    Ok(sums)
}

fn digits(text: &str) -> Read<i64> {
    if text.is_empty() || span(text, |c| c.is_ascii_digit()) < text.len() {
        return Err(Wrong::Form);
    }
    text.parse().map_err(|_| Wrong::Range)
}

/// A number, and what is behind its point.
fn number(text: &str) -> Read<(i64, f64)> {
    let (whole, behind) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && behind.is_empty() || span(behind, |c| c.is_ascii_digit()) < behind.len() {
        return Err(Wrong::Form);
    }
    let whole = if whole.is_empty() { 0 } else { digits(whole)? };
    let fraction = if behind.is_empty() { 0.0 } else { format!("0.{behind}").parse().map_err(|_| Wrong::Form)? };
    Ok((whole, fraction))
}

/// Microseconds of `hours:minutes[:seconds[.fraction]]`; two numbers are minutes and seconds if `minutes_first`, or if there is a
/// fraction behind the second.
fn clock(text: &str, minutes_first: bool) -> Read<i64> {
    let parts: Vec<&str> = text.split(':').collect();
    let (hours, minutes, seconds) = match parts.as_slice() {
        [first, seconds] if minutes_first || seconds.contains('.') => ("0", *first, *seconds),
        [hours, minutes] => (*hours, *minutes, "0"),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return Err(Wrong::Form),
    };
    let (hours, minutes, (seconds, fraction)) = (digits(hours)?, digits(minutes)?, number(seconds)?);
    if minutes > 59 || seconds > 60 {
        return Err(Wrong::Range);
    }
    let mut sums = Sums::default();
    sums.add(Unit::Hour, hours, 0.0)?;
    sums.add(Unit::Minute, minutes, 0.0)?;
    sums.add(Unit::Second, seconds, fraction)?;
    Ok(sums.micros)
}

/// What is behind the `P` of ISO 8601: `1Y2M3DT4H5M6.7S`, `2W`, `0001-02-03T04:05:06`.
fn read_iso(text: &str) -> Read<Sums> {
    let mut sums = Sums::default();
    let (date, time) = text.split_once(['T', 't']).map_or((text, None), |(date, time)| (date, Some(time)));
    if date.is_empty() && time.is_none_or(str::is_empty) {
        return Err(Wrong::Form);
    }
    let bare = |text: &str, sign: char| span(text, |c| c.is_ascii_digit() || c == sign || c == '.') == text.len();
    if date.matches('-').count() == 2 && bare(date, '-') && !date.starts_with('-') {
        let mut parts = date.split('-').map(digits);
        for unit in [Unit::Year, Unit::Month, Unit::Day] {
            sums.add(unit, parts.next().ok_or(Wrong::Form)??, 0.0)?;
        }
    } else {
        designated(date, false, &mut sums)?;
    }
    match time {
        Some(time) if time.contains(':') && bare(time, ':') => sums.micros += clock(time, false)?,
        Some(time) => designated(time, true, &mut sums)?,
        None => {}
    }
    Ok(sums)
}

/// Numbers with the letters of their units.
fn designated(mut text: &str, time: bool, sums: &mut Sums) -> Read<()> {
    while !text.is_empty() {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let length = span(rest, |c| c.is_ascii_digit() || c == '.');
        let (whole, fraction) = number(&rest[..length])?;
        let unit = match (rest[length..].chars().next().map(|c| c.to_ascii_uppercase()), time) {
            (Some('Y'), false) => Unit::Year,
            (Some('M'), false) => Unit::Month,
            (Some('W'), false) => Unit::Week,
            (Some('D'), false) => Unit::Day,
            (Some('H'), true) => Unit::Hour,
            (Some('M'), true) => Unit::Minute,
            (Some('S'), true) => Unit::Second,
            _ => return Err(Wrong::Form),
        };
        sums.add(unit, sign * whole, sign as f64 * fraction)?;
        text = &rest[length + 1..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::datetime::write_interval;

    #[test]
    fn a_sign_in_front_is_that_of_all_in_the_style_of_the_standard() {
        let show = |text: &str| {
            let mut out = String::new();
            write_interval(parse_interval(text, None, Intervals::Sql).unwrap(), Intervals::Postgres, &mut out);
            out
        };
        for (text, expected) in [
            ("-1 1:00:00", "-1 days -01:00:00"),
            ("-1 day 2 hours", "-1 days -02:00:00"),
            ("-1 day +2 hours", "-1 days +02:00:00"),
            ("1 day -2 hours", "1 day -02:00:00"),
            ("-1 year 2 months", "-1 years -2 mons"),
            ("-1 day 2 hours ago", "1 day 02:00:00"),
            ("P-1DT2H", "-1 days +02:00:00"),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
    }

    #[test]
    fn intervals_are_read_and_shown() {
        let show = |text: &str| match parse_interval(text, None, Intervals::Postgres) {
            Ok(interval) => {
                let mut out = String::new();
                write_interval(interval, Intervals::Postgres, &mut out);
                out
            }
            Err(error) => error.state.to_owned(),
        };
        for (text, expected) in [
            ("1 year 2 months 3 days 4 hours 5.5 seconds", "1 year 2 mons 3 days 04:00:05.5"),
            ("-1 day 02:03", "-1 days +02:03:00"),
            ("-1 +02:03", "-1 days +02:03:00"),
            ("1 2:03:04", "1 day 02:03:04"),
            ("1-2", "1 year 2 mons"),
            ("+1-2 -3 +4:05:06.789", "1 year 2 mons -3 days +04:05:06.789"),
            ("1.5 days", "1 day 12:00:00"),
            ("1.5 weeks", "10 days 12:00:00"),
            ("1.5 months", "1 mon 15 days"),
            ("1.5 years", "1 year 6 mons"),
            ("90", "00:01:30"),
            ("1day 2h", "1 day 02:00:00"),
            ("@ 1 minute", "00:01:00"),
            ("1 week ago", "-7 days"),
            ("1:20.5", "00:01:20.5"),
            ("P1Y2M3DT4H5M6.7S", "1 year 2 mons 3 days 04:05:06.7"),
            ("P0001-02-03T04:05:06", "1 year 2 mons 3 days 04:05:06"),
            ("PT-1H", "-01:00:00"),
            ("one day", "22007"),
            ("", "22007"),
            ("day", "22007"),
            ("1 day 1 day", "22007"),
            ("123 11", "22007"),
            ("1:20:05 5 microseconds", "22007"),
            ("P", "22007"),
            ("P1S", "22007"),
            ("1:99", "22015"),
            ("99999999999 years", "22015"),
            ("0.1 months 2147483647 days", "22015"),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
    }
}
