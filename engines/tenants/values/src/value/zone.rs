//! Time zones: what clocks show somewhere, and when that is.

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{OffsetName, TZ_VARIANTS, Tz};

use super::datetime::{EPOCH_MICROS, MICROS_PER_DAY, MICROS_PER_SECOND, date_of, days_of, is_infinite};
use crate::error::{Result, SqlError, state};

/// A time zone, by its name in the database of IANA, or by how far it is from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// A name of the database.
    Named(Tz),
    /// Seconds east of Greenwich.
    Fixed(i32),
}

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}

/// The last year for which the database's rules were written out as changes of clocks.
const LAST_KNOWN_YEAR: i64 = 2099;

/// Seconds that a zone is from UTC at most.
const SECONDS_MAX: i32 = 15 * 3600 + 59 * 60 + 59;

/// `+02`, `-5:30` and the like in seconds.
fn offset(text: &str) -> Option<i32> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let mut parts = rest.split(':');
    let mut seconds = 0;
    for (unit, max) in [(3600, 15), (60, 59), (1, 59)] {
        let Some(part) = parts.next() else { break };
        let number: i32 =
            part.parse().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()) && part.len() <= 2)?;
        if number > max {
            return None;
        }
        seconds += number * unit;
    }
    parts.next().is_none().then_some(sign * seconds)
}

impl Zone {
    /// Greenwich without summer time.
    pub const UTC: Self = Self::Named(Tz::UTC);

    /// The zone that an expression names: a name, or letters and how far *west* it is, as POSIX writes it.
    ///
    /// # Errors
    /// 22023 if there is none.
    pub fn named(name: &str) -> Result<Self> {
        let trimmed = name.trim();
        if let Some(seconds) = abbreviated(trimmed) {
            return Ok(Self::Fixed(seconds));
        }
        Self::in_full(trimmed)
    }

    /// The zone of a name that is no abbreviation.
    fn in_full(name: &str) -> Result<Self> {
        if let Some(tz) = known(name) {
            return Ok(Self::Named(tz));
        }
        let digits = name.find(['+', '-']).filter(|at| name[..*at].bytes().all(|byte| byte.is_ascii_alphabetic()));
        let west = match digits {
            Some(at) => offset(&name[at..]),
            None => offset(&format!("+{name}")),
        };
        let unknown = || SqlError::new(state::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"));
        west.map(|west| Self::Fixed(-west)).ok_or_else(unknown)
    }

    /// The zone of a name, or so many hours *east* of Greenwich.
    ///
    /// # Errors
    /// 22023 if there is none.
    pub fn east_or_named(name: &str) -> Result<Self> {
        offset(name.trim()).map_or_else(|| Self::named(name), |seconds| Ok(Self::Fixed(seconds)))
    }

    /// The zone that a setting says: a name, or hours *east* of Greenwich.
    ///
    /// # Errors
    /// 22023 if there is none.
    pub fn setting(value: &str) -> Result<Self> {
        let wrong = || {
            let message = format!("invalid value for parameter \"TimeZone\": \"{value}\"");
            SqlError::new(state::INVALID_PARAMETER_VALUE, message)
        };
        match value.trim().parse::<f64>() {
            Ok(hours) if (hours * 3600.0).abs() <= f64::from(SECONDS_MAX) => Ok(Self::Fixed((hours * 3600.0) as i32)),
            Ok(_) => Err(wrong()),
            Err(_) => Self::in_full(value.trim()).map_err(|_| wrong()),
        }
    }

    /// A zone so many microseconds east of Greenwich.
    pub fn east(micros: i64) -> Result<Self> {
        let seconds = i32::try_from(micros / MICROS_PER_SECOND).ok().filter(|seconds| seconds.abs() <= SECONDS_MAX);
        let wrong = || SqlError::new(state::INVALID_PARAMETER_VALUE, "time zone displacement out of range");
        seconds.map(Self::Fixed).ok_or_else(wrong)
    }

    /// Its name, as it is shown.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Named(tz) => tz.name().to_owned(),
            Self::Fixed(seconds) => {
                let mut out = String::from("<");
                write_offset(seconds, &mut out);
                out.push('>');
                write_offset(-seconds, &mut out);
                out
            }
        }
    }

    /// Seconds that its clocks are ahead of UTC at a time of UTC, in microseconds since 2000-01-01.
    pub fn ahead(self, micros: i64) -> i32 {
        match self {
            Self::Named(Tz::UTC) => 0,
            Self::Named(tz) => {
                calendar(micros).map_or(0, |at| tz.offset_from_utc_datetime(&at).fix().local_minus_utc())
            }
            Self::Fixed(seconds) => seconds,
        }
    }

    /// Appends what its time is called at a time of UTC: `CET`, or its distance if it has no such name.
    pub(crate) fn write_abbreviation(self, micros: i64, out: &mut String) {
        let Self::Named(tz) = self else { return write_offset(self.ahead(micros), out) };
        let offset = calendar(micros).map(|at| tz.offset_from_utc_datetime(&at));
        match offset.as_ref().and_then(OffsetName::abbreviation) {
            Some(name) => out.push_str(name),
            None => {
                let mut distance = String::new();
                write_offset(self.ahead(micros), &mut distance);
                out.push_str(&distance.replace(':', ""));
            }
        }
    }

    /// What its clocks show at a time of UTC.
    pub fn local(self, micros: i64) -> i64 {
        if is_infinite(micros) {
            return micros;
        }
        micros.saturating_add(i64::from(self.ahead(micros)) * MICROS_PER_SECOND)
    }

    /// The time of UTC when its clocks show something. Of a time that they leave out, that before they were put forward; of one that comes
    /// twice, the second, as in PostgreSQL.
    pub fn utc(self, local: i64) -> i64 {
        if is_infinite(local) {
            return local;
        }
        let shifted = |seconds: i32| local.saturating_sub(i64::from(seconds) * MICROS_PER_SECOND);
        let before = self.ahead(shifted(self.ahead(local)).saturating_sub(MICROS_PER_DAY));
        let after = self.ahead(shifted(self.ahead(local)).saturating_add(MICROS_PER_DAY));
        // A change is nearer than a day: one of the two holds, both, or neither.
        match (self.ahead(shifted(before)) == before, self.ahead(shifted(after)) == after) {
            (_, true) => shifted(after),
            _ => shifted(before),
        }
    }
}

