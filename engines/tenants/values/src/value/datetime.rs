//! Dates and times: the Gregorian calendar in microseconds, and how it is shown. `read` and `interval` read it.

mod field;
mod interval;
mod read;
mod reading;
mod show;
mod show_interval;

use crate::{
    error::{Result, SqlError, state},
    value::{Interval, zone::Zone},
};
pub use interval::{Unit, cut, parse_interval};
pub use read::{parse_date, parse_time, parse_timestamp};
pub(crate) use show::{write_date, write_time, write_timestamp};
pub use show_interval::write_interval;

/// Microseconds of a second.
pub const MICROS_PER_SECOND: i64 = 1_000_000;
/// Microseconds of a minute.
pub const MICROS_PER_MINUTE: i64 = 60 * MICROS_PER_SECOND;
/// Microseconds of an hour.
pub const MICROS_PER_HOUR: i64 = 60 * MICROS_PER_MINUTE;
/// Microseconds of a day of 24 hours.
pub const MICROS_PER_DAY: i64 = 24 * MICROS_PER_HOUR;
/// From 1970-01-01 to 2000-01-01, in days and microseconds.
pub const EPOCH_DAYS: i64 = 10_957;
/// The same in microseconds.
pub const EPOCH_MICROS: i64 = EPOCH_DAYS * MICROS_PER_DAY;

/// Later than every timestamp; `i64::MIN` is earlier. Of dates it is `i32::MAX`, and `i32::MIN`.
pub const INFINITY: i64 = i64::MAX;

/// Whether a timestamp is none in the calendar.
pub fn is_infinite(micros: i64) -> bool {
    matches!(micros, i64::MIN | INFINITY)
}

/// Whether a date is none in the calendar.
pub fn is_infinite_date(days: i32) -> bool {
    matches!(days, i32::MIN | i32::MAX)
}

/// Microseconds with so many digits behind the point of seconds, halves away from zero.
pub(crate) fn round(micros: i64, digits: u8) -> i64 {
    let unit = 10_i64.pow(6_u32.saturating_sub(u32::from(digits)));
    if is_infinite(micros) {
        return micros;
    }
    micros.saturating_add(micros.signum() * (unit / 2)) / unit * unit
}

/// A date as the timestamp of its midnight.
pub fn timestamp_of(days: i32) -> Option<i64> {
    match days {
        i32::MAX => Some(INFINITY),
        i32::MIN => Some(i64::MIN),
        days => i64::from(days).checked_mul(MICROS_PER_DAY),
    }
}

/// The date of a timestamp.
pub fn date_of_timestamp(micros: i64) -> i32 {
    match micros {
        INFINITY => i32::MAX,
        i64::MIN => i32::MIN,
        micros => micros.div_euclid(MICROS_PER_DAY) as i32,
    }
}

/// The days that PostgreSQL knows: from the first of its calendar, in 4714 BC, to the end of 5874897.
const DAYS: std::ops::Range<i32> = -2_451_545..2_145_031_949;
/// The days of timestamps, to the end of 294276.
const DAYS_OF_TIMESTAMPS: std::ops::Range<i64> = -2_451_545..106_751_983;

/// A day, in days since 2000-01-01, if PostgreSQL knows it.
pub fn known_day(days: i64) -> Option<i32> {
    i32::try_from(days).ok().filter(|days| DAYS.contains(days))
}

/// A timestamp, if PostgreSQL knows it: it is infinite, or in its calendar.
pub fn known(timestamp: i64) -> Result<i64> {
    if is_infinite(timestamp) || DAYS_OF_TIMESTAMPS.contains(&timestamp.div_euclid(MICROS_PER_DAY)) {
        return Ok(timestamp);
    }
    Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))
}

/// The timestamp of a day and a time of it.
pub fn on_day(days: i64, micros: i64) -> Result<i64> {
    // Days that no timestamp has may be too many to count in microseconds.
    known(days.saturating_mul(MICROS_PER_DAY).saturating_add(micros).clamp(i64::MIN + 1, i64::MAX - 1))
}

/// Days since 2000-01-01 of a day in the calendar. The year is counted from March on, so that the leap day is its last.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468 - EPOCH_DAYS
}

/// Year, month and day of days since 2000-01-01.
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A time of UTC moved by an interval, by the clocks of a zone: a day later they show the same.
pub fn add_in(zone: Zone, timestamp: i64, interval: Interval) -> Result<i64> {
    let days = Interval { micros: 0, ..interval };
    let moved = if days == Interval::default() { timestamp } else { zone.utc(add(zone.local(timestamp), days)?) };
    add(moved, Interval { micros: interval.micros, ..Interval::default() })
}

/// A timestamp moved by an interval: first months, then days, then the rest.
pub(crate) fn add(timestamp: i64, interval: Interval) -> Result<i64> {
    if is_infinite(timestamp) {
        return Ok(timestamp);
    }
    let out_of_range = || SqlError::new(state::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
    let (mut days, time) = (timestamp.div_euclid(MICROS_PER_DAY), timestamp.rem_euclid(MICROS_PER_DAY));
    if interval.months != 0 {
        let (year, month, day) = date_of(days);
        let months = year * 12 + month - 1 + i64::from(interval.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        days = days_of(year, month, day.min(days_in(year, month)));
    }
    days += i64::from(interval.days);
    let micros = days.checked_mul(MICROS_PER_DAY).and_then(|micros| micros.checked_add(time));
    let micros = micros.and_then(|micros| micros.checked_add(interval.micros)).ok_or_else(out_of_range)?;
    known(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{types::Type, value::style::Style};

    fn shown(write: impl FnOnce(&mut String)) -> String {
        let mut out = String::new();
        write(&mut out);
        out
    }

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        assert_eq!(days_of(2000, 1, 1), 0);
        assert_eq!(days_of(1970, 1, 1), -EPOCH_DAYS);
        for days in (-2_400_000..2_000_000).step_by(97) {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
            assert!((1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day));
        }
    }

    #[test]
    fn a_month_later_is_at_most_the_months_last_day() {
        let start = parse_timestamp("2024-01-31 10:00", Type::Timestamp, Style::PLAIN).unwrap();
        let later = add(start, Interval { months: 1, days: 0, micros: 1 }).unwrap();
        assert_eq!(shown(|out| write_timestamp(later, false, Style::PLAIN, out)), "2024-02-29 10:00:00.000001");
        assert!(add(start, Interval { months: i32::MAX, days: 0, micros: 0 }).is_err());
    }
}
