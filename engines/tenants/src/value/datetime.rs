//! Dates and times: microseconds to and from what people read. ISO 8601, the Gregorian calendar, UTC.

use crate::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Interval,
        zone::{Zone, write_offset},
    },
};

pub(crate) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(crate) const MICROS_PER_MINUTE: i64 = 60 * MICROS_PER_SECOND;
pub(crate) const MICROS_PER_HOUR: i64 = 60 * MICROS_PER_MINUTE;
pub(crate) const MICROS_PER_DAY: i64 = 24 * MICROS_PER_HOUR;
/// From 1970-01-01 to 2000-01-01, in days and microseconds.
pub(crate) const EPOCH_DAYS: i64 = 10_957;
/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = EPOCH_DAYS * MICROS_PER_DAY;

/// Later than every timestamp; `i64::MIN` is earlier. Of dates it is `i32::MAX`, and `i32::MIN`.
pub(crate) const INFINITY: i64 = i64::MAX;

/// Whether a timestamp is none in the calendar.
pub(crate) fn is_infinite(micros: i64) -> bool {
    matches!(micros, i64::MIN | INFINITY)
}

/// Whether a date is none in the calendar.
pub(crate) fn is_infinite_date(days: i32) -> bool {
    matches!(days, i32::MIN | i32::MAX)
}

/// A date as the timestamp of its midnight.
pub(crate) fn timestamp_of(days: i32) -> Option<i64> {
    match days {
        i32::MAX => Some(INFINITY),
        i32::MIN => Some(i64::MIN),
        days => i64::from(days).checked_mul(MICROS_PER_DAY),
    }
}

/// The date of a timestamp.
pub(crate) fn date_of_timestamp(micros: i64) -> i32 {
    match micros {
        INFINITY => i32::MAX,
        i64::MIN => i32::MIN,
        micros => micros.div_euclid(MICROS_PER_DAY) as i32,
    }
}

/// The first and last day that PostgreSQL knows: 4713 BC to 5874897 AD; timestamps end earlier.
const YEARS: std::ops::RangeInclusive<i64> = -4712..=294_276;

/// Days since 2000-01-01 of a day in the calendar. The year is counted from March on, so that the leap day is its last.
pub(crate) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468 - EPOCH_DAYS
}

