//! Dates, times and timestamps as texts, in the styles of `DateStyle`.

use super::{
    MICROS_PER_DAY, MICROS_PER_HOUR, MICROS_PER_MINUTE, MICROS_PER_SECOND, date_of, is_infinite, is_infinite_date,
};
use crate::value::{
    style::{Dates, Order, Style},
    zone::write_offset,
};

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// From 2000-01-01 on.
const WEEKDAYS: [&str; 7] = ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"];

/// Appends what is no day of the calendar; whether it was that.
fn write_infinite(infinite: bool, late: bool, out: &mut String) -> bool {
    if infinite {
        out.push_str(if late { "infinity" } else { "-infinity" });
    }
    infinite
}

/// A year as it is counted, and what stands behind its date.
fn counted(year: i64) -> (i64, &'static str) {
    if year > 0 { (year, "") } else { (1 - year, " BC") }
}

pub(crate) fn write_date(days: i32, style: Style, out: &mut String) {
    if write_infinite(is_infinite_date(days), days > 0, out) {
        return;
    }
    let era = if style.dates == Dates::Postgres {
        let (year, month, day) = date_of(days.into());
        let (year, era) = counted(year);
        let (first, second) = if style.order == Order::DayFirst { (day, month) } else { (month, day) };
        out.push_str(&format!("{first:02}-{second:02}-{year:04}"));
        era
    } else {
        write_day(days.into(), style, out)
    };
    out.push_str(era);
}

/// Appends a day as it stands before a time, in all styles but Postgres'; returns what is to stand behind.
fn write_day(days: i64, style: Style, out: &mut String) -> &'static str {
    let (year, month, day) = date_of(days);
    let (year, era) = counted(year);
    out.push_str(&match (style.dates, style.order) {
        (Dates::Iso | Dates::Postgres, _) => format!("{year:04}-{month:02}-{day:02}"),
        (Dates::Sql, Order::DayFirst) => format!("{day:02}/{month:02}/{year:04}"),
        (Dates::Sql, _) => format!("{month:02}/{day:02}/{year:04}"),
        (Dates::German, _) => format!("{day:02}.{month:02}.{year:04}"),
    });
    era
}

pub(crate) fn write_time(micros: i64, out: &mut String) {
    let (hours, minutes) = (micros / MICROS_PER_HOUR, micros / MICROS_PER_MINUTE % 60);
    let (seconds, fraction) = (micros / MICROS_PER_SECOND % 60, micros % MICROS_PER_SECOND);
    out.push_str(&format!("{hours:02}:{minutes:02}:{seconds:02}"));
    write_fraction(fraction, out);
}

pub(super) fn write_fraction(micros: i64, out: &mut String) {
    if micros != 0 {
        out.push_str(format!(".{micros:06}").trim_end_matches('0'));
    }
}

/// Appends a timestamp; one of UTC is shown in the style's time zone, if it is `zoned`.
pub(crate) fn write_timestamp(utc: i64, zoned: bool, style: Style, out: &mut String) {
    if write_infinite(is_infinite(utc), utc > 0, out) {
        return;
    }
    let micros = if zoned { style.zone.local(utc) } else { utc };
    let (days, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    let era = if style.dates == Dates::Postgres {
        write_words(days, time, style.order, out)
    } else {
        let era = write_day(days, style, out);
        out.push(' ');
        write_time(time, out);
        era
    };
    match style.dates {
        _ if !zoned => {}
        Dates::Iso => write_offset(style.zone.ahead(utc), out),
        Dates::Sql | Dates::Postgres | Dates::German => {
            out.push(' ');
            style.zone.write_abbreviation(utc, out);
        }
    }
    out.push_str(era);
}

/// Appends `Wed Dec 17 07:37:16 1997`; returns what is to stand behind.
fn write_words(days: i64, time: i64, order: Order, out: &mut String) -> &'static str {
    let (year, month, day) = date_of(days);
    let (year, era) = counted(year);
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[(month - 1).rem_euclid(12) as usize];
    out.push_str(&if order == Order::DayFirst {
        format!("{weekday} {day:02} {month} ")
    } else {
        format!("{weekday} {month} {day:02} ")
    });
    write_time(time, out);
    out.push_str(&format!(" {year:04}"));
    era
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        types::Type,
        value::{datetime::parse_timestamp, zone::Zone},
    };

    #[test]
    fn timestamps_are_shown_in_all_styles_of_postgresql() {
        let zone = Zone::named("America/Los_Angeles").unwrap();
        let utc = |text| parse_timestamp(text, Type::Timestamp, Style::PLAIN).unwrap();
        let show = |utc: i64, zone: Zone, dates, order| {
            let style = Style { zone, order, dates, ..Style::PLAIN };
            let (mut day, mut zoned) = (String::new(), String::new());
            write_date(crate::value::datetime::date_of_timestamp(utc), style, &mut day);
            write_timestamp(utc, true, style, &mut zoned);
            format!("{day} | {zoned}")
        };
        let at = utc("1997-12-17 15:37:16.25");
        for (dates, order, expected) in [
            (Dates::Iso, Order::DayFirst, "1997-12-17 | 1997-12-17 07:37:16.25-08"),
            (Dates::Sql, Order::DayFirst, "17/12/1997 | 17/12/1997 07:37:16.25 PST"),
            (Dates::Sql, Order::YearFirst, "12/17/1997 | 12/17/1997 07:37:16.25 PST"),
            (Dates::Postgres, Order::DayFirst, "17-12-1997 | Wed 17 Dec 07:37:16.25 1997 PST"),
            (Dates::Postgres, Order::MonthFirst, "12-17-1997 | Wed Dec 17 07:37:16.25 1997 PST"),
            (Dates::German, Order::MonthFirst, "17.12.1997 | 17.12.1997 07:37:16.25 PST"),
        ] {
            assert_eq!(show(at, zone, dates, order), expected);
        }
        let old = utc("0044-03-15 12:00 BC");
        let postgres = |zone| show(old, zone, Dates::Postgres, Order::MonthFirst);
        assert_eq!(postgres(Zone::UTC), "03-15-0044 BC | Fri Mar 15 12:00:00 0044 UTC BC");
        assert_eq!(postgres(Zone::Fixed(19_800)), "03-15-0044 BC | Fri Mar 15 17:30:00 0044 +05:30 BC");
        assert_eq!(show(i64::MIN, zone, Dates::German, Order::DayFirst), "-infinity | -infinity");
    }
}
