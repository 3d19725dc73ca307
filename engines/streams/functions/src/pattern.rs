//! Patterns of Java for times as text, such as `yyyy-MM-dd HH:mm:ss`: writing a time by one, and reading it back.

use std::fmt::Write;

use datafusion::common::{Result, exec_err};

use super::calendar::{DAY, Date, SECOND, day_of_year, weekday};

/// The pattern where none is given.
pub(super) const DEFAULT: &str = "yyyy-MM-dd HH:mm:ss";

/// A pattern, taken apart.
#[derive(Debug, PartialEq)]
pub(super) struct Pattern {
    pieces: Vec<Piece>,
}

/// Text as it stands, or a letter and how often it is repeated.
#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Field(char, usize),
}

const LETTERS: &str = "yuMLdDEHhKkmsSaq";

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
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl Pattern {
    /// Takes a pattern apart. `function` is named in errors.
    pub(super) fn parse(pattern: &str, function: &str) -> Result<Self> {
        let mut pieces = Vec::new();
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '\'' {
                let mut text = String::new();
                let mut closed = false;
                while let Some(c) = chars.next() {
                    if c != '\'' {
                        text.push(c);
                    } else if chars.next_if_eq(&'\'').is_some() {
                        text.push('\'');
                    } else {
                        closed = true;
                        break;
                    }
                }
                if !closed {
                    return exec_err!("{function}: the pattern {pattern} has a quote that is not closed");
                }
                pieces.push(Piece::Text(if text.is_empty() { "'".into() } else { text }));
            } else if c.is_ascii_alphabetic() {
                let mut count = 1;
                while chars.next_if_eq(&c).is_some() {
                    count += 1;
                }
                if !LETTERS.contains(c) {
                    return exec_err!(
                        "{function}: the pattern {pattern} has the letter {c}; the letters are y M d D E H h K k m s S a q, other text goes in single quotes"
                    );
                }
                pieces.push(Piece::Field(c, count));
            } else if let Some(Piece::Text(text)) = pieces.last_mut() {
                text.push(c);
            } else {
                pieces.push(Piece::Text(c.to_string()));
            }
        }
        Ok(Self { pieces })
    }

    /// The longest span in microseconds, counted from 1970, over which the text of a time does not change.
    pub(super) fn granularity(&self) -> i64 {
        let of_letter = |letter: char| match letter {
            'S' => 1,
            's' => SECOND,
            'm' => 60 * SECOND,
            'H' | 'h' | 'K' | 'k' | 'a' => 3_600 * SECOND,
            _ => DAY,
        };
        let fields = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Field(letter, _) => Some(of_letter(*letter)),
            Piece::Text(_) => None,
        });
        fields.min().unwrap_or(DAY)
    }

    /// Writes a time, in microseconds since 1970.
    pub(super) fn write(&self, micros: i64, out: &mut String) {
        let moment = Moment::new(micros);
        self.pieces.iter().for_each(|piece| piece.write(&moment, out));
    }

    /// Reads a time, in microseconds since 1970; none if the text does not have this form or names no time.
    pub(super) fn read(&self, text: &str) -> Option<i64> {
        let mut read = Fields::default();
        let mut rest = text;
        for piece in &self.pieces {
            rest = piece.read(rest, &mut read)?;
        }
        if rest.is_empty() { read.micros() } else { None }
    }
}

/// An instant taken apart.
struct Moment {
    days: i64,
    date: Date,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
}

impl Moment {
    fn new(micros: i64) -> Self {
        let (days, of_day) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
        let seconds = of_day / SECOND;
        Self {
            days,
            date: Date::of(days),
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: of_day % SECOND,
        }
    }
}

/// What was read of a time; what the pattern does not have stays as it is in 1970-01-01 00:00:00.
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: Option<i64>,
    hour: i64,
    afternoon: bool,
    minute: i64,
    second: i64,
    micros: i64,
}

impl Default for Fields {
    fn default() -> Self {
        let (year, month, day) = (1970, 1, 1);
        Self { year, month, day, day_of_year: None, hour: 0, afternoon: false, minute: 0, second: 0, micros: 0 }
    }
}

impl Fields {
    fn micros(&self) -> Option<i64> {
        // Beyond this, microseconds do not fit.
        const YEAR_MAX: i64 = 250_000;
        if self.year > YEAR_MAX {
            return None;
        }
        let first = Date { year: self.year, month: 1, day: 1 };
        let days = match self.day_of_year {
            Some(day) if (1..=366).contains(&day) => first.days() + day - 1,
            Some(_) => return None,
            None => Some(Date { month: self.month, day: self.day, ..first }).filter(|date| date.exists())?.days(),
        };
        let hour = self.hour + if self.afternoon { 12 } else { 0 };
        if Date::of(days).year != self.year || hour > 23 || self.minute > 59 || self.second > 59 {
            return None;
        }
        Some(days * DAY + (hour * 3_600 + self.minute * 60 + self.second) * SECOND + self.micros)
    }
}

impl Piece {
    fn write(&self, at: &Moment, out: &mut String) {
        let (letter, count) = match self {
            Self::Text(text) => return out.push_str(text),
            Self::Field(letter, count) => (*letter, *count),
        };
        let number = match letter {
            'y' | 'u' if count == 2 => at.date.year.rem_euclid(100),
            'y' | 'u' => at.date.year,
            'M' | 'L' if count >= 3 => return name(MONTHS[at.date.month as usize - 1], count, out),
            'M' | 'L' => at.date.month,
            'E' => return name(DAYS[weekday(at.days) as usize], count, out),
            'd' => at.date.day,
            'D' => day_of_year(at.days),
            'H' => at.hour,
            'k' => (at.hour + 23) % 24 + 1,
            'K' => at.hour % 12,
            'h' => (at.hour + 11) % 12 + 1,
            'm' => at.minute,
            's' => at.second,
            'q' => (at.date.month - 1) / 3 + 1,
            'a' => return out.push_str(if at.hour < 12 { "AM" } else { "PM" }),
            _ => {
                let digits = format!("{:06}", at.micros);
                return (0..count).for_each(|i| out.push(digits.chars().nth(i).unwrap_or('0')));
            }
        };
        write!(out, "{number:0count$}").expect("a string takes any text");
    }