/// Year, month and day of days since 2000-01-01.
pub(crate) fn date_of(days: i64) -> (i64, i64, i64) {
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

/// Appends what is no day of the calendar; whether it was that.
fn write_infinite(infinite: bool, late: bool, out: &mut String) -> bool {
    if infinite {
        out.push_str(if late { "infinity" } else { "-infinity" });
    }
    infinite
}

pub(crate) fn write_date(days: i32, out: &mut String) {
    if !write_infinite(is_infinite_date(days), days > 0, out) {
        write_day(i64::from(days), out);
    }
}

fn write_day(days: i64, out: &mut String) {
    let (year, month, day) = date_of(days);
    let (shown, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    out.push_str(&format!("{shown:04}-{month:02}-{day:02}{era}"));
}

pub(crate) fn write_time(micros: i64, out: &mut String) {
    let (hours, minutes) = (micros / MICROS_PER_HOUR, micros / MICROS_PER_MINUTE % 60);
    let (seconds, fraction) = (micros / MICROS_PER_SECOND % 60, micros % MICROS_PER_SECOND);
    out.push_str(&format!("{hours:02}:{minutes:02}:{seconds:02}"));
    write_fraction(fraction, out);
}

fn write_fraction(micros: i64, out: &mut String) {
    if micros != 0 {
        out.push_str(format!(".{micros:06}").trim_end_matches('0'));
    }
}

/// Appends a timestamp; in a time zone, it is one of UTC.
pub(crate) fn write_timestamp(micros: i64, zone: Option<Zone>, out: &mut String) {
    if write_infinite(is_infinite(micros), micros > 0, out) {
        return;
    }
    let micros_of_utc = micros;
    let micros = zone.map_or(micros, |zone| zone.local(micros));
    let (days, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    let mut date = String::new();
    write_day(days, &mut date);
    let (date, era) = date.split_once(' ').unwrap_or((&date, ""));
    out.push_str(date);
    out.push(' ');
    write_time(time, out);
    if let Some(zone) = zone {
        write_offset(zone.ahead(micros_of_utc), out);
    }
    if !era.is_empty() {
        out.push(' ');
        out.push_str(era);
    }
}

pub(crate) fn write_interval(interval: Interval, out: &mut String) {
    let Interval { months, days, micros } = interval;
    let start = out.len();
    let mut negative_before = false;
    for (count, one) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if count == 0 {
            continue;
        }
        if out.len() > start {
            out.push(' ');
        }
        let sign = if negative_before && count > 0 { "+" } else { "" };
        out.push_str(&format!("{sign}{count} {one}{}", if count == 1 { "" } else { "s" }));
        negative_before = count < 0;
    }
    if micros != 0 || out.len() == start {
        if out.len() > start {
            out.push(' ');
        }
        if micros < 0 {
            out.push('-');
        } else if negative_before {
            out.push('+');
        }
        let micros = micros.unsigned_abs();
        let second = MICROS_PER_SECOND as u64;
        out.push_str(&format!(
            "{:02}:{:02}:{:02}",
            micros / (3600 * second),
            micros / (60 * second) % 60,
            micros / second % 60
        ));
        write_fraction((micros % second) as i64, out);
    }
}

/// A text that is being read from its start.
struct Cursor<'a> {
    whole: &'a str,
    rest: &'a str,
    of: Type,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str, of: Type) -> Self {
        Self { whole: text, rest: text.trim(), of }
    }

    fn wrong(&self) -> SqlError {
        let message = format!("invalid input syntax for type {}: \"{}\"", self.of.base_name(), self.whole);
        SqlError::new(state::INVALID_DATETIME_FORMAT, message)
    }

    fn out_of_range(&self) -> SqlError {
        let message = format!("date/time field value out of range: \"{}\"", self.whole);
        SqlError::new(state::DATETIME_FIELD_OVERFLOW, message)
    }

    fn take(&mut self, prefix: char) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip(&mut self, prefix: char) -> Result<()> {
        if self.take(prefix) { Ok(()) } else { Err(self.wrong()) }
    }

    fn digits(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits
    }

    fn number(&mut self, digits_max: usize) -> Result<i64> {
        let digits = self.digits();
        if digits.len() > digits_max {
            return Err(self.wrong());
        }
        digits.parse().map_err(|_| self.wrong())
    }

    /// Microseconds behind a decimal point, if there is one.
    fn fraction(&mut self) -> Result<i64> {
        if !self.take('.') {
            return Ok(0);
        }
        let digits = self.digits();
        let mut micros = 0;
        for place in 0..6 {
            micros = micros * 10 + digits.as_bytes().get(place).map_or(0, |digit| i64::from(digit - b'0'));
        }
        let round_up = digits.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
        Ok(micros + i64::from(round_up))
    }

    fn date(&mut self) -> Result<i64> {
        let year = self.number(6)?;
        self.skip('-')?;
        let month = self.number(2)?;
        self.skip('-')?;
        let day = self.number(2)?;
        let year = match self.rest.trim_end().strip_suffix("BC") {
            Some(rest) => {
                self.rest = rest.trim_end();
                1 - year
            }
            None if year == 0 => return Err(self.out_of_range()),
            None => year,
        };
        if !YEARS.contains(&year) || !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
            return Err(self.out_of_range());
        }
        Ok(days_of(year, month, day))
    }

    fn time(&mut self) -> Result<i64> {
        let hours = self.number(2)?;
        self.skip(':')?;
        let minutes = self.number(2)?;
        let (seconds, fraction) = if self.take(':') { (self.number(2)?, self.fraction()?) } else { (0, 0) };
        let micros = hours * MICROS_PER_HOUR + minutes * MICROS_PER_MINUTE + seconds * MICROS_PER_SECOND + fraction;
        if minutes > 59 || seconds > 60 || micros > MICROS_PER_DAY {
            return Err(self.out_of_range());
        }
        Ok(micros)
    }

    /// The time zone, if the text says one.
    fn zone(&mut self) -> Result<Option<Zone>> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '+' | '-');
            let end = self.rest.find(|c| !named(c)).unwrap_or(self.rest.len());
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Zone::named(name).map(Some).map_err(|_| self.wrong());
        }
        let sign = if self.take('+') {
            1
        } else if self.take('-') {
            -1
        } else {
            return Ok(None);
        };
        let digits = self.digits();
        let (hours, minutes) = match digits.len() {
            1 | 2 => {
                (digits.parse::<i64>().map_err(|_| self.wrong())?, if self.take(':') { self.number(2)? } else { 0 })
            }
            4 => (digits[..2].parse().map_err(|_| self.wrong())?, digits[2..].parse().map_err(|_| self.wrong())?),
            _ => return Err(self.wrong()),
        };
        let seconds = if self.take(':') { self.number(2)? } else { 0 };
        if hours > 15 || minutes > 59 || seconds > 59 {
            let message = format!("time zone displacement out of range: \"{}\"", self.whole);
            return Err(SqlError::new("22009", message));
        }
        Zone::east(sign * (hours * MICROS_PER_HOUR + minutes * MICROS_PER_MINUTE + seconds * MICROS_PER_SECOND))
            .map(Some)
    }

    fn end(&self) -> Result<()> {
        if self.rest.trim().is_empty() { Ok(()) } else { Err(self.wrong()) }
    }
}

