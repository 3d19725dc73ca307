//! Values as the server writes them, to values of streams.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewBuilder, StringViewBuilder};
use arrow::datatypes::{DataType, Field};
use savanna_streams_api::{Result, StreamError, type_name};

use super::settings::Settings;
use crate::format::values::parse;

/// Has a session write each value in one way, whatever its server, database or user say.
pub(super) const TEXTS: &str = "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET bytea_output = 'hex'; SET extra_float_digits = 1";

/// Values of a column, as they come.
pub(super) struct Column {
    field: Field,
    values: Values,
}

enum Values {
    Texts(StringViewBuilder),
    Bytes(BinaryViewBuilder),
}

impl Column {
    pub(super) fn new(field: &Field) -> Self {
        let values = match field.data_type() {
            DataType::BinaryView => Values::Bytes(BinaryViewBuilder::new()),
            _ => Values::Texts(StringViewBuilder::new()),
        };
        Self { field: field.clone(), values }
    }

    /// Takes a value as the server writes it.
    pub(super) fn push(&mut self, text: Option<&[u8]>) -> Result<()> {
        let Self { field, values } = self;
        match (values, text) {
            (Values::Texts(values), None) => values.append_null(),
            (Values::Bytes(values), None) => values.append_null(),
            (Values::Texts(values), Some(text)) => {
                let text = std::str::from_utf8(text).map_err(|_| wrong(field, "a text in UTF-8, got other bytes"))?;
                values.append_value(text);
            }
            (Values::Bytes(values), Some(text)) => {
                let bytes =
                    of_digits(text).ok_or_else(|| wrong(field, "bytes as hexadecimal digits, got another text"))?;
                values.append_value(bytes);
            }
        }
        Ok(())
    }

    pub(super) fn finish(self, settings: &Settings) -> Result<ArrayRef> {
        let texts: ArrayRef = match self.values {
            Values::Bytes(mut values) => return Ok(Arc::new(values.finish())),
            Values::Texts(mut values) => Arc::new(values.finish()),
        };
        if texts.data_type() == self.field.data_type() {
            return Ok(texts);
        }
        let (values, wrong) = parse(&texts, self.field.data_type())?;
        match wrong.first() {
            None => Ok(values),
            Some(row) => Err(StreamError::Data {
                place: format!("column {} of {} at {}", self.field.name(), settings.table, settings.place()),
                message: format!(
                    "expected a value of {}, got {:?}; declare the column as VARCHAR, which takes any",
                    type_name(self.field.data_type()),
                    arrow::util::display::array_value_to_string(&texts, *row).unwrap_or_default()
                ),
            }),
        }
    }
}

fn wrong(field: &Field, expected: &str) -> StreamError {
    StreamError::Data { place: format!("column {}", field.name()), message: format!("expected {expected}") }
}

/// A value that stands in a line of `COPY`; none if it is NULL.
pub(super) fn of_line(value: &[u8]) -> Option<Vec<u8>> {
    (value != b"\\N").then(|| unescaped(value))
}

/// The bytes of a value that stands in a line.
fn unescaped(value: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.iter());
    while let Some(byte) = rest.next() {
        let meant = match (byte, rest.as_slice().first()) {
            (b'\\', Some(letter)) => {
                rest.next();
                match letter {
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 11,
                    other => *other,
                }
            }
            (byte, _) => *byte,
        };
        bytes.push(meant);
    }
    bytes
}

/// The bytes that `\x00ff` stands for.
fn of_digits(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(b"\\x")?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_their_text_stands_for() {
        assert_eq!(unescaped(b"a\\tb\\\\N\\n\\x"), b"a\tb\\N\nx");
        assert_eq!(of_digits(b"\\x00fE"), Some(vec![0, 254]));
        assert_eq!(of_digits(b"\\x0"), None);
        assert_eq!(of_digits(b"00"), None);
        assert_eq!(of_digits(b"\\xgg"), None);
    }
}
