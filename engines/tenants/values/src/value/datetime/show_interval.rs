//! Intervals as texts, in the styles of `IntervalStyle`.

use super::{MICROS_PER_HOUR, MICROS_PER_MINUTE, MICROS_PER_SECOND, show::write_fraction};
use crate::value::{Interval, style::Intervals};

/// The parts of an interval, each with its sign.
struct Parts {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: i64,
    /// Microseconds that are less than a second.
    fraction: i64,
}

impl Parts {
    fn of(interval: Interval) -> Self {
        let Interval { months, days, micros } = interval;
        Self {
            years: i64::from(months / 12),
            months: i64::from(months % 12),
            days: days.into(),
            hours: micros / MICROS_PER_HOUR,
            minutes: micros % MICROS_PER_HOUR / MICROS_PER_MINUTE,
            seconds: micros % MICROS_PER_MINUTE / MICROS_PER_SECOND,
            fraction: micros % MICROS_PER_SECOND,
        }
    }

    /// Appends seconds without their sign.
    fn write_seconds(&self, padded: bool, out: &mut String) {
        let seconds = self.seconds.abs();
        out.push_str(&if padded { format!("{seconds:02}") } else { seconds.to_string() });
        write_fraction(self.fraction.abs(), out);
    }

    /// Appends a clock without its sign.
    fn write_clock(&self, out: &mut String) {
        out.push_str(&format!("{}:{:02}:", self.hours.abs(), self.minutes.abs()));
        self.write_seconds(true, out);
    }
}

/// Appends an interval's text.
pub fn write_interval(interval: Interval, style: Intervals, out: &mut String) {
    match style {
        Intervals::Postgres => write_postgres(interval, out),
        Intervals::Verbose => write_verbose(&Parts::of(interval), out),
        Intervals::Sql => write_sql(interval, out),
        Intervals::Iso => write_iso(&Parts::of(interval), out),
    }
}

/// `1 year 2 mons -3 days +04:05:06`
fn write_postgres(interval: Interval, out: &mut String) {
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

/// `@ 1 year 2 mons -3 days 4 hours 5 mins 6 secs`, with `ago` behind if the first is negative; then the signs are the other way round.
fn write_verbose(parts: &Parts, out: &mut String) {
    let Parts { years, months, days, hours, minutes, seconds, fraction } = *parts;
    let units = [(years, "year"), (months, "mon"), (days, "day"), (hours, "hour"), (minutes, "min"), (seconds, "sec")];
    let first = units.iter().map(|(count, _)| *count).chain([fraction]).find(|count| *count != 0);
    let ago = first.is_some_and(|first| first < 0);
    out.push('@');
    for (count, one) in &units[..5] {
        let count = if ago { -count } else { *count };
        if count != 0 {
            out.push_str(&format!(" {count} {one}{}", if count == 1 { "" } else { "s" }));
        }
    }
    if seconds != 0 || fraction != 0 {
        let negative = seconds < 0 || fraction < 0;
        out.push_str(if negative == ago { " " } else { " -" });
        parts.write_seconds(false, out);
        out.push_str(if seconds.abs() == 1 && fraction == 0 { " sec" } else { " secs" });
    }
    if first.is_none() {
        out.push_str(" 0");
    }
    if ago {
        out.push_str(" ago");
    }
}

/// `1-2`, `3 4:05:06`; if it is no interval of the standard, all of it with signs: `+1-2 -3 +4:05:06`.
fn write_sql(interval: Interval, out: &mut String) {
    let Interval { months, days, micros } = interval;
    let parts = Parts::of(interval);
    let negative = months < 0 || days < 0 || micros < 0;
    let positive = months > 0 || days > 0 || micros > 0;
    let year_month = format!("{}-{}", parts.years.abs(), parts.months.abs());
    if negative && positive || months != 0 && (days != 0 || micros != 0) {
        let sign = |negative: bool| if negative { '-' } else { '+' };
        let (of_months, of_days) = (sign(months < 0), sign(days < 0));
        out.push_str(&format!("{of_months}{year_month} {of_days}{} {}", parts.days.abs(), sign(micros < 0)));
        return parts.write_clock(out);
    }
    if negative {
        out.push('-');
    }
    match (months, days, micros) {
        (0, 0, 0) => out.push('0'),
        (0, 0, _) => parts.write_clock(out),
        (0, ..) => {
            out.push_str(&format!("{} ", parts.days.abs()));
            parts.write_clock(out);
        }
        _ => out.push_str(&year_month),
    }
}

/// `P1Y2M-3DT4H5M6S`
fn write_iso(parts: &Parts, out: &mut String) {
    let start = out.len();
    let write = |units: [(i64, char); 3], out: &mut String| {
        for (count, unit) in units.into_iter().filter(|(count, _)| *count != 0) {
            out.push_str(&format!("{count}{unit}"));
        }
    };
    out.push('P');
    write([(parts.years, 'Y'), (parts.months, 'M'), (parts.days, 'D')], out);
    let seconds = parts.seconds != 0 || parts.fraction != 0;
    if seconds || parts.hours != 0 || parts.minutes != 0 {
        out.push('T');
        write([(parts.hours, 'H'), (parts.minutes, 'M'), (0, 'S')], out);
        if seconds {
            out.push_str(if parts.seconds < 0 || parts.fraction < 0 { "-" } else { "" });
            parts.write_seconds(false, out);
            out.push('S');
        }
    }
    if out.len() == start + 1 {
        out.push_str("T0S");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::datetime::parse_interval;

    #[test]
    fn intervals_are_shown_in_all_styles_of_postgresql() {
        let show = |text: &str| {
            let interval = parse_interval(text, None, Intervals::Postgres).unwrap();
            [Intervals::Postgres, Intervals::Verbose, Intervals::Sql, Intervals::Iso].map(|style| {
                let mut out = String::new();
                write_interval(interval, style, &mut out);
                out
            })
        };
        for (text, expected) in [
            ("0", ["00:00:00", "@ 0", "0", "PT0S"]),
            ("1 year 2 months", ["1 year 2 mons", "@ 1 year 2 mons", "1-2", "P1Y2M"]),
            ("-1 year -2 months", ["-1 years -2 mons", "@ 1 year 2 mons ago", "-1-2", "P-1Y-2M"]),
            (
                "3 days 4:05:06.7",
                ["3 days 04:05:06.7", "@ 3 days 4 hours 5 mins 6.7 secs", "3 4:05:06.7", "P3DT4H5M6.7S"],
            ),
            ("-00:00:01", ["-00:00:01", "@ 1 sec ago", "-0:00:01", "PT-1S"]),
            ("-0.5 sec", ["-00:00:00.5", "@ 0.5 secs ago", "-0:00:00.5", "PT-0.5S"]),
            ("-1 day 2:03", ["-1 days +02:03:00", "@ 1 day -2 hours -3 mins ago", "+0-0 -1 +2:03:00", "P-1DT2H3M"]),
            ("1 day -0:00:01", ["1 day -00:00:01", "@ 1 day -1 sec", "+0-0 +1 -0:00:01", "P1DT-1S"]),
            ("1 mon 1 day", ["1 mon 1 day", "@ 1 mon 1 day", "+0-1 +1 +0:00:00", "P1M1D"]),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
    }
}
