//! Dates, times and timestamps from their texts.

use super::{
    EPOCH_MICROS, INFINITY, known, known_day, on_day,
    reading::{Reading, Wrong},
};
use crate::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        style::{Order, Style},
        zone::Zone,
    },
};

/// The error of a text that is none of its type.
fn error(wrong: Wrong, text: &str, of: Type) -> SqlError {
    match wrong {
        Wrong::Form => {
            let message = format!("invalid input syntax for type {}: \"{text}\"", of.base_name());
            SqlError::new(state::INVALID_DATETIME_FORMAT, message)
        }
        Wrong::Range => out_of_range(text),
        Wrong::Order => out_of_range(text).hint("Perhaps you need a different \"datestyle\" setting."),
        Wrong::Zone(error) => error,
    }
}

fn out_of_range(text: &str) -> SqlError {
    SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

fn reading(text: &str, of: Type, order: Order) -> Result<Reading> {
    let time_next = of == Type::Time && !text.contains([':', '-', '/']);
    Reading::of(text, order, time_next).map_err(|wrong| error(wrong, text, of))
}

/// A date, in days since 2000-01-01.
///
/// # Errors
/// 22007 for what is none, 22008 for what is not in the calendar, 22023 for an unknown time zone.
pub fn parse_date(text: &str, order: Order) -> Result<i32> {
    if let Some(special) = special(text) {
        return Ok(super::date_of_timestamp(special));
    }
    let reading = reading(text, Type::Date, order)?;
    let checked = reading.micros().and_then(|_| reading.date());
    let days = checked.map_err(|wrong| error(wrong, text, Type::Date))?;
    known_day(days)
        .ok_or_else(|| SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\"")))
}

/// A time, in microseconds since midnight.
///
/// # Errors
/// As [`parse_date`].
pub fn parse_time(text: &str, order: Order) -> Result<i64> {
    let reading = reading(text, Type::Time, order)?;
    let named = matches!(reading.zone, Some(Zone::Named(zone)) if zone != chrono_tz::Tz::UTC) && !reading.has_date();
    match reading.micros() {
        Ok(Some(micros)) if !named => Ok(micros),
        Ok(_) => Err(error(Wrong::Form, text, Type::Time)),
        Err(wrong) => Err(error(wrong, text, Type::Time)),
    }
}

/// A timestamp. Without a time zone the zone that a text names is ignored, as in PostgreSQL.
///
/// # Errors
/// As [`parse_date`].
pub fn parse_timestamp(text: &str, of: Type, style: Style) -> Result<i64> {
    if let Some(special) = special(text) {
        return Ok(special);
    }
    let reading = reading(text, of, style.order)?;
    let parts = reading.date().and_then(|days| Ok((days, reading.micros()?.unwrap_or(0))));
    let (days, micros) = parts.map_err(|wrong| error(wrong, text, of))?;
    let beyond = || SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{text}\""));
    let local = on_day(days, micros).map_err(|_| beyond())?;
    let read = if of == Type::Timestamptz { reading.zone.unwrap_or(style.zone).utc(local) } else { local };
    known(read).map_err(|_| beyond())
}