/// Appends `+02`, `-05:30`.
pub fn write_offset(seconds: i32, out: &mut String) {
    let (sign, seconds) = (if seconds < 0 { '-' } else { '+' }, seconds.abs());
    out.push_str(&format!("{sign}{:02}", seconds / 3600));
    if seconds % 3600 != 0 {
        out.push_str(&format!(":{:02}", seconds / 60 % 60));
    }
    if seconds % 60 != 0 {
        out.push_str(&format!(":{:02}", seconds % 60));
    }
}

/// Seconds east of Greenwich of the abbreviations that PostgreSQL knows by itself, as far as they always mean the same.
fn abbreviated(name: &str) -> Option<i32> {
    const HALF_HOURS: [(i32, &str); 24] = [
        (-20, "hst"),
        (-18, "akst"),
        (-16, "akdt pst"),
        (-14, "mst pdt"),
        (-12, "cst mdt"),
        (-10, "cdt est"),
        (-8, "ast edt"),
        (-7, "nst"),
        (-6, "adt art brt"),
        (-5, "ndt"),
        (-4, "brst"),
        (0, "gmt uct ut wet z zulu"),
        (2, "bst cet met wat west"),
        (4, "bdst cest eet ist mest sast"),
        (6, "eest fet idt"),
        (10, "pkt"),
        (16, "awst hkt pht sgt"),
        (18, "jst kst"),
        (19, "acst cast"),
        (20, "aest kdt ligt"),
        (21, "acdt cadt"),
        (22, "aedt"),
        (24, "nzst nzt"),
        (26, "nzdt"),
    ];
    let name = name.to_ascii_lowercase();
    HALF_HOURS
        .iter()
        .find(|(_, names)| names.split(' ').any(|short| short == name))
        .map(|(half_hours, _)| half_hours * 1_800)
}

fn known(name: &str) -> Option<Tz> {
    if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("z") {
        return Some(Tz::UTC);
    }
    TZ_VARIANTS.iter().find(|tz| tz.name().eq_ignore_ascii_case(name)).copied()
}