pub(crate) fn parse_date(text: &str) -> Result<i32> {
    let timestamp = parse(text, Type::Date, Zone::UTC)?;
    if is_infinite(timestamp) {
        return Ok(date_of_timestamp(timestamp));
    }
    i32::try_from(timestamp.div_euclid(MICROS_PER_DAY)).map_err(|_| Cursor::new(text, Type::Date).out_of_range())
}

pub(crate) fn parse_time(text: &str) -> Result<i64> {
    let mut cursor = Cursor::new(text, Type::Time);
    let time = cursor.time()?;
    cursor.end()?;
    Ok(time)
}

/// A timestamp. Without a time zone the zone that a text names is ignored, as in PostgreSQL.
pub(crate) fn parse_timestamp(text: &str, of: Type, zone: Zone) -> Result<i64> {
    parse(text, of, zone)
}

fn parse(text: &str, of: Type, zone: Zone) -> Result<i64> {
    let mut cursor = Cursor::new(text, of);
    if cursor.rest.eq_ignore_ascii_case("epoch") {
        return Ok(-EPOCH_MICROS);
    }
    match cursor.rest.to_ascii_lowercase().as_str() {
        "infinity" | "+infinity" => return Ok(INFINITY),
        "-infinity" => return Ok(i64::MIN),
        _ => {}
    }
    let days = cursor.date()?;
    let mut micros = 0;
    cursor.take('T');
    cursor.rest = cursor.rest.trim_start();
    if cursor.rest.starts_with(|c: char| c.is_ascii_digit()) {
        micros = cursor.time()?;
    }
    let named = cursor.zone()?;
    cursor.end()?;
    let local = days * MICROS_PER_DAY + micros;
    Ok(if of == Type::Timestamptz { named.unwrap_or(zone).utc(local) } else { local })
}

/// Months, days and microseconds of one unit, by its name.
fn unit(name: &str) -> Option<(i64, i64, i64)> {
    let name = name.to_ascii_lowercase();
    let singular = if name.len() > 2 { name.strip_suffix('s').unwrap_or(&name) } else { &name };
    Some(match singular {
        "microsecond" | "usec" | "us" => (0, 0, 1),
        "millisecond" | "msec" | "ms" => (0, 0, 1_000),
        "second" | "sec" | "s" => (0, 0, MICROS_PER_SECOND),
        "minute" | "min" | "m" => (0, 0, MICROS_PER_MINUTE),
        "hour" | "hr" | "h" => (0, 0, MICROS_PER_HOUR),
        "day" | "d" => (0, 1, 0),
        "week" | "w" => (0, 7, 0),
        "month" | "mon" => (1, 0, 0),
        "year" | "yr" | "y" => (12, 0, 0),
        "decade" => (120, 0, 0),
        "century" | "centurie" => (1200, 0, 0),
        _ => return None,
    })
}

pub(crate) fn parse_interval(text: &str) -> Result<Interval> {
    let mut cursor = Cursor::new(text, Type::Interval);
    let (mut months, mut days, mut micros) = (0_i64, 0_i64, 0_i64);
    let mut any = false;
    cursor.rest = cursor.rest.strip_prefix('@').unwrap_or(cursor.rest);
    loop {
        cursor.rest = cursor.rest.trim_start();
        if cursor.rest.is_empty() {
            break;
        }
        if any && cursor.rest.eq_ignore_ascii_case("ago") {
            (months, days, micros) = (-months, -days, -micros);
            break;
        }
        let sign = if cursor.take('-') { -1 } else { 1 };
        cursor.take('+');
        let before = cursor.rest;
        let count = cursor.number(12)?;
        any = true;
        if cursor.rest.starts_with(':') {
            cursor.rest = before;
            let hours = cursor.number(9)?;
            cursor.skip(':')?;
            let minutes = cursor.number(2)?;
            let (seconds, fraction) = if cursor.take(':') { (cursor.number(2)?, cursor.fraction()?) } else { (0, 0) };
            if minutes > 59 || seconds > 59 {
                return Err(cursor.out_of_range());
            }
            let time = hours * MICROS_PER_HOUR + minutes * MICROS_PER_MINUTE + seconds * MICROS_PER_SECOND + fraction;
            micros = micros.checked_add(sign * time).ok_or_else(|| cursor.out_of_range())?;
            continue;
        }
        let fraction = cursor.fraction()?;
        cursor.rest = cursor.rest.trim_start();
        let end = cursor.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(cursor.rest.len());
        let (name, rest) = cursor.rest.split_at(end);
        cursor.rest = rest;
        // A number alone is seconds.
        let (m, d, us) =
            if name.is_empty() { (0, 0, MICROS_PER_SECOND) } else { unit(name).ok_or_else(|| cursor.wrong())? };
        // What is less than one of a unit goes to the units below.
        let part = |per: i64| i128::from(fraction) * i128::from(per) / i128::from(MICROS_PER_SECOND);
        let below = part(us) + part(d * MICROS_PER_DAY) + part(m % 12 * 30 * MICROS_PER_DAY);
        let add = |to: i64, per: i64, more: i128| {
            let sum = i128::from(to) + i128::from(sign) * (i128::from(count) * i128::from(per) + more);
            i64::try_from(sum).map_err(|_| ())
        };
        let whole_months = if m >= 12 { part(m) } else { 0 };
        let sums = (add(months, m, whole_months), add(days, d, 0), add(micros, us, below));
        let (Ok(m), Ok(d), Ok(us)) = sums else { return Err(cursor.out_of_range()) };
        (months, days, micros) = (m, d, us);
    }
    match (any, i32::try_from(months), i32::try_from(days)) {
        (false, ..) => Err(cursor.wrong()),
        (true, Ok(months), Ok(days)) => Ok(Interval { months, days, micros }),
        _ => Err(cursor.out_of_range()),
    }
}

