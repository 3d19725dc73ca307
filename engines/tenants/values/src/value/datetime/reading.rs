//! What the fields of a text say about a date and a time: the forms that PostgreSQL takes, numbers in the order of
//! `DateStyle` unless the year comes first.

use super::{
    MICROS_PER_DAY, MICROS_PER_HOUR, MICROS_PER_MINUTE, MICROS_PER_SECOND, days_in, days_of,
    field::{Field, fields, span},
};
use crate::{
    error::SqlError,
    value::{style::Order, zone::Zone},
};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// From the beginning of Julian days to 2000-01-01.
const JULIAN_DAYS: i64 = 2_451_545;

/// What a word says that is no name of a time zone.
enum Word {
    Month(i64),
    Before,
    Anno,
    Morning,
    Afternoon,
    Midnight,
    Julian,
    /// A weekday, or a word that says nothing.
    Nothing,
}

fn meaning(word: &str) -> Option<Word> {
    let word = word.to_ascii_lowercase();
    let named = |names: &[&str]| {
        let short = word.len() == 3 || matches!(word.as_str(), "sept" | "tues" | "thur" | "thurs" | "wednes");
        names.iter().position(|name| *name == word || short && name.starts_with(&word))
    };
    if let Some(month) = named(&MONTHS) {
        return Some(Word::Month(month as i64 + 1));
    }
    Some(match word.as_str() {
        "bc" => Word::Before,
        "ad" => Word::Anno,
        "am" => Word::Morning,
        "pm" => Word::Afternoon,
        "allballs" => Word::Midnight,
        "j" | "jd" | "julian" => Word::Julian,
        "t" | "at" | "on" => Word::Nothing,
        _ if named(&WEEKDAYS).is_some() => Word::Nothing,
        _ => return None,
    })
}

/// Whether a word is one of these: what follows it without a blank is no part of a name.
pub(super) fn is_known(word: &str) -> bool {
    meaning(word).is_some()
}

/// A date, a time and a zone, as far as they were read.
#[derive(Default)]
pub(super) struct Reading {
    /// In which order numbers are.
    order: Order,
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    /// The day of the year
    of_year: Option<i64>,
    /// Days since 2000-01-01, of a Julian day
    days: Option<i64>,
    time: Option<i64>,
    pub(super) zone: Option<Zone>,
    /// Whether the year has two digits, which stand for one from 1970 to 2069.
    is_short: bool,
    month_is_word: bool,
    before_christ: bool,
    afternoon: Option<bool>,
    /// Behind `T` there is a time.
    time_next: bool,
    julian_next: bool,
}

/// Why a text is none of its type.
pub(super) enum Wrong {
    Form,
    Range,
    /// A month or day of more than any: numbers may be in another order.
    Order,
    Zone(SqlError),
}

type Read = Result<(), Wrong>;

impl Reading {
    /// What a text says.
    pub(super) fn of(text: &str, order: Order, time_next: bool) -> Result<Self, Wrong> {
        let mut reading = Self { order, time_next, ..Self::default() };
        let fields = fields(text.trim()).ok_or(Wrong::Form)?;
        fields.into_iter().try_for_each(|field| reading.field(field))?;
        Ok(reading)
    }

    pub(super) fn has_date(&self) -> bool {
        self.days.is_some()
            || self.year.is_some() && (self.of_year.is_some() || self.month.is_some() && self.day.is_some())
    }

    fn field(&mut self, field: Field<'_>) -> Read {
        match field {
            Field::Word(word) => self.word(word),
            Field::Time(text) => self.time(text),
            Field::Signed(sign, text) => self.offset(sign, text),
            Field::Date(text) if self.has_date() || !self.begins_date(text) => self.after_date(text),
            Field::Date(text) => {
                // A word can be the month alone, so that numbers are taken behind it.
                let parts = || text.split(|c: char| !c.is_ascii_alphanumeric());
                let is_word = |part: &&str| part.starts_with(|c: char| c.is_ascii_alphabetic());
                parts().filter(is_word).try_for_each(|part| self.part_of_date(part))?;
                parts().filter(|part| !is_word(part)).try_for_each(|part| self.part_of_date(part))
            }
            Field::Number(digits) => self.number(digits),
        }
    }

    /// Whether a field with signs between is a date: a number, or a month.
    fn begins_date(&self, text: &str) -> bool {
        let first = text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        text.starts_with(|c: char| c.is_ascii_digit()) || matches!(meaning(first), Some(Word::Month(_)))
    }

    fn part_of_date(&mut self, part: &str) -> Read {
        let letters = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match meaning(letters) {
            _ if letters.is_empty() && !part.is_empty() => self.number_of_date(part),
            Some(Word::Month(month)) if letters.len() == part.len() => self.month(month),
            _ => Err(Wrong::Form),
        }
    }

