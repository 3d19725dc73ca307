//! Column types by looking at values.

use std::fmt;
use std::sync::Arc;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::datatypes::{DataType, Field, TimeUnit};
use savanna_streams_model::catalog::{ColumnDef, varchar};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// The narrowest type that holds all values seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Guess {
    /// Only NULL so far.
    #[default]
    Nothing,
    Boolean,
    Integer,
    Double,
    Date,
    /// With so many digits of a second at most.
    Timestamp(u8),
    Text,
    List(Box<Self>),
    /// Fields in the order in which they first came.
    Row(Vec<(String, Self)>),
}

impl Guess {
    /// The type of a value that is written as a text, as in CSV.
    pub(crate) fn of_text(text: &str) -> Self {
        if text.is_empty() {
            Self::Nothing
        } else if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            Self::Boolean
        } else if text.parse::<i64>().is_ok() {
            Self::Integer
        } else if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && text.parse::<f64>().is_ok() {
            Self::Double
        } else {
            Self::of_quoted(text)
        }
    }

    /// The type of a value that is a text in its format, as in JSON: only times are taken for more than that.
    fn of_quoted(text: &str) -> Self {
        let starts_with_date = text.len() >= 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
        if !starts_with_date || string_to_timestamp_nanos(text).is_err() {
            return Self::Text;
        }
        if text.len() == 10 {
            return Self::Date;
        }
        let digits = text.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
        Self::Timestamp(digits.min(9) as u8)
    }

    /// The narrowest type that holds the values of both.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, guess) | (guess, Self::Nothing) => guess,
            (Self::Integer, Self::Double) | (Self::Double, Self::Integer) => Self::Double,
            (Self::Date, Self::Timestamp(digits)) | (Self::Timestamp(digits), Self::Date) => Self::Timestamp(digits),
            (Self::Timestamp(a), Self::Timestamp(b)) => Self::Timestamp(a.max(b)),
            (Self::List(a), Self::List(b)) => Self::List(Box::new(a.or(*b))),
            (Self::Row(mut fields), Self::Row(others)) => {
                for (name, guess) in others {
                    match fields.iter_mut().find(|f| f.0 == name) {
                        Some(field) => field.1 = std::mem::take(&mut field.1).or(guess),
                        None => fields.push((name, guess)),
                    }
                }
                Self::Row(fields)
            }
            (a, b) if a == b => a,
            _ => Self::Text,
        }
    }

    /// The type for a column of such values.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Self::Nothing | Self::Text => varchar(),
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp(0..=3) => DataType::Timestamp(TimeUnit::Millisecond, None),
            Self::Timestamp(4..=6) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamp(_) => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Self::List(item) => DataType::List(Arc::new(Field::new("item", item.data_type(), true))),
            Self::Row(fields) if fields.is_empty() => varchar(),
            Self::Row(fields) => {
                DataType::Struct(fields.iter().map(|(n, guess)| Field::new(n, guess.data_type(), true)).collect())
            }
        }
    }
}

/// Columns of guessed types, all of which may be NULL.
pub(crate) fn columns(guesses: impl IntoIterator<Item = (String, Guess)>) -> Vec<ColumnDef> {
    let column = |(name, guess): (String, Guess)| ColumnDef {
        name,
        data_type: guess.data_type(),
        nullable: true,
        computed: None,
    };
    guesses.into_iter().map(column).collect()
}

/// A JSON value's type, straight from its text, so that fields keep their order.
impl<'de> Deserialize<'de> for Guess {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GuessVisitor)
    }
}

struct GuessVisitor;

impl<'de> Visitor<'de> for GuessVisitor {
    type Value = Guess;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Guess, E> {
        Ok(Guess::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Guess, E> {
        Ok(Guess::Boolean)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Guess, E> {
        Ok(Guess::Integer)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Guess, E> {
        Ok(if i64::try_from(value).is_ok() { Guess::Integer } else { Guess::Double })
    }

    fn visit_f64<E>(self, _: f64) -> Result<Guess, E> {
        Ok(Guess::Double)
    }

    fn visit_str<E>(self, text: &str) -> Result<Guess, E> {
        Ok(Guess::of_quoted(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Guess, A::Error> {
        let mut item = Guess::Nothing;
        while let Some(next) = items.next_element::<Guess>()? {
            item = item.or(next);
        }
        Ok(Guess::List(Box::new(item)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Guess, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = entries.next_entry::<String, Guess>()? {
            fields.push(field);
        }
        // Through `or`, so that a name that comes twice is one field.
        let fields = fields.into_iter().map(|field| Guess::Row(vec![field]));
        Ok(fields.fold(Guess::Row(Vec::new()), Guess::or))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_widen_to_hold_every_value() {
        let all = |texts: &[&str]| texts.iter().map(|t| Guess::of_text(t)).fold(Guess::Nothing, Guess::or);
        assert_eq!(all(&["1", "", "2.5"]), Guess::Double);
        assert_eq!(all(&["1", "true"]), Guess::Text);
        assert_eq!(all(&["2024-01-01", "2024-01-01 10:00:00.123456"]), Guess::Timestamp(6));
        assert_eq!(all(&["2024-01-01T00:00:00Z", "x"]), Guess::Text);
        assert_eq!(all(&["", ""]).data_type(), varchar());
    }

    #[test]
    fn rows_keep_the_order_of_their_fields() {
        let guess = |json| serde_json::from_str::<Guess>(json).unwrap();
        let both = guess(r#"{"z": 1, "a": {"t": "2024-01-01T00:00:00"}}"#).or(guess(r#"{"b": [1, 2.5], "z": null}"#));
        let Guess::Row(fields) = both else { panic!("{both:?}") };
        let names: Vec<&str> = fields.iter().map(|f| f.0.as_str()).collect();
        assert_eq!(names, ["z", "a", "b"]);
        assert_eq!(fields[0].1, Guess::Integer);
        assert_eq!(fields[2].1, Guess::List(Box::new(Guess::Double)));
    }
}
