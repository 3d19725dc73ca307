//! `DATE_FORMAT(time, 'yyyy-MM-dd HH:mm:ss')` with the patterns of Java, as streaming SQL has it. (DataFusion's function of
//! the name takes strftime patterns and would return a Java pattern as it stands.)

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

/// The function.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::new(TypeSignature::Any(2), Volatility::Immutable);
    Arc::new(DateFormat { signature }.into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateFormat {
    signature: Signature,
}

impl ScalarUDFImpl for DateFormat {
    fn name(&self) -> &'static str {
        "date_format"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        use DataType::{Date32, Date64, LargeUtf8, Null, Timestamp, Utf8, Utf8View};
        match types {
            [Timestamp(..) | Date32 | Date64 | Null, Utf8 | LargeUtf8 | Utf8View] => Ok(Utf8View),
            other => plan_err!(
                "DATE_FORMAT takes a TIMESTAMP and a pattern such as 'yyyy-MM-dd HH:mm:ss', but got {}",
                other.iter().map(crate::types::type_name).collect::<Vec<_>>().join(", ")
            ),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        let micros = cast(&columns[0], &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let micros = micros.as_primitive::<TimestampMicrosecondType>();
        let patterns = cast(&columns[1], &DataType::Utf8View)?;
        let patterns = patterns.as_string_view();
        let mut out = StringViewBuilder::with_capacity(micros.len());
        let mut parsed: Option<(&str, Vec<Piece>)> = None;
        let mut text = String::new();
        for row in 0..micros.len() {
            if micros.is_null(row) || patterns.is_null(row) {
                out.append_null();
                continue;
            }
            let pattern = patterns.value(row);
            if parsed.as_ref().is_none_or(|(p, _)| *p != pattern) {
                parsed = Some((pattern, parse(pattern)?));
            }
            text.clear();
            let moment = Moment::new(micros.value(row));
            parsed.iter().flat_map(|(_, pieces)| pieces).for_each(|piece| piece.write(&moment, &mut text));
            out.append_value(&text);
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

/// A piece of a pattern: text as it stands, or a letter and how often it is repeated.
#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Field(char, usize),
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
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

fn parse(pattern: &str) -> Result<Vec<Piece>> {
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
                return exec_err!("DATE_FORMAT: the pattern {pattern} has a quote that is not closed");
            }
            pieces.push(Piece::Text(if text.is_empty() { "'".into() } else { text }));
        } else if c.is_ascii_alphabetic() {
            let mut count = 1;
            while chars.next_if_eq(&c).is_some() {
                count += 1;
            }
            if !"yuMLdDEHhKkmsSaq".contains(c) {
                return exec_err!(
                    "DATE_FORMAT: the pattern {pattern} has the letter {c}; the letters are y M d D E H h K k m s S a q, other text goes in single quotes"
                );
            }
            pieces.push(Piece::Field(c, count));
        } else if let Some(Piece::Text(text)) = pieces.last_mut() {
            text.push(c);
        } else {
            pieces.push(Piece::Text(c.to_string()));
        }
    }
    Ok(pieces)
}

/// An instant taken apart, proleptic Gregorian, UTC.
struct Moment {
    year: i64,
    month: usize,
    day: i64,
    day_of_year: i64,
    /// Monday is 0.
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
}

impl Moment {
    fn new(micros: i64) -> Self {
        let (days, of_day) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
        let (year, month, day) = civil(days);
        let (first, _) = (days_from_civil(year), ());
        let seconds = of_day / 1_000_000;
        Self {
            year,
            month,
            day,
            day_of_year: days - first + 1,
            weekday: (days + 3).rem_euclid(7) as usize,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: of_day % 1_000_000,
        }
    }
}

/// Year, month (1 to 12) and day of a day counted from 1970-01-01. Eras of 400 years begin on 1 March.
fn civil(days: i64) -> (i64, usize, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as usize, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// The day, counted from 1970-01-01, on which a year begins.
fn days_from_civil(year: i64) -> i64 {
    let before = year - 1;
    365 * before + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

impl Piece {
    fn write(&self, at: &Moment, out: &mut String) {
        let (letter, count) = match self {
            Self::Text(text) => return out.push_str(text),
            Self::Field(letter, count) => (*letter, *count),
        };
        let number = match letter {
            'y' | 'u' if count == 2 => at.year.rem_euclid(100),
            'y' | 'u' => at.year,
            'M' | 'L' if count >= 3 => return name(MONTHS[at.month - 1], count, out),
            'M' | 'L' => at.month as i64,
            'E' => return name(DAYS[at.weekday], count, out),
            'd' => at.day,
            'D' => at.day_of_year,
            'H' => at.hour,
            'k' => (at.hour + 23) % 24 + 1,
            'K' => at.hour % 12,
            'h' => (at.hour + 11) % 12 + 1,
            'm' => at.minute,
            's' => at.second,
            'q' => (at.month as i64 - 1) / 3 + 1,
            'a' => return out.push_str(if at.hour < 12 { "AM" } else { "PM" }),
            _ => {
                let digits = format!("{:06}", at.micros);
                return (0..count).for_each(|i| out.push(digits.chars().nth(i).unwrap_or('0')));
            }
        };
        write!(out, "{number:0count$}").expect("a string takes any text");
    }
}

/// The whole name for four letters, else its first three characters.
fn name(name: &str, count: usize, out: &mut String) {
    out.push_str(if count == 4 { name } else { &name[..3] });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(micros: i64, pattern: &str) -> String {
        let mut out = String::new();
        let moment = Moment::new(micros);
        parse(pattern).unwrap().iter().for_each(|p| p.write(&moment, &mut out));
        out
    }

    #[test]
    fn patterns_are_those_of_java() {
        let micros = 1_436_918_405_123_456; // 2015-07-15 00:00:05.123456
        assert_eq!(format(micros, "yyyy-MM-dd HH:mm:ss.SSS"), "2015-07-15 00:00:05.123");
        assert_eq!(format(micros, "EEE d MMM yy, h 'o''clock' a"), "Wed 15 Jul 15, 12 o'clock AM");
        assert_eq!(format(micros, "D k K EEEE MMMM"), "196 24 0 Wednesday July");
        assert_eq!(format(-1, "yyyy-MM-dd HH:mm:ss.SSSSSS"), "1969-12-31 23:59:59.999999");
        assert_eq!(format(951_782_400_000_000, "yyyyMMdd"), "20000229");
    }

    #[test]
    fn unknown_letters_and_open_quotes_are_errors() {
        assert!(parse("yyyy-bb").is_err());
        assert!(parse("yyyy 'at").is_err());
    }
}