/// A time of UTC moved by an interval, by the clocks of a zone: a day later they show the same.
pub(crate) fn add_in(zone: Zone, timestamp: i64, interval: Interval) -> Result<i64> {
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
        if !YEARS.contains(&year) {
            return Err(out_of_range());
        }
        days = days_of(year, month, day.min(days_in(year, month)));
    }
    days += i64::from(interval.days);
    let micros = days.checked_mul(MICROS_PER_DAY).and_then(|micros| micros.checked_add(time));
    let micros = micros.and_then(|micros| micros.checked_add(interval.micros)).ok_or_else(out_of_range)?;
    match YEARS.contains(&date_of(micros.div_euclid(MICROS_PER_DAY)).0) {
        true => Ok(micros),
        false => Err(out_of_range()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn timestamps_are_read_and_shown() {
        let ts = |text| parse_timestamp(text, Type::Timestamptz, Zone::UTC);
        let show = |micros| shown(|out| write_timestamp(micros, Some(Zone::UTC), out));
        assert_eq!(show(ts("2024-02-29 12:34:56.789").unwrap()), "2024-02-29 12:34:56.789+00");
        assert_eq!(show(ts("2024-02-29T12:34:56+02").unwrap()), "2024-02-29 10:34:56+00");
        assert_eq!(show(ts("1999-12-31 23:59:59.9999995Z").unwrap()), "2000-01-01 00:00:00+00");
        assert_eq!(show(ts("0044-03-15 BC").unwrap()), "0044-03-15 00:00:00+00 BC");
        assert_eq!(show(ts("Infinity").unwrap()), "infinity");
        assert_eq!(add(i64::MIN, Interval { months: 1, days: 1, micros: 1 }), Ok(i64::MIN));
        assert_eq!((parse_date("-infinity"), timestamp_of(i32::MIN)), (Ok(i32::MIN), Some(i64::MIN)));
        assert_eq!(ts("2023-02-29").unwrap_err().state, state::DATETIME_FIELD_OVERFLOW);
        assert_eq!(ts("yesterday maybe").unwrap_err().state, state::INVALID_DATETIME_FORMAT);
    }

    #[test]
    fn intervals_are_read_and_shown() {
        let show = |text| shown(|out| write_interval(parse_interval(text).unwrap(), out));
        assert_eq!(show("1 year 2 months 3 days 4 hours 5.5 seconds"), "1 year 2 mons 3 days 04:00:05.5");
        assert_eq!(show("-1 day 02:03"), "-1 days +02:03:00");
        assert_eq!(show("1.5 days"), "1 day 12:00:00");
        assert_eq!(show("90"), "00:01:30");
        assert_eq!(show("1 week ago"), "-7 days");
        assert!(parse_interval("one day").is_err() && parse_interval("").is_err());
    }

    #[test]
    fn a_month_later_is_at_most_the_months_last_day() {
        let start = parse_timestamp("2024-01-31 10:00", Type::Timestamp, Zone::UTC).unwrap();
        let later = add(start, Interval { months: 1, days: 0, micros: 1 }).unwrap();
        assert_eq!(shown(|out| write_timestamp(later, None, out)), "2024-02-29 10:00:00.000001");
        assert!(add(start, Interval { months: i32::MAX, days: 0, micros: 0 }).is_err());
    }
}