    /// The name of a time zone, or a time with a distance from UTC.
    fn after_date(&mut self, text: &str) -> Read {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let (time, zone) = text.split_once('-').ok_or(Wrong::Form)?;
            self.number_without_signs(time)?;
            return self.offset('-', zone);
        }
        self.zone_named(text)
    }

    fn zone_named(&mut self, name: &str) -> Read {
        once(&mut self.zone, Zone::named(name).map_err(Wrong::Zone)?)
    }

    fn word(&mut self, word: &str) -> Read {
        match meaning(word) {
            Some(Word::Month(month)) => self.month(month)?,
            Some(Word::Before) => self.before_christ = true,
            Some(Word::Anno | Word::Nothing) => self.time_next |= word.eq_ignore_ascii_case("t"),
            Some(Word::Morning) => return once(&mut self.afternoon, false),
            Some(Word::Afternoon) => return once(&mut self.afternoon, true),
            Some(Word::Midnight) => {
                once(&mut self.time, 0)?;
                return once(&mut self.zone, Zone::UTC);
            }
            Some(Word::Julian) => self.julian_next = true,
            None => return self.zone_named(word).map_err(|_| Wrong::Form),
        }
        Ok(())
    }

    fn month(&mut self, month: i64) -> Read {
        // The number before it was the day.
        if let (Some(day @ 1..=31), None, false) = (self.month, self.day, self.month_is_word) {
            (self.day, self.month) = (Some(day), None);
        }
        self.month_is_word = true;
        once(&mut self.month, month)
    }

    fn number(&mut self, digits: &str) -> Read {
        if std::mem::take(&mut self.julian_next) {
            return once(&mut self.days, parsed(digits)? - JULIAN_DAYS);
        }
        if std::mem::take(&mut self.time_next) {
            return self.time_without_signs(digits);
        }
        match digits.find('.') {
            Some(point) if point > 2 && !self.has_date() => {
                digits.split('.').try_for_each(|part| self.number_of_date(part))
            }
            Some(point) if point > 2 => self.number_without_signs(digits),
            None if digits.len() >= 6 && (!self.has_date() || self.time.is_none()) => self.number_without_signs(digits),
            _ => self.number_of_date(digits),
        }
    }

    /// `19990113`, `990113`, or behind a date `141516` and `1415`.
    fn number_without_signs(&mut self, digits: &str) -> Read {
        let whole = digits.split('.').next().unwrap_or_default();
        if !self.has_date() && whole.len() >= 6 {
            let (year, rest) = whole.split_at(whole.len() - 4);
            self.is_short = year.len() == 2;
            once(&mut self.year, parsed(year)?)?;
            once(&mut self.month, parsed(&rest[..2])?)?;
            return once(&mut self.day, parsed(&rest[2..])?);
        }
        self.time_without_signs(digits)
    }

    fn time_without_signs(&mut self, digits: &str) -> Read {
        match digits.split('.').next().unwrap_or_default().len() {
            6 => self.time(&format!("{}:{}:{}", &digits[..2], &digits[2..4], &digits[4..])),
            4 => self.time(&format!("{}:{}", &digits[..2], &digits[2..])),
            _ => Err(Wrong::Form),
        }
    }

    /// A number that is a part of a date, which one by what was read before.
    fn number_of_date(&mut self, digits: &str) -> Read {
        let value = parsed(digits)?;
        let long = digits.len() > 2;
        let year_first = long || self.order == Order::YearFirst;
        match (self.year, self.month, self.day) {
            (Some(_), None, None) if digits.len() == 3 => once(&mut self.of_year, value),
            (None, None, None) if year_first => self.year(digits),
            (None, None, None) if self.order == Order::DayFirst => once(&mut self.day, value),
            (None, None, None) | (Some(_), None, _) | (None, None, Some(_)) => once(&mut self.month, value),
            (None, Some(_), None) if self.month_is_word && year_first => self.year(digits),
            (None, Some(_), None) => once(&mut self.day, value),
            // What was taken for a year was the day.
            (Some(day), Some(_), None) if self.month_is_word && long && self.is_short => {
                self.day = Some(day);
                self.year = None;
                self.year(digits)
            }
            (Some(_), Some(_), None) => once(&mut self.day, value),
            (None, Some(_), Some(_)) => self.year(digits),
            (Some(_), Some(_), Some(_)) => self.number_without_signs(digits),
        }
    }

    fn year(&mut self, digits: &str) -> Read {
        self.is_short = digits.len() <= 2;
        once(&mut self.year, parsed(digits)?)
    }

    fn time(&mut self, text: &str) -> Read {
        self.time_next = false;
        once(&mut self.time, parse_clock(text).ok_or(Wrong::Form)??)
    }

    /// `+02`, `-0530`, `-05:30:10`
    fn offset(&mut self, sign: char, text: &str) -> Read {
        if self.time.is_none() && !self.has_date() {
            return Err(Wrong::Form);
        }
        let parts: Vec<&str> = match text.len() {
            3 | 4 if !text.contains(':') => vec![&text[..text.len() - 2], &text[text.len() - 2..]],
            6 if !text.contains(':') => vec![&text[..2], &text[2..4], &text[4..]],
            _ => text.split(':').collect(),
        };
        if parts.len() > 3 {
            return Err(Wrong::Form);
        }
        let mut seconds = 0;
        for (part, (per, max)) in parts.iter().zip([(3_600, 15), (60, 59), (1, 59)]) {
            let number = parsed(part)?;
            if number > max {
                return Err(Wrong::Zone(displaced(text)));
            }
            seconds += number * per;
        }
        let seconds = if sign == '-' { -seconds } else { seconds };
        once(&mut self.zone, Zone::east(seconds * MICROS_PER_SECOND).map_err(Wrong::Zone)?)
    }

    /// Days since 2000-01-01.
    pub(super) fn date(&self) -> Result<i64, Wrong> {
        if let Some(days) = self.days {
            return Ok(days);
        }
        let year = match self.year.ok_or(Wrong::Form)? {
            // There is no such year, but two digits are 2000.
            0 if self.before_christ || !self.is_short => return Err(Wrong::Range),
            year if self.before_christ => 1 - year,
            year if self.is_short && year < 70 => year + 2000,
            year if self.is_short => year + 1900,
            year => year,
        };
        if let Some(of_year) = self.of_year {
            let length = if days_in(year, 2) == 29 { 366 } else { 365 };
            return if (1..=length).contains(&of_year) {
                Ok(days_of(year, 1, 1) + of_year - 1)
            } else {
                Err(Wrong::Range)
            };
        }
        let (month, day) = (self.month.ok_or(Wrong::Form)?, self.day.ok_or(Wrong::Form)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(Wrong::Order);
        }
        if day > days_in(year, month) {
            return Err(Wrong::Range);
        }
        Ok(days_of(year, month, day))
    }

    /// Microseconds since midnight; there may be none in the text.
    pub(super) fn micros(&self) -> Result<Option<i64>, Wrong> {
        let Some(time) = self.time else {
            return if self.afternoon.is_some() { Err(Wrong::Form) } else { Ok(None) };
        };
        let hour = time / MICROS_PER_HOUR;
        Ok(Some(match self.afternoon {
            Some(_) if hour > 12 => return Err(Wrong::Range),
            Some(false) if hour == 12 => time - 12 * MICROS_PER_HOUR,
            Some(true) if hour != 12 => time + 12 * MICROS_PER_HOUR,
            _ => time,
        }))
    }
}