/// A time of UTC in the calendar; there is none in the far past, where all zones are as at the beginning of what is known of them.
fn calendar(micros: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(within_known_years(micros).checked_add(EPOCH_MICROS)?).map(|at| at.naive_utc())
}

/// The same time of the last year of which changes are known and that has the same calendar: later years have the same rules.
fn within_known_years(micros: i64) -> i64 {
    let (year, ..) = date_of(micros.div_euclid(MICROS_PER_DAY));
    if year <= LAST_KNOWN_YEAR {
        return micros;
    }
    let first_day = |year| days_of(year, 1, 1);
    let days = |year| first_day(year + 1) - first_day(year);
    // Of 28 years without a turn of a century each calendar is that of one at least.
    let alike = |known: &i64| days(*known) == days(year) && (first_day(year) - first_day(*known)) % 7 == 0;
    let known = (LAST_KNOWN_YEAR - 27..=LAST_KNOWN_YEAR).rev().find(alike).unwrap_or(LAST_KNOWN_YEAR);
    micros - (first_day(year) - first_day(known)) * MICROS_PER_DAY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::datetime;

    fn at(text: &str) -> i64 {
        datetime::parse_timestamp(text, crate::types::Type::Timestamp, crate::value::style::Style::PLAIN).unwrap()
    }

    #[test]
    fn clocks_are_put_forward_and_back() {
        let berlin = Zone::named("europe/berlin").unwrap();
        assert_eq!(berlin.name(), "Europe/Berlin");
        for (local, utc) in [
            ("2024-01-15 12:00", "2024-01-15 11:00"),
            ("2024-07-15 12:00", "2024-07-15 10:00"),
            ("2024-03-31 01:59", "2024-03-31 00:59"),
            // Left out: 02:00 to 03:00.
            ("2024-03-31 02:30", "2024-03-31 01:30"),
            ("2024-03-31 03:00", "2024-03-31 01:00"),
            // Twice: 02:00 to 03:00.
            ("2024-10-27 02:30", "2024-10-27 01:30"),
            ("2024-10-27 03:00", "2024-10-27 02:00"),
            ("2024-10-27 01:59", "2024-10-26 23:59"),
        ] {
            assert_eq!(berlin.utc(at(local)), at(utc), "{local}");
        }
        assert_eq!(berlin.local(at("2024-03-31 01:30")), at("2024-03-31 03:30"));
        assert_eq!(berlin.local(at("2024-10-27 00:30")), at("2024-10-27 02:30"));
        assert_eq!(berlin.local(i64::MAX), i64::MAX);
    }

    #[test]
    fn clocks_are_put_forward_and_back_for_ever() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        for (local, utc) in [
            ("2100-03-28 01:59", "2100-03-28 00:59"),
            ("2100-03-28 03:00", "2100-03-28 01:00"),
            ("2104-12-31 23:59", "2104-12-31 22:59"),
            ("9999-07-15 12:00", "9999-07-15 10:00"),
            ("294276-12-15 12:00", "294276-12-15 11:00"),
        ] {
            assert_eq!(berlin.utc(at(local)), at(utc), "{local}");
        }
    }

    #[test]
    fn zones_are_named_and_counted() {
        assert_eq!(Zone::setting("-7"), Ok(Zone::Fixed(-7 * 3600)));
        assert_eq!(Zone::setting("5.5").map(Zone::name).as_deref(), Ok("<+05:30>-05:30"));
        assert_eq!(Zone::named("UTC+3"), Ok(Zone::Fixed(-3 * 3600)));
        assert_eq!(Zone::named("+3"), Ok(Zone::Fixed(-3 * 3600)));
        assert_eq!(Zone::named("pdt"), Ok(Zone::Fixed(-7 * 3600)));
        assert_eq!(Zone::setting("00:30"), Ok(Zone::Fixed(-30 * 60)));
        assert_eq!(Zone::setting("utc"), Ok(Zone::UTC));
        for name in ["Mars/Olympus", "", "+99", "99", "+1:2:3:4", "UTC+", "PDT"] {
            assert_eq!(Zone::setting(name).unwrap_err().state, state::INVALID_PARAMETER_VALUE, "{name}");
        }
    }
}