/// What is in no calendar.
fn special(text: &str) -> Option<i64> {
    match text.trim().to_ascii_lowercase().as_str() {
        "epoch" => Some(-EPOCH_MICROS),
        "infinity" => Some(INFINITY),
        "-infinity" => Some(i64::MIN),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::datetime::{MICROS_PER_DAY, write_date, write_timestamp};

    fn date(text: &str) -> String {
        let mut out = String::new();
        match parse_date(text, Order::MonthFirst) {
            Ok(days) => write_date(days, Style::PLAIN, &mut out),
            Err(error) => out.push_str(error.state),
        }
        out
    }

    #[test]
    fn dates_are_read_in_the_forms_that_people_write() {
        for text in [
            "2026-11-22",
            "Nov 22 2026",
            "November 22, 2026",
            "22 Nov 2026",
            "22-Nov-2026",
            "Nov-22-2026",
            "2026-Nov-22",
            "20261122",
            "261122",
            "11/22/2026",
            "11/22/26",
            "2026/11/22",
            "2026.326",
            "J2461367",
            "Sun Nov 22 10:00:00 2026",
            "Sunday, November 22, 2026",
        ] {
            assert_eq!(date(text), "2026-11-22", "{text}");
        }
        assert_eq!((date("1/8/69"), date("1/8/70")), ("2069-01-08".to_owned(), "1970-01-08".to_owned()));
        assert_eq!(date("Feb 16 0097 BC"), "0097-02-16 BC");
        for (text, state) in [
            ("22/11/2026", "22008"),
            ("Feb 29 2025", "22008"),
            ("2026-13-01", "22008"),
            ("0000-01-01", "22008"),
            ("soon", "22007"),
            ("", "22007"),
            ("11", "22007"),
            ("2026-11", "22007"),
            ("2026-11-22 2026-11-22", "22007"),
            ("99999999999999999999", "22008"),
            ("ü", "22007"),
        ] {
            assert_eq!(date(text), state, "{text}");
        }
    }

    #[test]
    fn numbers_of_dates_are_read_in_the_order_that_is_set() {
        let read = |text: &str| {
            [Order::MonthFirst, Order::DayFirst, Order::YearFirst].map(|order| {
                let mut out = String::new();
                match parse_date(text, order) {
                    Ok(days) => write_date(days, Style::PLAIN, &mut out),
                    Err(error) => out.push_str(error.state),
                }
                out
            })
        };
        for (text, expected) in [
            ("02/03/04", ["2004-02-03", "2004-03-02", "2002-03-04"]),
            ("02-03-2004", ["2004-02-03", "2004-03-02", "22008"]),
            ("2004-02-03", ["2004-02-03"; 3]),
            ("04-Feb-03", ["2003-02-04", "2003-02-04", "2004-02-03"]),
            ("1/1/00", ["2000-01-01", "2000-01-01", "22008"]),
            ("00-01-02", ["22008", "22008", "2000-01-02"]),
            ("0000-01-02", ["22008"; 3]),
            ("99-Feb-03", ["22008", "22008", "1999-02-03"]),
            ("99 Feb 03", ["22007", "22008", "1999-02-03"]),
            ("Feb 3 2004", ["2004-02-03"; 3]),
            ("3 Feb 2004", ["2004-02-03"; 3]),
            ("18.2.2004", ["22008", "2004-02-18", "22008"]),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        let hint = parse_date("18/2/2004", Order::MonthFirst).unwrap_err().hint;
        assert!(hint.is_some_and(|hint| hint.contains("datestyle")));
    }

    #[test]
    fn timestamps_are_read_in_the_forms_that_people_write() {
        let shown = |text| match parse_timestamp(text, Type::Timestamptz, Style::PLAIN) {
            Ok(micros) => {
                let mut out = String::new();
                write_timestamp(micros, true, Style::PLAIN, &mut out);
                out
            }
            Err(error) => error.state.to_owned(),
        };
        for text in [
            "1997-02-10 17:32:01-08",
            "1997-02-10 17:32:01 -08:00",
            "1997-02-10T17:32:01-0800",
            "19970210 173201 -0800",
            "19970210T173201-08",
            "Mon Feb 10 17:32:01 1997 PST",
            "Feb 10 5:32:01PM 1997 PST",
            "1997-02-10 17:32:01 America/Los_Angeles",
            "1997-02-10 17:32:01 PST8PDT",
            "02-10-1997 17:32:01 GMT+8",
        ] {
            assert_eq!(shown(text), "1997-02-11 01:32:01+00", "{text}");
        }
        assert_eq!(shown("2024-02-29 12:34:56.789"), "2024-02-29 12:34:56.789+00");
        assert_eq!(shown("1999-12-31 23:59:59.9999995Z"), "2000-01-01 00:00:00+00");
        assert_eq!(shown("0044-03-15 BC"), "0044-03-15 00:00:00+00 BC");
        for (text, state) in [
            ("1997-02-10 25:00", "22008"),
            ("1997-02-10 13:00 PM", "22008"),
            ("1997-02-10 +99", "22009"),
            ("1997-02-10 12:00 Mars/Olympus", "22023"),
            ("294277-01-01", "22008"),
            ("12:00", "22007"),
        ] {
            assert_eq!(shown(text), state, "{text}");
        }
    }

    #[test]
    fn times_are_read_with_a_date_before_them_or_without() {
        for (text, micros) in [
            ("04:05:06.789", Ok(14_706_789_000)),
            ("040506", Ok(14_706_000_000)),
            ("04:05 PM", Ok(57_900_000_000)),
            ("2020-05-26 04:05:06", Ok(14_706_000_000)),
            ("allballs", Ok(0)),
            ("24:00", Ok(MICROS_PER_DAY)),
            ("24:01", Err("22008")),
            ("04:05 America/New_York", Err("22007")),
            ("noon", Err("22007")),
        ] {
            assert_eq!(parse_time(text, Order::MonthFirst).map_err(|error| error.state), micros, "{text}");
        }
    }
}