/// Notes what may be said once.
fn once<T>(place: &mut Option<T>, value: T) -> Read {
    if place.replace(value).is_some() { Err(Wrong::Form) } else { Ok(()) }
}

fn parsed(digits: &str) -> Result<i64, Wrong> {
    if digits.is_empty() || span(digits, |c| c.is_ascii_digit()) < digits.len() {
        return Err(Wrong::Form);
    }
    digits.parse::<i64>().ok().filter(|number| *number < 1 << 31).ok_or(Wrong::Range)
}

fn displaced(text: &str) -> SqlError {
    SqlError::new("22009", format!("time zone displacement out of range: \"{text}\""))
}

/// Microseconds of `12:34`, `12:34:56.7` and, with a point behind the second number, of minutes and seconds. `None` if it is none
/// of these.
fn parse_clock(text: &str) -> Option<Result<i64, Wrong>> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, digits)) => (whole, micros_of(digits)?),
        None => (text, 0),
    };
    let numbers: Vec<i64> = whole.split(':').map(|part| parsed(part).ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match numbers.as_slice() {
        [minutes, seconds] if text.contains('.') => (0, *minutes, *seconds),
        [hours, minutes] => (*hours, *minutes, 0),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let micros = hours * MICROS_PER_HOUR + minutes * MICROS_PER_MINUTE + seconds * MICROS_PER_SECOND + fraction;
    let fits = minutes <= 59 && seconds <= 60 && micros <= MICROS_PER_DAY;
    Some(if fits { Ok(micros) } else { Err(Wrong::Range) })
}

/// Microseconds of the digits behind a point, rounded.
fn micros_of(digits: &str) -> Option<i64> {
    if digits.is_empty() {
        return Some(0);
    }
    let seconds: f64 = format!("0.{digits}").parse().ok()?;
    Some((seconds * MICROS_PER_SECOND as f64).round_ties_even() as i64)
}