    /// Reads the piece off the beginning of a text; returns what follows.
    fn read<'t>(&self, text: &'t str, fields: &mut Fields) -> Option<&'t str> {
        let (letter, count) = match self {
            Self::Text(literal) => return text.strip_prefix(literal.as_str()),
            Self::Field(letter, count) => (*letter, *count),
        };
        match letter {
            'M' | 'L' if count >= 3 => {
                let (month, rest) = read_name(&MONTHS, count, text)?;
                fields.month = month;
                return Some(rest);
            }
            'E' => return read_name(&DAYS, count, text).map(|(_, rest)| rest),
            'a' => {
                let (half, rest) = text.split_at_checked(2)?;
                fields.afternoon = half.eq_ignore_ascii_case("PM");
                return (fields.afternoon || half.eq_ignore_ascii_case("AM")).then_some(rest);
            }
            _ => {}
        }
        // A repeated letter stands for as many digits, one letter for as many as there are.
        let (least, most) = if count == 1 { (1, if "yuS".contains(letter) { 6 } else { 3 }) } else { (count, count) };
        let digits = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least || digits > 18 {
            return None;
        }
        let (number, rest) = text.split_at(digits);
        let value: i64 = number.parse().ok()?;
        match letter {
            'y' | 'u' if count == 2 => fields.year = 2000 + value,
            'y' | 'u' => fields.year = value,
            'M' | 'L' => fields.month = value,
            'd' => fields.day = value,
            'D' => fields.day_of_year = Some(value),
            'H' => fields.hour = value,
            'k' if value <= 24 => fields.hour = value % 24,
            'h' if value <= 12 => fields.hour = value % 12,
            'K' if value < 12 => fields.hour = value,
            'm' => fields.minute = value,
            's' => fields.second = value,
            'S' => fields.micros = format!("{number:0<6}")[..6].parse().ok()?,
            'q' => {}
            _ => return None,
        }
        Some(rest)
    }
}

/// The whole name for four letters, else its first three characters.
fn name(name: &str, count: usize, out: &mut String) {
    out.push_str(if count == 4 { name } else { &name[..3] });
}

/// The opposite: the number of the name, from 1, and what follows it.
fn read_name<'t>(names: &[&str], count: usize, text: &'t str) -> Option<(i64, &'t str)> {
    (1..).zip(names).find_map(|(number, name)| {
        let name = if count == 4 { name } else { &name[..3] };
        let (head, rest) = text.split_at_checked(name.len())?;
        head.eq_ignore_ascii_case(name).then_some((number, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(pattern: &str) -> Pattern {
        Pattern::parse(pattern, "TEST").unwrap()
    }

    fn format(micros: i64, form: &str) -> String {
        let mut out = String::new();
        pattern(form).write(micros, &mut out);
        out
    }

    const TIME: i64 = 1_436_918_405_123_456; // 2015-07-15 00:00:05.123456

    #[test]
    fn patterns_are_those_of_java() {
        assert_eq!(format(TIME, "yyyy-MM-dd HH:mm:ss.SSS"), "2015-07-15 00:00:05.123");
        assert_eq!(format(TIME, "EEE d MMM yy, h 'o''clock' a"), "Wed 15 Jul 15, 12 o'clock AM");
        assert_eq!(format(TIME, "D k K EEEE MMMM"), "196 24 0 Wednesday July");
        assert_eq!(format(-1, "yyyy-MM-dd HH:mm:ss.SSSSSS"), "1969-12-31 23:59:59.999999");
        assert_eq!(format(951_782_400_000_000, "yyyyMMdd"), "20000229");
    }

    #[test]
    fn what_a_pattern_writes_it_reads() {
        let whole = "EEEE d MMMM yyyy, hh 'o''clock' a m:s.SSSSSS";
        for form in [whole, "yyyyMMddHHmmssSSSSSS", "yyyy-D kk:mm:ss.SSSSSS"] {
            for micros in [TIME, TIME + 43_200 * SECOND, -1, 0] {
                assert_eq!(pattern(form).read(&format(micros, form)), Some(micros), "{form}");
            }
        }
        assert_eq!(pattern("dd/MM/yy").read("15/07/15"), Some(TIME - TIME % DAY));
    }

    #[test]
    fn texts_of_another_form_or_of_no_time_are_not_read() {
        for text in ["2015-07-15x", "2015-7-15", "2015-02-29", "2015-13-01", "", "2015-07-1", "日本語日本語"] {
            assert_eq!(pattern("yyyy-MM-dd").read(text), None, "{text}");
        }
        assert_eq!(pattern("HH:mm").read("24:00"), None);
        assert_eq!(pattern("yyyy D").read("2015 366"), None);
    }

    #[test]
    fn the_text_changes_no_faster_than_the_granularity() {
        assert_eq!(pattern("yyyy-MM-dd").granularity(), DAY);
        assert_eq!(pattern("HH:mm").granularity(), 60 * SECOND);
        assert_eq!(pattern("'x'").granularity(), DAY);
    }

    #[test]
    fn unknown_letters_and_open_quotes_are_errors() {
        assert!(Pattern::parse("yyyy-bb", "TEST").is_err());
        assert!(Pattern::parse("yyyy 'at", "TEST").is_err());
    }
}
