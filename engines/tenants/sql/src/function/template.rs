//! Dates and times by a template: `to_char`, `to_date`, `to_timestamp`.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Value,
        datetime::{self, MICROS_PER_DAY, MICROS_PER_HOUR, MICROS_PER_MINUTE, MICROS_PER_SECOND},
        style::Order,
        zone::{Zone, write_offset},
    },
};

use super::{Resolved, is_texty, wrong_arguments};
use crate::expression::Facts;

/// A function of a template, called as what it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateFunction {
    /// A time as a text; a time of UTC, as the session's clocks show it, if it is `zoned`
    Char {
        zoned: bool,
    },
    Date,
    Timestamp,
}

/// The function of a template of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<TemplateFunction>> {
    use TemplateFunction as F;
    use Type::{Date, Text, Timestamp, Timestamptz};
    Some(match (name, arguments) {
        ("to_char", [Timestamp, template]) if is_texty(template) => {
            (F::Char { zoned: false }, vec![Timestamp, Text], Text)
        }
        ("to_char", [Date | Timestamptz, template]) if is_texty(template) => {
            (F::Char { zoned: true }, vec![Timestamptz, Text], Text)
        }
        ("to_date", [text, template]) if is_texty(text) && is_texty(template) => (F::Date, vec![Text; 2], Date),
        ("to_timestamp", [text, template]) if is_texty(text) && is_texty(template) => {
            (F::Timestamp, vec![Text; 2], Timestamptz)
        }
        _ => return None,
    })
}

impl TemplateFunction {
    /// Whether its value depends on its arguments alone.
    pub(super) fn is_immutable(self) -> bool {
        self == Self::Date || self == Self::Char { zoned: false }
    }

    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        match (self, arguments) {
            (Self::Char { .. }, [Value::Timestamp(micros), _]) if datetime::is_infinite(*micros) => Ok(Value::Null),
            (Self::Char { zoned }, [Value::Timestamp(micros), Value::Text(template)]) => {
                shown(*micros, template, zoned.then(|| facts.zone())).map(Value::Text)
            }
            (Self::Date, [Value::Text(text), Value::Text(template)]) => {
                let (days, _) = read(text, template)?;
                datetime::known_day(days).map(Value::Date).ok_or_else(|| out_of_range(text))
            }
            (Self::Timestamp, [Value::Text(text), Value::Text(template)]) => {
                let (days, micros) = read(text, template)?;
                Ok(Value::Timestamp(datetime::known(facts.zone().utc(datetime::on_day(days, micros)?))?))
            }
            _ => Err(wrong_arguments(self)),
        }
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// What can stand in a template. The longest that fits is meant.
const PATTERNS: [&str; 55] = [
    "SSSSS", "Y,YYY", "IYYY", "HH24", "HH12", "MONTH", "SSSS", "YYYY", "A.M.", "P.M.", "B.C.", "A.D.", "IDDD", "IYY",
    "DAY", "DDD", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "MON", "YYY", "TZH", "TZM", "AM", "PM", "BC", "AD", "CC",
    "DD", "DY", "FX", "HH", "ID", "IW", "IY", "MI", "MM", "MS", "OF", "RM", "SS", "TM", "TZ", "US", "WW", "YY", "D",
    "I", "J", "Q", "W", "Y",
];

/// The places of a fraction of seconds, `FF1` to `FF6`.
fn places_of(name: &str) -> Option<usize> {
    name.strip_prefix("FF")?.parse().ok()
}

/// A piece of a template.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    /// A pattern, as it is written, and whether it is to be without padding, and with an ending.
    Pattern {
        name: &'static str,
        written: &'a str,
        bare: bool,
        ordinal: Option<&'a str>,
    },
    Text(String),
}

