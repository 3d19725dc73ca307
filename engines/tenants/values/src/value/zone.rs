//! Time zones: what clocks show somewhere, and when that is.

use chrono::{DateTime, NaiveDateTime, Offset, TimeDelta, TimeZone};
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
    /// What an abbreviation in small letters means in a zone of the database.
    Abbreviated(Tz, &'static str),
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
        abbreviated(trimmed).map_or_else(|| Self::in_full(trimmed), Ok)
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
            Self::Abbreviated(_, short) => short.to_ascii_uppercase(),
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
            Self::Abbreviated(tz, short) => calendar(micros).map_or(0, |at| ahead_by_abbreviation(tz, short, at)),
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
        if let Self::Abbreviated(tz, _) = self {
            return shifted(self.ahead(Self::Named(tz).utc(local)));
        }
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

/// The abbreviations that PostgreSQL knows by itself.
fn abbreviated(name: &str) -> Option<Zone> {
    /// Those that always mean the same: quarters of an hour east of Greenwich.
    const FIXED: [(i32, &str); 36] = [
        (-40, "hst taht"),
        (-38, "mart"),
        (-36, "akst gamt"),
        (-32, "akdt pst"),
        (-28, "mst pdt"),
        (-24, "cst galt mdt"),
        (-20, "act cdt cot est pet"),
        (-16, "amt ast bot edt"),
        (-14, "nft nst"),
        (-12, "adt bra brt clst gft pmst pyst uyt wgt"),
        (-10, "ndt"),
        (-8, "brst fnt pmdt uyst wgst"),
        (-4, "azot egt fnst"),
        (0, "azost egst gmt uct ut utc wet z zulu"),
        (4, "bst cet met mez wat wetdst"),
        (8, "bdst cest cetdst eet ist mest mesz metdst sast"),
        (12, "eat eest eetdst fet idt"),
        (14, "irt"),
        (16, "msd mut ret sct"),
        (18, "aft"),
        (20, "must mvt pkt tft tjt uzt"),
        (23, "npt"),
        (24, "almt bdt btt kgst pkst uzst xjt yekst"),
        (26, "mmt"),
        (28, "almst cxt ict wast"),
        (32, "awst bnt bort cct hkt myt pht wadt"),
        (35, "acwst"),
        (36, "awsst jayt jst kst pwt ulast wdt"),
        (38, "acst cast"),
        (40, "aest chut ddut kdt ligt mpt pgt trut yapt"),
        (42, "acdt acsst cadt lhst sadt"),
        (44, "aedt aesst pont vut"),
        (48, "fjt gilt mht nzst nzt tvt wakt wft"),
        (51, "chast"),
        (52, "fjst nzdt tot"),
        (55, "chadt"),
    ];
    /// Those that have meant several things in the course of time, and where.
    const OF_A_ZONE: [(&str, Tz); 50] = [
        ("amst", Tz::Asia__Yerevan),
        ("anast", Tz::Asia__Anadyr),
        ("anat", Tz::Asia__Anadyr),
        ("arst", Tz::America__Argentina__Buenos_Aires),
        ("art", Tz::America__Argentina__Buenos_Aires),
        ("azst", Tz::Asia__Baku),
        ("azt", Tz::Asia__Baku),
        ("ckt", Tz::Pacific__Rarotonga),
        ("clt", Tz::America__Santiago),
        ("davt", Tz::Antarctica__Davis),
        ("easst", Tz::Pacific__Easter),
        ("east", Tz::Pacific__Easter),
        ("fkst", Tz::Atlantic__Stanley),
        ("fkt", Tz::Atlantic__Stanley),
        ("gest", Tz::Asia__Tbilisi),
        ("get", Tz::Asia__Tbilisi),
        ("gyt", Tz::America__Guyana),
        ("iot", Tz::Indian__Chagos),
        ("irkst", Tz::Asia__Irkutsk),
        ("irkt", Tz::Asia__Irkutsk),
        ("kgt", Tz::Asia__Bishkek),
        ("kost", Tz::Pacific__Kosrae),
        ("krast", Tz::Asia__Krasnoyarsk),
        ("krat", Tz::Asia__Krasnoyarsk),
        ("lhdt", Tz::Australia__Lord_Howe),
        ("lint", Tz::Pacific__Kiritimati),
        ("lkt", Tz::Asia__Colombo),
        ("magst", Tz::Asia__Magadan),
        ("magt", Tz::Asia__Magadan),
        ("mawt", Tz::Antarctica__Mawson),
        ("msk", Tz::Europe__Moscow),
        ("novst", Tz::Asia__Novosibirsk),
        ("novt", Tz::Asia__Novosibirsk),
        ("nut", Tz::Pacific__Niue),
        ("omsst", Tz::Asia__Omsk),
        ("omst", Tz::Asia__Omsk),
        ("petst", Tz::Asia__Kamchatka),
        ("pett", Tz::Asia__Kamchatka),
        ("pyt", Tz::America__Asuncion),
        ("sgt", Tz::Asia__Singapore),
        ("tkt", Tz::Pacific__Fakaofo),
        ("tmt", Tz::Asia__Ashgabat),
        ("ulat", Tz::Asia__Ulaanbaatar),
        ("vet", Tz::America__Caracas),
        ("vlast", Tz::Asia__Vladivostok),
        ("vlat", Tz::Asia__Vladivostok),
        ("volt", Tz::Europe__Volgograd),
        ("yakst", Tz::Asia__Yakutsk),
        ("yakt", Tz::Asia__Yakutsk),
        ("yekt", Tz::Asia__Yekaterinburg),
    ];
    let name = name.to_ascii_lowercase();
    let fixed = FIXED.iter().find(|(_, names)| names.split(' ').any(|short| short == name));
    let of_a_zone = || OF_A_ZONE.iter().find(|(short, _)| *short == name);
    fixed
        .map(|(quarters, _)| Zone::Fixed(quarters * 900))
        .or_else(|| of_a_zone().map(|(short, tz)| Zone::Abbreviated(*tz, short)))
}

/// Seconds that a zone's clocks are ahead of UTC where they are called by an abbreviation: at a time, or when they were so called last
/// before. As they are at that time, if they were not within two years.
fn ahead_by_abbreviation(tz: Tz, short: &str, at: NaiveDateTime) -> i32 {
    const STEP: TimeDelta = TimeDelta::days(20);
    let then = |at: &NaiveDateTime| tz.offset_from_utc_datetime(at);
    let back = std::iter::successors(Some(at), |at| at.checked_sub_signed(STEP)).take(37);
    let called = back
        .map(|at| then(&at))
        .find(|offset| offset.abbreviation().is_some_and(|name| name.eq_ignore_ascii_case(short)));
    called.unwrap_or_else(|| then(&at)).fix().local_minus_utc()
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
        datetime::parse_timestamp(text, crate::types::Type::Timestamp, Zone::UTC).unwrap()
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