fn pieces(template: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    let mut bare = false;
    while let Some(character) = rest.chars().next() {
        let starts = |name: &str| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if starts("FM") {
            (bare, rest) = (true, &rest[2..]);
        } else if let Some(name) = PATTERNS.iter().copied().find(|name| starts(name)) {
            let (written, mut after) = rest.split_at(name.len());
            let ordinal = after.get(..2).filter(|ending| ending.eq_ignore_ascii_case("th"));
            if ordinal.is_some() {
                after = &after[2..];
            }
            pieces.push(Piece::Pattern { name, written, bare, ordinal });
            (bare, rest) = (false, after);
        } else if character == '"' {
            let mut text = String::new();
            let mut characters = rest[1..].chars();
            while let Some(character) = characters.next() {
                match character {
                    '"' => break,
                    '\\' => text.extend(characters.next()),
                    other => text.push(other),
                }
            }
            rest = characters.as_str();
            pieces.push(Piece::Text(text));
        } else {
            let text =
                if character == '\\' && rest[1..].starts_with('"') { "\"" } else { &rest[..character.len_utf8()] };
            pieces.push(Piece::Text(text.to_owned()));
            rest = &rest[if character == '\\' && text == "\"" { 2 } else { character.len_utf8() }..];
        }
    }
    pieces
}

/// A name in the letters in which its pattern is written: `MONTH`, `Month`, `month`.
fn like_written(name: &str, written: &str) -> String {
    let mut letters = written.chars();
    let (first, second) = (letters.next(), letters.next());
    match (first.is_some_and(char::is_uppercase), second.is_some_and(char::is_uppercase)) {
        (true, true) => name.to_uppercase(),
        (true, false) => name.to_owned(),
        _ => name.to_lowercase(),
    }
}

fn ending(number: i64, written: &str) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    if written == "TH" { ending.to_uppercase() } else { ending.to_owned() }
}

/// A time by a template.
fn shown(utc: i64, template: &str, zone: Option<Zone>) -> Result<String> {
    let micros = zone.map_or(utc, |zone| zone.local(utc));
    let ahead = zone.map_or(0, |zone| zone.ahead(utc));
    let (days, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    let (year, month, day) = datetime::date_of(days);
    let of_era = if year > 0 { year } else { 1 - year };
    let weekday = (days + 6).rem_euclid(7);
    let iso_weekday = if weekday == 0 { 7 } else { weekday };
    let of_year = days - datetime::days_of(year, 1, 1) + 1;
    let (iso_year, iso_week) = super::date_part::iso_week(days, year);
    let (hour, twelve) = (time / MICROS_PER_HOUR, (time / MICROS_PER_HOUR + 11) % 12 + 1);
    let seconds = time / MICROS_PER_SECOND;
    let mut out = String::new();
    for piece in pieces(template) {
        let (name, written, bare, ordinal) = match piece {
            Piece::Text(text) => {
                out.push_str(&text);
                continue;
            }
            Piece::Pattern { name, written, bare, ordinal } => (name, written, bare, ordinal),
        };
        let (number, width) = match name {
            "Y,YYY" => {
                out.push_str(&format!("{},{:03}", of_era / 1000, of_era % 1000));
                continue;
            }
            "YYYY" => (of_era, 4),
            "YYY" => (of_era % 1000, 3),
            "YY" => (of_era % 100, 2),
            "Y" => (of_era % 10, 1),
            "IYYY" => (iso_year, 4),
            "IYY" => (iso_year % 1000, 3),
            "IY" => (iso_year % 100, 2),
            "I" => (iso_year % 10, 1),
            "CC" => ((of_era + 99) / 100, 2),
            "Q" => ((month - 1) / 3 + 1, 1),
            "MM" => (month, 2),
            "WW" => ((of_year - 1) / 7 + 1, 2),
            "W" => ((day - 1) / 7 + 1, 1),
            "IW" => (iso_week, 2),
            "DDD" => (of_year, 3),
            "IDDD" => ((iso_week - 1) * 7 + iso_weekday, 3),
            "DD" => (day, 2),
            "D" => (weekday + 1, 1),
            "ID" => (iso_weekday, 1),
            "J" => (days + 2_451_545, 1),
            "HH24" => (hour, 2),
            "HH" | "HH12" => (twelve, 2),
            "MI" => (time / MICROS_PER_MINUTE % 60, 2),
            "SS" => (seconds % 60, 2),
            "SSSS" | "SSSSS" => (seconds, 1),
            "MS" => (time % MICROS_PER_SECOND / 1_000, 3),
            "US" => (time % MICROS_PER_SECOND, 6),
            name if let Some(places) = places_of(name) => {
                (time % MICROS_PER_SECOND / 10_i64.pow(6 - places as u32), places)
            }
            _ => {
                let padded = |text: String, width: usize| if bare { text } else { format!("{text:<width$}") };
                let half = |dotted: bool| match (hour < 12, dotted) {
                    (true, true) => "A.M.",
                    (false, true) => "P.M.",
                    (true, false) => "AM",
                    (false, false) => "PM",
                };
                let era = |dotted: bool| match (year > 0, dotted) {
                    (true, true) => "A.D.",
                    (false, true) => "B.C.",
                    (true, false) => "AD",
                    (false, false) => "BC",
                };
                let in_case = |text: &str| {
                    let upper = written.starts_with(char::is_uppercase);
                    if upper { text.to_owned() } else { text.to_lowercase() }
                };
                match name {
                    "MONTH" => out.push_str(&padded(like_written(MONTHS[month as usize - 1], written), 9)),
                    "MON" => out.push_str(&like_written(&MONTHS[month as usize - 1][..3], written)),
                    "DAY" => out.push_str(&padded(like_written(DAYS[weekday as usize], written), 9)),
                    "DY" => out.push_str(&like_written(&DAYS[weekday as usize][..3], written)),
                    "AM" | "PM" => out.push_str(&in_case(half(false))),
                    "A.M." | "P.M." => out.push_str(&in_case(half(true))),
                    "AD" | "BC" => out.push_str(&in_case(era(false))),
                    "A.D." | "B.C." => out.push_str(&in_case(era(true))),
                    "OF" => write_offset(ahead, &mut out),
                    "TZH" => write_offset(ahead / 3600 * 3600, &mut out),
                    "TZM" => out.push_str(&format!("{:02}", ahead.abs() / 60 % 60)),
                    other => return Err(SqlError::unsupported(format_args!("{other} in a template of a date"))),
                }
                continue;
            }
        };
        out.push_str(&if bare { number.to_string() } else { format!("{number:0width$}") });
        if let Some(written) = ordinal {
            out.push_str(&ending(number, written));
        }
    }
    Ok(out)
}

fn out_of_range(text: &str) -> SqlError {
    SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

/// The day that a text says by a template, and the microseconds since its midnight.
fn read(text: &str, template: &str) -> Result<(i64, i64)> {
    let wrong = |value: &str, name: &str| {
        SqlError::new(state::INVALID_DATETIME_FORMAT, format!("invalid value \"{value}\" for \"{name}\""))
    };
    let (mut year, mut month, mut day, mut of_year) = (1, 1, 1, None);
    let (mut hour, mut minute, mut second, mut micros) = (0, 0, 0, 0);
    let (mut afternoon, mut before_christ) = (None, false);
    let mut rest = text.trim_start();
    let parts = pieces(template);
    for (at, piece) in parts.iter().enumerate() {
        let (name, bare) = match piece {
            Piece::Pattern { name, bare, .. } => (*name, *bare),
            Piece::Text(separator) => {
                // Any separator stands for any other, and for none.
                for character in separator.chars() {
                    let same = rest.starts_with(character)
                        || rest.starts_with(|c: char| !c.is_alphanumeric() && c != '-' && c != '+');
                    let mut characters = rest.chars();
                    if same || rest.starts_with('-') && !character.is_alphanumeric() {
                        characters.next();
                        rest = characters.as_str();
                    }
                }
                continue;
            }
        };
        rest = rest.trim_start();
        let word = |names: &[&str], length: usize| {
            let found = names.iter().position(|name| {
                let name = if length == 0 { name } else { &name[..length] };
                rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
            });
            found.map(|at| (at, if length == 0 { names[at].len() } else { length }))
        };
        match name {
            "MONTH" | "MON" => {
                let found = word(&MONTHS, if name == "MON" { 3 } else { 0 }).or_else(|| word(&MONTHS, 3));
                let (found, length) = found.ok_or_else(|| wrong(rest.get(..3).unwrap_or(rest), name))?;
                month = found as i64 + 1;
                rest = &rest[length..];
                continue;
            }
            "DAY" | "DY" => {
                let found = word(&DAYS, if name == "DY" { 3 } else { 0 }).or_else(|| word(&DAYS, 3));
                let (_, length) = found.ok_or_else(|| wrong(rest.get(..3).unwrap_or(rest), name))?;
                rest = &rest[length..];
                continue;
            }
            "AM" | "PM" | "A.M." | "P.M." | "AD" | "BC" | "A.D." | "B.C." => {
                let half = name.starts_with(['A', 'P']) && !name.starts_with("AD") && !name.starts_with("A.D");
                let words = if half { ["AM", "PM", "A.M.", "P.M."] } else { ["AD", "BC", "A.D.", "B.C."] };
                let (found, length) = word(&words, 0).ok_or_else(|| wrong(rest.get(..2).unwrap_or(rest), name))?;
                if half {
                    afternoon = Some(found % 2 == 1)
                } else {
                    before_christ = found % 2 == 1
                }
                rest = &rest[length..];
                continue;
            }
            _ => {}
        }
        let width = match name {
            "YYYY" => 4,
            "YYY" | "DDD" | "MS" => 3,
            "US" => 6,
            name if let Some(places) = places_of(name) => places,
            "SSSS" | "SSSSS" => 5,
            "J" => 7,
            "Y" | "D" | "ID" | "Q" | "W" => 1,
            "YY" | "MM" | "DD" | "HH24" | "HH12" | "HH" | "MI" | "SS" => 2,
            other => return Err(SqlError::unsupported(format_args!("{other} in a template that is read"))),
        };
        // A number is as long as it can be, unless another one follows at once.
        let next_is_number = matches!(parts.get(at + 1), Some(Piece::Pattern { name, .. }) if !matches!(*name, "MONTH" | "MON" | "DAY" | "DY" | "AM" | "PM"));
        let all = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length = if bare || !next_is_number { all } else { all.min(width) };
        let length = if matches!(name, "YYYY" | "J") { length } else { length.min(width) };
        let digits = &rest[..length];
        let number: i64 = digits.parse().map_err(|_| wrong(rest.get(..width).unwrap_or(rest), name))?;
        rest = &rest[length..];
        let fraction = |places: usize| number * 10_i64.pow((places - length.min(places)) as u32);
        match name {
            "YYYY" => year = number,
            "YYY" | "YY" | "Y" => year = if number < 70 { 2000 + number } else { 1900 + number },
            "MM" => month = number,
            "DD" => day = number,
            "DDD" => of_year = Some(number),
            "HH24" => hour = number,
            "HH12" | "HH" => {
                if !(1..=12).contains(&number) {
                    let message = format!("hour \"{number}\" is invalid for the 12-hour clock");
                    return Err(SqlError::new(state::INVALID_DATETIME_FORMAT, message));
                }
                hour = number;
                afternoon.get_or_insert(false);
            }
            "MI" => minute = number,
            "SS" => second = number,
            "MS" => micros = fraction(3) * 1_000,
            "US" => micros = fraction(6),
            name if let Some(places) = places_of(name) => micros = fraction(places) * 10_i64.pow(6 - places as u32),
            "SSSS" | "SSSSS" => (hour, minute, second) = (number / 3600, number / 60 % 60, number % 60),
            "J" => {
                let (y, m, d) = datetime::date_of(number - 2_451_545);
                (year, month, day) = (y, m, d);
            }
            _ => {}
        }
    }
    if let Some(afternoon) = afternoon {
        hour = hour % 12 + if afternoon { 12 } else { 0 };
    }
    if hour > 24 || minute > 59 || second > 60 {
        return Err(out_of_range(text));
    }
    let era = if before_christ { " BC" } else { "" };
    let days = i64::from(
        datetime::parse_date(&format!("{year:04}-{month}-{day}{era}"), Order::MonthFirst)
            .map_err(|_| out_of_range(text))?,
    );
    let days = match of_year {
        Some(of_year @ 1..=366) => datetime::days_of(year, 1, 1) + of_year - 1,
        Some(_) => return Err(out_of_range(text)),
        None => days,
    };
    Ok((days, hour * MICROS_PER_HOUR + minute * MICROS_PER_MINUTE + second * MICROS_PER_SECOND + micros))
}
